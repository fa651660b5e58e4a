"""Columns of values as PostgreSQL arrays in the binary form.

psycopg's own list dumper chooses the element type by looking at the values, so one statement would be prepared
in many variants, and it visits each item in Python. These write one fixed type in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
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
_NEGATIVE = 0xFF
_BYTEA, _INT8, _TEXT = 17, 20, 25


class Texts:
    """A parameter of the type ``text[]``."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[str]) -> None:
        self.items = items


class Blobs:
    """A ``bytea[]``; ``None`` is NULL."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[bytes | None]) -> None:
        self.items = items


class Bigints:
    """A ``bigint[]``; ``None`` is NULL."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[int | None]) -> None:
        self.items = items


@lru_cache(maxsize=1024)
def _header(element: int, count: int) -> bytes:
    return _HEADER.pack(1, 1, element, count, 1) if count else _HEADER.pack(0, 0, element, 0, 0)[:12]


@lru_cache(maxsize=256)
def _pairs(count: int) -> Struct:
    """Lengths and items of a ``bigint[]``."""
    return Struct("!" + "iq" * count)


@lru_cache(maxsize=4096)
def _text(item: str) -> bytes:
    """Most are words that come again with each write: spaces, groups, resources."""
    data = item.encode()
    return _LENGTH.pack(len(data)) + data


def _texts(value: Texts) -> bytes:
    return _header(_TEXT, len(value.items)) + b"".join(map(_text, value.items))


@lru_cache(maxsize=4096)
def _bigint(item: int | None) -> bytes:
    """Many come again with each write: places in it, and revisions of what is only checked."""
    return _NULL if item is None else _BIGINT.pack(8, item)


def _blobs(value: Blobs) -> bytes:
    items = [_NULL if item is None else _LENGTH.pack(len(item)) + item for item in value.items]
    return _header(_BYTEA, len(items)) + b"".join(items)


def _bigints(value: Bigints) -> bytes:
    return _header(_INT8, len(value.items)) + b"".join(map(_bigint, value.items))


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

_FORMS: dict[type[Any], Callable[[Any], bytes | None]] = {
    Texts: _texts,
    Blobs: _blobs,
    Bigints: _bigints,
    int: _QUAD.pack,
    str: str.encode,
    type(None): lambda _: None,
}

Parameter = Texts | Blobs | Bigints | int | str | None
"""What a statement of the store takes; ``None`` is NULL where a text may stand."""


def oid_of(value: Parameter) -> int:
    """The type that a parameter is declared as."""
    if isinstance(value, int):
        return _INT8
    return _TEXT if value is None or isinstance(value, str) else _DUMPERS[type(value)].oid


def dumped(parameters: Sequence[Parameter]) -> list[bytes | None]:
    """Parameters in the binary forms of their types."""
    return [_FORMS[type(value)](value) for value in parameters]


def bigints(data: bytes | None) -> list[int | None]:
    """The items of a ``bigint[]`` in the binary form."""
    items: list[int | None] = []
    if data is None or len(data) < _HEADER.size:
        return items
    _, has_nulls, _, count, _ = _HEADER.unpack_from(data)
    if not has_nulls:
        return list(_pairs(count).unpack_from(data, _HEADER.size)[1::2])
    position, end = _HEADER.size, len(data)
    while position < end:
        # A length of -1 stands for NULL.
        if data[position]:
            items.append(None)
            position += _LENGTH.size
        else:
            items += _QUAD.unpack_from(data, position + _LENGTH.size)
            position += _BIGINT.size
    return items


def blobs(data: bytes | None) -> list[bytes | None]:
    """The items of an array of one dimension in the binary form, each in the form of its type."""
    items: list[bytes | None] = []
    if data is None or len(data) < _HEADER.size:
        return items
    count: int = _HEADER.unpack_from(data)[3]
    if len(data) == _HEADER.size + count * _LENGTH.size and data.endswith(_NULL * count):
        # Of a batch of new objects, which are most, nothing was there before.
        return [None] * count
    position, end = _HEADER.size, len(data)
    while position < end:
        # A length of -1 stands for NULL; no other is below zero.
        if data[position] == _NEGATIVE:
            items.append(None)
            position += _LENGTH.size
        else:
            begin = position + _LENGTH.size
            position = begin + _LENGTH.unpack_from(data, position)[0]
            items.append(data[begin:position])
    return items


def register(context: AdaptContext) -> None:
    """Teach a connection or cursor the three types."""
    for cls, dumper in _DUMPERS.items():
        context.adapters.register_dumper(cls, dumper)
