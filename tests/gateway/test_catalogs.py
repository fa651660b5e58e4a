"""The catalogs of many spaces, made from the store's log alone (TS10 to TS12)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from gateway.resources import customresources
from gateway.resources.customresources import CustomResources
from gateway.resources.kinds import Catalogs, definitions
from kube.customresources.definitions import CRDS, crd_status
from store.cache import ListKey
from store.pace import TOGETHER_BYTES
from store.types import AllSpaces, Event, EventType, Key, Listing, Range, Stored, Unavailable
from tests.gateway.definitions import definition
from tests.gateway.loopturns import Decodings


def established(
    kind: str, uid: str, *, published: bool = False, schema: Any = None, plural: str = ""
) -> dict[str, Any]:
    crd = definition(kind, schema)
    names = crd["spec"]["names"]
    names |= {"singular": kind.lower(), "listKind": f"{kind}List"}
    crd["metadata"]["uid"] = uid
    if published:
        crd["metadata"]["annotations"] = {"multi-tenancy.k8s.io/published": "true"}
    crd["status"] = crd_status(crd, [], now="2026-01-01T00:00:00Z")
    return crd


async def at_once() -> None:
    """What a read waits for that waits for nothing."""


@dataclass
class Log:
    """Objects with a log, as a store gives them."""

    objects: dict[Key, Stored] = field(default_factory=dict)
    reads: int = 0
    on_read: Callable[[], Awaitable[object]] = at_once
    """Before every read; may raise."""

    def put(self, space: str, crd: dict[str, Any], *, gone: bool = False) -> Event:
        key = Key(space, *CRDS, "", crd["metadata"]["name"])
        data = orjson.dumps(crd)
        if gone:
            del self.objects[key]
        else:
            self.objects[key] = Stored(key, 1, data)
        return Event(EventType.DELETED if gone else EventType.MODIFIED, key, 1, data)

    async def list(
        self, selection: Range | AllSpaces, *, after: ListKey | None = None, limit: int = 0, **_: Any
    ) -> Listing:
        self.reads += 1
        await self.on_read()
        items = [
            item
            for key, item in sorted(self.objects.items())
            if (isinstance(selection, AllSpaces) or key.space == selection.space)
            and (after is None or (key.space, key.namespace, key.name) > after)
        ]
        return Listing(items[: limit or None], 1, len(items[limit:]) if limit else 0)


class Space:
    """What a test looks at."""

    def __init__(self) -> None:
        self.log, self.catalogs = Log(), Catalogs()
        self.redefined: list[Collection[tuple[str, str]]] = []
        self.custom = CustomResources(self.log, self.catalogs, self.redefined.append)  # type: ignore[arg-type]

    def put(self, space: str, crd: dict[str, Any], *, gone: bool = False) -> None:
        self.custom.on_events([self.log.put(space, crd, gone=gone)])

    async def uid(self, space: str, plural: str) -> str:
        await self.custom.ensure(space)
        resource = self.catalogs.of(space).find("example.com", "v1", plural)
        found = resource.definition if resource else ""
        assert found == self.custom.definition(space, "example.com", plural)
        return found


@pytest.fixture
def space() -> Space:
    definitions()
    return Space()


async def test_a_space_without_definitions_costs_nothing(space: Space) -> None:
    await space.custom.load()
    reads = space.log.reads
    for number in range(100):
        await space.custom.ensure(f"root:t{number}")
    assert space.log.reads == reads
    assert space.catalogs.of("root:t1") is space.catalogs.of("root:t2")


async def test_spaces_used_least_recently_are_let_go_and_built_again(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(customresources, "MAX_SPACES", 3)
    for number in range(6):
        space.log.put(f"root:t{number}", established("Thing", f"u{number}"))
    for _ in range(2):
        for number in range(6):
            assert await space.uid(f"root:t{number}", "things") == f"u{number}"
    assert len(space.custom._own) == 3
    space.put("root:t0", established("Thing", "new"))
    assert await space.uid("root:t0", "things") == "new"


async def test_definitions_are_read_one_a_turn_of_the_loop(space: Space) -> None:
    """DOS-03: a thousand large ones of one tenant hold up nobody else; what is written meanwhile is not lost."""
    for number in range(20):
        space.log.put("root:acme", established(f"Thing{number}", f"u{number}"))
    reading = [asyncio.ensure_future(space.custom.ensure("root:acme")) for _ in range(2)]
    turns = 0
    while not all(each.done() for each in reading):
        turns += 1
        if turns == 10:
            space.put("root:acme", established("Late", "late"))
            space.put("root:acme", established("Thing0", "u0"), gone=True)
        await asyncio.sleep(0)
    assert turns > 20
    assert [await space.uid("root:acme", plural) for plural in ("thing0s", "thing1s", "thing19s", "lates")] == [
        "",
        "u1",
        "u19",
        "late",
    ]
    for number in range(20):
        space.put("root:acme", established(f"Thing{number}", f"v{number}"))
    given_up = asyncio.ensure_future(space.custom.ensure("root:acme"))
    for _ in range(5):
        await asyncio.sleep(0)
    given_up.cancel()
    assert [await space.uid("root:acme", plural) for plural in ("thing0s", "thing19s")] == ["v0", "v19"]


async def test_own_definitions_stand_before_published_ones_of_the_same_name_or_kind(space: Space) -> None:
    """TS12."""
    space.put("root", established("Thing", "shared", published=True))
    assert await space.uid("root:acme", "things") == "shared"
    space.put("root:acme", established("Thing", "own"))
    assert await space.uid("root:acme", "things") == "own"
    assert await space.uid("root:globex", "things") == "shared"
    served = [r for r in space.catalogs.of("root:acme") if r.plural == "things"]
    assert len(served) == 1
    space.put("root:acme", established("Thing", "own"), gone=True)
    assert await space.uid("root:acme", "things") == "shared"
    space.put("root", established("Thing", "shared"))
    assert await space.uid("root:acme", "things") == ""
    assert await space.uid("root", "things") == "shared"
    assert [set(changed) for changed in space.redefined] == [{("example.com", "things")}] * 4


async def test_no_definition_takes_the_place_of_a_built_in_kind(space: Space) -> None:
    crd = established("Ingress", "mine")
    crd["metadata"]["name"] = "ingresses.networking.k8s.io"
    crd["spec"] |= {"group": "networking.k8s.io"}
    crd["spec"]["names"]["plural"] = crd["status"]["acceptedNames"]["plural"] = "ingresses"
    space.put("root:acme", crd)
    await space.custom.ensure("root:acme")
    resource = space.catalogs.of("root:acme").find("networking.k8s.io", "v1", "ingresses")
    assert resource is not None
    assert not resource.custom


async def test_owners_are_found_by_kind_in_spaces_that_nobody_uses(space: Space) -> None:
    space.log.put("root:acme", established("Thing", "own"))
    await space.custom.load()
    assert space.custom.resource_of("root:acme", "example.com/v1", "Thing") == ("things:own", True)
    assert space.custom.resource_of("root:globex", "example.com/v1", "Thing") is None
    assert space.custom.resource_of("root:acme", "v1", "ConfigMap") == ("configmaps", True)
    assert space.custom.resource_of("root:acme", "a/b/c", "Thing") is None


async def test_a_lost_log_is_read_anew(space: Space) -> None:
    space.put("root:acme", established("Thing", "own"))
    assert await space.uid("root:acme", "things") == "own"
    space.log.objects.clear()
    space.custom.on_lost()
    await space.custom.ensure("root:acme")
    assert await space.uid("root:acme", "things") == ""


async def test_while_all_is_read_anew_nothing_is_said_of_it(space: Space) -> None:
    """After a restore all clients come back at once: none of them hears that a kind, and so its objects, are not there."""
    space.put("root:acme", established("Thing", "old"))
    assert await space.uid("root:acme", "things") == "old"
    space.log.put("root:acme", established("Thing", "restored"))
    space.custom.on_lost()
    going_on, begun = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await going_on.wait()

    space.log.on_read = wait
    first = asyncio.ensure_future(space.uid("root:acme", "things"))
    await begun.wait()
    assert not space.custom.is_ready("root:acme")
    second = asyncio.ensure_future(space.uid("root:acme", "things"))
    for _ in range(10):
        await asyncio.sleep(0)
        assert space.custom.resource_of("root:acme", "example.com/v1", "Thing") is None
        assert space.custom.resource_of("root:acme", "v1", "ConfigMap") == ("configmaps", True)
    assert not second.done()
    going_on.set()
    assert [await first, await second] == ["restored", "restored"]
    assert space.custom.resource_of("root:acme", "example.com/v1", "Thing") == ("things:restored", True)


@pytest.mark.parametrize("by", ["a database that is away", "a request that is given up"])
async def test_what_could_not_be_read_is_read_by_whoever_asks_next(space: Space, by: str) -> None:
    for number in range(customresources._PAGE + 1):
        space.put("root:acme", established(f"Thing{number}", f"u{number}"))
    await space.custom.load()
    space.custom.on_lost()
    pages = space.log.reads + 1

    async def fail() -> None:
        if space.log.reads > pages:
            raise Unavailable("away") if by == "a database that is away" else asyncio.CancelledError

    space.log.on_read = fail
    with pytest.raises((Unavailable, asyncio.CancelledError)):
        await space.custom.ensure("root:acme")
    assert not space.custom.is_ready("root:acme")
    assert not space.custom.is_ready("root:globex")
    space.log.on_read = at_once
    assert await space.uid("root:acme", "thing0s") == "u0"
    assert await space.uid("root:acme", f"thing{customresources._PAGE}s") == f"u{customresources._PAGE}"


async def test_a_log_that_is_lost_again_while_it_is_read_is_read_once_more(space: Space) -> None:
    space.put("root:acme", established("Thing", "first"))

    async def lose() -> None:
        space.log.on_read = at_once
        space.custom.on_lost()

    space.log.on_read = lose
    await space.custom.load()
    assert space.log.reads == 2
    assert space.custom.is_ready("root:globex")
    assert await space.uid("root:acme", "things") == "first"


async def test_all_are_learnt_in_turns_by_their_bytes(space: Space) -> None:
    """DOS-03: a page of large definitions is no more of a turn than one of small ones."""
    for number in range(20):
        long = {"type": "object", "description": "x" * (TOGETHER_BYTES // 4 if number else 2 * TOGETHER_BYTES)}
        space.log.put("root:acme", established(f"Thing{number}", f"u{number}", schema=long))
    decodings = Decodings()
    with decodings.counting():
        await space.custom.load()
    assert 0 < decodings.most <= 4
    assert {space.custom.definition("root:acme", "example.com", f"thing{number}s") for number in range(20)} == {
        f"u{number}" for number in range(20)
    }
