"""Who owns which field: server-side apply, and the tracking of every other write (KEP-555).

``update`` records what a create, replace or patch changed; ``apply`` merges an applied configuration, refuses to
take fields from others unless forced, and removes what its manager no longer applies. Both return the object with
its new ``metadata.managedFields`` and leave their arguments alone; results share unchanged parts with them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from kube.kinds.mergestrategies import Structure
from kube.objects.fieldpaths import MEMBER, Fields, canonical, difference, intersection, paths, union, without
from kube.objects.patches import same
from kube.objects.typedvalues import (
    INNER,
    TypedError,
    compare,
    ensure_named_fields_are_members,
    merge,
    reconcile,
    remove,
    to_field_set,
    validate,
)
from kube.requests.status import BadRequest, Cause, Conflict

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
MAX_MANAGER_LENGTH: Final = 128
MAX_UPDATE_MANAGERS: Final = 10
"""More entries from updates than this are merged, oldest first, into ``ancient-changes``."""

_MAX_ANNOTATIONS: Final = 256 * 1024
_KUBECTL: Final = "kubectl"
_NO_FIELDS: Final[Fields] = {}

_STRIPPED: Final[Fields] = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        "f:name": {},
        "f:namespace": {},
        "f:creationTimestamp": {},
        "f:selfLink": {},
        "f:uid": {},
        "f:clusterName": {},
        "f:generation": {},
        "f:managedFields": {},
        "f:resourceVersion": {},
        "f:tenant": {},
    },
}
"""What identifies an object or belongs to the server is nobody's."""

_NOBODYS: Final = frozenset({"apiVersion", "kind"})
_NOBODYS_METADATA: Final = frozenset(element[2:] for element in _STRIPPED["f:metadata"] if element != MEMBER)


class Write(NamedTuple):
    """The circumstances of one write.

    ``manager`` is the field manager's name, ``version`` the ``apiVersion`` written in (``apps/v1``), ``now`` the
    time in RFC 3339 with whole seconds and ``Z``, ``subresource`` the subresource written to. ``reset`` are the
    fields that this endpoint ignores (``fieldpaths.STATUS`` on a main resource with a status subresource).
    ``served`` are the apiVersions still served, when it is known; entries of others are dropped.
    """

    manager: str
    version: str
    now: str
    subresource: str = ""
    reset: Fields = _NO_FIELDS
    served: Collection[str] | None = None


class _Manager(NamedTuple):
    """What tells entries apart: appliers keep their entry across versions."""

    name: str
    operation: str
    version: str
    subresource: str

    def __str__(self) -> str:
        where = f' with subresource "{self.subresource}"' if self.subresource else ""
        how = f" using {self.version}" if self.operation == "Update" else ""
        return f'"{self.name}"{where}{how}'


class _Entry(NamedTuple):
    version: str
    fields: Fields
    time: str | None

    def encode(self, manager: _Manager) -> dict[str, Any]:
        entry: dict[str, Any] = {"manager": manager.name, "operation": manager.operation, "apiVersion": self.version}
        if self.time:
            entry["time"] = self.time
        entry["fieldsType"] = "FieldsV1"
        entry["fieldsV1"] = self.fields
        if manager.subresource:
            entry["subresource"] = manager.subresource
        return entry


_Managers = dict[_Manager, _Entry]


def update(
    structure: Structure, live: Mapping[str, Any] | None, new: Mapping[str, Any], write: Write
) -> dict[str, Any]:
    """``new`` with its fields' owners, after a create (``live`` is ``None``), replace or patch other than apply.

    Managed fields in ``new`` are taken when they are valid and this is no subresource; an empty list clears them.
    Never fails: an object that does not fit its structure keeps the owners of ``live``.
    """
    if live is None:
        managers = _requested(new, None, write)
        old: Mapping[str, Any] = structure.zero
    else:
        managers = _requested(new, live, write)
        if not managers:
            return _bare(new)
        old = _bare(live)
    bare = _bare(new)
    try:
        managers = _track(structure, old, bare, _current(structure, managers, write), write)
    except TypedError:
        return _with_entries(bare, _entries_of(live or {}))
    return _with_entries(bare, _encode(_capped(managers)))


def apply(
    structure: Structure, live: Mapping[str, Any] | None, applied: Mapping[str, Any], write: Write, *, force: bool
) -> dict[str, Any]:
    """The object after a server-side apply of ``applied``; ``live`` itself when nothing changes.

    Raises ``Conflict`` with one ``FieldManagerConflict`` cause for each field that others own with another value
    (never with ``force``), ``BadRequest`` for a configuration that does not fit its structure, names another
    version or carries managed fields.
    """
    check_applied(structure, applied, write)
    old = _bare(live) if live is not None else {}
    managers = _current(structure, _decode(_entries_of(live or {})), write)
    try:
        if live is not None and not managers:
            before = write._replace(manager="before-first-apply", reset=_NO_FIELDS)
            managers = _track(structure, structure.zero, old, {}, before)
        try:
            new, managers = _apply(structure, old, applied, managers, write, force=force)
        except _Conflicting as error:
            left = _without_last_applied(structure, old, error.conflicts, write)
            if left:
                raise _conflict(left) from None
            new, managers = _apply(structure, old, applied, managers, write, force=True)
    except TypedError as error:
        raise BadRequest(f"failed to merge config: {error}") from error
    if write.manager == _KUBECTL:
        new = _with_last_applied(new, applied)
    entries = _encode(managers)
    if live is not None and entries == _entries_of(live) and same(new, old):
        return dict(live)
    return _with_entries(new, entries)


def are_readable(entries: Any) -> bool:
    """Whether the managed fields of an object say who owns what; that nobody owns anything is said as well."""
    return not entries or bool(_decode(entries, trusted=False))


def without_owners(entries: Any, uids: Collection[str], *, all_gone: bool) -> list[dict[str, Any]]:
    """The entries without the references to these owners, which nobody owns once they are taken off."""
    gone: Fields = {} if all_gone else {f'k:{{"uid":{orjson.dumps(uid).decode()}}}': {} for uid in uids}
    lost: Fields = {"f:metadata": {"f:ownerReferences": gone}}
    left = {manager: entry._replace(fields=without(entry.fields, lost)) for manager, entry in _decode(entries).items()}
    return _encode({manager: entry for manager, entry in left.items() if entry.fields})


def manager_from_user_agent(agent: str) -> str:
    """The field manager of a request that names none: what stands before the first slash of its User-Agent."""
    name = agent.partition("/")[0]
    # Names that no manager of ours can have are not remembered: they are as long as their senders like.
    return _manager_named(name) if len(name) <= MAX_MANAGER_LENGTH else _manager_named.__wrapped__(name)


@lru_cache(maxsize=1024)
def _manager_named(name: str) -> str:
    printable = "".join(character for character in name if character.isprintable())
    return printable.encode()[:MAX_MANAGER_LENGTH].decode(errors="ignore")


class _Conflicting(Exception):
    def __init__(self, conflicts: dict[_Manager, Fields]) -> None:
        super().__init__()
        self.conflicts = conflicts


def _track(
    structure: Structure, old: Mapping[str, Any], new: Mapping[str, Any], managers: _Managers, write: Write
) -> _Managers:
    """Take what changed from its owners and give it to the writer."""
    # 1. What the write added, changed or removed, without what this endpoint does not write (``status``). While nobody owns
    #    anything, what will be nobody's need not be looked at.
    comparison = compare(structure, old, new if managers else _ownable(new))
    touched, removed = comparison.touched, comparison.removed
    if write.reset:
        touched, removed = without(touched, write.reset), without(removed, write.reset)
    # 2. Everybody loses what was changed, the writer's earlier entry too: an update owns what it set last.
    kept = _taken(managers, dict.fromkeys(managers, touched), removed)
    # 3. The writer owns it, joined with what it owned before in this version and was not taken in step 2.
    own = difference(touched, _STRIPPED)
    if own:
        manager = _Manager(write.manager or "unknown", "Update", write.version, write.subresource)
        before = kept.get(manager)
        kept[manager] = _Entry(write.version, union(own, before.fields) if before else own, write.now)
    return kept


def _ownable(new: Mapping[str, Any]) -> dict[str, Any]:
    """The object without the plain values that step 3 would take away."""
    left = {name: value for name, value in new.items() if name not in _NOBODYS or type(value) in INNER}
    metadata = left.get("metadata")
    if type(metadata) is dict:
        left["metadata"] = {
            name: value for name, value in metadata.items() if name not in _NOBODYS_METADATA or type(value) in INNER
        }
    return left


def _taken(managers: _Managers, lost: Mapping[_Manager, Fields], removed: Fields) -> _Managers:
    kept: _Managers = {}
    for manager, entry in managers.items():
        fields = difference(difference(entry.fields, lost.get(manager, _NO_FIELDS)), removed)
        if fields:
            kept[manager] = entry if fields == entry.fields else _Entry(entry.version, fields, entry.time)
    return kept


def _apply(
    structure: Structure,
    old: Mapping[str, Any],
    applied: Mapping[str, Any],
    managers: _Managers,
    write: Write,
    *,
    force: bool,
) -> tuple[dict[str, Any], _Managers]:
    # 1. An applier has one entry whatever the version; what it owned then and does not apply now is to go.
    own = _Manager(write.manager or "unknown", "Apply", "", write.subresource)
    before = managers.get(own)
    fields = without(to_field_set(structure, applied), write.reset)
    others = {manager: entry for manager, entry in managers.items() if manager != own}
    # 2. Lay the configuration over the object, then take away what this manager gave up and nobody else owns.
    merged = merge(structure, old, applied)
    if before is not None:
        merged = _pruned(structure, merged, before.fields, [fields, *(entry.fields for entry in others.values())])
    # 3. A conflict is a field of another's that gets another value. The same value is shared, not taken; a field that
    #    merely vanished in step 2 was nobody else's. The comparison is of results, so an apply twice conflicts never.
    comparison = compare(structure, old, merged)
    touched = without(comparison.touched, write.reset)
    conflicts = {manager: intersection(entry.fields, touched) for manager, entry in others.items()}
    conflicts = {manager: lost for manager, lost in conflicts.items() if lost}
    if conflicts and not force:
        raise _Conflicting(conflicts)
    # 4. With force the others lose exactly the conflicting fields, and everybody what is no longer there.
    kept = _taken(others, conflicts, without(comparison.removed, write.reset))
    fields = difference(fields, _STRIPPED)
    if fields:
        # An apply that changes nothing but ownership leaves the time alone: there was no change at that time.
        before_time = before.time if before else None
        kept[own] = _Entry(write.version, fields, before_time if same(merged, old) else write.now)
    return merged, kept


def _pruned(structure: Structure, merged: dict[str, Any], last: Fields, owned: list[Fields]) -> dict[str, Any]:
    """Without what the manager applied last time, unless somebody owns it now."""
    last = ensure_named_fields_are_members(structure, last)
    managed: Fields = {}
    for fields in owned:
        managed = union(managed, fields)
    managed = ensure_named_fields_are_members(structure, managed)

    def held(value: Mapping[str, Any]) -> Fields:
        return ensure_named_fields_are_members(structure, to_field_set(structure, value))

    # 1. Take off all of the last configuration: this also empties what stands inside its lists and maps.
    everything = held(merged)
    left = remove(structure, merged, last)
    # 2. From the object as it was, take off what vanished in 1, except what somebody owns now, the applier included.
    left = remove(structure, merged, difference(everything, union(held(left), managed)))
    # 3. Of what vanished in 2 only this manager's own goes.
    # What came along with a removed list item or map, and was never this manager's, stays.
    return remove(structure, merged, intersection(difference(everything, held(left)), last))


def _without_last_applied(
    structure: Structure, old: Mapping[str, Any], conflicts: dict[_Manager, Fields], write: Write
) -> dict[_Manager, Fields]:
    """The conflicts that remain when ``kubectl apply`` goes over from client-side to server-side apply.

    Fields that the last client-side apply set, and that still have that value, are kubectl's to take.
    """
    annotation = ((old.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    if write.manager != _KUBECTL or not isinstance(annotation, str) or not annotation:
        return conflicts
    try:
        last = orjson.loads(annotation)
        if not isinstance(last, dict) or last.get("apiVersion") != write.version:
            return conflicts
        validate(structure, last)
        comparison = compare(structure, last, old)
        allowed = difference(difference(to_field_set(structure, last), comparison.touched), comparison.removed)
    except ValueError:
        return conflicts
    left = {manager: difference(fields, allowed) for manager, fields in conflicts.items()}
    return {manager: fields for manager, fields in left.items() if fields}


def _with_last_applied(new: dict[str, Any], applied: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the annotation of client-side apply true, so that both kinds of kubectl apply can follow each other."""
    metadata = new.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return new
    configuration = dict(applied)
    configured = dict(applied.get("metadata") or {})
    if LAST_APPLIED in (configured.get("annotations") or {}):
        configured["annotations"] = {k: v for k, v in configured["annotations"].items() if k != LAST_APPLIED}
        configuration["metadata"] = configured
    text = orjson.dumps(configuration, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode()
    annotations = {**annotations, LAST_APPLIED: text}
    if sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items()) > _MAX_ANNOTATIONS:
        del annotations[LAST_APPLIED]
    return {**new, "metadata": {**metadata, "annotations": annotations}}


def check_applied(structure: Structure, applied: Mapping[str, Any], write: Write) -> None:
    """Raises ``BadRequest`` for a configuration that cannot be applied: see ``apply``."""
    kind = _kind(applied.get("apiVersion"), applied.get("kind"))
    if applied.get("apiVersion") != write.version:
        raise BadRequest(f"invalid object type: {kind}")
    metadata = applied.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    if metadata.get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    try:
        validate(structure, applied)
    except TypedError as error:
        which = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {kind}"
        raise BadRequest(f"failed to create typed patch object ({which}): {error}") from error


def _kind(version: object, kind: object) -> str:
    group = str(version or "")
    return f"{group if '/' in group else '/' + group}, Kind={kind or ''}"


def _conflict(conflicts: dict[_Manager, Fields]) -> Conflict:
    found = [(str(manager), path) for manager, fields in sorted(conflicts.items()) for path in paths(fields)]
    causes = [Cause("FieldManagerConflict", f"conflict with {manager}", path) for manager, path in found]
    if len(found) == 1:
        manager, path = found[0]
        return Conflict(f"Apply failed with 1 conflict: conflict with {manager}: {path}", causes=causes)
    lines: list[str] = []
    for manager in dict.fromkeys(manager for manager, _ in found):
        lines.append(f"conflicts with {manager}:")
        lines.extend(f"- {path}" for owner, path in found if owner == manager)
    return Conflict(f"Apply failed with {len(found)} conflicts: " + "\n".join(lines), causes=causes)


def _capped(managers: _Managers) -> _Managers:
    """Merge the oldest updates of each version until no more than the bound are left."""
    if len(managers) <= MAX_UPDATE_MANAGERS:
        return managers
    updates = [manager for manager in managers if manager.operation == "Update"]
    excess = len(updates) - MAX_UPDATE_MANAGERS
    if excess <= 0:
        return managers
    # Oldest first, one bucket a version, for fields of two versions cannot be joined. The first of a version only
    # becomes a bucket when a second is to be joined with it: a lone old entry keeps its name.
    kept = dict(managers)
    first: dict[str, _Manager] = {}
    for manager in sorted(updates, key=lambda manager: (managers[manager].time or "", manager)):
        entry = managers[manager]
        bucket = _Manager("ancient-changes", "Update", entry.version, "")
        if entry.version not in first:
            first[entry.version] = manager
            continue
        if bucket not in kept:
            kept[bucket] = kept.pop(first[entry.version])
        if manager != bucket:
            del kept[manager]
        kept[bucket] = _Entry(entry.version, union(entry.fields, kept[bucket].fields), entry.time)
        excess -= 1
        if excess == 0:
            break
    return kept


def _requested(new: Mapping[str, Any], live: Mapping[str, Any] | None, write: Write) -> _Managers:
    """The owners that a write starts from: those in the request if they are valid, else the live object's."""
    before = _entries_of(live) if live is not None else []
    asked = None if write.subresource else (new.get("metadata") or {}).get("managedFields")
    if asked is None or asked == before:
        return _decode(before) if before else {}
    if asked in ([], [{}]):
        return {}
    return _decode(asked, trusted=False) or _decode(before)


def _decode(entries: Any, *, trusted: bool = True) -> _Managers:
    """Entries by manager; none at all when one of them is invalid, as kube-apiserver reads them."""
    managers: _Managers = {}
    if not isinstance(entries, list):
        return managers
    try:
        for entry in entries:
            operation, version = entry["operation"], entry["apiVersion"]
            name, subresource = entry.get("manager", ""), entry.get("subresource", "")
            time = entry.get("time")
            if operation not in ("Apply", "Update") or not version or entry["fieldsType"] != "FieldsV1":
                return {}
            if not (type(version) is type(name) is type(subresource) is type(time or "") is str):
                return {}
            fields = entry.get("fieldsV1") or {}
            manager = _Manager(name, operation, version if operation == "Update" else "", subresource)
            managers[manager] = _Entry(version, fields if trusted else canonical(fields), time)
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
    return managers


def _current(structure: Structure, managers: _Managers, write: Write) -> _Managers:
    """The owners as the schema of today and the versions served today read them."""
    current: _Managers = {}
    for manager, entry in managers.items():
        if write.served is not None and entry.version not in write.served:
            continue
        fields = reconcile(structure, entry.fields)
        current[manager] = entry if fields is entry.fields else _Entry(entry.version, fields, entry.time)
    return current


def _encode(managers: _Managers) -> list[dict[str, Any]]:
    if len(managers) < 2:
        return [entry.encode(manager) for manager, entry in managers.items()]

    def order(item: tuple[_Manager, _Entry]) -> tuple[str, str, str, str, str]:
        manager, entry = item
        return (manager.operation, entry.time or "", manager.name, entry.version, manager.subresource)

    return [entry.encode(manager) for manager, entry in sorted(managers.items(), key=order)]


def _entries_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return (document.get("metadata") or {}).get("managedFields") or []


def _bare(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return dict(document)
    return {**document, "metadata": {k: v for k, v in metadata.items() if k != "managedFields"}}


def _with_entries(document: dict[str, Any], entries: list[dict[str, Any]]) -> dict[str, Any]:
    if not entries:
        return document
    return {**document, "metadata": {**(document.get("metadata") or {}), "managedFields": entries}}
