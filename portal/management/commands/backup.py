"""``manage.py backup FILE``: the whole database at one moment, in one file."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from django.utils import timezone

from portal.backup.archive import Unusable
from portal.backup.progress import Progress
from portal.backup.snapshot import backup


class Command(BaseCommand):
    """Translate arguments for ``portal.backup.snapshot.backup``."""

    help = "Back up the whole database, consistent at one moment, into a new file for its owner alone."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the file to write."""
        parser.add_argument("file", type=Path, metavar="FILE", help="the file to make; it must not be there yet")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Back up once, and say what was."""
        try:
            manifest, size = backup(options["file"], now=timezone.now(), progress=Progress(self.stdout.write))
        except Unusable as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(f"PostgreSQL refuses, and no file was made: {str(error).strip()}") from None
        rows = sum(table.rows for table in manifest.tables)
        self.stdout.write(
            f"{options['file']}: {rows} rows of {len(manifest.tables)} tables at revision {manifest.revision}, {size} bytes."
        )
        self.stdout.write(
            "It holds everybody's secrets and none of the keys: keep it closed, and the data folder's keys elsewhere."
        )
