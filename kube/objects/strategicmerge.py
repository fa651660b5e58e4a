"""Strategic merge patches: merge patches that know how a kind's lists are keyed.

Directives: ``$patch`` (replace, delete, merge), ``$deleteFromPrimitiveList/<field>``, ``$setElementOrder/<field>`` and
``$retainKeys``. The precedence of order is ``$setElementOrder``, then the patch, then the live list.
See https://git.k8s.io/community/contributors/devel/sig-api-machinery/strategic-merge-patch.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kube.kinds.mergestrategies import Structure
from kube.objects.patches import deep_copy, not_a, unprocessable, weight
from kube.requests.status import BadRequest

_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_PREFIX: Final = "$deleteFromPrimitiveList"
_ORDER_PREFIX: Final = "$setElementOrder"

_Identity = tuple[type, Any]


def strategic_merge(structure: Structure, document: Mapping[str, Any], patch: object) -> dict[str, Any]:
    """Apply a strategic merge patch and return the new object; neither argument is changed.

    Raises ``BadRequest`` for a malformed patch (with kube-apiserver's words), ``Invalid`` (422) when the patch does
    not fit the object's lists, ``RequestEntityTooLarge`` when it nests too deeply.
    """
    if patch is None:
        return deep_copy(document)  # type: ignore[no-any-return]
    if not isinstance(patch, dict):
        raise BadRequest(not_a(patch, "map[string]interface {}"))
    weight(patch)
    return _merge_map(structure, deep_copy(document), deep_copy(patch))


def _merge_map(structure: Structure, original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    if _DIRECTIVE in patch:
        return _whole(patch)
    _retain_keys(original, patch)
    _merge_ordered_lists(structure, original, patch)
    for name, value in patch.items():
        deleting = name.startswith(_DELETE_PREFIX)
        key = _field(name, _DELETE_PREFIX) if deleting else name
        if value is None:
            original.pop(key, None)
            continue
        before = original.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            child = _child(structure, key)
            original[key] = _bare(value) if child.strategy == "replace" else _merge_map(child, before, value)
        elif isinstance(before, list) and isinstance(value, list):
            original[key] = _merge_list(_child(structure, key), before, value, deleting=deleting)
        elif not deleting:
            _take(original, key, value)
    return original


def _whole(patch: dict[str, Any]) -> dict[str, Any]:
    directive = patch[_DIRECTIVE]
    if directive == "replace":
        return _bare(patch)  # type: ignore[no-any-return]
    if directive == "delete":
        return {}
    raise BadRequest(f"unknown patch type: {go_text(directive)} in map: {go_text(patch)}")


def _take(original: dict[str, Any], key: str, value: Any) -> None:
    """Set a value that meets nothing to merge with: nulls and directives in it have nothing to act upon."""
    kept, keep = _without_directives(value)
    if keep:
        original[key] = _bare(kept)
    else:
        original.pop(key, None)


def _bare(value: Any) -> Any:
    """A value taken as it is: without nulls, and without the directives that a typed object would not keep."""
    if isinstance(value, dict):
        return {
            name: _bare(member)
            for name, member in value.items()
            if member is not None and not name.startswith((_DIRECTIVE, _RETAIN, _DELETE_PREFIX, _ORDER_PREFIX))
        }
    if isinstance(value, list):
        return [_bare(item) for item in value]
    return value


def _without_directives(value: Any) -> tuple[Any, bool]:
    if isinstance(value, dict):
        if _DIRECTIVE in value:
            return None, False
        members = {name: _without_directives(member) for name, member in value.items()}
        return {name: member for name, (member, keep) in members.items() if keep}, True
    if isinstance(value, list):
        items = [_without_directives(item) for item in value]
        return [item for item, keep in items if keep], True
    return value, True


def _retain_keys(original: dict[str, Any], patch: dict[str, Any]) -> None:
    if _RETAIN not in patch:
        return
    listed = patch.pop(_RETAIN)
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise BadRequest("invalid patch format of retainKeys")
    retained = set(listed)
    for name, value in patch.items():
        exempt = value is None or name.startswith((_DELETE_PREFIX, _ORDER_PREFIX))
        if not exempt and name not in retained:
            raise BadRequest("invalid patch format of retainKeys")
    for name in original.keys() - retained:
        del original[name]


def _merge_ordered_lists(structure: Structure, original: dict[str, Any], patch: dict[str, Any]) -> None:
    """Merge every list that comes with a ``$setElementOrder`` and take both out of the patch."""
    for directive in [name for name in patch if name.startswith(_ORDER_PREFIX)]:
        key = _field(directive, _ORDER_PREFIX)
        order = _list(patch.pop(directive))
        live = _list(original[key]) if key in original else None
        wanted = _list(patch[key]) if key in patch else None
        child = _child(structure, key)
        merge_key = child.merge_key
        _check_order(wanted or [], order, merge_key)
        if wanted is None and live is None:
            continue
        if wanted is None:
            merged = live or []
        elif live is None:
            merged = _bare(_without_directives(wanted)[0])
        else:
            merged = _merge_list(child, live, wanted, deleting=False)
        _one_kind(live or [], wanted or [])
        original[key] = _ordered(merged, order, live or [], merge_key)
        patch.pop(key, None)


def _check_order(wanted: list[Any], order: list[Any], merge_key: str) -> None:
    """Refuse a patch list whose items are not, in the same relative order, in the ``$setElementOrder`` list."""
    if not order or not wanted:
        return
    kept = [item for item in wanted if not (isinstance(item, dict) and item.get(_DIRECTIVE) == "delete")]
    place = at = 0
    while at < len(kept) and place < len(order):
        item = kept[at]
        if isinstance(item, dict) and _DIRECTIVE in item:
            at += 1
            continue
        at += _identity(item, merge_key) == _identity(order[place], merge_key)
        place += 1
    if at < len(kept):
        raise BadRequest(
            f"The order in patch list:\n{go_text(wanted)}\n doesn't match {_ORDER_PREFIX} list:\n{go_text(order)}\n"
        )


def _merge_list(structure: Structure, live: list[Any], patch: list[Any], *, deleting: bool) -> list[Any]:
    if not deleting and structure.strategy != "merge":
        return [_bare(item) for item in patch]
    if not live and not patch:
        return live
    merge_key = structure.merge_key
    if _one_kind(live, patch) is not dict:
        if deleting:
            unwanted = {_identity(item, "") for item in patch}
            return [item for item in live if _identity(item, "") not in unwanted]
        return _ordered(_distinct([*live, *patch]), patch, live, "")
    if not merge_key:
        raise BadRequest(f"cannot merge lists without merge key for {structure.name or 'slice'}")
    merged, patch = _apply_list_directives(live, patch, merge_key)
    order = list(merged)
    places = {_identity(item, merge_key): place for place, item in reversed(list(enumerate(merged)))}
    for item in patch:
        identity = _identity(item, merge_key)
        place = places.get(identity)
        if place is None:
            # kube-apiserver orders new items as if they had been where deleted ones left room in the live list.
            if len(merged) < len(live):
                live[len(merged)] = item
            places[identity] = len(merged)
            merged.append(_bare(item))
        else:
            merged[place] = _merge_map(structure.item, merged[place], item)
    return _ordered(merged, patch, order, merge_key)


def _apply_list_directives(live: list[Any], patch: list[Any], merge_key: str) -> tuple[list[Any], list[Any]]:
    """What is left to merge into, and the patch's plain items; ``live`` closes the gaps of deleted items."""
    plain: list[Any] = []
    unwanted: set[_Identity] = set()
    replace = False
    for item in patch:
        directive = item.get(_DIRECTIVE)
        if _DIRECTIVE not in item:
            plain.append(item)
        elif directive == "delete":
            unwanted.add(_identity(item, merge_key))
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise BadRequest("merging lists cannot yet be specified in the patch")
        else:
            raise BadRequest(f"unknown patch type: {go_text(directive)} in map: {go_text(item)}")
    kept = [item for item in live if merge_key not in item or _identity(item, merge_key) not in unwanted]
    live[: len(kept)] = kept
    return ([_bare(item) for item in plain], []) if replace else (kept, plain)


def _ordered(merged: list[Any], order: list[Any], live: list[Any], merge_key: str) -> list[Any]:
    """Items named in ``order`` in that order, the others in the live list's, interleaved by the live list's order."""
    wanted = _places(order, merge_key)
    was = _places(live, merge_key)
    theirs: list[tuple[int, _Identity, Any]] = []
    ours: list[tuple[int, _Identity, Any]] = []
    for item in merged:
        identity = _identity(item, merge_key)
        if identity in wanted:
            theirs.append((wanted[identity], identity, item))
        else:
            ours.append((was.get(identity, -1), identity, item))
    theirs.sort(key=lambda entry: entry[0])
    ours.sort(key=lambda entry: entry[0])
    result: list[Any] = []
    left = right = 0
    while left < len(ours) and right < len(theirs):
        mine, other = was.get(ours[left][1], -1), was.get(theirs[right][1], -1)
        if 0 <= mine < other:
            result.append(ours[left][2])
            left += 1
        else:
            result.append(theirs[right][2])
            right += 1
    result.extend(entry[2] for entry in ours[left:])
    result.extend(entry[2] for entry in theirs[right:])
    return result


def _places(items: list[Any], merge_key: str) -> dict[_Identity, int]:
    places: dict[_Identity, int] = {}
    for place, item in enumerate(items):
        places.setdefault(_identity(item, merge_key), place)
    return places


def _distinct(items: Iterable[Any]) -> list[Any]:
    return list({_identity(item, ""): item for item in items}.values())


def _identity(item: Any, merge_key: str) -> _Identity:
    """What two list items must share to be the same one; the type tells ``1`` from ``true``."""
    if merge_key:
        if not isinstance(item, dict):
            raise BadRequest(f"expected a map[string]interface {{}}, but received a {_go(item)}")
        if merge_key not in item:
            raise BadRequest(f"map: {go_text(item)} does not contain declared merge key: {merge_key}")
        item = item[merge_key]
    if isinstance(item, dict | list):
        raise unprocessable()
    return type(item), item


def _one_kind(*lists: list[Any]) -> type:
    """The one type of all items. Lists of lists are 422, mixed and missing ones 400."""
    kinds = {type(item) for items in lists for item in items}
    if kinds == {list}:
        raise unprocessable()
    if len(kinds) > 1:
        raise BadRequest(f"list element types are not identical: {go_text(list(lists))}")
    if not kinds:
        raise BadRequest("no elements in any of the given slices")
    return kinds.pop()


def _child(structure: Structure, name: str) -> Structure:
    child = structure.child(name)
    if child is None:
        kind = structure.name.rsplit(".", 1)[-1]
        raise BadRequest(f'unable to find api field in struct {kind} for the json field "{name}"')
    return child


def _field(directive: str, prefix: str) -> str:
    head, slash, name = directive.partition("/")
    if head != prefix or not slash:
        which = "primitive" if prefix == _DELETE_PREFIX else "setElementOrder"
        raise BadRequest(f"invalid patch format of {which} list")
    return name


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadRequest(f"expected a []interface {{}}, but received a {_go(value)}")
    return value


def go_text(value: Any) -> str:
    """A JSON value as Go's ``%v`` prints it, which is how kube-apiserver's messages quote values."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{name}:{go_text(member)}" for name, member in sorted(value.items())) + "]"
    if isinstance(value, list):
        return "[" + " ".join(go_text(item) for item in value) + "]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _go(value: Any) -> str:
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    names = {bool: "bool", int: "int64", float: "float64", str: "string"}
    return names.get(type(value), "%!s(<nil>)")
