"""Probes and hooks of containers: one handler each, and numbers that make sense."""

from __future__ import annotations

import re
from typing import Any, Final

from kube.requests.fielderrors import count_causes, forbidden, invalid, not_supported, reason_causes, required
from kube.requests.status import Cause

_HEADER: Final = re.compile(r"[-A-Za-z0-9]+", re.ASCII)
_HEADER_WORDS: Final = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', "
    "regex used for validation is '[-A-Za-z0-9]+')"
)
_SCHEMES: Final = ("HTTP", "HTTPS")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS: Final = ("postStart", "preStop")
NEEDS_SIDECAR: Final = "may not be set for init containers without restartPolicy=Always"


def number_causes(port: int, path: str) -> list[Cause]:
    """What is wrong with a port's number."""
    return [] if 1 <= port <= 65535 else [invalid(path, port, "must be between 1 and 65535, inclusive")]


def port_name(name: str) -> list[str]:
    """Why this is no name of a port (``IANA_SVC_NAME``)."""
    reasons = []
    if len(name) > 15:
        reasons.append("must be no more than 15 characters")
    if not re.fullmatch(r"[-a-z0-9]+", name, re.ASCII):
        reasons.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", name, re.ASCII):
        reasons.append("must contain at least one letter (a-z)")
    if "--" in name:
        reasons.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        reasons.append("must not begin or end with a hyphen")
    return reasons


def port_causes(port: int | str, path: str) -> list[Cause]:
    """What is wrong with a port's number or name."""
    return number_causes(port, path) if isinstance(port, int) else reason_causes(path, port, port_name(port))


def hook_causes(container: dict[str, Any], path: str, grace: int | None) -> list[Cause]:
    """What is wrong with a container's probes and hooks; ``grace`` is the pod's grace period in seconds."""
    causes: list[Cause] = []
    for name in _HOOKS:
        handler = container.get("lifecycle", {}).get(name)
        if handler is not None:
            causes += _handler_causes(handler, f"{path}.lifecycle.{name}", grace)
    for name in _PROBES:
        if name in container:
            causes += _probe_causes(name, container[name], f"{path}.{name}", grace)
    return causes


def hook_free_causes(container: dict[str, Any], path: str) -> list[Cause]:
    """The probes and hooks that an init container has although it ends."""
    return [forbidden(f"{path}.{name}", NEEDS_SIDECAR) for name in ("lifecycle", *_PROBES) if name in container]


def _probe_causes(name: str, probe: dict[str, Any], path: str, grace: int | None) -> list[Cause]:
    causes = _handler_causes(probe, path, grace)
    causes += count_causes(
        probe, path, "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"
    )
    own, here = probe.get("terminationGracePeriodSeconds"), f"{path}.terminationGracePeriodSeconds"
    if own is not None and own <= 0:
        causes.append(invalid(here, own, "must be greater than 0"))
    if name != "readinessProbe" and probe.get("successThreshold", 1) != 1:
        causes.append(invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))
    if name == "readinessProbe" and own is not None:
        causes.append(invalid(here, own, "must not be set for readinessProbes"))
    return causes


def _handler_causes(handler: dict[str, Any], path: str, grace: int | None) -> list[Cause]:
    given = [name for name in ("exec", "httpGet", "tcpSocket", "grpc", "sleep") if name in handler]
    if not given:
        return [required(path, "must specify a handler type")]
    first, *others = given
    causes = _action_causes(first, handler[first], f"{path}.{first}", grace)
    return causes + [forbidden(f"{path}.{name}", "may not specify more than 1 handler type") for name in others]


def _action_causes(kind: str, action: dict[str, Any], path: str, grace: int | None) -> list[Cause]:
    if kind == "exec":
        return [] if action.get("command") else [required(f"{path}.command")]
    if kind == "sleep":
        seconds = action.get("seconds", 0)
        if grace is None or 0 <= seconds <= grace:
            return []
        return [invalid(path, seconds, f"must be non-negative and less than terminationGracePeriodSeconds ({grace})")]
    causes = [required(f"{path}.path")] if kind == "httpGet" and not action.get("path") else []
    causes += port_causes(action.get("port", 0), f"{path}.port")
    if kind == "httpGet":
        scheme = action.get("scheme", "HTTP")
        causes += [] if scheme in _SCHEMES else [not_supported(f"{path}.scheme", scheme, _SCHEMES)]
        for header in action.get("httpHeaders", ()):
            name = header.get("name", "")
            causes += [] if _HEADER.fullmatch(name) else [invalid(f"{path}.httpHeaders", name, _HEADER_WORDS)]
    return causes
