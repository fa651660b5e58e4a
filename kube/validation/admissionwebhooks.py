"""Configurations of admission webhooks: who writes one is told at once what could never work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from kube.cel.admission import Scope
from kube.requests.fielderrors import duplicate, invalid, not_supported, required
from kube.requests.names import dns_subdomain
from kube.requests.status import Cause
from kube.validation.admissionpolicies import condition_causes, rule_causes, size_causes
from kube.validation.metadata import selector_causes

Body = Mapping[str, Any]

_VERSIONS: Final = ("v1", "v1beta1")
_CHOICES: Final = (
    ("failurePolicy", ("Fail", "Ignore")),
    ("matchPolicy", ("Equivalent", "Exact")),
    ("sideEffects", ("None", "NoneOnDryRun")),
    ("reinvocationPolicy", ("IfNeeded", "Never")),
)
_FORMAT: Final = "desired format: https://host[/path]"


def configuration_causes(body: Body) -> list[Cause]:
    """What is wrong with a ValidatingWebhookConfiguration, or a MutatingWebhookConfiguration."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, webhook in enumerate(body.get("webhooks") or ()):
        path, name = f"webhooks[{index}]", webhook.get("name") or ""
        causes += _webhook_causes(webhook, path)
        if name in seen:
            causes.append(duplicate(f"{path}.name", name))
        seen.add(name)
    return causes


def _webhook_causes(webhook: Body, path: str) -> Iterator[Cause]:
    too_much = size_causes(webhook)
    if too_much:
        yield from too_much
        return
    yield from _name_causes(webhook.get("name") or "", f"{path}.name")
    yield from _version_causes(webhook.get("admissionReviewVersions") or (), f"{path}.admissionReviewVersions")
    for index, rule in enumerate(webhook.get("rules") or ()):
        yield from rule_causes(rule, f"{path}.rules[{index}]")
    for field, choices in _CHOICES:
        value = webhook.get(field)
        if value is None and field == "sideEffects":
            yield required(f"{path}.{field}", f"must specify one of {', '.join(choices)}")
        elif value is not None and value not in choices:
            yield not_supported(f"{path}.{field}", value, choices)
    seconds = webhook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        yield invalid(f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")
    for field in ("namespaceSelector", "objectSelector"):
        yield from selector_causes(webhook.get(field) or {}, f"{path}.{field}")
    yield from _client_causes(webhook.get("clientConfig") or {}, f"{path}.clientConfig")
    yield from condition_causes(webhook, Scope(), f"{path}.matchConditions")


def _name_causes(name: str, path: str) -> Iterator[Cause]:
    if not name:
        yield required(path)
        return
    reasons = dns_subdomain(name)
    yield from (invalid(path, name, reason) for reason in reasons)
    if not reasons and name.count(".") < 2:
        yield invalid(path, name, "should be a domain with at least three segments separated by dots")


def _version_causes(versions: Any, path: str) -> Iterator[Cause]:
    known = ", ".join(_VERSIONS)
    if not versions:
        yield required(path, f"must specify one of {known}")
    elif not set(versions) & set(_VERSIONS):
        yield invalid(path, list(versions), f"must include at least one of {known}")


def _client_causes(client: Body, path: str) -> Iterator[Cause]:
    url, service = client.get("url"), client.get("service")
    if (url is None) is (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url_causes(url, f"{path}.url")
    elif service is not None:
        for field in ("name", "namespace"):
            if not service.get(field):
                yield required(f"{path}.service.{field}")
        port = service.get("port", 443)
        if not 1 <= port <= 65535:
            yield invalid(f"{path}.service.port", port, "port is not valid: must be between 1 and 65535, inclusive")


def _url_causes(url: str, path: str) -> Iterator[Cause]:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        yield required(path, f"url must be a valid URL; {_FORMAT}")
        return
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme; {_FORMAT}")
    if not parts.netloc:
        yield invalid(path, parts.netloc, f"host must be specified; {_FORMAT}")
    if parts.username is not None or parts.password is not None:
        yield invalid(path, "", "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(path, parts.query, "query parameters are not permitted in the URL")
