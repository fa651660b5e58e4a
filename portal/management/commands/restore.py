"""``manage.py restore FILE``, which ends behind closed doors, and ``manage.py restore --open``, which opens them."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError
from django.utils import timezone

from audit import commands
from audit.recorder import Actor
from kube.requests.status import StatusError
from portal.backup.archive import Unusable
from portal.backup.opening import restored_open
from portal.backup.progress import Progress
from portal.backup.restoring import Restored, restore

_OPERATOR = Actor(name="system:command", operator=True)


class Command(commands.Command):
    """Translate arguments for ``portal.backup``."""

    help = "Restore a backup, closed to everybody but operators; with --open, open it."
    requires_migrations_checks = False
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """A file, or that it is time to open."""
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("file", type=Path, nargs="?", metavar="FILE", help="what manage.py backup has made")
        what.add_argument("--open", action="store_true", help="open what was restored")
        parser.add_argument(
            "--replace", action="store_true", help="put the backup in the place of another installation"
        )
        parser.add_argument("--operator", default="", metavar="EMAIL", help="who signs in first, by a new password")
        parser.add_argument(
            "--keep-accounts",
            action="store_true",
            help="passwords and operators of the backup count: none was changed or dismissed since",
        )
        parser.add_argument(
            "--despite-unconfirmed", action="store_true", help="open though clusters have not confirmed everything"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Do one of the two."""
        try:
            if options["open"]:
                self._open(despite_unconfirmed=options["despite_unconfirmed"])
                return
            done = restore(
                options["file"],
                replace=options["replace"],
                keep_accounts=options["keep_accounts"],
                operator=options["operator"],
                now=timezone.now(),
                progress=Progress(self.stdout.write),
            )
        except Unusable as error:
            raise CommandError(str(error)) from None
        except StatusError as error:
            raise CommandError(error.message) from None
        except DatabaseError as error:
            raise CommandError(
                f"PostgreSQL refuses: {str(error).strip()}. What was there is there still, and may be closed: run it "
                "again, or open what was there with --open."
            ) from None
        self._tell(done)

    def _open(self, *, despite_unconfirmed: bool) -> None:
        count = restored_open(actor=_OPERATOR, despite_unconfirmed=despite_unconfirmed)
        self.stdout.write(f"Open: {count} tenants are resumed, with new accounts; people sign in again.")

    def _tell(self, done: Restored) -> None:
        self.stdout.write(f"Restored as of {done.manifest.made_at}, closed. The store goes on at {done.revision}.")
        if done.differences:
            self.stdout.write("What differs, or has to be done:")
        for line in done.differences:
            self.stdout.write(f"- {line}")
        if not done.continues:
            self.stdout.write(
                "What was suspended, deleted or taken from anybody after the backup cannot be known from this database: "
                "look it up (manage.py audit export of before, your tickets) and do it again before you open."
            )
        if done.signs_in:
            self.stdout.write(f"No password of the backup counts. {done.signs_in}; superusers set those of the others.")
        self.stdout.write(
            "Start the parts, let workers end on the clusters what was issued there, then: manage.py restore --open"
        )
