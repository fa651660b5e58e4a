"""``store_commit``: what it tries first has the same effect as what it falls back to."""

from __future__ import annotations

import random
from itertools import product

import psycopg
import pytest

from kube.requests.logicalclusters import registry_key
from store.log.compaction import EXTENT
from store.log.preconditions import NO_POSITION, LogPosition, answer_of, outcomes_of, parameters_of, rows_of
from store.postgresql.dedicatedconnection import BINARY, DedicatedConnection
from store.postgresql.statements import COMMIT, EXTEND
from store.types import Check, Create, Delete, Operation, PreconditionFailed, Update
from tests.store.objects import body, pod

NAMES = "abcdefgh"


def state_of(connection: psycopg.Connection) -> LogPosition:
    row = connection.execute("SELECT epoch::text, revision, batch FROM store_revision").fetchone()
    assert row is not None
    return LogPosition(*row)


def held(connection: psycopg.Connection, space: str) -> dict[str, int]:
    return dict(connection.execute("SELECT name, revision FROM store_object WHERE space = %s", (space,)).fetchall())


def logged(connection: psycopg.Connection, space: str) -> list[tuple[object, ...]]:
    """The space's log without what differs between spaces: revisions and identities."""
    return connection.execute(
        "SELECT type, name, previous IS NULL, length(data) > 50 FROM store_event WHERE space = %s ORDER BY revision",
        (space,),
    ).fetchall()


def drawn(chance: random.Random, space: str, objects: dict[str, int], names: list[str]) -> list[Operation]:
    """One write: each operation mostly meets what it expects."""
    operations: list[Operation] = []
    for name in names:
        revision = objects.get(name, 0) if chance.random() < 0.9 else 10_000
        key = pod(name, space=space)
        kind = chance.choice("cudk")
        if kind == "k":
            operations.append(Check(key, revision))
        elif kind == "c" or not objects.get(name):
            operations.append(Create(key, body(name)))
        elif kind == "u":
            operations.append(Update(key, revision, body(name, x=chance.random())))
        else:
            operations.append(Delete(key, revision, body(name)))
    return operations


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_tried_first_is_what_the_rows_would_have_decided(conninfo: str, seed: int) -> None:
    """The same writes, drawn at random, in two spaces: one by who knows the counter, one by who knows nothing."""
    committing = DedicatedConnection(conninfo, "commit")
    tried = 0
    try:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            for number in range(40):
                shapes = []
                for space in ("root:knows", "root:asks"):
                    chance = random.Random(seed * 1000 + number)
                    names = chance.sample(NAMES, chance.choice((1, 2, 3, 5, 8)))
                    cuts = sorted(chance.sample(range(1, len(names) + 1), chance.randint(1, len(names))))
                    parts = [names[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(names)], strict=True)]
                    before, objects = state_of(connection), held(connection, space)
                    writes = [rows_of(drawn(chance, space, objects, part)) for part in parts if part]
                    known = before if space == "root:knows" else NO_POSITION
                    result = await committing.ask(
                        COMMIT, parameters_of(writes, known, number * 2 + (space == "root:asks") + 1), form=BINARY
                    )
                    answer = answer_of(result)
                    assert answer.outcome == "kept"
                    assert answer.before == (before.revision, before.batch)
                    assert answer.after == state_of(connection)
                    outcomes, events = outcomes_of(writes, answer)
                    given = [event.revision for event in events]
                    assert given == list(range(before.revision + 1, before.revision + 1 + len(events)))
                    assert all(
                        held(connection, space).get(e.key.name) == e.revision for e in events if e.type != "DELETED"
                    )
                    refused = [isinstance(outcome, PreconditionFailed) for outcome in outcomes]
                    tried += space == "root:knows" and bool(events) and not any(refused)
                    previous = [event.previous is None for event in events]
                    shapes.append(
                        (refused, [event.type for event in events], previous, sorted(held(connection, space)))
                    )
                assert shapes[0] == shapes[1]
            assert logged(connection, "root:knows") == logged(connection, "root:asks")
            assert tried > 5
    finally:
        committing.close()


async def test_who_knows_the_counter_asks_for_one_lock_and_nothing_else(conninfo: str) -> None:
    """The way that is tried first is the way that is gone: ``store_write`` is not called for it."""
    committing = DedicatedConnection(conninfo, "commit", session="SET track_functions TO 'all'")
    try:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            for size in (1, 3, 4, 20):
                known = state_of(connection)
                writes = [rows_of([Create(pod(f"x{size}-{number}"), body("x"))]) for number in range(size)]
                await committing.ask(COMMIT, parameters_of(writes, known, size), form=BINARY)
            calls = "SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname = 'store_write'"
            await committing.ask("SELECT pg_stat_force_next_flush()")
            await committing.ask("SELECT 1")
            assert connection.execute(calls).fetchone() == (0,)
            await committing.ask(COMMIT, parameters_of(writes, known, 99), form=BINARY)
            await committing.ask("SELECT pg_stat_force_next_flush()")
            await committing.ask("SELECT 1")
            assert connection.execute(calls).fetchone() == (1,)
    finally:
        committing.close()


PARTS = (
    ("apps", "metrics.k8s.io"),
    ("pods", "jobs"),
    ("root", "root:t1", "root:t1:team", "elsewhere"),
    ("", "kube"),
    ("a",),
)


def test_the_database_calls_an_object_as_we_do(conninfo: str) -> None:
    """TS9: for people and tools that look into the tables."""
    with psycopg.connect(conninfo) as connection:
        for group, plural, space, namespace, name in product(("", *PARTS[0]), *PARTS[1:]):
            row = connection.execute(
                "SELECT store_registry_key(%s, %s, %s, %s, %s)", (group, plural, space, namespace, name)
            ).fetchone()
            kept = group if "." in group else ""
            assert row == (registry_key(space, plural, group=kept, namespace=namespace, name=name),)


def test_nobody_gathers_statistics_of_the_log(conninfo: str) -> None:
    """They would be of revisions that nobody asks for any more; also of partitions that are made later."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(EXTEND, (EXTENT[0], EXTENT[1] + 2))
        options = connection.execute(
            "SELECT reloptions FROM pg_class WHERE oid IN"
            " (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'store_event'::regclass)"
        ).fetchall()
    assert len(options) > EXTENT[1] + 2
    assert set(map(str, options)) == {"(['autovacuum_analyze_threshold=2147483647'],)"}
