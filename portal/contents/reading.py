"""What the pages read through the door: kinds, lists, one object with what belongs to it, logs, rights."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kube.display import facts
from kube.display.kinds import ServedKind, kind_named, kind_of, read_discovery
from kube.display.tables import Page, Row, read_table
from kube.requests.status import NotFound, StatusError
from portal.contents.door import DISCOVERY, TABLE, Door

PAGE: Final = 100
"""Rows of one page."""

_LOOKED_THROUGH: Final = 500
_LOOKED_SECONDS: Final = 5.0
_KINDS_SECONDS: Final = 30.0
_KINDS_KEPT: Final = 256
_EVENTS: Final = 50

LOG_LINES: Final = (100, 500, 2000)
LOG_BYTES: Final = 1024 * 1024
LOG_FILE_BYTES: Final = 7 * 1024 * 1024

_kinds: OrderedDict[str, tuple[float, list[ServedKind]]] = OrderedDict()
_kinds_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Listed:
    """Rows of a list, and how far it was looked through when somebody searched."""

    page: Page
    looked_through: int = 0
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Related:
    """The pods that an object's selector means."""

    labels: str
    page: Page


def kinds_of(door: Door) -> list[ServedKind]:
    """The kinds that this person is told of, remembered for half a minute for this person's credential alone."""
    now = time.monotonic()
    with _kinds_lock:
        known = _kinds.get(door.credential)
        if known is not None and now - known[0] < _KINDS_SECONDS:
            return known[1]
    found = [kind for path in ("/api", "/apis") for kind in read_discovery(door.read(path, accept=DISCOVERY))]
    with _kinds_lock:
        _kinds[door.credential] = (now, found)
        _kinds.move_to_end(door.credential)
        while len(_kinds) > _KINDS_KEPT:
            _kinds.popitem(last=False)
    return found


def kind_called(door: Door, name: str) -> ServedKind:
    """The kind that kubectl calls so. Raises ``NotFound``."""
    found = kind_named(kinds_of(door), name)
    if found is None:
        raise NotFound(f'the server doesn\'t have a resource type "{name[:253]}"')
    return found


def listed(
    door: Door, kind: ServedKind, *, name: str = "", labels: str = "", after: str = "", limit: int = PAGE
) -> Listed:
    """A page of a list; with ``name`` the objects whose name contains it, looked for page by page for some seconds."""
    if not name:
        return Listed(table(door, kind, limit=limit, labels=labels, after=after))
    rows: list[Row] = []
    looked, ends, following = 0, time.monotonic() + _LOOKED_SECONDS, after
    while True:
        page = table(door, kind, limit=_LOOKED_THROUGH, labels=labels, after=following)
        looked, following = looked + len(page.rows), page.following
        rows += [row for row in page.rows if name.lower() in row.name.lower()]
        if not following or len(rows) >= limit or time.monotonic() > ends:
            return Listed(Page(page.columns, tuple(rows), following, None), looked, not following and not after)


def table(door: Door, kind: ServedKind, *, limit: int, labels: str = "", fields: str = "", after: str = "") -> Page:
    """One request for a table."""
    path = door.path(kind.group, kind.version, kind.resource)
    query: dict[str, str | int] = {
        "limit": limit,
        "labelSelector": labels,
        "fieldSelector": fields,
        "continue": after,
        "includeObject": "None",
    }
    page = read_table(door.read(path, query, accept=TABLE))
    if page is None:
        raise StatusError("The cluster did not answer with a table.", code=502, reason="BadGateway")
    return page


def counted(door: Door, kind: ServedKind) -> int:
    """How many there are of a kind."""
    page = table(door, kind, limit=1)
    return len(page.rows) + (page.remaining or 0)


def object_called(door: Door, kind: ServedKind, name: str) -> dict[str, Any]:
    """One object. Raises as ``Door.read``."""
    return door.read(door.path(kind.group, kind.version, kind.resource, name))


def events_of(door: Door, found: Mapping[str, Any]) -> Page | None:
    """The events about an object; ``None`` where the person may not see them, or the server has none."""
    uid = facts.text_at(found, "metadata", "uid")
    events = kind_named(kinds_of(door), "events")
    if not uid or events is None:
        return None
    try:
        return table(door, events, limit=_EVENTS, fields=f"involvedObject.uid={uid}")
    except StatusError as error:
        if error.code in {400, 403, 404}:
            return None
        raise


def pods_of(door: Door, found: Mapping[str, Any]) -> Related | None:
    """The pods that an object's selector means; ``None`` where there is none, or the person may not see them."""
    labels = "" if found.get("kind") == "Pod" else facts.pods_selector(found)
    pods = kind_named(kinds_of(door), "pods")
    if not labels or pods is None:
        return None
    try:
        return Related(labels, table(door, pods, limit=20, labels=labels))
    except StatusError as error:
        if error.code in {400, 403, 404}:
            return None
        raise


def owners_of(door: Door, found: Mapping[str, Any]) -> list[tuple[facts.Reference, ServedKind | None]]:
    """What the object belongs to, with its kind where it is one of this place."""
    kinds = kinds_of(door)
    return [(owner, kind_of(kinds, owner.api_version, owner.kind)) for owner in facts.owners_of(found)]


def may(door: Door, kind: ServedKind, name: str, verb: str, sub: str = "") -> bool:
    """What the API server says to the person's own question about a right; a question that fails is a no."""
    asked = {
        "namespace": door.namespace,
        "verb": verb,
        "group": kind.group,
        "version": kind.version,
        "resource": kind.resource,
        "subresource": sub,
        "name": name,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    try:
        answer = door.send("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    except StatusError:
        return False
    status = answer.get("status")
    return isinstance(status, dict) and status.get("allowed") is True


def own_containers(pod: Mapping[str, Any]) -> list[str]:
    """The containers that a pod is there for."""
    spec = pod.get("spec")
    held = spec.get("containers") if isinstance(spec, dict) else None
    return [str(each.get("name")) for each in held if isinstance(each, dict)] if isinstance(held, list) else []


def log_of(
    door: Door, pod: str, *, container: str, previous: bool, lines: int, most: int, times: bool = False
) -> bytes:
    """The last lines of a container, ``most`` bytes of them."""
    query: dict[str, str | int] = {"container": container, "tailLines": lines, "limitBytes": most}
    if previous:
        query["previous"] = "true"
    if times:
        query["timestamps"] = "true"
    return door.fetch("GET", door.path("", "v1", "pods", pod, "log"), query, accept="*/*")
