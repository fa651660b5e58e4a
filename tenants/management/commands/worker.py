"""``manage.py worker``: the workers' loop without Celery, for one machine and for tests."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from tenants.reconciler import deletion, lapses, reconciler


class Command(BaseCommand):
    """Run due operations until stopped, or until there is none (``--once``)."""

    help = "Run due operations; --once ends when none is due."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``--once``."""
        parser.add_argument("--once", action="store_true", help="end when no operation is due")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Loop; every 10 s look for drift."""
        reconciled = 0.0
        while True:
            reconciler.operations_sweep()
            deletion.tenants_end()
            lapses.lapses_sweep(now=timezone.now())
            if options["once"]:
                return
            if time.monotonic() - reconciled >= 10:
                reconciler.workspaces_reconcile()
                reconciler.clusters_recheck()
                reconciled = time.monotonic()
            time.sleep(0.5)
