"""What a page takes of the database it gives back: a portal holds no session for those who have been answered (P11)."""

from __future__ import annotations

import http.client
import sys
from typing import Any

import psycopg
import pytest
from django.db.backends.signals import connection_created
from psycopg.conninfo import conninfo_to_dict

from portal.database.scopes import everything
from tenants.models import Phase, Workspace
from tests import factories
from tests.databases import url_of
from tests.portal.test_api import bearer, send
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


@pytest.mark.django_db(transaction=True)
def test_who_waits_for_a_workspace_holds_no_session_of_the_database_between_looks(settings: Any) -> None:
    """Each look takes one of its own; a worker is done when the second one comes."""
    settings.WORKSPACE_INIT_WAIT = 60
    tenant = factories.tenant()
    script, looks = bearer(factories.member(tenant, "owner")), list[int]()
    factories.workspace(tenant, factories.member(tenant, "editor"))

    def looked(**_: Any) -> None:
        looks.append(1)
        if len(looks) > 1:
            with everything():
                Workspace.objects.update(phase=Phase.READY)

    connection_created.connect(looked)
    try:
        answer = send(script, "POST", "workspaces/init", {"tier": "basic"})
    finally:
        connection_created.disconnect(looked)
    assert (answer.status_code, len(looks) > 1) == (201, True), answer.content
