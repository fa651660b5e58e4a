"""``manage.py store_compact``: let go of old entries of the change log."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.utils import timezone

from audit import commands
from store.log.compaction import Retention, log_compact


class Command(commands.Command):
    """Translate arguments for ``store.log.compaction.log_compact``."""

    help = "Drop the parts of the change log that are too old, and make room for the next revisions."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the retention."""
        parser.add_argument("--minutes", type=int, default=15, help="keep what is younger than this")
        parser.add_argument("--revisions", type=int, default=1_000_000, help="but not more than this many")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002 (Django's signature)
        """Compact the change log once, and print how far it went."""
        result = log_compact(
            now=timezone.now(),
            retention=Retention(timedelta(minutes=options["minutes"]), options["revisions"]),
        )
        self.stdout.write(f"compacted up to revision {result.compacted}, {result.dropped} partitions dropped")
