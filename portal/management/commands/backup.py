"""``manage.py backup FILE|FOLDER``: the whole database at one moment, in one file."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError
from django.utils import timezone

from audit import commands
from portal.backup.archive import Unusable
from portal.backup.keeping import file_of, older_remove
from portal.backup.progress import Progress
from portal.backup.snapshot import backup


class Command(commands.Command):
    """Translate arguments for ``portal.backup.snapshot.backup``."""

    help = "Back up the whole database, consistent at one moment, into a new file for its owner alone."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the file to write, or the folder and how many stay in it."""
        parser.add_argument(
            "file",
            type=Path,
            metavar="FILE",
            help="the file to make, which must not be there yet, or a folder, in which it is called by the time",
        )
        parser.add_argument(
            "--keep", type=int, metavar="N", help="once it is made, remove all but the newest N from that folder"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Back up once, and say what was."""
        file, keep, now = options["file"], options["keep"], timezone.now()
        folder = file if file.is_dir() else None
        if keep is not None and (keep < 1 or folder is None):
            raise CommandError("--keep takes 1 or more, and a folder in the place of FILE.")
        file = file_of(folder, now) if folder else file
        try:
            manifest, size = backup(file, now=now, progress=Progress(self.stdout.write))
        except Unusable as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(f"PostgreSQL refuses, and no file was made: {str(error).strip()}") from None
        rows = sum(table.rows for table in manifest.tables)
        self.stdout.write(
            f"{file}: {rows} rows of {len(manifest.tables)} tables at revision {manifest.revision}, {size} bytes."
        )
        self.stdout.write(
            "It holds everybody's secrets and none of the keys: keep it closed, and the data folder's keys elsewhere."
        )
        for removed in older_remove(folder, keep, now) if folder and keep else ():
            self.stdout.write(f"{removed}: removed.")
