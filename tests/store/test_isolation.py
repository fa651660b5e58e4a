"""TS3: equal names in two spaces never meet, in no history of writes and by no way of reading."""

from __future__ import annotations

import asyncio
import re
from importlib import import_module
from itertools import count
from typing import Any

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.engine import Engine, Options
from store.postgresql import statements
from store.types import AllSpaces, Check, Create, Delete, EventType, Key, PreconditionFailed, Range, Update
from store.watches import Watch

continuity = import_module("store.migrations.0003_continuity")
_runs = count()

# "t1" as a space, a namespace and a name: the registry keys of TS9 of such objects are each other's prefixes.
SPACES = ("root", "t1", "t1:t1")
STEPS = st.tuples(
    st.sampled_from(["create", "update", "delete", "stale", "check", "both"]),
    st.sampled_from(SPACES),
    st.sampled_from(["", "t1", "default"]),
    st.sampled_from(["t1", "x"]),
    st.integers(0, 9),
)


def key_of(run: int, step: tuple[str, str, str, str, int]) -> Key:
    _, space, namespace, name, _ = step
    return Key(f"root:{run}:{space}", "", "pods", namespace, name)


def body_of(key: Key, value: int) -> dict[str, Any]:
    return {"metadata": {"name": key.name, "tenant": key.space}, "value": value}


def meaning(data: bytes) -> tuple[str, int]:
    body = orjson.loads(data)
    return body["metadata"]["tenant"], body["value"]


Model = dict[Key, tuple[int, int]]
"""What must be there: the revision and the value of every key."""


async def act(store: Engine, model: Model, key: Key, kind: str, value: int) -> None:
    """Do one step to the store and to the model."""
    revision = model.get(key, (0, 0))[0]
    other = key._replace(space=key.space + ":other")
    match kind:
        case "create":
            operations: list[Any] = [Create(key, body_of(key, value))]
        case "update":
            operations = [Update(key, revision, body_of(key, value))]
        case "delete":
            operations = [Delete(key, revision, body_of(key, value))]
        case "stale":
            operations = [Update(key, revision + 1, body_of(key, value))]
        case "check":
            operations = [Check(key, revision), Create(other, body_of(other, value))]
        case _:
            operations = [Update(key, revision, body_of(key, value)), Create(other, body_of(other, value))]
    expected: Model | None = dict(model)
    for operation in operations:
        now = model.get(operation.key, (0, 0))[0]
        wanted = 0 if isinstance(operation, Create) else operation.expected
        if now != wanted or (now == 0 and isinstance(operation, Update | Delete)):
            expected = None
            break
    if expected is None:
        try:
            await store.commit(*operations)
        except PreconditionFailed as refusal:
            assert (refusal.current.revision if refusal.current else 0) == model.get(refusal.key, (0, 0))[0]
            return
        raise AssertionError(f"{operations} should have been refused")
    results = await store.commit(*operations)
    for operation, stored in zip([o for o in operations if not isinstance(o, Check)], results, strict=True):
        assert stored.key == operation.key
        if isinstance(operation, Delete):
            del model[operation.key]
        else:
            model[operation.key] = (stored.revision, value)


def visible(model: Model, space: str, namespace: str | None) -> list[tuple[Key, int, str, int]]:
    return [
        (key, revision, key.space, value)
        for key, (revision, value) in sorted(model.items())
        if key.space == space and namespace in (None, key.namespace)
    ]


async def check(store: Engine, model: Model, spaces: list[str], exact: int | None = None) -> None:
    for space in spaces:
        for namespace in (None, "", "t1", "default"):
            listing = await store.list(Range(space, "", "pods", namespace), exact=exact)
            assert [(s.key, s.revision, *meaning(s.data)) for s in listing.items] == visible(model, space, namespace)
        if exact is None:
            for key in {key._replace(space=space) for key in model}:
                stored = await store.get(key)
                found = (stored.revision, meaning(stored.data)[1]) if stored else None
                assert found == model.get(key)
    listing = await store.list(AllSpaces("", "pods"), exact=exact)
    seen = [(s.key, s.revision) for s in listing.items if s.key.space in spaces]
    assert seen == [(key, revision) for key, (revision, _) in sorted(model.items())]


async def rebuild(watch: Watch, until: int) -> Model:
    """What a client that only watches believes."""
    state: Model = {}
    async for events, revision in watch:
        for event in events:
            if event.type is EventType.DELETED:
                del state[event.key]
            else:
                assert (event.key in state) == (event.type is EventType.MODIFIED)
                state[event.key] = (event.revision, meaning(event.data)[1])
        if revision >= until:
            break
    return state


@given(history=st.lists(STEPS, max_size=25))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_spaces_agree_with_separate_dictionaries(conninfo: str, history: list[tuple[str, str, str, str, int]]) -> None:
    async def play() -> None:
        run = next(_runs)
        spaces = [f"root:{run}:{space}{tail}" for space in SPACES for tail in ("", ":other")]
        options = Options(window_events=8, cache_bytes=5_000, look_back_events=4)
        async with Engine(conninfo, options) as one, Engine(conninfo, options) as other:
            model: Model = {}
            past: list[tuple[int, Model]] = []
            begin = one.revision
            for number, step in enumerate(history):
                await act((one, other)[number % 2], model, key_of(run, step), step[0], step[4])
                past.append((max(one.revision, other.revision), dict(model)))
            for store in (one, other):
                await check(store, model, spaces)
            for revision, then in past[:: max(len(past) // 3, 1)]:
                await check(other, then, spaces, exact=revision)
            for space in spaces if model else ():
                watch = one.watch(Range(space, "", "pods"), since=begin)
                assert await rebuild(watch, one.revision) == {k: v for k, v in model.items() if k.space == space}

    asyncio.run(asyncio.wait_for(play(), 300))


def test_every_statement_over_objects_or_log_names_the_space() -> None:
    """All but the follower's and the controllers', which serve every space, sizes, and the system tenant's reading (TS14)."""
    everywhere = {"FOLLOW", "LOOK_BACK", "LOAD_EVERYWHERE", "REPLAY_EVERYWHERE", "MENTIONING", "NAMESPACES_LACKING"}
    everywhere |= {"SIZES", "SPACE_BYTES"}
    reading = {
        name: re.search(r"\bspace = (ANY \()?%s|USING \(space|\(space, ':', 2\) = %s", text) is not None
        for name, text in vars(statements).items()
        if name.isupper() and not name.startswith("_") and re.search(r"(FROM|JOIN) store_(object|event)", str(text))
    }
    assert reading == {name: name not in everywhere for name in reading}
    named = {"BELOW", "CURRENT", "HOLDINGS", "LOAD_RANGE", "REPLAY_RANGE", "REPLAY_SPACES", "RESOURCES", "SIZE"}
    assert everywhere | named == reading.keys()
    # What writes meets objects by their whole identity, everywhere.
    whole = r"\(\w+\.\"group\", \w+\.resource, \w+\.space, \w+\.namespace, \w+\.name\)"
    touched = re.findall(r"(?:JOIN|FROM|UPDATE) store_object AS o\b", continuity.WRITE)
    assert len(touched) == len(re.findall(whole.replace("\\w+", "o", 1), continuity.WRITE)) == 4
