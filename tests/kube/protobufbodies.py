"""Bodies in Kubernetes' protobuf encoding, made as clients written in Go make them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import orjson

from kube.objects import protobuf


def varint(number: int) -> bytes:
    number &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def delimited(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def encoded(value: Mapping[str, Any]) -> bytes:
    """What a client written in Go would send."""
    meta = delimited(1, value["apiVersion"].encode()) + delimited(2, value["kind"].encode())
    name = protobuf._message_name(value["apiVersion"], value["kind"])
    rest = {key: item for key, item in value.items() if key not in ("apiVersion", "kind")}
    return protobuf.MAGIC + delimited(1, meta) + delimited(2, message(name, rest))


def message(name: str, value: Mapping[str, Any]) -> bytes:
    out, left = b"", dict(value)
    for number, field in sorted(protobuf._table(name).items()):
        if field.inline:
            inner = {part: left.pop(part) for part in _names(field.type) if part in left}
            out += delimited(number, message(field.type, inner))
        elif field.name in left:
            item = left.pop(field.name)
            if field.mapped:
                for key, entry in item.items():
                    out += delimited(number, delimited(1, key.encode()) + tagged(2, field.type, entry))
            else:
                for entry in item if field.repeated else [item]:
                    out += tagged(number, field.type, entry)
    assert not left, f"{name} has no field for {left}"
    return out


def _names(message_name: str) -> Iterator[str]:
    """What the fields of a message are called in JSON, where parts that are inline have no name of their own."""
    for field in protobuf._table(message_name).values():
        if field.inline:
            yield from _names(field.type)
        else:
            yield field.name


def tagged(number: int, type_: str, value: Any) -> bytes:
    if type_ in ("i", "b"):
        return varint(number << 3) + varint(int(value))
    if type_ == "d":
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return delimited(number, delimited_value(type_, value))


def delimited_value(type_: str, value: Any) -> bytes:
    match type_:
        case "s":
            return str(value).encode()
        case "y":
            return base64.b64decode(value)
        case "q":
            return delimited(1, str(value).encode())
        case "f":
            return delimited(1, orjson.dumps(value))
        case "x":
            return tagged(1, "i", 1) + tagged(3, "s", value) if isinstance(value, str) else tagged(2, "i", value)
        case "t" | "m":
            moment = datetime.fromisoformat(value)
            return tagged(1, "i", int(moment.timestamp())) + tagged(2, "i", moment.microsecond * 1000)
        case "B":
            return tagged(1, "b", value) if isinstance(value, bool) else delimited(2, message(protobuf._SCHEMA, value))
        case "A":
            return delimited(1, message(protobuf._SCHEMA, value))
    return message(type_, value)
