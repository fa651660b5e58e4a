"""Objects as YAML for reading: without what only servers read, and without the values of Secrets and ConfigMaps."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from kube.display.text import acts

_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_WITH_VALUES: Final = frozenset({"Secret", "ConfigMap"})
_PARTS: Final = ("data", "binaryData", "stringData")


class _Dumper(yaml.CSafeDumper if hasattr(yaml, "CSafeDumper") else yaml.SafeDumper):  # type: ignore[misc]
    """Texts of several lines as such; nothing is said by reference."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _represent(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent)


@dataclass(frozen=True, slots=True)
class Value:
    """A key of a Secret or a ConfigMap, and how many bytes it has."""

    key: str
    size: int


def yaml_of(found: Mapping[str, Any]) -> str:
    """The object without ``managedFields`` and without values; letters that act are written as escapes.

    What is nested too deeply to be written says so.
    """
    shown = readable(found)
    try:
        text = _dumped(shown, unicode=True)
        return _dumped(shown, unicode=False) if acts(text) else text
    except RecursionError:
        return "# It is nested too deeply to be shown here; kubectl get -o yaml shows it.\n"


def readable(found: Mapping[str, Any]) -> dict[str, Any]:
    """The object as it may be shown: no ``managedFields``, no values, and no annotation that repeats them."""
    shown = dict(found)
    metadata = shown.get("metadata")
    if isinstance(metadata, dict):
        metadata = {name: value for name, value in metadata.items() if name != "managedFields"}
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict) and has_values(found):
            # It repeats what was applied, values included.
            metadata["annotations"] = {name: value for name, value in annotations.items() if name != _APPLIED}
        shown["metadata"] = metadata
    if has_values(found):
        sizes = {value.key: f"<{value.size} bytes>" for value in values_of(found)}
        for part in _PARTS:
            if isinstance(shown.get(part), dict):
                shown[part] = {key: sizes.get(key, "<not text>") for key in shown[part]}
    return shown


def has_values(found: Mapping[str, Any]) -> bool:
    """Whether what it holds is shown one by one alone."""
    return str(found.get("kind")) in _WITH_VALUES and found.get("apiVersion") == "v1"


def values_of(found: Mapping[str, Any]) -> list[Value]:
    """The keys in order."""
    return [Value(key, len(value)) for key, value in sorted(_values(found).items())]


def value_of(found: Mapping[str, Any], key: str) -> bytes | None:
    """One value; ``None`` where there is none of this key."""
    return _values(found).get(key)


def _values(found: Mapping[str, Any]) -> dict[str, bytes]:
    values: dict[str, bytes] = {}
    for part in _PARTS:
        held = found.get(part)
        encoded = part == "binaryData" or (part == "data" and found.get("kind") == "Secret")
        for key, value in (held if isinstance(held, dict) else {}).items():
            if isinstance(value, str):
                values[key] = _decoded(value) if encoded else value.encode()
    return values


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()


def _dumped(value: Any, *, unicode: bool) -> str:
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=unicode, width=2**31 - 1)
    return str(text)
