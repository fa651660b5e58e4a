"""What a page takes of the database it gives back: a portal holds no session for those who have been answered (P11)."""

from __future__ import annotations

import http.client
import sys

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.databases import url_of
from tests.portal.test_liveness import House, house
from tests.ports import free_port
from tests.story.product import eventually

__all__ = ["house"]

PAGES = 30
FEW = 4
"""So many sessions the portal may hold whatever it was asked, far fewer than one for each page."""


def test_pages_that_were_answered_hold_no_sessions_of_the_database(house: House) -> None:
    house.start_redis()
    port = free_port()
    process = house.run([sys.executable, "manage.py", "portal", f"--port={port}"])

    def page() -> int:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        try:
            line.request("GET", "/readyz")
            return line.getresponse().status
        except OSError:
            assert process.poll() is None, (house.folder / "part.log").read_text()
            return 0
        finally:
            line.close()

    database = conninfo_to_dict(house.proxy.conninfo)["dbname"]
    with psycopg.connect(url_of("postgres"), autocommit=True) as connection:

        def sessions() -> int:
            row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [database]).fetchone()
            assert row is not None
            return int(row[0])

        assert eventually(lambda: page() == 200, within=300)
        held = []
        for _ in range(PAGES):
            assert page() == 200
            held.append(sessions())
        # One that was closed takes PostgreSQL a moment to end.
        assert eventually(lambda: sessions() <= FEW, within=300), held
    assert process.poll() is None
