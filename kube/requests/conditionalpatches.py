"""Patches for one state of an object alone: what was judged of them is what they do (AD5).

A kube-apiserver puts a patch on whatever is there when it comes, unless the patch says what has to be there.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from kube.requests.decoding import decode_unambiguous, read_yaml
from kube.requests.status import BadRequest

NOTHING: Final = "1"
"""A resource version that no object has: who states it can create, and change nothing."""


_OF_STATUS: Final = frozenset({"resourceVersion", "managedFields"})
"""Of the metadata, what a write of the status changes."""


def unambiguous(body: bytes, *, is_yaml: bool = False) -> bytes:
    """The patch in JSON as it is read here: what is judged and what is sent are one text.

    Raises ``BadRequest`` and ``RequestEntityTooLarge`` for a body that another reader could take for something else.
    """
    return orjson.dumps(_unambiguous_yaml(body) if is_yaml else decode_unambiguous(body))


def conditional_operations(body: bytes, version: str) -> bytes:
    """The JSON patch (RFC 6902), refused by whoever has another version of the object.

    What is no list of operations is left to that refusal as it is. Raises as ``decode_unambiguous``.
    """
    operations = decode_unambiguous(body)
    if not isinstance(operations, list):
        return body
    return orjson.dumps([{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *operations])


def depends_on_status(body: bytes) -> bool:
    """Whether a JSON patch reaches into what a write of the status changes. What is no list of operations may."""
    operations = decode_unambiguous(body)
    if not isinstance(operations, list):
        return True
    pointers = [each.get(part, "/") for each in operations if isinstance(each, dict) for part in ("path", "from")]
    return any(not isinstance(pointer, str) or _reaches_status(pointer) for pointer in pointers)


def _reaches_status(pointer: str) -> bool:
    parts = pointer.split("/")[1:]
    if not parts or parts == ["metadata"]:
        return True
    return parts[0] == "status" or (parts[0] == "metadata" and parts[1] in _OF_STATUS)


def conditional_changes(body: bytes, version: str, uid: str) -> bytes:
    """The merge patch or applied configuration, in JSON, for this version of the object with this UID (none: empty).

    What is no map is left to whoever refuses it. Raises ``StaleVersion`` where it states another version itself, and as
    ``decode_unambiguous``.
    """
    changes = decode_unambiguous(body)
    metadata = changes.get("metadata", {}) if isinstance(changes, dict) else None
    if not isinstance(metadata, dict):
        return body
    stated = metadata.get("resourceVersion")
    if isinstance(stated, str) and stated.strip("0") and stated != version:
        raise StaleVersion
    changes["metadata"] = {**metadata, "resourceVersion": version, "uid": metadata.get("uid") or uid}
    return orjson.dumps(changes)


class StaleVersion(Exception):
    """A patch is for another version of the object than there is."""


def _unambiguous_yaml(body: bytes) -> Any:
    value, twice = read_yaml(body)
    if twice:
        raise BadRequest("strict decoding error: " + ", ".join(twice))
    return value
