"""YAML documents read: what is declared, each thing once, nothing that is not understood."""

from __future__ import annotations

import json
import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from tenantry_cli.failures import Failure, Status


class Kind(StrEnum):
    """What can be declared, in the order in which it is made."""

    TIER = "Tier"
    TENANT = "Tenant"
    MEMBER = "Member"


@dataclass(frozen=True, slots=True)
class Item:
    """Which thing: a tier or a tenant by its name, a member by tenant and e-mail address."""

    kind: Kind
    name: str
    tenant: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.tenant}/{self.name}" if self.tenant else f"{self.kind} {self.name}"


Fields = Mapping[str, Any]
"""Values by the names that the REST API has for them."""

_FIELDS: Mapping[Kind, Mapping[str, type]] = {
    Kind.TIER: {
        "display_name": str,
        "description": str,
        "quota": dict,
        "limit_range": list,
        "pod_security": str,
        "network": str,
        "policies": dict,
        "request_limits": dict,
        "stored_mebibytes": int,
        "recording": str,
        "proxies": bool,
        "approval": str,
        "workspaces_per_user": int,
        "is_available": bool,
        "position": int,
    },
    Kind.TENANT: {"display_name": str, "quota": dict, "policies": dict},
    Kind.MEMBER: {"role": str},
}
_IDENTITIES: Mapping[Kind, tuple[str, ...]] = {
    Kind.TIER: ("name",),
    Kind.TENANT: ("name",),
    Kind.MEMBER: ("tenant", "email"),
}
_VALUES_MAX = 100_000
"""Of one document."""
_WORDS = {str: "a text", dict: "a map", list: "a list", int: "a number", bool: "true or false"}


def read_text(file: Path) -> str:
    """A file, or standard input for ``-``. Raises ``Failure``."""
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as error:
        raise Failure(f"{file} cannot be read: {error.strerror}.", Status.USAGE) from None
    except UnicodeDecodeError:
        raise Failure(f"{file} is no UTF-8.", Status.INVALID) from None


def read_documents(text: str) -> dict[Item, Fields]:
    """What the documents declare, all of it understood. Raises ``Failure`` that says which document and field is wrong."""
    declared: dict[Item, Fields] = {}
    try:
        documents = list(yaml.load_all(text, _Loader))
        json.dumps(documents, allow_nan=False)
    except (yaml.YAMLError, RecursionError) as error:
        raise Failure(f"This is no YAML: {error}", Status.INVALID) from None
    except (TypeError, ValueError) as error:
        raise Failure(f"There is a value that JSON has not: {error}", Status.INVALID) from None
    for number, document in enumerate(documents, 1):
        if document is None:
            continue
        item, fields = _read(document, f"Document {number}")
        if item in declared:
            raise _wrong(f"Document {number}", f"{item} is declared a second time.")
        declared[item] = fields
    return declared


def read_object(file: Path) -> dict[str, Any]:
    """One object of Kubernetes, in YAML or JSON. Raises ``Failure``."""
    found = _decoded(file)
    if not isinstance(found, dict):
        raise Failure("This is no object.", Status.INVALID)
    return found


def read_changes(file: Path) -> list[Any]:
    """The operations of a JSON patch, in YAML or JSON. Raises ``Failure``."""
    found = _decoded(file)
    if not isinstance(found, list):
        raise Failure("A JSON patch is a list of operations.", Status.INVALID)
    return found


def _decoded(file: Path) -> Any:
    try:
        found = yaml.load(read_text(file), _Bounded)  # noqa: S506 - a SafeLoader
        json.dumps(found, allow_nan=False)
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        raise Failure(f"This is no object in YAML: {error}", Status.INVALID) from None
    return found


def _read(document: Any, where: str) -> tuple[Item, Fields]:
    if not isinstance(document, dict):
        raise _wrong(where, "it must be a map with a kind.")
    if document.get("kind") not in set(Kind):
        raise _wrong(where, f"kind must be one of {', '.join(Kind)}.")
    kind = Kind(document["kind"])
    types: dict[str, type] = {**dict.fromkeys(_IDENTITIES[kind], str), **_FIELDS[kind]}
    for name, value in document.items():
        if name == "kind":
            continue
        if name not in types:
            raise _wrong(where, f"{kind} has no field {name}; it has {', '.join(types)}.")
        if type(value) is not types[name]:
            raise _wrong(where, f"{name} must be {_WORDS[types[name]]}.")
    for name in (*_IDENTITIES[kind], *(["role"] if kind is Kind.MEMBER else [])):
        if not document.get(name):
            raise _wrong(where, f"{kind} needs {name}.")
    return _item(kind, document), {name: _value(name, document[name]) for name in _FIELDS[kind] if name in document}


def _item(kind: Kind, document: Mapping[str, Any]) -> Item:
    if kind is Kind.MEMBER:
        return Item(kind, document["email"].strip().lower(), document["tenant"])
    return Item(kind, document["name"])


def _value(name: str, value: Any) -> Any:
    """As the portal keeps it: amounts are texts, lines have no blanks around them."""
    if name == "quota":
        return {str(resource): str(amount) for resource, amount in value.items()}
    return value.strip() if isinstance(value, str) else value


def _wrong(where: str, words: str) -> Failure:
    return Failure(f"{where}: {words}", Status.INVALID)


class _Bounded(yaml.SafeLoader):
    """YAML's safe types, of which a few lines of aliases do not stand for more than any machine has room for."""

    def get_node(self) -> yaml.Node | None:
        """The next document. Raises ``ComposerError``."""
        return _of_a_size(super().get_node())

    def get_single_node(self) -> yaml.Node | None:
        """The only one. Raises ``ComposerError``."""
        return _of_a_size(super().get_single_node())


class _Loader(_Bounded):
    """The same; a key that is there twice is an error, not a silent choice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """The map. Raises ``ConstructorError``."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, "a key is no text, or there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _of_a_size(document: yaml.Node | None) -> yaml.Node | None:
    """The document, whose values are ``_VALUES_MAX`` at most where each alias is what it stands for."""
    values: dict[yaml.Node, int] = {}

    def count(node: yaml.Node) -> int:
        if node not in values:
            values[node] = _VALUES_MAX + 1  # what holds itself
            inner = node.value if isinstance(node, yaml.CollectionNode) else ()
            parts = [part for each in inner for part in (each if isinstance(each, tuple) else (each,))]
            values[node] = 1 + sum(map(count, parts))
        return values[node]

    if document is not None and count(document) > _VALUES_MAX:
        words = f"more than {_VALUES_MAX} values, with aliases written out"
        raise yaml.composer.ComposerError(None, None, words, document.start_mark)
    return document
