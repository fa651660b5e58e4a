"""``manage.py doctor``: whether the installation is well, and what mends what is not."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import CommandError

from audit import commands
from kube.requests.visibletexts import visible
from portal.doctor.examination import CHECKS, examination
from portal.doctor.findings import ELSEWHERE, FAILED, OK, UNPROVED, WARNING

_MARKS: Final = {OK: "ok", WARNING: "warn", FAILED: "FAIL", UNPROVED: "?", ELSEWHERE: "-"}


class Command(commands.Command):
    """Exit code 0 when nothing failed, 1 when something did or could not be looked at.

    Warnings are no failure, and neither is what is not where this was asked.
    """

    help = (
        "Check keys, clocks, certificates, the database's role, Redis, clusters, the queue and settings; name remedies."
    )
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What to look at, and how to say it."""
        parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"these alone: {', '.join(CHECKS)}")
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, **options: Any) -> None:
        """Look, and say."""
        asked = options["checks"] or list(CHECKS)
        if unknown := sorted(set(asked) - set(CHECKS)):
            raise CommandError(f"There is no check {', '.join(unknown)}; there are: {', '.join(CHECKS)}.")
        found = list(examination(asked))
        healthy = not any(each.state in (FAILED, UNPROVED) for each in found)
        if options["output"] == "json":
            self.stdout.write(json.dumps({"healthy": healthy, "findings": [asdict(each) for each in found]}, indent=2))
        else:
            for each in found:
                self.stdout.write(f"{_MARKS[each.state]:>4}  {each.name}: {visible(each.found)}")
                if each.state not in (OK, ELSEWHERE):
                    self.stdout.write(f"      Should be so: {visible(each.about)}")
                if each.remedy:
                    self.stdout.write(f"      {visible(each.remedy)}")
        if not healthy:
            sys.exit(1)
