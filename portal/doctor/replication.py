"""The hosts of the database: that one of them takes writes, and no second one, and whether it waits for a standby."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Final

import psycopg
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from portal.doctor.findings import Finding, failed, ok, warning

_PATIENCE_SECONDS: Final = "3"

_WAITING: Final = ("on", "remote_apply")
"""Values of ``synchronous_commit`` with which a commit that is acknowledged is on the standby's disk."""


@dataclass(frozen=True, slots=True)
class _Primary:
    """A host that takes writes."""

    name: str
    timeline: str
    standbys: str
    commit: str


def hosts() -> Iterator[Finding]:
    """One host of DATABASE_URL takes writes; the others are there, and follow."""
    primaries: list[_Primary] = []
    away, standbys = [], 0
    addresses = _addresses()
    for name, address in addresses:
        try:
            with psycopg.connect(address) as connection:
                row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
                if row and row[0]:
                    standbys += 1
                    continue
                row = connection.execute(
                    "SELECT store_timeline(), current_setting('synchronous_standby_names'),"
                    " current_setting('synchronous_commit')"
                ).fetchone()
        except psycopg.Error:
            away.append(name)
        else:
            primaries.append(_Primary(name, *(row or ("", "", ""))))
    yield from _judged(primaries, away, standbys, several=len(addresses) > 1)


def _judged(primaries: list[_Primary], away: list[str], standbys: int, *, several: bool) -> Iterator[Finding]:
    name = "database-hosts"
    if len(primaries) > 1:
        ordered = sorted(primaries, key=lambda each: each.timeline)
        both = ", ".join(f"{each.name} (timeline {each.timeline})" for each in ordered)
        yield failed(
            name,
            f"{len(primaries)} hosts take writes: {both}",
            f"Stop {' and '.join(each.name for each in ordered[:-1])} now. What was written there since the fail-over is on no"
            " other host: make a standby of it anew (pg_rewind, pg_basebackup).",
        )
        return
    if not primaries:
        yield failed(
            name, "none takes writes", "Start the primary, or promote a standby once the primary is surely dead."
        )
        return
    for host in away:
        yield warning(name, f"{host} does not answer", "Start it as a standby, or take it out of DATABASE_URL.")
    (primary,) = primaries
    if several and not primary.standbys:
        yield warning(
            name,
            f"{primary.name} waits for no standby: a fail-over loses what the standby lacks",
            "Set synchronous_standby_names (docs/operators/operations.md), or know what docs/reliability.md says of this.",
        )
    elif primary.standbys and primary.commit not in _WAITING:
        yield warning(
            name,
            f"synchronous_commit is {primary.commit}: {primary.name} acknowledges what no standby has on its disk",
            "Set synchronous_commit to on or remote_apply for the product's role and database.",
        )
    elif not away:
        yield ok(name, f"{primary.name} takes writes" + f", {standbys} follow" * several)


def _addresses() -> list[tuple[str, str]]:
    """Each host by itself."""
    given = {key: str(value) for key, value in conninfo_to_dict(settings.DATABASE_URL).items() if value is not None}
    names, ports = given.get("host", "").split(","), given.get("port", "").split(",")
    addresses = []
    for host, port in zip(names, cycle(ports), strict=False):
        own = {**given, "host": host, "port": port, "target_session_attrs": "any", "connect_timeout": _PATIENCE_SECONDS}
        addresses.append((f"{host}:{port}" if port else host, make_conninfo("", **own)))
    return addresses
