"""The file of ``--admission-control-config-file``: an ``AdmissionConfiguration`` with what plug-ins are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from access.reloading import FILE_MAX, UnusableFile
from kube.kinds import tenantscope
from kube.podsecurity import configuration as podsecurity
from kube.podsecurity.configuration import PodSecurityConfiguration
from kube.policies import hosts, policy
from kube.policies.policy import Rules
from kube.quota import configuration as quota
from kube.quota.configuration import TenantQuotaConfiguration

_VERSIONS: Final = tuple(f"apiserver.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_FIELDS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "PodSecurity": ("pod_security", podsecurity.read_configuration),
    "TenantScope": ("refused_to_tenants", tenantscope.read_configuration),
    "HostOwnership": ("host_names", hosts.read_configuration),
    "TenantPolicy": ("tenant_policy", policy.read_configuration),
    "TenantQuota": ("tenant_quota", quota.read_configuration),
}
"""The plug-ins that take a configuration: where it is kept here, and who reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionConfiguration:
    """What the operator tells the plug-ins."""

    pod_security: PodSecurityConfiguration = field(default_factory=PodSecurityConfiguration)
    refused_to_tenants: frozenset[tuple[str, str]] = tenantscope.DEFAULT_REFUSED
    host_names: int = hosts.NAMES
    tenant_policy: Rules = field(default_factory=dict)
    tenant_quota: TenantQuotaConfiguration = field(default_factory=TenantQuotaConfiguration)


def read(path: Path | None) -> AdmissionConfiguration:
    """What a file says; without one, the defaults. Raises ``UnusableFile``, which names the file and the field."""
    if path is None:
        return AdmissionConfiguration()
    try:
        told = dict(_plugin(path, each, f"plugins[{index}]") for index, each in enumerate(_plugins(path)))
    except ValueError as error:
        raise UnusableFile(f"{path}: {error}") from None
    return AdmissionConfiguration(**told)


def _plugins(path: Path) -> list[Any]:
    document = _load(path)
    if not isinstance(document, dict) or document.get("kind") != "AdmissionConfiguration":
        raise ValueError("not of kind AdmissionConfiguration")
    if document.get("apiVersion") not in _VERSIONS:
        raise ValueError(f"apiVersion must be {_VERSIONS[0]}")
    plugins = document.get("plugins") or []
    if not isinstance(plugins, list):
        raise ValueError("plugins must be a list")  # noqa: TRY004 - of the file, not of the caller
    return plugins


def _plugin(path: Path, entry: Any, at: str) -> tuple[str, Any]:
    """The field of a plug-in, and what it is told, here or in a file beside this one."""
    if not isinstance(entry, dict) or entry.get("name") not in _FIELDS:
        raise ValueError(f"{at}.name must be one of {', '.join(_FIELDS)}: no other takes a configuration")
    file, told = entry.get("path"), entry.get("configuration")
    if bool(file) == bool(told):
        raise ValueError(f"{at} must have either path or configuration")
    kept, reader = _FIELDS[entry["name"]]
    return kept, reader(_load(path.parent / str(file)) if file else told)


def _load(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX)
        return yaml.safe_load(data.decode("utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError):
        raise ValueError(f"{path}: not YAML") from None
