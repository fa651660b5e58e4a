"""What every command of ``manage.py`` begins with, on whichever floor it is."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    """The base of each. An option is said in full: a part of its name may be another one's in the next release."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Django's, which takes no beginning of an option's name for the option. A verb's own parser is told so where it is made."""
        return super().create_parser(prog_name, subcommand, allow_abbrev=False, **kwargs)
