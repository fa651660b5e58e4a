"""The string formats of OpenAPI that custom resources may name; unknown ones are not checked, as in Kubernetes."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Final
from urllib.parse import urlsplit

_UUID: Final = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?([0-9a-f])[0-9a-f]{3}-?([0-9a-f])[0-9a-f]{3}-?[0-9a-f]{12}", re.IGNORECASE
)
_DATE_TIME: Final = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_HOST_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOSTNAME: Final = re.compile(rf"{_HOST_LABEL}(\.{_HOST_LABEL})*\.?")
_MAC: Final = re.compile(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}")
_EMAIL: Final = re.compile(r"[^\s@<>]{1,64}@[^\s@<>.]+(\.[^\s@<>.]+)*")
_DURATION: Final = re.compile(r"[-+]?(0|[\d.nsuµμmh]+)", re.ASCII)
_DURATION_PART: Final = re.compile(r"(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_HEX_COLOR: Final = re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")
_SSN: Final = re.compile(r"\d{3}[- ]?\d{2}[- ]?\d{4}", re.ASCII)
_OBJECT_ID: Final = re.compile(r"[0-9a-fA-F]{24}")
_MAX: Final = 4096
"""Longer texts are of none of these formats, byte aside."""


def is_of_format(text: str, name: str) -> bool:
    """Whether a text is of a format. Formats nobody knows accept everything."""
    check = _CHECKS.get(name)
    if check is None:
        return True
    if len(text) > _MAX and name != "byte":
        return False
    try:
        return check(text)
    except (ValueError, binascii.Error):
        return False


def _date_time(text: str) -> bool:
    found = _DATE_TIME.fullmatch(text)
    if not found:
        return False
    datetime.fromisoformat(f"{found[1]}T{found[2]}")
    return True


def _date(text: str) -> bool:
    return len(text) == len("2026-01-01") and bool(date.fromisoformat(text))


def _uuid(version: str) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        found = _UUID.fullmatch(text)
        return bool(found) and version in ("", (found[1] if found else ""))

    return check


def _ip(version: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        return ipaddress.ip_address(text).version == version

    return check


def _cidr(text: str) -> bool:
    return "/" in text and bool(ipaddress.ip_network(text, strict=False))


def _uri(text: str) -> bool:
    parts = urlsplit(text)
    return text.startswith("/") or bool(parts.scheme)


def _byte(text: str) -> bool:
    base64.b64decode(text, validate=True)
    return True


def _duration(text: str) -> bool:
    if not _DURATION.fullmatch(text):
        return False
    bare = text.lstrip("+-")
    return bare == "0" or not _DURATION_PART.sub("", bare)


def _full(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


_CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    "date-time": _date_time,
    "datetime": _date_time,
    "date": _date,
    "uuid": _uuid(""),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4"),
    "uuid5": _uuid("5"),
    "ipv4": _ip(4),
    "ipv6": _ip(6),
    "cidr": _cidr,
    "mac": _full(_MAC),
    "email": _full(_EMAIL),
    "uri": _uri,
    "hostname": _full(_HOSTNAME),
    "byte": _byte,
    "duration": _duration,
    "hexcolor": _full(_HEX_COLOR),
    "ssn": _full(_SSN),
    "bsonobjectid": _full(_OBJECT_ID),
}
