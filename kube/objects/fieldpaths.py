"""Sets of field paths in their wire form, FieldsV1, and the algebra that field ownership needs.

A set is the JSON itself: ``{"f:spec": {"f:replicas": {}}}``. A child that is empty or holds ``"."`` is a member; any
other merely leads to members. Path elements are ``f:<field>``, ``k:<keys of a list item>``, ``v:<value of a set
item>`` and ``i:<index>``, with canonical JSON behind ``k:`` and ``v:``, so that equal elements are equal strings.
Sets are never changed in place. See https://kubernetes.io/docs/reference/kubernetes-api (ManagedFieldsEntry).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

Fields = Mapping[str, Any]
"""A set: path element → the set below it."""

MEMBER: Final = "."
MAX_DEPTH: Final = 128
"""Objects nest no deeper, so neither do sets that a client sends."""

STATUS: Final[Fields] = {"f:status": {}}
"""What a write to the main resource never owns when the kind has a status subresource."""


def union(left: Fields, right: Fields) -> Fields:
    """Members of either set."""
    if not left:
        return right
    merged = dict(left)
    for element, theirs in right.items():
        merged[element] = _union(merged[element], theirs) if element in merged else theirs
    return merged


def _union(ours: Fields, theirs: Fields) -> Fields:
    if not ours:
        return theirs if not theirs or MEMBER in theirs else {MEMBER: {}, **theirs}
    if not theirs:
        return ours if MEMBER in ours else {MEMBER: {}, **ours}
    return union(ours, theirs)


def difference(left: Fields, right: Fields) -> Fields:
    """Members of the first set that are not members of the second; what lies below a removed member stays."""
    if not right:
        return left
    kept: dict[str, Any] = {}
    for element, ours in left.items():
        theirs = right.get(element)
        if theirs is None:
            kept[element] = ours
        elif ours or theirs:
            # Whether the other set has the element itself takes nothing away from what is below it.
            below = difference(_below(ours), theirs)
            member = _is_member(ours) and not _is_member(theirs)
            if below:
                kept[element] = {MEMBER: {}, **below} if member else below
            elif member:
                kept[element] = {}
    return kept


def without(left: Fields, right: Fields) -> Fields:
    """The first set without the members of the second and without everything below them."""
    if not right:
        return left
    kept: dict[str, Any] = {}
    for element, ours in left.items():
        theirs = right.get(element)
        if theirs is None:
            kept[element] = ours
        elif not _is_member(theirs):
            below = without(_below(ours), theirs)
            if below:
                kept[element] = {MEMBER: {}, **below} if _is_member(ours) else below
            elif _is_member(ours):
                kept[element] = {}
    return kept


def intersection(left: Fields, right: Fields) -> Fields:
    """Members of both sets."""
    kept: dict[str, Any] = {}
    for element, ours in left.items():
        theirs = right.get(element)
        if theirs is None:
            continue
        below = intersection(_below(ours), _below(theirs))
        member = _is_member(ours) and _is_member(theirs)
        if below:
            kept[element] = {MEMBER: {}, **below} if member else below
        elif member:
            kept[element] = {}
    return kept


def paths(fields: Fields, prefix: str = "") -> Iterator[str]:
    """Every member's path as people read it (``.spec.containers[name="a"].image``), members before what is below."""
    elements = sorted(fields.keys() - {MEMBER})
    for element in elements:
        if _is_member(fields[element]):
            yield prefix + text(element)
    for element in elements:
        yield from paths(_below(fields[element]), prefix + text(element))


def text(element: str) -> str:
    """One path element as people read it."""
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        keys: dict[str, Any] = orjson.loads(rest)
        return "[" + ",".join(f"{name}={orjson.dumps(value).decode()}" for name, value in keys.items()) + "]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"


def item_key(keys: Mapping[str, Any]) -> str:
    """The path element of a list item told apart by these keys. Raises ``TypeError`` for values that are no JSON."""
    return "k:" + orjson.dumps(keys, option=orjson.OPT_SORT_KEYS).decode()


def item_value(value: Any) -> str:
    """The path element of an item of a set. Raises ``TypeError`` for values that are no JSON."""
    return "v:" + orjson.dumps(value).decode()


def canonical(fields: object, depth: int = MAX_DEPTH) -> Fields:
    """A client's FieldsV1 in canonical form; elements of unknown kinds are ignored, as kube-apiserver does.

    Raises ``ValueError`` when it is no FieldsV1 or nests too deeply.
    """
    if not isinstance(fields, dict) or depth == 0:
        raise ValueError("not a set of fields")
    result: dict[str, Any] = {}
    for element, below in fields.items():
        kind, _, rest = element.partition(":")
        if element == MEMBER or kind == "f":
            key = element
        elif kind == "k":
            keys = orjson.loads(rest)
            if not isinstance(keys, dict) or not keys:
                raise ValueError("not the keys of a list item")
            key = item_key(keys)
        elif kind == "v":
            key = item_value(orjson.loads(rest))
        elif kind == "i":
            key = f"i:{int(rest)}"
        else:
            continue
        result[key] = {} if key == MEMBER else canonical(below, depth - 1)
    return result


def _is_member(child: Fields) -> bool:
    return not child or MEMBER in child


def _below(child: Fields) -> Fields:
    return {element: below for element, below in child.items() if element != MEMBER} if MEMBER in child else child
