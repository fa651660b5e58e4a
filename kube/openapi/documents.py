"""The OpenAPI documents of a space, put together of what each of its resources brings (TS10, TS15).

``/openapi/v3`` is one small document a group-version, which clients fetch when they need it; ``/openapi/v2`` is one
for everything. What a resource brings is made when it is first asked for, once, and goes with its definition: a change of
one definition costs that one, whatever else a space holds. Hashes are of the content, as kube-apiserver's: who has kept a
document under its hash holds what would be sent now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Final, NamedTuple

import orjson

from kube.kinds.resources import Catalog, Resource, Version
from kube.kinds.schemas import Definitions
from kube.openapi import protobuf
from kube.openapi.models import as_v2, as_v3, described, model_names
from kube.openapi.parameters import shared
from kube.openapi.paths import paths_of


class Form(Enum):
    """How a document is written."""

    V2 = "v2"
    V2_PROTOBUF = "v2 in protobuf"
    V3 = "v3"


@dataclass(frozen=True, slots=True)
class Document:
    """A finished document: its bytes, and the hash that its ETag and its URL carry, whatever the encoding."""

    body: bytes
    hash: str


class _Part(NamedTuple):
    """What a version of a resource brings: members of ``paths`` and of the schemas, and the definitions it leads to."""

    owner: Documents
    paths: bytes
    schemas: bytes
    names: frozenset[str]
    digest: bytes


_Own = tuple[Resource, Version]


def group_path(group: str, version: str) -> str:
    """``api/v1`` or ``apis/<group>/<version>``: how ``/openapi/v3`` names a group-version."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


class Documents:
    """The documents of all spaces, by the definitions of one Kubernetes version (``1.37``)."""

    def __init__(self, definitions: Definitions, version: str) -> None:
        self._definitions = definitions
        self._info = {"title": "Kubernetes", "version": version}
        self._known: dict[tuple[Form, str], bytes] = {}
        self.made = 0
        """How many times something was made of what a resource defines: the work that documents have cost."""

    def missing(self, resources: Iterable[Resource], form: Form, version: str = "") -> list[_Own]:
        """What of these resources, in one version or all, has yet to be made before a document costs little."""
        return [own for own in _served(resources, version) if self._kept(*own, form) is None]

    def make(self, resource: Resource, served: Version, form: Form) -> _Part:
        """Make what a resource brings, unless that is done."""
        kept = self._kept(resource, served, form)
        return kept or self._make(resource, served, form)

    def v3_index(self, catalog: Catalog, prefix: str = "") -> dict[str, Any]:
        """``/openapi/v3``: every group-version with the URL of its document.

        Clients take the URL as absolute on the host, so what stood before ``/openapi`` in the request
        (``/clusters/root:acme``) is the ``prefix``.
        """
        return {
            "paths": {
                path: {"serverRelativeURL": f"{prefix}/openapi/v3/{path}?hash={self.v3_hash(catalog, group, version)}"}
                for group, versions in catalog.groups().items()
                for version in versions
                for path in (group_path(group, version),)
            }
        }

    def v3_hash(self, catalog: Catalog, group: str, version: str) -> str | None:
        """The hash of a group-version's document; ``None`` when the catalog has no such group-version."""
        parts = self._parts(catalog.in_version(group, version), Form.V3, version)
        return self._hash(parts) if parts else None

    def v3(self, catalog: Catalog, group: str, version: str) -> Document | None:
        """``/openapi/v3/<path>``, or ``None`` when the catalog has no such group-version."""
        parts = self._parts(catalog.in_version(group, version), Form.V3, version)
        if not parts:
            return None
        head = {"openapi": "3.0.0", "info": self._info}
        schemas = [*(self._definition(Form.V3, name) for name in _names(parts)), *(part.schemas for part in parts)]
        body = b"".join(
            (
                orjson.dumps(head)[:-1],
                b',"paths":{',
                _members(part.paths for part in parts),
                b'},"components":{"schemas":{',
                _members(schemas),
                b'},"securitySchemes":',
                orjson.dumps(_SECURITY),
                b"}}",
            )
        )
        return Document(body, self._hash(parts))

    def v2_hash(self, catalog: Catalog) -> str:
        """The hash of ``/openapi/v2``."""
        return self._hash(self._parts(catalog, Form.V2))

    def v2(self, catalog: Catalog, form: Form = Form.V2) -> Document:
        """``/openapi/v2``: all group-versions in one document."""
        parts = self._parts(catalog, form)
        paths = [part.paths for part in parts]
        schemas = [*(self._definition(form, name) for name in _names(parts)), *(part.schemas for part in parts)]
        head = {
            "swagger": "2.0",
            "info": self._info,
            "securityDefinitions": _SECURITY,
            "security": [{"BearerToken": []}],
            "parameters": shared(),
        }
        if form is Form.V2_PROTOBUF:
            body = protobuf.document(head, b"".join(paths), b"".join(schemas))
            return Document(body, self.v2_hash(catalog))
        body = b"".join(
            (
                orjson.dumps(head)[:-1],
                b',"paths":{',
                _members(paths),
                b'},"definitions":{',
                _members(schemas),
                b"}}",
            )
        )
        return Document(body, self._hash(parts))

    def _parts(self, resources: Iterable[Resource], form: Form, version: str = "") -> list[_Part]:
        return [self.make(resource, served, form) for resource, served in _served(resources, version)]

    def _kept(self, resource: Resource, served: Version, form: Form) -> _Part | None:
        part = resource.kept.get((form, served.name))
        return part if part is not None and part.owner is self else None

    def _make(self, resource: Resource, served: Version, form: Form) -> _Part:
        self.made += 1
        version, definitions = served.name, self._definitions
        if form is Form.V2_PROTOBUF:
            plain = self.make(resource, served, Form.V2)
            read, defined = (orjson.loads(b"{%b}" % members) for members in (plain.paths, plain.schemas))
            part = _Part(self, protobuf.paths(read), protobuf.definitions(defined), plain.names, plain.digest)
        else:
            custom, roots = described(resource, version, definitions)
            if form is Form.V2:
                custom = {name: as_v2(schema) for name, schema in custom.items()}
            models = model_names(resource, version, definitions)
            paths = orjson.dumps(paths_of(resource, version, models, v3=form is Form.V3))[1:-1]
            schemas = orjson.dumps(custom)[1:-1]
            names = frozenset(definitions.closure(roots))
            part = _Part(self, paths, schemas, names, hashlib.sha256(paths + b"\0" + schemas).digest())
        resource.kept[form, version] = part
        return part

    def _definition(self, form: Form, name: str) -> bytes:
        """A built-in definition as a member of the schemas."""
        known = self._known.get((form, name))
        if known is None:
            text = self._definitions.text(name).replace(b',"format":"quantity"', b"")
            if form is Form.V3:
                text = orjson.dumps(as_v3(name, orjson.loads(self._definitions.text(name))))
            encoded = form is Form.V2_PROTOBUF
            known = protobuf.definitions({name: orjson.loads(text)}) if encoded else orjson.dumps(name) + b":" + text
            self._known[form, name] = known
        return known

    @cached_property
    def _digest(self) -> bytes:
        """What all documents share: the built-in definitions of this version, and how they are written."""
        digest = hashlib.sha256(orjson.dumps((self._info, shared(), _SECURITY)))
        for form in (Form.V2, Form.V3):
            for name in self._definitions.names():
                digest.update(self._definition(form, name))
        return digest.digest()

    def _hash(self, parts: Iterable[_Part]) -> str:
        # Sorted: processes learn of definitions in different orders.
        return hashlib.sha256(self._digest + b"".join(sorted(part.digest for part in parts))).hexdigest().upper()


def _served(resources: Iterable[Resource], version: str) -> Iterable[_Own]:
    for resource in resources:
        for served in resource.versions:
            if served.served and version in ("", served.name):
                yield resource, served


def _names(parts: Iterable[_Part]) -> list[str]:
    return sorted(frozenset().union(*(part.names for part in parts)))


def _members(texts: Iterable[bytes]) -> bytes:
    return b",".join(filter(None, texts))


_SECURITY: Final[Mapping[str, Any]] = {
    "BearerToken": {
        "type": "apiKey",
        "in": "header",
        "name": "authorization",
        "description": "Bearer Token authentication",
    }
}
