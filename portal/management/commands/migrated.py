"""``manage.py migrated``: wait until the database is this release's, so that whoever comes next finds what it reads."""

from __future__ import annotations

import time
from typing import Any, Final

from django.db import Error, connection

from audit import commands
from portal.database.migrations import database_is_migrated

_LOOK_SECONDS: Final = 2.0


class Command(commands.Command):
    """Ends well once bootstrap is through; before every part, also one that nobody asks whether it is ready (GW12)."""

    help = "Wait until the database answers and has this release's migrations."
    requires_migrations_checks = False
    requires_system_checks = ()

    def handle(self, **_options: Any) -> None:
        """Look until it is so."""
        said = ""
        while waits := self._waits():
            if waits != said:
                self.stderr.write(said := waits)
            connection.close()
            time.sleep(_LOOK_SECONDS)

    def _waits(self) -> str:
        """What for, or nothing."""
        try:
            return "" if database_is_migrated() else "waiting for this release's migrations: manage.py bootstrap"
        except Error as error:
            return f"waiting for the database ({type(error).__name__})"
