"""What a process holds of the database while it reads is bounded by bytes: the number of changes says nothing of them (DOS-03)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import psycopg.pq.abc
import pytest

from store.engine import Engine, Options
from store.log import follower
from store.past import Past
from store.postgresql import dedicatedconnection
from store.postgresql.statements import PAGE_BYTES, REPLAY_BYTES
from store.types import AllSpaces, Create, Event, Range, Stored, Update
from tests.store.elsewhere import Elsewhere
from tests.store.objects import PODS, body, pod

LARGE = PAGE_BYTES // 16
CHANGES = 40
"""Each with what was there before: five pages."""

BOUND = PAGE_BYTES + 3 * LARGE
"""A page, and one event behind it."""


class Answers:
    """How large the answers of the database were."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def note(self, result: psycopg.pq.abc.PGresult) -> psycopg.pq.abc.PGresult:
        """Add one."""
        cells = ((row, column) for row in range(result.ntuples) for column in range(result.nfields))
        self.sizes.append(sum(len(result.get_value(*cell) or b"") for cell in cells))
        return result


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Of all that engines ask from now on."""
    answers, ask = Answers(), dedicatedconnection.DedicatedConnection.ask

    async def noted(self: Any, *question: Any, **form: Any) -> Any:
        return answers.note(await ask(self, *question, **form))

    monkeypatch.setattr(dedicatedconnection.DedicatedConnection, "ask", noted)
    return answers


async def write(store: Engine, names: Sequence[str]) -> list[Stored]:
    """A large object of each name, as often as the name comes."""
    kept: dict[str, Stored] = {}
    written = []
    for number, name in enumerate(names):
        before = kept.get(name)
        new = body(name, number=number, text="x" * LARGE)
        operation = Create(pod(name), new) if before is None else Update(pod(name), before.revision, new)
        (kept[name],) = await store.commit(operation)
        written.append(kept[name])
    return written


async def test_a_process_that_begins_reads_back_no_further_than_half_a_page(conninfo: str, answers: Answers) -> None:
    async with Engine(conninfo) as store:
        await write(store, ["one"] * CHANGES)
        answers.sizes.clear()
        async with Engine(conninfo) as other:
            assert other.revision == store.revision
            assert LARGE < max(answers.sizes) <= PAGE_BYTES // 2


async def test_a_process_that_lags_catches_up_page_by_page(
    conninfo: str, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in order, none twice, at once and not with the polls."""
    seen: list[int] = []

    def hear(events: Sequence[Event]) -> None:
        seen.extend(event.revision for event in events)

    with Elsewhere(conninfo) as elsewhere:
        async with Engine(conninfo, Options(poll_seconds=600.0)) as store:
            store.subscribe(hear)
            # This one stands still meanwhile.
            elsewhere.answer(lambda engine: write(engine, ["one"] * CHANGES))
            answers.sizes.clear()
            await store.get(pod("one"))
            assert seen == list(range(1, CHANGES + 1))
            assert LARGE < max(answers.sizes) <= BOUND


async def test_a_page_that_one_event_fills_is_not_the_last(conninfo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large what follows is: one event at least comes with each page."""
    pages: list[int] = []
    page_of: Callable[..., follower.Page] = follower.page_of

    def noted(*answer: Any) -> follower.Page:
        page = page_of(*answer)
        if threading.current_thread() is threading.main_thread():
            # Not those of the engine elsewhere.
            pages.append(len(page.events))
        return page

    monkeypatch.setattr(follower, "page_of", noted)
    monkeypatch.setattr(follower, "FOLLOW", follower.FOLLOW.replace(str(PAGE_BYTES), "1"))
    with Elsewhere(conninfo) as elsewhere:
        async with Engine(conninfo, Options(poll_seconds=600.0)) as store:
            elsewhere.answer(lambda engine: write(engine, ["one"] * 5))
            pages.clear()
            found = await store.get(pod("one"))
            assert found is not None
            assert found.revision == 5
            assert pages[:5] == [1] * 5


async def test_a_doubt_is_settled_by_the_last_page(conninfo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any word of it: whoever asks after a silence decides by all that there was when he asked, in as many pages."""
    monkeypatch.setattr(follower, "FOLLOW", follower.FOLLOW.replace(str(PAGE_BYTES), "1"))
    monkeypatch.setattr(follower.Follower, "_heard", lambda *_: None)
    with Elsewhere(conninfo) as elsewhere:
        async with Engine(conninfo, Options(poll_seconds=600.0)) as store:
            elsewhere.answer(lambda engine: write(engine, ["one"] * 5))
            assert store.revision == 0
            await store._verify_history()
            assert store.revision == 5
            assert store.healthy


async def test_the_past_is_replayed_page_by_page(conninfo: str, answers: Answers) -> None:
    """A watch from long ago gets all of it in order, and a list at an old revision what there was."""
    async with Engine(conninfo, Options(window_bytes=1)) as store:
        written = await write(store, ["one"] * CHANGES)
        answers.sizes.clear()
        for selection in (PODS, AllSpaces("", "pods")):
            revisions: list[int] = []
            watch = store.watch(selection, since=1)
            while len(revisions) < CHANGES - 1:
                events, _ = await anext(watch)
                revisions += [event.revision for event in events]
            await watch.aclose()
            assert revisions == list(range(2, CHANGES + 1))
            past = await store.list(selection, exact=3)
            assert list(past.items) == [written[2]]
        assert LARGE < max(answers.sizes) <= REPLAY_BYTES + 3 * LARGE


async def test_lists_of_the_past_of_one_space_take_turns(conninfo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each holds meanwhile nobody holds twice."""
    under_way, most = Counter[str](), Counter[str]()
    undone = Past._undone

    async def counted(self: Past, selection: Any, revision: int, after: Any) -> Any:
        under_way[selection.space] += 1
        most[selection.space] = max(most[selection.space], under_way[selection.space])
        try:
            return await undone(self, selection, revision, after)
        finally:
            under_way[selection.space] -= 1

    monkeypatch.setattr(Past, "_undone", counted)
    others = Range("root:globex", "", "pods")
    async with Engine(conninfo, Options(window_bytes=1)) as store:
        written = await write(store, ["one"] * 8)
        (its,) = await store.commit(Create(pod("its", space=others.space), body("its")))
        await store.commit(Update(its.key, its.revision, body("its", more=1)))
        ask = [(PODS, 1 + number % 8) for number in range(16)]
        lists = await asyncio.gather(
            *(store.list(selection, exact=revision) for selection, revision in [*ask, (others, its.revision)])
        )
        assert [list(each.items) for each in lists] == [*([written[revision - 1]] for _, revision in ask), [its]]
    assert most == {PODS.space: 1, others.space: 1}


async def test_objects_are_loaded_page_by_page(conninfo: str, answers: Answers) -> None:
    names = [f"pod-{number:02}" for number in range(CHANGES)]
    async with Engine(conninfo) as store:
        written = await write(store, names)
    answers.sizes.clear()
    async with Engine(conninfo, Options(look_back_events=0)) as store:
        for selection in (PODS, AllSpaces("", "pods")):
            assert list((await store.list(selection)).items) == written
    assert LARGE < max(answers.sizes) <= BOUND
