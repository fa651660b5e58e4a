"""Objects seen through their structure: which fields they set, how two differ, how one is laid over another.

These are the operations of structured merge diff (KEP-555) that server-side apply is made of. Values are JSON and
are never changed; results share what they did not have to change with their arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kube.kinds.mergestrategies import ATOMIC, DEDUCED, MAP, Structure
from kube.objects.fieldpaths import MEMBER, Fields, item_key, item_value, text, union
from kube.objects.patches import same

_ABSENT: Final = object()
INNER: Final = frozenset((dict, list))
"""What has places in it."""


class TypedError(ValueError):
    """A value that does not fit its structure; the message names the path and the reason as kube-apiserver does."""


class Comparison(NamedTuple):
    """How a new value differs from an old one. No path is in two of the three sets."""

    added: Fields
    modified: Fields
    removed: Fields

    @property
    def touched(self) -> Fields:
        """Everything that was added or modified."""
        return union(self.added, self.modified) if self.modified else self.added


def validate(structure: Structure, value: Any, *, nulls: bool = True) -> None:
    """Check that a value fits its structure and that its lists have no duplicates. Raises ``TypedError``.

    Without ``nulls`` none of them fits where something is declared.
    """
    errors = list(_errors(structure, value, "", nulls=nulls))
    if errors:
        raise TypedError(errors[0] if len(errors) == 1 else "errors:\n" + "\n".join(f"  {error}" for error in errors))


def _errors(structure: Structure, value: Any, path: str, *, nulls: bool) -> Iterator[str]:
    where = f"{path}: " if path else ""
    if value is None:
        if not nulls and not (structure.is_scalar and structure.scalar == "untyped"):
            yield f"{where}{_expected(structure)}, got {_go(value)}"
        return
    if isinstance(value, dict):
        if not structure.is_map:
            yield f"{where}{_expected(structure)}, got {_go(value)}"
            return
        for name, member in value.items():
            child = structure.child(name)
            if child is None:
                yield f"{path}.{name}: field not declared in schema"
                return
            yield from _errors(child, member, f"{path}.{name}", nulls=nulls)
    elif isinstance(value, list):
        if not structure.is_list:
            yield f"{where}{_expected(structure)}, got {_go(value)}"
            return
        seen: set[str] = set()
        for index, item in enumerate(value):
            element = f"i:{index}"
            if structure.list_type != ATOMIC:
                try:
                    element = _element(structure, item)
                except TypedError as error:
                    yield f"{where}element {index}: {error}"
                    return
                if element in seen:
                    yield f"{where}duplicate entries for key {text(element)}"
                seen.add(element)
            yield from _errors(structure.item, item, path + text(element), nulls=nulls)
    elif not structure.is_scalar:
        yield f"{where}expected {'list' if structure.is_list else 'map'}, got {_go(value)}"
    elif not _scalar_fits(structure.scalar, value):
        yield f"{where}{_expected(structure)}, got {_go(value)}"


def _scalar_fits(scalar: str, value: Any) -> bool:
    if scalar == "string":
        return isinstance(value, str)
    if scalar == "boolean":
        return isinstance(value, bool)
    if scalar == "numeric":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return True


def _expected(structure: Structure) -> str:
    if structure.is_map:
        return "expected map"
    if structure.is_list:
        return "expected list"
    return {
        "string": "expected string",
        "boolean": "expected boolean",
        "numeric": "expected numeric (int or float)",
    }.get(structure.scalar, "expected any scalar")


def _go(value: Any) -> str:
    if isinstance(value, dict):
        return "map"
    if isinstance(value, list):
        return "list"
    return {bool: "bool", int: "int64", float: "float64", str: "string"}.get(type(value), "null")


def to_field_set(structure: Structure, value: Mapping[str, Any]) -> Fields:
    """The fields that an applied configuration sets. Raises ``TypedError`` for list items that have no key."""
    return _set_below(structure, value)


def _set_below(structure: Structure, value: Mapping[str, Any]) -> dict[str, Any]:
    below: dict[str, Any] = {}
    for name, member in value.items():
        child = structure.child(name) or DEDUCED
        node = _set_at(child, member, member=name not in structure.fields)
        if node is not None:
            below[f"f:{name}"] = node
    return below


def _set_at(structure: Structure, value: Any, *, member: bool) -> dict[str, Any] | None:
    if _is_granular_map(structure, value):
        below = _set_below(structure, value)
        member = member or not value
    elif _is_granular_list(structure, value):
        below = {}
        elements = [_element(structure, item) for item in value]
        counts = Counter(elements)
        for element, item in zip(elements, value, strict=True):
            below[element] = {} if counts[element] > 1 else _set_at(structure.item, item, member=True)
    else:
        return {}
    if below:
        return {MEMBER: {}, **below} if member else below
    return {} if member else None


def compare(structure: Structure, old: Mapping[str, Any], new: Mapping[str, Any]) -> Comparison:
    """How two objects differ. Raises ``TypedError`` for list items that have no key."""
    added, modified, removed = _compare_maps(structure, old, new)
    return Comparison(added, modified, removed)


_Triple = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
_Nodes = tuple[Fields | None, Fields | None, Fields | None]


def _compare_maps(structure: Structure, old: Mapping[str, Any], new: Mapping[str, Any]) -> _Triple:
    result: _Triple = ({}, {}, {})
    added, modified, removed = result
    fields, element = structure.fields, structure.element or DEDUCED
    for name, value in new.items():
        before = old.get(name, _ABSENT)
        if before is value:
            # Writes share what they leave alone with the old object: most of an object is skipped here.
            continue
        if before is _ABSENT:
            added[f"f:{name}"] = _everything(fields.get(name) or element, value) if type(value) in INNER else {}
        elif type(value) in INNER or type(before) in INNER:
            _note(result, f"f:{name}", _compare(fields.get(name) or element, before, value))
        elif before != value or (type(before) is not type(value) and not same(before, value)):
            modified[f"f:{name}"] = {}
    if not old.keys() <= new.keys():
        for name, value in old.items():
            if name not in new:
                removed[f"f:{name}"] = _everything(fields.get(name) or element, value)
    return result


def _compare(structure: Structure, old: Any, new: Any) -> _Nodes:
    if _is_granular_map(structure, new) and (old is None or isinstance(old, dict)) and (old or new):
        return _nodes(_compare_maps(structure, old or {}, new))
    if _is_granular_map(structure, old) and old and new is None:
        return _nodes(_compare_maps(structure, old, {}))
    if _is_granular_list(structure, new) and (old is None or isinstance(old, list)) and (old or new):
        return _nodes(_compare_lists(structure, old or [], new))
    if _is_granular_list(structure, old) and old and new is None:
        return _nodes(_compare_lists(structure, old, []))
    if same(old, new):
        return None, None, None
    appeared, vanished = _everything(structure, new), _everything(structure, old)
    return (
        {element: below for element, below in appeared.items() if element != MEMBER} or None,
        {},
        {element: below for element, below in vanished.items() if element != MEMBER} or None,
    )


def _compare_lists(structure: Structure, old: list[Any], new: list[Any]) -> _Triple:
    result: _Triple = ({}, {}, {})
    added, modified, removed = result
    before, after = _by_element(structure, old), _by_element(structure, new)
    for element in {**before, **after}:
        # Items with one key may stand in a list several times when they came by updates. They are one place then, which
        # changes as a whole: pairing them up by their order would call a move a change.
        was, now = before.get(element, []), after.get(element, [])
        if len(was) > 1 and len(now) > 1:
            if not same(was, now):
                modified[element] = {}
        elif len(was) > 1:
            removed[element] = {}
            if now:
                added[element] = _below_only(_everything(structure.item, now[0]))
        elif len(now) > 1:
            added[element] = {}
            if was:
                removed[element] = _below_only(_everything(structure.item, was[0]))
        elif not was:
            added[element] = _everything(structure.item, now[0])
        elif not now:
            removed[element] = _everything(structure.item, was[0])
        else:
            _note(result, element, _compare(structure.item, was[0], now[0]))
    return result


def _below_only(node: Fields) -> Fields:
    return {element: below for element, below in node.items() if element != MEMBER}


def _nodes(triple: _Triple) -> _Nodes:
    added, modified, removed = triple
    return added or None, modified or None, removed or None


def _note(result: _Triple, element: str, nodes: _Nodes) -> None:
    added, modified, removed = nodes
    if added is not None:
        result[0][element] = added
    if modified is not None:
        result[1][element] = modified
    if removed is not None:
        result[2][element] = removed


def _everything(structure: Structure, value: Any) -> dict[str, Any]:
    """The node of a value that came or went as a whole: every place in it, inner ones too."""
    # What has nothing in it, as most, is a place and no more: it need not be looked up what it is declared as.
    if not value or type(value) not in INNER:
        return {}
    if type(value) is dict:
        if not structure.is_map or structure.atomic:
            return {}
        node: dict[str, Any] = {MEMBER: {}}
        fields, element = structure.fields, structure.element or DEDUCED
        for name, member in value.items():
            node[f"f:{name}"] = _everything(fields.get(name) or element, member) if type(member) in INNER else {}
        return node
    if structure.is_list and structure.list_type != ATOMIC:
        item = structure.item
        return {
            MEMBER: {},
            **{
                key: {} if len(items) > 1 else _everything(item, items[0])
                for key, items in _by_element(structure, value).items()
            },
        }
    return {}


def merge(structure: Structure, live: Mapping[str, Any], applied: Mapping[str, Any]) -> dict[str, Any]:
    """Lay an applied configuration over a live object. Raises ``TypedError`` for list items that have no key."""
    merged: dict[str, Any] = {}
    for name, value in live.items():
        over = applied.get(name, _ABSENT)
        merged[name] = value if over is _ABSENT else _merge(structure.child(name) or DEDUCED, value, over)
    merged.update((name, value) for name, value in applied.items() if name not in live)
    return merged


def _merge(structure: Structure, live: Any, applied: Any) -> Any:
    if isinstance(live, dict) and _is_granular_map(structure, live) and (live or applied):
        if applied is None:
            return live
        if isinstance(applied, dict):
            return merge(structure, live, applied)
    if isinstance(live, list) and _is_granular_list(structure, live) and (live or applied):
        if applied is None:
            return live
        if isinstance(applied, list):
            return _merge_lists(structure, live, applied)
    return applied


def _merge_lists(structure: Structure, live: list[Any], applied: list[Any]) -> list[Any]:
    """Items of both lists once: applied ones in their order, the others where the live list had them."""
    ours = [(_element(structure, item), item) for item in applied]
    theirs = [(_element(structure, item), item) for item in live]
    wanted = dict(ours)
    counts = Counter(element for element, _ in theirs)
    known = {element: item for element, item in theirs if counts[element] == 1}
    shared = iter([element for element, _ in ours if element in counts])
    next_shared = next(shared, None)
    done: set[str] = set()
    result: list[Any] = []

    def take(element: str) -> None:
        done.add(element)
        item = wanted[element]
        result.append(_merge(structure.item, known[element], item) if element in known else item)

    # Two fingers, ``left`` on the live list and ``right`` on the applied one, as structured-merge-diff has them:
    # 1. Both on the same item: merge it, move both. ``next_shared`` is the next applied item that is live as well.
    # 2. The live item is applied, but at a later place than the next shared one: pass over it, it comes in its turn.
    # 3. The live item is not applied: it keeps its place. If it was taken already, pass over it.
    # 4. Otherwise the applied item is next.
    # Every round moves a finger or takes an item, so it ends; ``done`` keeps an item from being taken twice.
    left = right = 0
    while left < len(theirs) or right < len(ours):
        if left < len(theirs) and right < len(ours):
            element = theirs[left][0]
            if element == ours[right][0]:
                take(element)
                left, right = left + 1, right + 1
                next_shared = next(shared, None)
                continue
            if element in wanted and next_shared is not None and next_shared != element:
                left += 1
                continue
        if left < len(theirs):
            element, item = theirs[left]
            if element not in wanted:
                result.append(item)
                left += 1
                continue
            if element in done:
                left += 1
        if right < len(ours):
            element = ours[right][0]
            take(element)
            right += 1
            if next_shared == element:
                next_shared = next(shared, None)
    return result


def remove(structure: Structure, value: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    """The object without the members of ``fields``; maps and lists that become empty go too."""
    kept: dict[str, Any] = {}
    for name, member in value.items():
        node = fields.get(f"f:{name}", _ABSENT)
        left = member if node is _ABSENT else _remove(structure.child(name) or DEDUCED, member, node)
        if left is not _ABSENT:
            kept[name] = left
    return kept


def _remove(structure: Structure, value: Any, node: Any) -> Any:
    # A leaf of the set, or a member that is owned itself, goes as a whole; otherwise only what is named inside it goes.
    if not node or MEMBER in node:
        return _ABSENT
    if _is_granular_map(structure, value):
        return remove(structure, value, node) or _ABSENT
    if _is_granular_list(structure, value):
        items: list[Any] = []
        for item in value:
            below = node.get(_element(structure, item), _ABSENT)
            left = item if below is _ABSENT else _remove(structure.item, item, below)
            if left is not _ABSENT:
                items.append(left)
        return items or _ABSENT
    return _ABSENT if isinstance(value, dict | list) else value


def ensure_named_fields_are_members(structure: Structure | None, fields: Fields) -> Fields:
    """The set with every declared field on the way to a member made a member itself."""
    result: dict[str, Any] = {}
    for element, below in fields.items():
        if element == MEMBER or not below:
            result[element] = below
            continue
        name = element[2:]
        declared, child = False, None
        if structure is not None and element.startswith("f:"):
            declared, child = name in structure.fields, structure.child(name)
        elif structure is not None and element.startswith("k:"):
            child = structure.item
        inner = ensure_named_fields_are_members(child, below)
        result[element] = {MEMBER: {}, **inner} if declared and MEMBER not in inner else inner
    return result


def reconcile(structure: Structure, fields: Fields) -> Fields:
    """The set as it reads after a schema made maps or lists atomic: their owners own them as a whole."""
    changed: dict[str, Any] | None = None
    for element, below in fields.items():
        if not below or element == MEMBER:
            continue
        child = structure.child(element[2:]) if element.startswith("f:") else structure.item
        if child is None or child is DEDUCED:
            continue
        if (child.is_map and child.atomic) or (child.is_list and not child.is_map and child.list_type == ATOMIC):
            after: Fields = {}
        else:
            after = reconcile(child, below)
        if after is not below:
            changed = dict(fields) if changed is None else changed
            changed[element] = after
    return fields if changed is None else changed


def _is_granular_map(structure: Structure, value: Any) -> bool:
    return isinstance(value, dict) and structure.is_map and not structure.atomic


def _is_granular_list(structure: Structure, value: Any) -> bool:
    return isinstance(value, list) and structure.is_list and structure.list_type != ATOMIC


def _by_element(structure: Structure, items: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for item in items:
        found.setdefault(_element(structure, item), []).append(item)
    return found


def _element(structure: Structure, item: Any) -> str:
    """The path element of a list item."""
    try:
        if structure.list_type != MAP:
            if isinstance(item, dict):
                raise TypedError("associative list without keys has an element that's a map type")
            if isinstance(item, list):
                raise TypedError("not supported: associative list with lists as elements")
            if item is None:
                raise TypedError("associative list without keys has an element that's an explicit null")
            return item_value(item)
        if item is None:
            raise TypedError("associative list with keys may not have a null element")
        if not isinstance(item, dict):
            raise TypedError("associative list with keys may not have non-map elements")
        keys: dict[str, Any] = {}
        for key in structure.keys:
            if key in item:
                keys[key] = item[key]
            else:
                default = structure.item.defaults.get(key)
                if default is not None:
                    keys[key] = default
        if not keys:
            names = " ".join(f'"{key}"' for key in structure.keys)
            raise TypedError(
                f"associative list with keys has an element that omits all key fields [{names}] "
                "(and doesn't have default values for any key fields)"
            )
        return item_key(keys)
    except TypeError as error:
        raise TypedError("a list item's key is not valid JSON") from error
