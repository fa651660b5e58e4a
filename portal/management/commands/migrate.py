"""``manage.py migrate``: Django's, as whoever owns the tables, with every role's rights made right afterwards."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate

from audit import commands
from portal.database.rights import as_owner, rights_apply


class Command(commands.Command, migrate.Command):
    """The running product owns no tables, so it cannot migrate: ``MIGRATION_DATABASE_URL`` does."""

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate, then grant."""
        with as_owner(options["database"]):
            super().handle(*args, **options)
            rights_apply(options["database"])
