"""What a release leaves to the one after it while that one goes: rights of tables that it does not know."""

from __future__ import annotations

import os
import subprocess
import sys
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.databases import OWNER, ROOT, migrated, url_of

LATER = "9999_of_the_release_after"


def test_rights_that_a_later_release_gave_stand_until_it_has_gone() -> None:
    """Its processes still run when one that goes back prepares the database: they must be able to use their tables."""
    with migrated("goingback") as url:
        product, name = urlsplit(url).username or "", urlsplit(url).path.removeprefix("/")
        with psycopg.connect(url_of(name, OWNER), autocommit=True) as owner:

            def may_read() -> bool:
                row = owner.execute("SELECT has_table_privilege(%s, 'later', 'SELECT')", [product]).fetchone()
                return bool(row and row[0])

            def prepared() -> None:
                command = [sys.executable, "manage.py", "migrate", "-v0"]
                subprocess.run(command, cwd=ROOT, env={**os.environ, "DATABASE_URL": url}, check=True)

            owner.execute("CREATE TABLE later (id bigint)")
            owner.execute(sql.SQL("GRANT SELECT ON later TO {}").format(sql.Identifier(product)))
            owner.execute("COMMENT ON TABLE django_migrations IS 'other rights than those of this release'")
            for app in ("tenants", "an_application_more"):
                owner.execute("INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, now())", [app, LATER])
                prepared()
                assert may_read(), app
                owner.execute("DELETE FROM django_migrations WHERE name = %s", [LATER])
            prepared()
            assert not may_read()
