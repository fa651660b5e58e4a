"""Bodies in Kubernetes' protobuf encoding, for every built-in kind (TS15).

Clients written in Go send built-in kinds so unless told otherwise, kubectl's own generators among them, and do not
fall back to JSON. Answers are JSON, which such clients accept too. As with a real API server, a field that no message
of ``protobuf.txt`` has is passed over: it belongs to another version of Kubernetes.
See https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from kube.requests.decoding import MAX_VALUES, ValueCount, count_values, decode_json
from kube.requests.status import BadRequest, UnsupportedMediaType

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"
_MAX_DEPTH: Final = 64
_VARINT, _FIXED64, _BYTES = 0, 1, 2
_PLAIN: Final = frozenset("sibdyqtmxfABC")
"""Types that are no messages: text, integer, boolean, float, bytes, quantity, time, time with microseconds, integer or
text, raw JSON, and a JSON schema or schemas (``A``), a boolean (``B``) or names (``C``) in its place."""
_SCALARS: Final = frozenset("sibd")
_SCHEMA: Final = "apiextensions.v1.JSONSchemaProps"


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a message. Kept even when it is zero if ``optional``; merged into its parent if ``inline``."""

    name: str
    type: str
    repeated: bool
    mapped: bool
    optional: bool
    inline: bool


@cache
def _messages() -> Mapping[str, str]:
    """The lines of the table by qualified name, read when the first such body comes."""
    lines: dict[str, str] = {}
    package = ""
    for line in Path(__file__).with_name("protobuf.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            package = line.strip("[]")
        elif not line.startswith("#"):
            name, _, fields = line.partition(":")
            lines[f"{package}.{name}"] = fields.strip()
    return lines


@cache
def _table(message: str) -> Mapping[int, _Field]:
    """The fields of a message. ``*`` repeats, ``{…}`` maps text to the type, ``?`` is optional, ``&`` is inline."""
    package = message.rpartition(".")[0]
    fields: dict[int, _Field] = {}
    for entry in filter(None, _messages()[message].split(",")):
        number, name, mark = entry.split(" ")
        type_ = mark.strip("?&{}")
        repeated = type_.startswith("*")
        bare = type_.removeprefix("*")
        if bare not in _PLAIN and "." not in bare:
            type_ = type_.replace(bare, f"{package}.{bare}")
        mapped = mark.startswith("{")
        if repeated and not mapped:
            type_ = type_.removeprefix("*")
        fields[int(number)] = _Field(name, type_, repeated and not mapped, mapped, mark[0] == "?", mark[0] == "&")
    return fields


def decode(body: bytes, count: ValueCount | None = None) -> dict[str, Any]:
    """The object in a protobuf body, as JSON would have it; every field is counted before anything is made of it.

    Raises ``UnsupportedMediaType`` for a kind that has no such encoding, ``BadRequest`` for a broken body,
    ``TooManyValues`` beyond what ``count`` lets in.
    """
    if not body.startswith(MAGIC):
        raise BadRequest("the body is not in Kubernetes' protobuf encoding")
    reader = _Reader(count or ValueCount(MAX_VALUES))
    meta, raw = b"", b""
    for number, value in reader.fields(memoryview(body)[len(MAGIC) :]):
        if number == 1 and not isinstance(value, int):
            meta = bytes(value)
        elif number == 2 and not isinstance(value, int):
            raw = bytes(value)
    type_meta = {number: _text(value) for number, value in reader.fields(memoryview(meta))}
    kind = {"apiVersion": type_meta.get(1, ""), "kind": type_meta.get(2, "")}
    message = _message_name(**kind)
    if message not in _messages():
        name = f"{kind['apiVersion']}/{kind['kind']}"
        raise UnsupportedMediaType(
            f"protobuf bodies of {name[:128]} are not supported - accepted media types include: "
            "application/json, application/yaml"
        )
    return {**kind, **reader.message(message, memoryview(raw), 0)}


@cache
def omitted_when_zero(definition: str) -> frozenset[str]:
    """The texts, numbers and booleans of a built-in definition that Go does not write when they are zero."""
    message = ".".join(definition.split(".")[-3:])
    return frozenset(_omitted(message)) if message in _messages() else frozenset()


def _omitted(message: str) -> Iterator[str]:
    for field in _table(message).values():
        if field.inline:
            yield from _omitted(field.type)
        elif field.type in _SCALARS and not (field.repeated or field.mapped or field.optional):
            yield field.name


def _message_name(apiVersion: str, kind: str) -> str:  # noqa: N803 - as a type meta names it
    if kind == "DeleteOptions":
        return "meta.v1.DeleteOptions"
    group, _, version = apiVersion.rpartition("/")
    package, _, domain = (group or "core").partition(".")
    return f"{package}.{version}.{kind}" if not domain or group.endswith(".k8s.io") else ""


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    result = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
    raise _broken()


def _broken() -> BadRequest:
    return BadRequest("the protobuf body cannot be read")


def _text(raw: int | memoryview) -> str:
    if isinstance(raw, int):
        raise _broken()
    try:
        return bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise _broken() from None


def _float(raw: memoryview) -> float:
    try:
        number: float = struct.unpack("<d", raw)[0]
    except struct.error:
        raise _broken() from None
    # Neither has a form in JSON.
    if number != number or number in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN
        raise _broken()
    return int(number) if number.is_integer() else number


class _Reader:
    """Reads the messages of one body; ``count`` is told of every field."""

    def __init__(self, count: ValueCount) -> None:
        self._count = count

    def message(self, name: str, data: memoryview, depth: int) -> dict[str, Any]:
        if depth > _MAX_DEPTH:
            raise _broken()
        table = _table(name)
        result: dict[str, Any] = {}
        for number, raw in self.fields(data):
            field = table.get(number)
            if field is None:
                continue
            if field.mapped:
                key, value = self._entry(field.type, raw, depth)
                result.setdefault(field.name, {})[key] = value
                continue
            value = self._value(field.type, raw, depth)
            if field.inline:
                result.update(value)
            elif field.repeated:
                result.setdefault(field.name, []).append(value)
            elif value is not None and (field.optional or value not in ("", 0, False, {})):
                result[field.name] = value
        return result

    def _entry(self, type_: str, raw: int | memoryview, depth: int) -> tuple[str, Any]:
        if isinstance(raw, int):
            raise _broken()
        key = ""
        value: Any = [] if type_[0] == "*" else "" if type_ in ("s", "y") else None
        for number, part in self.fields(raw):
            if number == 1:
                key = _text(part)
            elif number == 2 and type_[0] == "*":
                if isinstance(part, int):
                    raise _broken()
                value = [self._value(type_[1:], item, depth) for _, item in self.fields(part)]
            elif number == 2:
                value = self._value(type_, part, depth)
        return key, value

    def _value(self, type_: str, raw: int | memoryview, depth: int) -> Any:
        if type_ in ("i", "b"):
            if not isinstance(raw, int):
                raise _broken()
            if type_ == "b":
                return bool(raw)
            return raw - (1 << 64) if raw >= 1 << 63 else raw
        if isinstance(raw, int):
            raise _broken()
        match type_:
            case "s":
                return _text(raw)
            case "y":
                return base64.b64encode(raw).decode()
            case "q":
                return next((_text(part) for number, part in self.fields(raw) if number == 1), "0")
            case "t" | "m":
                return self._time(raw, fractions=type_ == "m")
            case "x":
                return self._int_or_text(raw)
            case "d":
                return _float(raw)
            case "f":
                text = next((_text(part).encode() for number, part in self.fields(raw) if number == 1), b"null")
                self._count.add(count_values(text, MAX_VALUES))
                return decode_json(text)
            case "A" | "B" | "C":
                return self._schema_or_else(type_, raw, depth)
        return self.message(type_, raw, depth + 1)

    def _time(self, raw: memoryview, *, fractions: bool) -> str | None:
        parts = dict(self.fields(raw))
        seconds, nanos = parts.get(1), parts.get(2, 0)
        if not isinstance(seconds, int) or not isinstance(nanos, int):
            return None
        seconds = seconds - (1 << 64) if seconds >= 1 << 63 else seconds
        try:
            moment = datetime.fromtimestamp(seconds, UTC) if seconds > 0 else None
            if moment is None:
                return None
            if fractions:
                return moment.replace(microsecond=nanos // 1000).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        except (OverflowError, ValueError, OSError):
            raise _broken() from None

    def _int_or_text(self, raw: memoryview) -> int | str:
        values = dict(self.fields(raw))
        if values.get(1):
            return _text(values.get(3, memoryview(b"")))
        number = self._value("i", values.get(2, 0), 0)
        return int(number)

    def _schema_or_else(self, type_: str, raw: memoryview, depth: int) -> Any:
        parts = list(self.fields(raw))
        for number, part in parts:
            if number == (2 if type_ == "B" else 1) and not isinstance(part, int):
                return self.message(_SCHEMA, part, depth + 1)
        if type_ == "B":
            return any(number == 1 and bool(part) for number, part in parts)
        return [self._value("s" if type_ == "C" else _SCHEMA, part, depth) for number, part in parts if number == 2]

    def fields(self, data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
        position, end = 0, len(data)
        while position < end:
            self._count.add()
            tag, position = _varint(data, position)
            number, wire = tag >> 3, tag & 7
            if wire == _VARINT:
                value, position = _varint(data, position)
                yield number, value
            elif wire in (_BYTES, _FIXED64):
                length = 8
                if wire == _BYTES:
                    length, position = _varint(data, position)
                if length > end - position:
                    raise _broken()
                yield number, data[position : position + length]
                position += length
            else:
                raise _broken()
