"""How Django's side ends read leases: by a connection of its own, for a mark counts once it is committed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

import psycopg
from django.db import connections

from store.log.follower import clock
from store.log.leases import LEASE_SECONDS, LOOK_SECONDS, LOOK_SECONDS_MAX
from store.log.preconditions import NOBODY
from store.postgresql.arrays import Bigints, Texts, register
from store.postgresql.connections import SESSION, connection_settings
from store.postgresql.statements import LEASE_DROP, LEASE_END, LEASES_LEFT

_ADDRESS: Final = ("host", "port", "dbname", "user", "password", "target_session_attrs", "load_balance_hosts")

FORGOTTEN_SECONDS: Final = 3600
"""Whoever has held a lease for this long may be gone: it is ended, and one who lives takes another."""

SWEPT_MAX: Final = 1000
"""Spaces that one sweep looks after: their names have to fit into a statement."""


def leases_end(spaces: Iterable[str], *, using: str = "default") -> None:
    """Have everybody's leases on these spaces ended, which takes ``LEASE_SECONDS`` at most."""
    given = connections[using].get_connection_params()
    address = {name: given[name] for name in _ADDRESS if given.get(name)}
    secured = {name: value for name, value in given.items() if name.startswith("ssl")}
    with psycopg.connect(**{**connection_settings("tenantry-leases"), **address, **secured}) as connection:
        connection.execute(SESSION, prepare=False)
        register(connection)

        def ask(statement: str, *parameters: Texts | Bigints | int) -> list[int]:
            row: Any = connection.execute(statement, parameters).fetchone()
            return row[0] or []

        # The marks are committed with this statement, so every question that a holder asks from now on finds them.
        left = ask(LEASE_END, Texts(sorted(spaces)), NOBODY)
        marked, pause = clock(), LOOK_SECONDS
        while left:
            if clock() - marked >= LEASE_SECONDS:
                # Who has not given it back has not asked for all that time, and stopped reading by it before
                # (``TRUSTED_SECONDS``): it is asleep or gone, and nobody waits for it longer.
                connection.execute(LEASE_DROP, (Bigints(left),))
                return
            time.sleep(pause)
            pause = min(2 * pause, LOOK_SECONDS_MAX)
            left = ask(LEASES_LEFT, Bigints(left))


def leases_sweep(*, using: str = "default") -> int:
    """End the leases that nobody has given back; on how many spaces."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT space FROM store_lease WHERE taken_at < statement_timestamp() - make_interval(secs => %s) LIMIT %s",
            [FORGOTTEN_SECONDS, SWEPT_MAX],
        )
        spaces = [space for (space,) in cursor.fetchall()]
    if spaces:
        leases_end(spaces, using=using)
    return len(spaces)
