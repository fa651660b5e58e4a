"""The annotation of client-side apply, kept true where an apply is sent for one state of an object alone (AD5).

An API server copies what the manager ``kubectl`` applies into that annotation, where there is one. The only condition that
an apply can carry is part of what it applies, so it is copied too, and is taken out of the annotation again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from gateway.http.negotiation import APPLY_PATCH, JSON_PATCH
from kube.objects.managedfields import LAST_APPLIED

_KUBECTL: Final = "kubectl"
_KUBECTLS_OWN: Final = "kubectl-last-applied"
"""Whom kubectl itself keeps the annotation by."""

_LONGEST: Final = 256 * 1024
"""Characters of an annotation: API servers take no more bytes of all that an object has."""

_PATH: Final = "/metadata/annotations/" + LAST_APPLIED.replace("/", "~1")
_FIELD: Final = f"f:{LAST_APPLIED}"
_ALONE: Final[Mapping[str, Any]] = {"f:metadata": {"f:annotations": {_FIELD: {}}}}


class Correction(NamedTuple):
    """A patch that gives an annotation another text: by whom, of which media type, with what body."""

    manager: str
    media: str
    body: bytes


def last_applied(body: Mapping[str, Any] | None) -> str:
    """The text of the annotation; empty for none, and for what is longer than any: it is JSON that nobody has counted."""
    annotations = body["metadata"].get("annotations") if body is not None else None
    text = annotations.get(LAST_APPLIED) if isinstance(annotations, dict) else None
    return text if isinstance(text, str) and len(text) <= _LONGEST else ""


def is_copied(manager: str, outcome: Mapping[str, Any]) -> bool:
    """Whether what a manager applies is copied into the annotation."""
    return manager == _KUBECTL and last_applied(outcome) != ""


def correction(current: Mapping[str, Any], version: str, text: str) -> Correction | None:
    """What puts ``text`` in place of what was copied with the condition on ``version``, and leaves the field whose it is.

    ``None`` where there is no such copy, or where nothing but an apply of everything leaves the field whose it is.
    """
    found = last_applied(current)
    if found == text or not _states(found, version):
        return None
    metadata = current["metadata"]
    owners = tuple(_owners(metadata.get("managedFields")))
    for entry in owners:
        if entry.get("operation") == "Apply" and _without_dots(entry["fieldsV1"]) == _ALONE:
            kept = {
                name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in metadata
            }
            kept["annotations"] = {LAST_APPLIED: text}
            body = {"apiVersion": current.get("apiVersion"), "kind": current.get("kind"), "metadata": kept}
            return Correction(str(entry.get("manager")), APPLY_PATCH, orjson.dumps(body))
    updates = [entry for entry in owners if entry.get("operation") == "Update"]
    if owners and not updates:
        return None
    manager = str(updates[0].get("manager")) if updates else _KUBECTLS_OWN
    operations = [
        {"op": "test", "path": _PATH, "value": found},
        {"op": "replace", "path": _PATH, "value": text},
    ]
    return Correction(manager, JSON_PATCH, orjson.dumps(operations))


def _states(text: str, version: str) -> bool:
    try:
        applied = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    metadata = applied.get("metadata") if isinstance(applied, dict) else None
    return isinstance(metadata, dict) and metadata.get("resourceVersion") == version


def _owners(entries: Any) -> Iterator[Mapping[str, Any]]:
    for entry in entries if isinstance(entries, list) else ():
        fields = entry.get("fieldsV1") if isinstance(entry, dict) else None
        for part in ("f:metadata", "f:annotations"):
            fields = fields.get(part) if isinstance(fields, dict) else None
        if isinstance(fields, dict) and _FIELD in fields and not entry.get("subresource"):
            yield entry


def _without_dots(fields: Any) -> Any:
    if not isinstance(fields, dict):
        return fields
    return {name: _without_dots(inner) for name, inner in fields.items() if name != "."}
