"""Columns of values as PostgreSQL arrays in the binary form.

psycopg's own list dumper chooses the element type by looking at the values, so one statement would be prepared
in many variants, and it visits each item in Python. These write one fixed type in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEADER = Struct("!iiIii")
_LENGTH = Struct("!i")
_BIGINT = Struct("!iq")
_QUAD = Struct("!q")
_NULL = _LENGTH.pack(-1)
_BYTEA, _INT8, _TEXT = 17, 20, 25


class Texts:
    """A ``text[]``."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[str]) -> None:
        self.items = items


class Blobs:
    """A ``bytea[]``; ``None`` is NULL."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[bytes | None]) -> None:
        self.items = items


class Bigints:
    """A ``bigint[]``."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[int]) -> None:
        self.items = items


def _header(element: int, count: int) -> bytes:
    return _HEADER.pack(1, 1, element, count, 1) if count else _HEADER.pack(0, 0, element, 0, 0)[:12]


def _texts(value: Texts) -> bytes:
    items = [item.encode() for item in value.items]
    return _header(_TEXT, len(items)) + b"".join([_LENGTH.pack(len(item)) + item for item in items])


def _blobs(value: Blobs) -> bytes:
    items = [_NULL if item is None else _LENGTH.pack(len(item)) + item for item in value.items]
    return _header(_BYTEA, len(items)) + b"".join(items)


def _bigints(value: Bigints) -> bytes:
    return _header(_INT8, len(value.items)) + b"".join([_BIGINT.pack(8, item) for item in value.items])


class _TextsDumper(Dumper):
    format = Format.BINARY
    oid = 1009

    def dump(self, obj: Texts) -> bytes:
        return _texts(obj)


class _BlobsDumper(Dumper):
    format = Format.BINARY
    oid = 1001

    def dump(self, obj: Blobs) -> bytes:
        return _blobs(obj)


class _BigintsDumper(Dumper):
    format = Format.BINARY
    oid = 1016

    def dump(self, obj: Bigints) -> bytes:
        return _bigints(obj)


_DUMPERS: dict[type[Any], type[Dumper]] = {Texts: _TextsDumper, Blobs: _BlobsDumper, Bigints: _BigintsDumper}

_ARRAYS: dict[type[Any], Callable[[Any], bytes]] = {Texts: _texts, Blobs: _blobs, Bigints: _bigints}

Parameter = Texts | Blobs | Bigints | int | str
"""What a statement of the store takes."""


def oid_of(value: Parameter) -> int:
    """The type that a parameter is declared as."""
    if isinstance(value, int):
        return _INT8
    return _TEXT if isinstance(value, str) else _DUMPERS[type(value)].oid


def dump(value: Parameter) -> bytes:
    """A parameter in the binary form of its type."""
    if isinstance(value, int):
        return _QUAD.pack(value)
    if isinstance(value, str):
        return value.encode()
    return _ARRAYS[type(value)](value)


def register(context: AdaptContext) -> None:
    """Teach a connection or cursor the three types."""
    for cls, dumper in _DUMPERS.items():
        context.adapters.register_dumper(cls, dumper)
