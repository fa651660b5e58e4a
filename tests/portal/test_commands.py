"""What every command of ``manage.py`` keeps to, on whichever floor it is."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator

import pytest
from django.core.management import CommandError, get_commands, load_command_class

from tests.requirements import FLOORS

OWN = sorted(name for name, application in get_commands().items() if application in FLOORS)


def parsers(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    """A command's, and those of its verbs."""
    yield parser
    for action in parser._actions:
        if action.choices and isinstance(action.choices, dict):
            for verb in action.choices.values():
                yield from parsers(verb)


def parser_of(name: str) -> ArgumentParser:
    return load_command_class(get_commands()[name], name).create_parser("manage.py", name)


@pytest.mark.parametrize("name", OWN)
def test_no_command_takes_the_beginning_of_an_options_name_for_the_option(name: str) -> None:
    """Neither one that is there nor one that the next release has: a script does then what it says, or nothing."""
    for parser in parsers(parser_of(name)):
        for action in parser._actions:
            for option in action.option_strings:
                if option.startswith("--"):
                    assert not parser._get_option_tuples(option[:-1]), (parser.prog, option)


def test_there_are_commands_with_verbs_of_their_own_among_them() -> None:
    assert {"restore", "migrate", "apiserver", "audit", "webhooks", "store_compact"} <= set(OWN)
    assert [parser.prog for parser in parsers(parser_of("audit"))][1:] == [
        "manage.py audit verify",
        "manage.py audit export",
    ]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("restore", ["/backups/a.backup", "--repl"]),
        ("rotate", ["service-account-key", "--rev"]),
        ("audit", ["verify", "--check=/srv/data/audit-checkpoints.jsonl"]),
        ("apiserver", ["--anonymous"]),
    ],
)
def test_what_is_cut_short_is_refused(name: str, arguments: list[str]) -> None:
    with pytest.raises(CommandError, match="unrecognized arguments"):
        parser_of(name).parse_args(arguments)
