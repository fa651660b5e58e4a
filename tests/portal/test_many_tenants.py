"""No page reads more because there are more tenants: the rows that its statements look at, not the clock (GW14, issue 14)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
from django.core.cache import cache
from django.db import connection
from django.urls import resolve

from audit.actions import Action
from audit.models import Outcome
from audit.recorder import record
from tenants import selectors
from tenants.models import User
from tests import factories
from tests.crowd import gather
from tests.databases import owning
from tests.portal.conftest import signed_in
from tests.portal.test_stored_texts import addresses, full_house

TENANTS, READ_MAX = 2_000, 1_000
"""A statement that looks at a row of every tenant looks at twice as many as any may."""

READS_ALL = {
    "search": "any part of a name is looked for, which no index of PostgreSQL's own finds",
    "tiers": "the workspaces of each tier are counted, on a page of operators",
    "clusters": "the workspaces of each cluster are counted, on a page of operators",
    "restore-open": "what a restore has closed is listed once, after it",
    "requests": "a picture of the last day's requests, which is remembered for a while",
}

_READING = re.compile(r"\s*\(*\s*(SELECT|WITH)\b", re.IGNORECASE)
_LOCKING = re.compile(r"FOR (NO KEY )?UPDATE|set_config", re.IGNORECASE)


class Looking:
    """Explains the reading statements of a person before they are executed, and notes how many rows the worst looks at."""

    def __init__(self) -> None:
        self.worst = (0.0, "")
        self._known: dict[tuple[str, str], float] = {}
        self._explaining = False

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not self._explaining and _READING.match(sql) and not _LOCKING.search(sql):
            same = (sql, str(params))
            if same not in self._known:
                self._known[same] = self._explain(sql, params)
            self.worst = max(self.worst, (self._known[same], sql))
        return execute(sql, params, many, context)

    def _explain(self, sql: str, params: Any) -> float:
        self._explaining = True
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}", params)
                told = cursor.fetchone()[0]
        finally:
            self._explaining = False
        plans = orjson.loads(told) if isinstance(told, str) else told
        return sum(_read(plan["Plan"]) for plan in plans)


def _read(node: dict[str, Any]) -> float:
    """The rows that a plan takes from tables and indexes, those that it leaves out too."""
    own = 0.0
    if "Relation Name" in node or "Index Name" in node:
        left_out = sum(node.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Index Recheck"))
        own = (node["Actual Rows"] + left_out) * node["Actual Loops"]
    return own + sum(_read(part) for part in node.get("Plans", []))


@contextmanager
def by_indexes() -> Iterator[None]:
    """Let the planner read a whole table only where no index leads to the rows, as it would in a large one."""
    ways = ("enable_seqscan", "enable_bitmapscan")
    with connection.cursor() as cursor:
        for way in ways:
            cursor.execute(f"SET {way} = off")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            for way in ways:
                cursor.execute(f"RESET {way}")


@pytest.mark.django_db(transaction=True)
def test_no_page_looks_at_a_row_of_every_tenant(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    acme = full_house(operator)
    for chain in ("acme", "system"):
        record(Action.WORKSPACE_READY, chain=chain, actor="x", outcome=Outcome.SUCCESS)
    factories.api_request("acme")
    with owning() as cursor:
        gather(cursor, TENANTS, 2 * TENANTS)
    monkeypatch.setattr(selectors, "COUNTED", READ_MAX // 2)
    cache.clear()  # or what another test has had counted is remembered
    seen: set[str] = set()
    too_much: dict[str, str] = {}
    for person in (operator, acme.owner):
        client = signed_in(person, raise_request_exception=False)
        # The first visit of a session writes it down.
        client.get("/")
        if person == operator:
            assert f">{READ_MAX // 2}+<" in re.sub(r"\s", "", client.get("/").content.decode()), "counted so far"
            assert client.get(f"/audit/?chain=crowd-{TENANTS}").status_code == 200, "typed: no list has it"
            assert client.get("/audit/?chain=nobody").status_code == 404
        looking = Looking()
        for path in ["/search/?q=nobody-has-it", "/audit/?chain=acme", *addresses(acme, person)]:
            looking.worst = (0.0, "")
            with by_indexes(), connection.execute_wrapper(looking):
                client.get(path)
            name = resolve(path.partition("?")[0]).view_name
            seen.add(name)
            read, sql = looking.worst
            if read > READ_MAX and not (person == operator and name in READS_ALL):
                too_much[f"{person.email} {path}"] = f"{read:.0f} rows: {sql[:2000]}"
            elif read > READ_MAX:
                seen.add(f"{name} reads all")
    assert not too_much, "\n\n".join(f"{page}\n{why}" for page, why in too_much.items())
    assert len(seen) > 150
    assert {f"{name} reads all" for name in READS_ALL} <= seen, "what reads no more than others needs no reason"
