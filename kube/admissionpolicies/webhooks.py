"""Admission webhooks: which are asked about a request, what they are told, and what their answers come to (TS15)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from kube.admissionpolicies.expressions import Expression
from kube.admissionpolicies.matching import Asked, Body, Form, Matcher
from kube.admissionpolicies.policies import conditions_of
from kube.cel.admission import Scope
from kube.requests.status import StatusError

REVIEW: Final = "admission.k8s.io"
_VERSIONS: Final = ("v1", "v1beta1")
_JSON_PATCH: Final = "JSONPatch"


class InvalidAnswer(ValueError):
    """A webhook's answer cannot be used; the message is kube-apiserver's."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook of a configuration. ``service`` is (name, namespace) where it has no URL of its own."""

    configuration: str
    name: str
    matcher: Matcher
    conditions: tuple[tuple[str, str, Expression], ...]
    fails: bool
    timeout: int
    reinvoked: bool
    dry_runs: bool
    version: str
    url: str
    service: str
    authority: str

    @property
    def asked_at(self) -> str:
        """The address with the time that the answer may take."""
        return f"{self.url}{'&' if '?' in self.url else '?'}timeout={self.timeout}s"


def webhooks_of(body: Mapping[str, Any]) -> tuple[Webhook, ...]:
    """The webhooks of a stored configuration. Raises ``BadRequest`` for selectors that are none."""
    return tuple(_read(body["metadata"]["name"], source) for source in body.get("webhooks") or ())


def _read(configuration: str, source: Mapping[str, Any]) -> Webhook:
    client = source.get("clientConfig") or {}
    service = client.get("service") or {}
    url = client.get("url") or ""
    if service:
        port, path = service.get("port", 443), (service.get("path") or "").lstrip("/")
        url = f"https://{service.get('name', '')}.{service.get('namespace', '')}.svc:{port}/{path}"
    versions = [version for version in source.get("admissionReviewVersions") or () if version in _VERSIONS]
    return Webhook(
        configuration=configuration,
        name=source.get("name", ""),
        matcher=Matcher.read(source, "rules"),
        conditions=conditions_of(source, Scope()),
        fails=source.get("failurePolicy", "Fail") != "Ignore",
        timeout=int(source.get("timeoutSeconds") or 10),
        reinvoked=source.get("reinvocationPolicy") == "IfNeeded",
        dry_runs=source.get("sideEffects") in ("None", "NoneOnDryRun"),
        version=versions[0] if versions else "",
        url=url,
        service=service.get("name", ""),
        authority=client.get("caBundle") or "",
    )


def review(webhook: Webhook, asked: Asked, form: Form, uid: str) -> Body:
    """The ``AdmissionReview`` that asks a webhook."""
    objects = [body and asked.in_form(body, form) for body in (asked.object, asked.old)]
    request = {"uid": uid, **asked.review(form), "object": objects[0], "oldObject": objects[1]}
    return {"kind": "AdmissionReview", "apiVersion": f"{REVIEW}/{webhook.version}", "request": request}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a webhook says. ``patch`` are the operations of a JSON patch, ``refusal`` is set where it does not allow."""

    refusal: StatusError | None
    patch: Any
    warnings: tuple[str, ...]
    annotations: tuple[tuple[str, str], ...]


def answer_of(webhook: Webhook, content: Any, uid: str, *, mutating: bool) -> Answer:
    """Read an answer. Raises ``InvalidAnswer``."""
    if not isinstance(content, dict):
        raise InvalidAnswer("expected an AdmissionReview")
    wanted = f"{REVIEW}/{webhook.version}"
    version, kind = content.get("apiVersion", ""), content.get("kind", "")
    strict = webhook.version == "v1"
    if (strict or version or kind) and (version, kind) != (wanted, "AdmissionReview"):
        raise InvalidAnswer(f"expected webhook response of {wanted}, Kind=AdmissionReview, got {version}, Kind={kind}")
    response = content.get("response")
    if not isinstance(response, dict):
        raise InvalidAnswer("webhook response was absent")
    if strict and response.get("uid") != uid:
        raise InvalidAnswer(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    patch, patch_type = response.get("patch"), response.get("patchType")
    if not mutating and patch:
        raise InvalidAnswer("validating webhook may not return response.patch")
    if not mutating and patch_type is not None:
        raise InvalidAnswer("validating webhook may not return response.patchType")
    if strict and patch and patch_type is None:
        raise InvalidAnswer("webhook returned response.patch but not response.patchType")
    if strict and not patch and patch_type is not None:
        raise InvalidAnswer("webhook returned response.patchType but not response.patch")
    if patch and patch_type not in (None, _JSON_PATCH):
        raise InvalidAnswer(f'unsupported patch type "{patch_type}"')
    refusal = None if response.get("allowed") is True else _refusal(webhook, response.get("status"))
    annotations = response.get("auditAnnotations")
    warnings = response.get("warnings")
    return Answer(
        refusal,
        None if refusal is not None else _operations(patch),
        tuple(str(each) for each in warnings) if isinstance(warnings, list) else (),
        tuple((str(key), str(value)) for key, value in annotations.items()) if isinstance(annotations, dict) else (),
    )


def _operations(patch: Any) -> Any:
    if not patch:
        return None
    try:
        return orjson.loads(base64.b64decode(patch, validate=True))
    except (binascii.Error, ValueError, TypeError):
        raise InvalidAnswer("the patch is not JSON in base64") from None


def _refusal(webhook: Webhook, status: Any) -> StatusError:
    said = status if isinstance(status, dict) else {}
    by = f'admission webhook "{webhook.name}" denied the request'
    message, reason, code = said.get("message"), said.get("reason"), said.get("code")
    words = f"{by}: {message}" if message else f"{by}: {reason}" if reason else f"{by} without explanation"
    number = code if isinstance(code, int) and 400 <= code <= 599 else 400
    return StatusError(words, code=number, reason=str(reason or ""), rule=webhook.configuration)
