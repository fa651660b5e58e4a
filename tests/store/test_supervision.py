"""Background tasks do not end: whatever they meet is logged and counted, and they begin again."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import psycopg
import pytest

from store.supervision import Supervised, restarts

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("error", [psycopg.OperationalError, psycopg.errors.InsufficientPrivilege, KeyError, None])
async def test_a_task_that_ends_begins_anew_and_is_counted(error: type[Exception] | None) -> None:
    begun = 0
    again = asyncio.Event()

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            if error is not None:
                raise error
            return
        again.set()
        await asyncio.Event().wait()

    name = f"test-{error and error.__name__}"
    task = Supervised(name, work)
    task.start()
    async with asyncio.timeout(300):
        await again.wait()
    assert restarts[name] == 2
    await task.stop()
    assert begun == 3


async def test_what_begins_anew_by_itself_is_no_failure_and_what_is_stopped_stays_so() -> None:
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    task = Supervised("test-anew", work)

    async def until(number: int) -> None:
        async with asyncio.timeout(300):
            while begun < number:
                await asyncio.sleep(0)

    task.start()
    await until(1)
    task.restart()
    await until(2)
    assert restarts["test-anew"] == 0
    await task.stop()
    for _ in range(20):
        await asyncio.sleep(0)
    assert begun == 2


async def test_whoever_gives_up_to_wait_for_an_end_takes_it_from_nobody_else() -> None:
    """As who leads no more while it waited for the follower of a cluster that is gone."""
    go, done = asyncio.Event(), False

    async def work() -> None:
        nonlocal done
        try:
            await asyncio.Event().wait()
        finally:
            await go.wait()
            done = True

    async def settle() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    task = Supervised("test-given-up", work)
    task.start()
    await settle()
    first = asyncio.create_task(task.stop())
    await settle()
    first.cancel()
    second = asyncio.create_task(task.stop())
    await settle()
    assert not second.done()
    go.set()
    await second
    assert done


async def test_what_is_stopped_has_put_everything_away_before_its_successor_begins() -> None:
    """As a follower of a cluster does that is registered anew by the same name."""
    kept: dict[str, int] = {}

    async def follow(number: int) -> None:
        kept["cluster"] = number
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            del kept["cluster"]

    for number in range(3):
        task = Supervised("test-successor", lambda number=number: follow(number))
        task.start()
        while "cluster" not in kept:
            await asyncio.sleep(0)
        assert kept == {"cluster": number}
        await task.stop()
        assert kept == {}


async def test_work_that_does_not_notice_its_end_is_ended_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.supervision.CANCEL_SECONDS", 0.01)
    missed = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            missed.set()
        await asyncio.Event().wait()

    task = Supervised("test-missed", work)
    task.start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await task.stop()
    assert missed.is_set()
    assert [each for each in asyncio.all_tasks() if each is not asyncio.current_task()] == []


async def test_an_error_at_the_end_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError("what was put away twice")

    task = Supervised("test-error", work)
    task.start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await task.stop()
    (record,) = caplog.records
    assert "test-error" in record.getMessage()


# Tasks that somebody waits for, or that end with what they are for: their errors reach whoever began them.
AWAITED = {
    ("gateway/server/streaming.py", "on_came"),
    ("gateway/handlers/acrossnamespaces/parts.py", "read_all"),
    ("gateway/handlers/acrossnamespaces/watching.py", "begin"),
    ("gateway/handlers/acrossnamespaces/watching.py", "chunks"),
    ("gateway/upstream/clusters.py", "roles"),
    ("gateway/upstream/placed/rights.py", "_once"),
    ("gateway/upstream/recording/keeping.py", "start"),  # its failure ends the session
    ("gateway/upstream/recording/registry.py", "_behind"),  # waited for at the stop, its failure logged
    ("gateway/upstream/tokens.py", "_renewal"),
    ("gateway/http/protocol.py", "_serve"),
    ("gateway/process/fairexecutor.py", "run"),
    ("gateway/process/heavyrequests.py", "_let_go"),
    ("gateway/process/streams.py", "_recheck_pending"),
    ("gateway/process/streams.py", "_schedule_recheck"),
    ("access/ttlcache.py", "ask"),
    ("access/admission/tenancy/placedledger.py", "change"),  # its failure is told to everybody who waits for it
    ("access/admission/tenancy/placedquota.py", "touch_soon"),  # the next that ends begins another
    ("access/authentication/oidc.py", "_refresh"),
    ("access/authentication/portal.py", "follow"),  # of a group that is supervised
    ("access/authorization/modes/rbac.py", "of"),
    ("store/fairqueue.py", "run"),
    ("store/engine.py", "_barrier"),
    ("store/engine.py", "_loading"),
    ("store/supervision.py", "start"),
    ("store/supervision.py", "_run"),
}


def test_every_task_of_the_server_is_supervised_or_awaited() -> None:
    """The class: no task of an API server's process, on whichever floor, can end without anybody noticing."""
    found = set()
    for folder in ("gateway", "access", "tenants", "store", "audit"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for function in ast.walk(ast.parse(path.read_text())):
                if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                for node in ast.walk(function):
                    if isinstance(node, ast.Attribute) and node.attr in ("create_task", "ensure_future"):
                        found.add((str(path.relative_to(ROOT)), function.name))
    assert found == AWAITED


def test_no_wait_takes_what_comes_as_it_ends_for_an_answer() -> None:
    """``asyncio.wait_for`` before Python 3.12 forgets a cancellation that meets the end of what it waits for.

    A leader that was told again and again went on leading after its end; ``asyncio.timeout`` forgets nothing.
    """
    found = []
    for folder in ("gateway", "access", "tenants", "store", "audit", "portal"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            found += [str(path) for called in calls if ast.unparse(called) == "asyncio.wait_for"]
    assert found == []
