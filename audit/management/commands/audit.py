"""``manage.py audit verify`` and ``manage.py audit export``."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import transaction

from audit import commands, export
from audit.actions import Action
from audit.checkpoints import History, private_keys, public_key, read_all
from audit.models import Outcome
from audit.recorder import SYSTEM_CHAIN, record
from audit.selectors import chain_names, entry_rows, signed_flaws
from audit.verifying import check


class Command(commands.Command):
    """Check the hash chains, or write them out."""

    help = "Check the audit's hash chains (verify) or write the audit as JSON Lines or CSV (export)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``verify [--chain NAME] [--jobs N] [--checkpoints FILE] [--key FILE]``, ``export [--chain NAME] [--format jsonl|csv]``."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        for verb in ("verify", "export"):
            sub = verbs.add_parser(verb, allow_abbrev=False)
            sub.add_argument("--chain", help="only this chain: a tenant's name, or system")
        verifying = verbs.choices["verify"]
        verifying.add_argument(
            "--jobs",
            type=_jobs,
            metavar="N",
            default=len(os.sched_getaffinity(0)),
            help="how many processes check (default: one a core)",
        )
        verifying.add_argument("--checkpoints", type=Path, metavar="FILE", help="compare with these signed checkpoints")
        verifying.add_argument(
            "--key", type=Path, metavar="FILE", help="the public key that they are signed with (PEM)"
        )
        sub.add_argument("--format", choices=["jsonl", "csv"], default="jsonl")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run one of the two."""
        names = [options["chain"]] if options["chain"] else chain_names()
        if options["verb"] == "verify":
            histories = self._histories(options["checkpoints"], options["key"])
            self._verify(names, histories, options["chain"] or "", options["jobs"])
        else:
            self._export(names, options["format"])

    def _histories(self, file: Path | None, key_file: Path | None) -> list[History]:
        """The checkpoints to compare with, if any: one for each worker that has written some."""
        if file is None:
            return []
        given = key_file or settings.AUDIT_CHECKPOINTS_KEY_FILE
        try:
            key = public_key(given) if key_file else private_keys(given, make=False)[0].public_key()
            return read_all(file.read_bytes().splitlines(), key)
        except (OSError, ValueError) as error:
            raise CommandError(f"The checkpoints cannot be read: {error}") from None

    def _verify(self, names: list[str], histories: list[History], chain: str, jobs: int) -> None:
        flaws = []
        for checked in check(names, jobs=jobs, progress=self._progress):
            if checked.flaw is not None:
                flaws.append(checked.flaw)
            elif checked.rows:
                self.stdout.write(f"{checked.chain}: {checked.rows} rows, whole, ends with {checked.end_hash}")
        for history in histories:
            flaws += history.flaws
            if history.checkpoints:
                last = history.checkpoints[-1]
                count, chains = len(history.checkpoints), len(history.heads)
                self.stdout.write(f"{count} checkpoints of {chains} chains, the last one {last.number} of {last.time}")
        flaws += signed_flaws((each for history in histories for each in history.checkpoints), chain=chain)
        for flaw in flaws:
            self.stdout.write(f"{flaw.chain}: {flaw.kind} at row {flaw.sequence}: {flaw.message}")
        if flaws:
            raise CommandError(
                f"{len({flaw.chain for flaw in flaws})} of {len(names)} chains are not as they were written"
            )

    def _progress(self, rows: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{rows} rows\r")

    def _export(self, names: list[str], form: str) -> None:
        with transaction.atomic():
            record(
                Action.AUDIT_EXPORTED,
                chain=SYSTEM_CHAIN,
                actor="system:command",
                outcome=Outcome.SUCCESS,
                detail={"chains": names, "format": form},
            )
        rows = (row for name in names for row in entry_rows(name))
        for line in export.csv_lines(rows) if form == "csv" else export.json_lines(rows):
            self.stdout.write(line, ending="")


def _jobs(text: str) -> int:
    if text.isdecimal() and 0 < len(text) < 4 and int(text):
        return int(text)
    raise ArgumentTypeError("how many processes: 1 or more")
