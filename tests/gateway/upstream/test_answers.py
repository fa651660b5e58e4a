"""A cluster that lies in what it answers: an error for its own part, and nothing of anybody else's (GW4)."""

from __future__ import annotations

import copy
import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.filters.requestinfo import resolve
from gateway.handlers.acrossnamespaces import parts, watching
from gateway.http.negotiation import Accept
from gateway.resources.kinds import Catalogs
from gateway.upstream.answers import (
    BYTES_MAX,
    HELD_MAX,
    MESSAGE_VALUES_MAX,
    VALUES_MAX,
    HeldAnswers,
    Room,
    decode,
    token_of,
    version_of,
)
from gateway.upstream.client import BadGateway
from gateway.upstream.placements import Placement
from kube.objects.tables import aligned_rows
from kube.requests.decoding import count_values
from kube.requests.status import StatusError, TooManyRequests

PLACE = Placement("4f0e", "liar", "root:acme", "acme-web", "Active")
OBJECTS, TABLE = Accept(b"application/json"), Accept(b"application/json", "Table", "meta.k8s.io", "v1")


def pod(name: str, namespace: str = "acme-web") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "resourceVersion": "7"}, "spec": {"containers": [{}]}}


PODS = Catalogs().require(resolve("GET", b"/api/v1/pods", b"", "acme"))
COLUMNS = [{"name": "Name", "type": "string"}, {"name": "Age", "type": "date"}]
LIST = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "12"}, "items": [pod("a"), pod("b")]}
ROWS = [{"cells": [name, "1d"], "object": pod(name)} for name in ("a", "b")]
SHOWN = {
    "kind": "Table",
    "apiVersion": "meta.k8s.io/v1",
    "metadata": {"resourceVersion": "12"},
    "columnDefinitions": COLUMNS,
    "rows": ROWS,
}
EVENTS = [
    {"type": "ADDED", "object": {"kind": "Pod", "apiVersion": "v1", **pod("a")}},
    {"type": "MODIFIED", "object": SHOWN},
    {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "13"}}},
    {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}},
]
FOREIGN = "globex-web"
LIES: Any = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.just("x" * 5000),
    st.just([]), st.just({}), st.just([[]]), st.just({"a": 1}), st.just([1]), st.just(FOREIGN), st.just(pod("c", FOREIGN)),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a value."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in below for place in places(child, (*path, key)))]


@st.composite
def lied(draw: Any, honest: Any) -> Any:
    """An honest message with lies at one to three places; a place may be missing altogether."""
    told = copy.deepcopy(honest)
    for _ in range(draw(st.integers(1, 3))):
        where = draw(st.sampled_from([place for place in places(told) if place]))
        node = told
        for key in where[:-1]:
            node = node[key]
        if isinstance(node, dict) and draw(st.booleans()):
            del node[where[-1]]
        else:
            node[where[-1]] = copy.deepcopy(draw(LIES))
        if not any(places(told)[1:]):
            break
    return told


def namespaces(rows: Any) -> set[Any]:
    return {row["metadata"]["namespace"] for row in rows}


@settings(max_examples=400, deadline=None)
@given(lied(LIST))
def test_a_list_is_of_its_own_namespace_or_none(told: Any) -> None:
    try:
        part = parts._checked(json.dumps(told).encode(), PLACE, OBJECTS, Room(), named=True)
    except BadGateway:
        return
    assert namespaces(part.objects) <= {PLACE.namespace}
    assert len(part.version) <= 64


@pytest.mark.parametrize("levels", [100, 300])
def test_what_a_watch_begins_with_is_an_error_of_its_own_part_where_it_cannot_be_written(levels: int) -> None:
    """Values in too many others; the parts of other clusters go on."""
    deep: Any = "the innermost"
    for _ in range(levels):
        deep = [deep]
    told = {**LIST, "items": [{**pod("a"), "spec": deep}]}
    part = parts._checked(json.dumps(told).encode(), PLACE, OBJECTS, Room(), named=True)
    if levels == 100:
        assert orjson.loads(watching.added(part, {}, PODS, OBJECTS))["type"] == "ADDED"
        return
    with pytest.raises(BadGateway):
        watching.added(part, {}, PODS, OBJECTS)


@settings(max_examples=400, deadline=None)
@given(lied(SHOWN), st.booleans())
def test_a_table_can_be_joined_to_others_or_is_none(told: Any, named: bool) -> None:
    try:
        part = parts._checked(json.dumps(told).encode(), PLACE, TABLE, Room(), named=named)
    except BadGateway:
        return
    if named:
        assert namespaces(row["object"] for row in part.objects) <= {PLACE.namespace}
    for own, head in ((part.head, SHOWN), (SHOWN, part.head), (part.head, {"columnDefinitions": COLUMNS[::-1]})):
        orjson.dumps(aligned_rows(part.objects if own is part.head else ROWS, own, head))


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(EVENTS).flatmap(lied), st.sampled_from([OBJECTS, TABLE]))
def test_an_event_is_of_its_own_namespace_and_kind_or_none(told: Any, accept: Accept) -> None:
    try:
        type_, version = watching._checked(decode(json.dumps(told).encode(), "liar"), PLACE, PODS, accept)
    except BadGateway:
        return
    assert type_ in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
    assert len(version) <= 64
    shown = told["object"]
    if type_ in ("ADDED", "MODIFIED", "DELETED"):
        objects = [row.get("object") for row in shown["rows"]] if shown.get("kind") == "Table" else [shown]
        assert namespaces(each for each in objects if each) <= {PLACE.namespace}
        assert shown["kind"] == ("Table" if accept == TABLE else "Pod")


@pytest.mark.parametrize("told", EVENTS, ids=lambda event: event["type"])
def test_what_is_honest_is_believed(told: Any) -> None:
    accept = TABLE if told["object"]["kind"] == "Table" else OBJECTS
    assert watching._checked(decode(json.dumps(told).encode(), "c"), PLACE, PODS, accept)[0] == told["type"]


def test_honest_lists_are_believed() -> None:
    assert parts._checked(json.dumps(LIST).encode(), PLACE, OBJECTS, Room(), named=True).version == "12"
    assert len(parts._checked(json.dumps(SHOWN).encode(), PLACE, TABLE, Room(), named=True).objects) == 2


def test_values_are_counted_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three bytes a value: what is too many never becomes objects."""
    decoded: list[int] = []
    loads = orjson.loads
    monkeypatch.setattr(orjson, "loads", lambda data: (decoded.append(len(data)), loads(data))[1])
    many = b'{"metadata":{"resourceVersion":"1"},"items":[' + b"[]," * MESSAGE_VALUES_MAX + b"[]]}"
    for ask in (lambda: decode(many, "liar"), lambda: Room().decode(many, "liar")):
        with pytest.raises(BadGateway, match="values at once"):
            ask()
    assert decoded == []


def test_all_messages_of_a_request_share_their_room() -> None:
    room, message = Room(), b'{"items":[' + b"[]," * (MESSAGE_VALUES_MAX // 3) + b"[]]}"
    read = 0
    with pytest.raises(BadGateway, match="ask for less"):
        for _ in range(VALUES_MAX):
            room.decode(message, "liar")
            read += 1
    assert read < 3 * VALUES_MAX // MESSAGE_VALUES_MAX + 3


def test_many_small_answers_count_as_what_they_hold() -> None:
    """Fifty places, each with some hundred kilobytes of a few long texts."""
    room, page = Room(), json.dumps({"items": [{"data": {"file": "1,2,[3]\n" * 4000}} for _ in range(10)]}).encode()
    assert len(page) > 300_000
    for _ in range(200):
        assert len(room.decode(page, "c")["items"]) == 10


def test_texts_may_hold_what_they_like() -> None:
    """A list of large ConfigMaps is honest, commas and braces in its texts or not."""
    text = json.dumps({"items": [{"data": {"file": '{"a":[1,2,"\\"x\\""]},' * 2000}} for _ in range(200)]}).encode()
    assert text.count(b",") > MESSAGE_VALUES_MAX
    assert count_values(text, MESSAGE_VALUES_MAX) <= MESSAGE_VALUES_MAX
    assert len(decode(text, "c")["items"]) == 200


@pytest.mark.parametrize("lie", [None, 7, "", "x" * 65, "é", {}, ["1"], "1" * 30_000_000])
def test_a_version_that_is_kept_is_short(lie: Any) -> None:
    with pytest.raises(BadGateway):
        version_of({"resourceVersion": lie}, "liar")


@pytest.mark.parametrize("lie", [7, "x" * 5000, "é", {"a": 1}, ["1"]])
def test_a_token_that_is_sent_back_is_short(lie: Any) -> None:
    with pytest.raises(BadGateway):
        token_of({"continue": lie}, "liar")
    assert token_of({}, "c") == ""


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["acme", "globex", "initech"]), st.integers(1, BYTES_MAX // 3)),
        max_size=60,
    )
)
def test_all_requests_together_hold_no_more_than_a_process_may(steps: list[tuple[int, str, int]]) -> None:
    """Four requests of three tenants at once, each of which may end and begin anew for another tenant."""
    held, taken = HeldAnswers(), [0] * 4
    requests: list[tuple[str, Room] | None] = [None] * 4
    for slot, tenant, size in steps:
        now = requests[slot]
        if now is None or now[0] != tenant:
            if now is not None:
                now[1].__exit__(None, None, None)
            requests[slot] = now = (tenant, Room(held, tenant))
            taken[slot] = 0
        others = sum(taken)
        own = sum(
            amount for amount, each in zip(taken, requests, strict=True) if each is not None and each[0] == tenant
        )
        try:
            now[1].take(size, "liar")
            taken[slot] += size
        except StatusError as refused:
            if isinstance(refused, TooManyRequests):
                assert own + size > HELD_MAX - others, "there was room"
                assert refused.retry_after == 1
            else:
                assert taken[slot] + size > BYTES_MAX
            # So ends the request.
            now[1].__exit__(None, None, None)
            requests[slot], taken[slot] = None, 0
        assert sum(taken) <= HELD_MAX
    for now in requests:
        if now is not None:
            now[1].__exit__(None, None, None)
    with Room(held, "acme") as room:
        room.take(BYTES_MAX, "liar")
    assert held.total == 0


def test_a_tenant_that_holds_much_leaves_others_room() -> None:
    """However many requests it makes at once, the next tenant's own one is answered."""
    held = HeldAnswers()
    rooms = [Room(held, "acme") for _ in range(40)]
    refused = 0
    for room in rooms:
        try:
            room.take(20 * 1024 * 1024, "liar")
        except TooManyRequests:
            refused += 1
    assert refused > 30
    with Room(held, "globex") as room:
        room.take(60 * 1024 * 1024, "liar")
