"""The direct connections: what they answer, and what they do when the line goes dead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import pytest

from store.postgresql.arrays import Texts
from store.postgresql.dedicatedconnection import DedicatedConnection
from store.postgresql.statements import CHANNEL, NOTIFY, STATE


def end_all(conninfo: str, application: str) -> None:
    """End the connections of an application, as an operator or a failover would."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (application,)
        )


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not look():
            await asyncio.sleep(0.01)


async def test_answers_and_refusals_come_in_order(conninfo: str) -> None:
    connection = DedicatedConnection(conninfo, "dedicated-answers")
    try:
        result = await connection.ask(STATE)
        assert (result.get_value(0, 0) or b"").isdigit()
        large = await connection.ask(
            "SELECT array_length(%s, 1), octet_length(%s)", (Texts(["ä"] * 3), "x" * 8_000_000)
        )
        assert [large.get_value(0, column) for column in (0, 1)] == [b"3", b"8000000"]
        with pytest.raises(psycopg.errors.DivisionByZero):
            await connection.ask("SELECT 1 / %s", (0,))
        assert (await connection.ask("SELECT %s + 1", (41,))).get_value(0, 0) == b"42"
    finally:
        connection.close()


async def test_a_dead_line_is_an_error_that_may_be_repeated(conninfo: str) -> None:
    connection = DedicatedConnection(conninfo, "dedicated-dead")
    try:
        await connection.ask(STATE)
        question = asyncio.create_task(connection.ask("SELECT pg_sleep(%s)", (30,)))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(end_all, conninfo, "dedicated-dead")
        with pytest.raises(psycopg.OperationalError):
            await question
        assert (await connection.ask("SELECT 1")).get_value(0, 0) == b"1"
    finally:
        connection.close()


async def test_whoever_gives_up_leaves_no_answer_for_the_next(conninfo: str) -> None:
    connection = DedicatedConnection(conninfo, "dedicated-gone")
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await connection.ask("SELECT 'late', pg_sleep(%s)", (1,))
        assert (await connection.ask("SELECT 'mine'")).get_value(0, 0) == b"mine"
    finally:
        connection.close()


async def test_a_listener_hears_and_learns_that_the_line_is_dead(conninfo: str) -> None:
    heard: list[bytes] = []
    dead = asyncio.Event()
    listener = DedicatedConnection(conninfo, "dedicated-listener", channel=CHANNEL, heard=heard.append, lost=dead.set)
    speaker = DedicatedConnection(conninfo, "dedicated-speaker")
    try:
        await listener.ask(STATE)
        await speaker.ask(NOTIFY, ("7",))
        await until(lambda: heard == [b"7"])
        await asyncio.to_thread(end_all, conninfo, "dedicated-listener")
        async with asyncio.timeout(300):
            await dead.wait()
        await listener.ask(STATE)
        await speaker.ask(NOTIFY, ("8",))
        await until(lambda: heard == [b"7", b"8"])
    finally:
        listener.close()
        speaker.close()
