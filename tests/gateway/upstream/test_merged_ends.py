"""Lists and watches across namespaces of which one ends or comes: nobody keeps what is no more (GW4, GW5)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing

import pytest

from gateway.handlers.acrossnamespaces import listing, watching
from kube.requests.status import Expired
from tests.databases import migrated
from tests.gateway.upstream.asking import until
from tests.gateway.upstream.mergedspace import (
    CLAIMS,
    GROUPS,
    NO_PAGE,
    Space,
    answer,
    claim,
    config_map,
    event,
    namespaces,
    space,
    status,
    told,
)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("merged-ends") as url:
        yield url


async def _again(there: Space) -> None:
    await there.remove("acme-good")
    await there.place("acme-good", "good", "w9")


ENDS: dict[str, Callable[[Space], Awaitable[None]]] = {
    "suspended": lambda there: there.place("acme-good", "good", "w1", "Suspended"),
    "being deleted": lambda there: there.place("acme-good", "good", "w1", "Terminating"),
    "gone": lambda there: there.remove("acme-good"),
    "gone, and there again as another": _again,
    "another's by its name": lambda there: there.place("acme-good", "good", "w9"),
}


@pytest.mark.parametrize("end", ENDS)
async def test_whoever_comes_back_is_told_that_a_namespace_has_ended_meanwhile(database: str, end: str) -> None:
    """To a watch with its version, to a list with its token, and to a list of what was there at a version."""
    async with space(database) as there:
        for side in there.sides.values():
            side.continues = "more"
        body, _ = await there.list(limit="500")
        number, token = body["metadata"]["resourceVersion"], body["metadata"]["continue"]
        await ENDS[end](there)
        with pytest.raises(Expired):
            await there.watch(resourceVersion=number)
        with pytest.raises(Expired):
            await there.list(limit="500", **{"continue": token})
        with pytest.raises(Expired):
            await there.list(resourceVersion=number, resourceVersionMatch="Exact")
        there.sides["good"].continues = there.sides["evil"].continues = ""
        anew, _ = await there.list()
        assert ("acme-good" in namespaces(anew)) == (
            end in ("gone, and there again as another", "another's by its name")
        )
        # Whoever takes anything that is not older takes what there is.
        later, _ = await there.list(resourceVersion=number, resourceVersionMatch="NotOlderThan")
        assert namespaces(later) == namespaces(anew)
        async with aclosing(await there.watch(resourceVersion=anew["metadata"]["resourceVersion"])) as chunks:
            there.sides["evil"].events.put_nowait(event("ADDED", config_map("e", "acme-evil", 8)))
            assert await anext(told(chunks)) == ("ADDED", "e")


@pytest.mark.parametrize("end", ENDS)
async def test_an_open_watch_ends_with_a_namespace(database: str, end: str) -> None:
    async with space(database) as there:
        body, _ = await there.list()
        async with aclosing(await there.watch(resourceVersion=body["metadata"]["resourceVersion"])) as chunks:
            events = told(chunks)
            there.sides["good"].events.put_nowait(event("ADDED", config_map("g", "acme-good", 8)))
            assert await anext(events) == ("ADDED", "g")
            await ENDS[end](there)
            assert [each async for each in events] == [("ERROR", "410")]
    assert len(there.streams) == 0


async def test_parts_that_end_at_once_are_told_of_once_and_last(database: str) -> None:
    """Clients take an error for the last word, and so does whoever makes messages of the lines."""
    async with space(database) as there:
        body, _ = await there.list()
        async with aclosing(await there.watch(resourceVersion=body["metadata"]["resourceVersion"])) as chunks:
            there.sides["good"].events.put_nowait(event("ADDED", config_map("g", "acme-good", 8)))
            assert b'"g"' in await anext(chunks)
            for side in there.sides.values():
                side.events.put_nowait(event("ERROR", status(410)))
            await until(lambda: not any(upstream.connections for upstream in there.upstreams.values()))
            assert [each async for each in told(chunks)] == [("ERROR", "410")]


async def test_a_namespace_that_came_meanwhile_is_shown_from_its_beginning(database: str) -> None:
    async with space(database) as there:
        await there.remove("acme-good")
        body, _ = await there.list()
        await there.place("acme-good", "good", "w1")
        query = {"resourceVersion": body["metadata"]["resourceVersion"], "allowWatchBookmarks": "true"}
        async with aclosing(await there.watch(**query)) as chunks, aclosing(told(chunks)) as events:
            seen = [await anext(events)]
            while seen[-1][0] == "BOOKMARK":
                seen.append(await anext(events))
            assert seen[-1] == ("ADDED", "there")
            await there.remove("acme-good")
            assert [each async for each in events][-1] == ("ERROR", "410")


@pytest.mark.parametrize("gone", [NO_PAGE, answer(404), answer(410)], ids=["no group", "no such kind", "compacted"])
async def test_what_a_cluster_shows_no_more_is_believed_once_a_minute(
    database: str, gone: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A door that opens a watch of a cluster anew may find nothing where its client has been told of something."""
    monkeypatch.setattr(watching, "_PAUSES", (0.01,))
    async with space(database) as there:
        there.path, there.sides["evil"].discovery = CLAIMS, GROUPS | {"/apis/resource.k8s.io/v1": {"resources": []}}
        there.sides["evil"].harm["watch"] = gone
        async with aclosing(await there.watch()) as chunks:
            assert [each async for each in told(chunks)][-1] == ("ERROR", "410")
        async with aclosing(await there.watch()) as chunks, aclosing(told(chunks)) as events:
            assert [await anext(events) for _ in range(2)]
            before, following = there.sides["evil"].watches, asyncio.ensure_future(anext(events))
            await until(lambda: there.sides["evil"].watches > before + 2)
            there.sides["good"].events.put_nowait(event("ADDED", claim("g", "acme-good", 8)))
            assert await following == ("ADDED", "g")


async def test_an_open_watch_ends_with_the_right_to_one_of_its_namespaces(database: str) -> None:
    """CT-07: whoever may still list the kind everywhere lists anew, without what a RoleBinding had given."""
    async with space(database) as there:
        there.account, there.group, there.bound = "editor", "tenantry:viewer", {"acme-evil", "acme-good"}
        body, _ = await there.list()
        assert namespaces(body) == {"here", "acme-evil", "acme-good"}
        number = body["metadata"]["resourceVersion"]
        async with aclosing(await there.watch(resourceVersion=number)) as chunks, aclosing(told(chunks)) as events:
            there.sides["good"].events.put_nowait(event("ADDED", config_map("g", "acme-good", 8)))
            assert await anext(events) == ("ADDED", "g")
            # What is as before ends nothing.
            there.streams.reauthorize(None)
            there.sides["evil"].events.put_nowait(event("ADDED", config_map("e", "acme-evil", 8)))
            assert await anext(events) == ("ADDED", "e")
            there.bound.remove("acme-evil")
            there.streams.reauthorize(None)
            (stream,) = there.streams._open
            await stream.ended
            there.sides["evil"].events.put_nowait(event("ADDED", config_map("later", "acme-evil", 9)))
            assert [each async for each in events] == [("ERROR", "410")]
        body, _ = await there.list()
        assert namespaces(body) == {"here", "acme-good"}
        # What could be seen from the start is what the right to is asked about.
        version = body["metadata"]["resourceVersion"]
        async with aclosing(await there.watch(resourceVersion=version)) as chunks, aclosing(told(chunks)) as events:
            there.streams.reauthorize(None)
            there.sides["good"].events.put_nowait(event("ADDED", config_map("h", "acme-good", 9)))
            assert await anext(events) == ("ADDED", "h")


async def test_nothing_of_a_namespace_is_shown_by_a_list_that_took_long_once_the_right_to_it_has_ended(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PROMPT_SECONDS", 0.0)
    async with space(database) as there:
        there.account, there.group, there.bound = "editor", "tenantry:viewer", {"acme-evil", "acme-good"}
        body, _ = await there.list()
        assert namespaces(body) == {"here", "acme-evil", "acme-good"}
        recheck = there.recheck

        async def ends() -> None:
            await recheck()
            there.bound.clear()

        monkeypatch.setattr(there, "recheck", ends)
        with pytest.raises(Expired):
            await there.list()
        body, _ = await there.list()
        assert namespaces(body) == {"here"}


async def test_a_space_is_known_to_have_got_a_placed_namespace(database: str) -> None:
    """Each time that one comes into use, and by nothing else; whoever watches the store's alone is asked again then."""
    async with space(database) as there:
        told_of: list[str] = []
        there.placements.on_come = told_of.append
        before = there.placements.come("root:acme")
        await there.place("acme-good", "good", "w1", "Suspended")
        await there.place("acme-good", "good", "w1")
        await there.remove("acme-good")
        await there.place("acme-good", "good", "w1", "Pending")
        await there.place("acme-good", "good", "w2")
        await until(lambda: len(told_of) == 2)
        await asyncio.sleep(0)
        assert (there.placements.come("root:acme") - before, told_of) == (2, ["root:acme"] * 2)
