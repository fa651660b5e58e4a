"""``manage.py rotate``: another key or certificate in the place of one, while everything serves."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from audit import commands
from gateway.http.certificates import made_at
from portal.rotation.files import CannotRotate
from portal.rotation.keys import ROTATIONS, rotate


class Command(commands.Command):
    """Without a name it lists what there is."""

    help = "List the keys that can be rotated, or rotate one."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which one, and how."""
        add = parser.add_argument
        add("name", nargs="?", choices=sorted(ROTATIONS))
        add(
            "--step",
            choices=["announce", "promote", "both", "finish"],
            default="both",
            help="where parts have copies of the file",
        )
        add("--finish", action="store_const", const="finish", dest="step", help="let go of the older keys")
        add(
            "--spread",
            type=float,
            help="seconds between announcing and using it, until every part knows it (5; server-ca: two hours)",
        )
        add(
            "--checkpoints",
            type=Path,
            nargs="+",
            default=(),
            metavar="FILE",
            help="for --finish of audit-checkpoint-key: the file of each worker, or its last line, where it is elsewhere",
        )
        add("--revoke", action="store_true", help="what the key before has signed ends at once")

    def handle(self, **options: Any) -> None:
        """List the keys with their places, or take the step that was asked for. Raises ``CommandError``."""
        if options["name"] is None:
            for rotation in ROTATIONS.values():
                self.stdout.write(f"{rotation.name}: {self._place(rotation.path())}")
            return
        try:
            step = rotate(
                options["name"],
                step=options["step"],
                spread=options["spread"],
                revoke=options["revoke"],
                ends=options["checkpoints"],
            )
        except CannotRotate as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"{options['name']}: done ({step}).")

    def _place(self, path: Any) -> str:
        if path is None:
            return "in the environment"
        if not path.is_file():
            return f"{path}, not here"
        return f"{path}, of {made_at(path):%Y-%m-%d}"
