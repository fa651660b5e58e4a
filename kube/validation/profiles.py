"""Profiles of AppArmor and seccomp that a new pod names both in annotations and in fields: they must agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kube.requests.fielderrors import forbidden
from kube.requests.status import Cause

SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"

_LOCAL: Final = "localhost/"
_SECCOMP_WORDS: Final = {"Unconfined": ("unconfined",), "RuntimeDefault": ("runtime/default", "docker/default")}
_APPARMOR_WORDS: Final = {"Unconfined": "unconfined", "RuntimeDefault": "runtime/default"}


def profile_causes(annotations: dict[str, str], spec: dict[str, Any]) -> list[Cause]:
    """What is wrong with the profiles of a new Pod."""
    causes = _seccomp_causes(annotations.get(SECCOMP), spec, "spec")
    for path, container in _containers(spec):
        causes += _seccomp_causes(annotations.get(f"{SECCOMP_CONTAINER}{container.get('name')}"), container, path)
    if spec.get("os", {}).get("name") == "windows":
        return causes
    for path, container in _containers(spec):
        profile = _profile(container, "appArmorProfile") or _profile(spec, "appArmorProfile")
        annotation = annotations.get(f"{APPARMOR}{container.get('name')}")
        if profile is not None and annotation is not None:
            causes += _apparmor_causes(annotation, profile, f"{path}.securityContext.appArmorProfile")
    return causes


def _containers(spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field, ())):
            yield f"spec.{field}[{index}]", container


def _profile(holder: dict[str, Any], field: str) -> dict[str, Any] | None:
    profile: dict[str, Any] | None = holder.get("securityContext", {}).get(field)
    return profile


def _seccomp_causes(annotation: str | None, holder: dict[str, Any], path: str) -> list[Cause]:
    profile = _profile(holder, "seccompProfile")
    if annotation is None or profile is None:
        return []
    here, kind = f"{path}.securityContext.seccompProfile", profile.get("type", "")
    if kind != "Localhost":
        agrees = annotation in _SECCOMP_WORDS.get(kind, (annotation,))
    elif annotation.startswith(_LOCAL):
        if annotation.removeprefix(_LOCAL) == profile.get("localhostProfile"):
            return []
        return [forbidden(f"{here}.localhostProfile", "seccomp profile in annotation and field must match")]
    else:
        agrees = False
    return [] if agrees else [forbidden(f"{here}.type", "seccomp type in annotation and field must match")]


def _apparmor_causes(annotation: str, profile: dict[str, Any], path: str) -> list[Cause]:
    kind = profile.get("type", "")
    if kind != "Localhost":
        agrees = annotation == _APPARMOR_WORDS.get(kind, annotation)
    elif annotation.startswith(_LOCAL):
        if annotation.removeprefix(_LOCAL) == profile.get("localhostProfile"):
            return []
        return [forbidden(f"{path}.localhostProfile", "apparmor profile in annotation and field must match")]
    else:
        agrees = False
    return [] if agrees else [forbidden(f"{path}.type", "apparmor type in annotation and field must match")]
