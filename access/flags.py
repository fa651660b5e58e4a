"""What flags of ``manage.py apiserver`` take, in kube-apiserver's way: switches, lists that grow, durations, files."""

from __future__ import annotations

from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from kube.requests.durations import parse_seconds

_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
_FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")

_T = TypeVar("_T")


class UnusableFlags(ValueError):
    """Flags that mean nothing; the message says which, and what is expected."""


class FlagParser(ArgumentParser):
    """Reads flags that stand in a setting. Raises ``UnusableFlags`` where a command line would end the process."""

    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """What argparse calls for flags that it cannot read."""
        raise UnusableFlags(message)


class Growing(Action):
    """A flag that may be repeated: each time adds to its tuple, and the first takes the place of the default."""

    def __call__(
        self,
        parser: ArgumentParser,  # noqa: ARG002 - argparse's signature
        namespace: Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002 - likewise
    ) -> None:
        """Take what the flag's type has made of one value: a tuple."""
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, (*(() if before is self.default else before), *values))


def add_switch(parser: ArgumentParser, name: str, *, meaning: str) -> None:
    """Declare a flag that is off: ``--flag`` and ``--flag=true`` switch it on, ``--flag=false`` off."""
    parser.add_argument(name, type=_switch, nargs="?", const=True, default=False, metavar="true|false", help=meaning)


def _switch(text: str) -> bool:
    if text not in (*_TRUE, *_FALSE):
        raise ArgumentTypeError(f"{text!r} is neither true nor false")
    return text in _TRUE


def names(text: str) -> tuple[str, ...]:
    """A list with commas."""
    return tuple(name for name in text.split(",") if name)


def one(of: Callable[[str], _T]) -> Callable[[str], tuple[_T]]:
    """The type of a ``Growing`` flag that takes one value a time, commas and all."""

    def read(text: str) -> tuple[_T]:
        return (of(text),)

    return read


def file(text: str) -> Path | None:
    """The path of a file; none is named by an empty text."""
    return Path(text) if text else None


def seconds(text: str) -> float:
    """A duration as Go writes it (``1m30s``)."""
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
