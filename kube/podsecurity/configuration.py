"""The plug-in's configuration in an ``AdmissionConfiguration``: defaults for namespaces without labels, and exemptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kube.podsecurity.levels import PodPolicy, Standard, parse_level, parse_version

_VERSIONS: Final = tuple(f"pod-security.admission.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_PRIVILEGED: Final = PodPolicy()
_MODES: Final = ("enforce", "audit", "warn")


class PodSecurityConfigurationError(ValueError):
    """A configuration that cannot be used; the message names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSecurityConfiguration:
    """What is asked of namespaces that ask for nothing themselves, and who and what is never looked at."""

    defaults: PodPolicy = _PRIVILEGED
    usernames: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()

    def exempts_class(self, spec: Mapping[str, Any]) -> bool:
        """Whether pods of this spec's runtime class are never looked at."""
        return spec.get("runtimeClassName") in self.runtime_classes


def read_configuration(document: Any) -> PodSecurityConfiguration:
    """Read a ``PodSecurityConfiguration``. Raises ``PodSecurityConfigurationError``."""
    known = {"apiVersion", "kind", "defaults", "exemptions"}
    document = _object(document, "configuration", known)
    if document.get("kind") != "PodSecurityConfiguration" or document.get("apiVersion") not in _VERSIONS:
        raise PodSecurityConfigurationError(f"configuration must be a PodSecurityConfiguration of {_VERSIONS[0]}")
    names = [name for mode in _MODES for name in (mode, f"{mode}-version")]
    defaults = _object(document.get("defaults") or {}, "defaults", set(names))
    exemptions = _object(document.get("exemptions") or {}, "exemptions", {"usernames", "namespaces", "runtimeClasses"})
    return PodSecurityConfiguration(
        defaults=PodPolicy(**{mode: _standard(defaults, mode) for mode in _MODES}),
        usernames=_names(exemptions, "usernames"),
        namespaces=_names(exemptions, "namespaces"),
        runtime_classes=_names(exemptions, "runtimeClasses"),
    )


def _standard(defaults: Mapping[str, Any], mode: str) -> Standard:
    at = mode
    try:
        level = parse_level(str(defaults.get(mode, "privileged")))
        at = f"{mode}-version"
        return Standard(level, parse_version(str(defaults.get(at, "latest"))))
    except ValueError as error:
        raise PodSecurityConfigurationError(f"defaults.{at} {error}") from None


def _object(value: Any, at: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise PodSecurityConfigurationError(f"{at} must be an object")
    for key in value:
        if key not in known:
            raise PodSecurityConfigurationError(f"{at}.{key} is not supported")
    return value


def _names(exemptions: Mapping[str, Any], field: str) -> frozenset[str]:
    names = exemptions.get(field) or []
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise PodSecurityConfigurationError(f"exemptions.{field} must be a list of names")
    if len(set(names)) != len(names):
        raise PodSecurityConfigurationError(f"exemptions.{field} names one twice")
    return frozenset(names)
