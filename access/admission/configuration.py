"""The file of ``--admission-control-config-file``: an ``AdmissionConfiguration`` with what plug-ins are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from access.reloading import FILE_MAX, UnusableFile
from kube.podsecurity.configuration import (
    PodSecurityConfiguration,
    PodSecurityConfigurationError,
    read_configuration,
)

_VERSIONS: Final = tuple(f"apiserver.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_POD_SECURITY: Final = "PodSecurity"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionConfiguration:
    """What the operator tells the plug-ins."""

    pod_security: PodSecurityConfiguration = field(default_factory=PodSecurityConfiguration)


def read(path: Path | None) -> AdmissionConfiguration:
    """What a file says; without one, the defaults. Raises ``UnusableFile``, which names the file and the field."""
    if path is None:
        return AdmissionConfiguration()
    try:
        plugins = dict(_plugin(path, each, f"plugins[{index}]") for index, each in enumerate(_plugins(path)))
        return AdmissionConfiguration(pod_security=plugins.get(_POD_SECURITY, PodSecurityConfiguration()))
    except (ValueError, PodSecurityConfigurationError) as error:
        raise UnusableFile(f"{path}: {error}") from None


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


def _plugin(path: Path, entry: Any, at: str) -> tuple[str, PodSecurityConfiguration]:
    """A plug-in and what it is told, here or in a file beside this one."""
    if not isinstance(entry, dict) or entry.get("name") != _POD_SECURITY:
        raise ValueError(f"{at}.name must be {_POD_SECURITY}: nothing else takes a configuration")
    file, configuration = entry.get("path"), entry.get("configuration")
    if bool(file) == bool(configuration):
        raise ValueError(f"{at} must have either path or configuration")
    if file:
        configuration = _load(path.parent / str(file))
    return _POD_SECURITY, read_configuration(configuration)


def _load(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX)
        return yaml.safe_load(data.decode("utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError):
        raise ValueError(f"{path}: not YAML") from None
