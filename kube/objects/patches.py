"""JSON patches (RFC 6902) and merge patches (RFC 7396), with the answers and the bounds of a kube-apiserver."""

from __future__ import annotations

import marshal
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import jsonpatch
import jsonpointer

from kube.requests.status import BadRequest, Invalid, RequestEntityTooLarge

MAX_OPERATIONS: Final = 10_000
"""As kube-apiserver: more operations in one JSON patch are refused."""

MAX_NODES: Final = 200_000
"""Bound of a patched object."""

MAX_COPIED: Final = 25_000
"""Values that one JSON patch may ``copy``: each can double the object (CVE-2019-1002100)."""

MAX_DEPTH: Final = 128
"""Bound of nesting, below every recursive walk's limit."""

_WITHOUT_SHARING: Final = 2
"""The version of marshal's form that writes an object down wherever it stands."""

_INDEX: Final = re.compile(r"[+-]?[0-9]+")
_OWN_INDEX: Final = re.compile(r"/(?:[+-][0-9]+|0[0-9]+)(?:/|$)")
"""Indexes of lists that kube-apiserver reads as Go reads numbers, and of these what RFC 6901 does not know."""

_OPERATIONS: Final = frozenset({"add", "remove", "replace", "move", "copy", "test"})


def unprocessable() -> Invalid:
    """The 422 that kube-apiserver gives for a well-formed patch that does not fit the object."""
    error = Invalid("the server rejected our request due to an error in our request")
    error.always_detailed = True
    return error


def not_a(value: object, wanted: str) -> str:
    """What kube-apiserver says of a JSON value of another type than the wanted Go type."""
    kinds = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
    return f"json: cannot unmarshal {kinds.get(type(value), 'null')} into Go value of type {wanted}"


def json_patch(document: Mapping[str, Any], operations: object) -> dict[str, Any]:
    """Apply an RFC 6902 patch and return the new object; ``document`` is left alone.

    Raises ``BadRequest`` for a body that is no patch, ``RequestEntityTooLarge`` for more than 10,000 operations or a
    result that grows beyond bounds, ``Invalid`` (422) when an operation does not apply.
    """
    if operations is None:
        return deep_copy(document)  # type: ignore[no-any-return]
    if not isinstance(operations, list):
        raise BadRequest(f"error decoding patch: {not_a(operations, '[]handlers.jsonPatchOp')}")
    if len(operations) > MAX_OPERATIONS:
        raise RequestEntityTooLarge(
            "Request entity too large: The allowed maximum operations in a JSON patch is "
            f"{MAX_OPERATIONS}, got {len(operations)}"
        )
    budget = MAX_NODES - weight(document)
    copied = 0
    result: Any = deep_copy(document)
    for given in operations:
        operation = given
        if not isinstance(operation, dict):
            raise BadRequest(f"error decoding patch: {not_a(operation, 'handlers.jsonPatchOp')}")
        verb = operation.get("op")
        if not isinstance(verb, str) or verb not in _OPERATIONS or not isinstance(operation.get("path"), str):
            raise unprocessable()
        try:
            operation = _placed(operation)
            if any(operation.get(name, "").count("/") > MAX_DEPTH for name in ("path", "from")):
                # Of a path of megabytes not even the parts are looked at: it is not there, unless too much is.
                weight(result)
                raise unprocessable()
            if verb in ("copy", "move"):
                operation["from"] = _from_the_front(result, operation["from"])
            if verb == "move":
                _move(result, operation["from"], operation["path"])
                continue
            operation["path"] = _from_the_front(result, operation["path"], adds=verb in ("add", "copy"))
            if verb == "copy":
                copied += weight(jsonpointer.resolve_pointer(result, operation["from"]))
            elif verb in ("add", "replace"):
                budget -= weight(operation.get("value"))
            if budget < 0 or copied > MAX_COPIED:
                raise RequestEntityTooLarge("Request entity too large: the patched object is too large")
            if verb == "replace" and isinstance(_last(result, operation["path"])[0], dict):
                # kube-apiserver lets a replacement add the member that it does not find.
                operation = {**operation, "op": "add"}
            if verb == "test" and _holds_nothing(result, operation):
                continue
            result = jsonpatch.JsonPatch([operation]).apply(result, in_place=True)
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
            raise unprocessable() from error
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise unprocessable() from error
    if not isinstance(result, dict):
        raise unprocessable()
    weight(result)
    return result


def _holds_nothing(document: Any, operation: dict[str, Any]) -> bool:
    """Whether nothing was to be in a place of an object, and it is not there."""
    parent, name = _last(document, operation["path"])
    return operation.get("value") is None and isinstance(parent, dict) and name not in parent


def _placed(operation: dict[str, Any]) -> dict[str, Any]:
    """The operation with its paths as kube-apiserver reads them: from the first slash on.

    Raises ``ValueError`` for a path without one; the whole object can be replaced, and nothing else done to it.
    """
    read = {name: str(operation[name]) for name in ("path", "from") if name in operation}
    whole = {"path": ""} if operation["op"] == "replace" and read["path"] == "" else {}
    return {**operation, **{name: path[path.index("/") :] for name, path in read.items() if name not in whole}}


def _from_the_front(document: Any, path: str, *, adds: bool = False) -> str:
    """The path with the indexes of lists as RFC 6901 writes them: kube-apiserver's library knows more ways.

    Zeros and a sign may lead; what is negative counts from the end, where ``adds`` puts one more.
    Raises ``JsonPointerException`` and ``IndexError`` for a place that is not there.
    """
    if not _OWN_INDEX.search(path):
        return path
    pointer, node = jsonpointer.JsonPointer(path), document
    parts = pointer.parts
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if isinstance(node, list) and _INDEX.fullmatch(part):
            index = int(part)
            if index < 0:
                index += len(node) + (adds and last)
            if index < 0:
                raise IndexError(part)
            parts[place] = str(index)
        if not last:
            node = pointer.walk(node, parts[place])
    return str(pointer.path)


def _move(document: Any, source: str, path: str) -> None:
    """Take what is in one place to another, which is found when it is gone from the first: nothing is copied."""
    parent, name = _last(document, source)
    value = parent.pop(name)
    parent, name = _last(document, _from_the_front(document, path, adds=True))
    if isinstance(parent, dict):
        parent[name] = value
    elif name == "-" or name <= len(parent):
        parent.insert(len(parent) if name == "-" else name, value)
    else:
        raise IndexError(name)


def _last(document: Any, path: str) -> tuple[Any, Any]:
    """What holds the place at a path, and its name there."""
    parent, name = jsonpointer.JsonPointer(path).to_last(document)
    return parent, name


def merge_patch(document: Mapping[str, Any], patch: object) -> dict[str, Any]:
    """Apply an RFC 7396 patch and return the new object, and leave both arguments alone; what is not patched is shared.

    Raises ``BadRequest`` unless the patch is an object, ``RequestEntityTooLarge`` when it nests too deeply.
    """
    if patch is None:
        raise BadRequest("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise BadRequest(f"error decoding patch: {not_a(patch, 'map[string]interface {}')}")
    weight(patch)
    merged: dict[str, Any] = _merge(document, patch)
    return merged


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merge(result.get(name), value)
    return result


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The smallest merge patch that turns ``old`` into ``new``, for values without nulls."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = diff(before, value)
            if inner:
                patch[name] = inner
        elif name not in old or not same(before, value):
            patch[name] = value
    return patch


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal; unlike ``==`` it tells ``true`` from ``1``."""
    return left is right or bool(left == right and _same_truths(left, right))


def _same_truths(left: Any, right: Any) -> bool:
    """Whether two values that are equal for Python hold their booleans in the same places."""
    if type(left) is dict:
        for name, value in left.items():
            if type(value) in _DECEPTIVE and not _same_truths(value, right[name]):
                return False
    elif type(left) is list:
        for value, other in zip(left, right, strict=True):
            if type(value) in _DECEPTIVE and not _same_truths(value, other):
                return False
    elif type(left) is bool or type(right) is bool:
        return left is right
    return True


_DECEPTIVE: Final = frozenset((dict, list, bool, int, float))
"""What may be equal and not the same; a text is, and nothing else."""


def deep_copy(value: Any) -> Any:
    """A copy of a JSON value that shares no map or list with it, nor any within itself.

    A member of an enumeration becomes the text or number that it stands for.
    """
    try:
        return marshal.loads(marshal.dumps(value, _WITHOUT_SHARING))  # noqa: S302 - of bytes that were made just now
    except ValueError:
        return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(key): _plain(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_plain(member) for member in value]
    return value.value if isinstance(value, Enum) else value


def weight(value: Any) -> int:
    """How many values a JSON value holds. Raises ``RequestEntityTooLarge`` beyond the bounds of depth and number."""
    count = 0
    level = [value]
    for _ in range(MAX_DEPTH):
        count += len(level)
        if count > MAX_NODES:
            raise RequestEntityTooLarge("Request entity too large: the patched object is too large")
        below: list[Any] = []
        for member in level:
            if isinstance(member, dict):
                below.extend(member.values())
            elif isinstance(member, list):
                below.extend(member)
        if not below:
            return count
        level = below
    raise RequestEntityTooLarge("Request entity too large: the object is nested too deeply")
