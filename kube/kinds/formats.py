"""The string formats of OpenAPI that custom resources may name; unknown ones are not checked, as in Kubernetes."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import unicodedata
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Final
from urllib.parse import urlsplit

from kube.requests.names import is_dns_label, is_dns_subdomain

_UUID: Final = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?([0-9a-f])[0-9a-f]{3}-?([0-9a-f])[0-9a-f]{3}-?[0-9a-f]{12}", re.IGNORECASE
)
_DATE_TIME: Final = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_HOSTNAME: Final = re.compile(r"[lds]-?[lds]{0,62}|([lds]([lds-]{0,61}[lds])?\.)+l{2,63}")
"""Of the classes of characters: letters, digits, symbols."""
_HOSTNAME_BYTES: Final = 255
_HOST_LABEL_BYTES: Final = 63
_MAC: Final = re.compile(
    "|".join(
        rf"[0-9A-Fa-f]{{2}}(?:{mark}[0-9A-Fa-f]{{2}}){{{octets - 1}}}" for octets in (6, 8, 20) for mark in (":", "-")
    )
    + "".join(rf"|[0-9A-Fa-f]{{4}}(?:\.[0-9A-Fa-f]{{4}}){{{octets // 2 - 1}}}" for octets in (6, 8, 20))
)
_ADDRESS: Final = r"[^\s@<>]{1,64}@[^\s@<>.]+(\.[^\s@<>.]+)*"
_EMAIL: Final = re.compile(rf"{_ADDRESS}|[^@<>()\[\],;:\\\"]*<{_ADDRESS}>")
_DURATION: Final = re.compile(r"[-+]?(?:0|(?:(?:\d++(?:\.\d*+)?|\.\d++)(?:ns|us|µs|μs|ms|s|m|h))++)", re.ASCII)
"""Nothing is looked at twice, however long a run of digits is."""
_DURATION_WORD: Final = re.compile(r"(?<!\d)(\d++)\s*+([A-Za-zµ]+)", re.ASCII)
_DURATION_UNITS: Final = frozenset({"ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"})
_DURATION_WORDS: Final = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_HEX_COLOR: Final = re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")
_SSN: Final = re.compile(r"\d{3}[- ]?\d{2}[- ]?\d{4}", re.ASCII)
_OBJECT_ID: Final = re.compile(r"[0-9a-fA-F]{24}")
_OCTET: Final = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"
_RGB_COLOR: Final = re.compile(rf"rgb\({_OCTET},{_OCTET},{_OCTET}\)", re.ASCII)
_CARD: Final = re.compile(
    "4[0-9]{12}([0-9]{3})?|5[1-5][0-9]{14}|(222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}"
    "|6(011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(0[0-5]|[68][0-9])[0-9]{11}|(2131|1800|35[0-9]{3})[0-9]{11}|6[27][0-9]{14}"
)
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_MAX: Final = 4096
"""Longer texts are of none of these formats, byte aside."""


def is_of_format(text: str, name: str) -> bool:
    """Whether a text is of a format. Formats nobody knows accept everything."""
    check = _CHECKS.get(name.replace("-", ""))
    if check is None:
        return True
    if len(text) > _MAX and name != "byte":
        return False
    try:
        return check(text)
    except (ValueError, binascii.Error):
        return False


def is_known(name: str, kind: str) -> bool:
    """Whether a format says something about values of a type; an empty one is that of texts."""
    if kind in ("", "string"):
        return name.replace("-", "") in _CHECKS or name == "password"
    return name in _NUMBERS.get(kind, ())


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
    if any(character < " " or character == "\x7f" for character in text):
        return False
    parts = urlsplit(text)
    if " " in parts.netloc or _BROKEN_ESCAPE.search(parts.netloc + parts.path):
        return False
    return text.startswith("/") or bool(parts.scheme)


def _byte(text: str) -> bool:
    base64.b64decode(text, validate=True)
    return True


def _duration(text: str) -> bool:
    """Of Go's, or with a word for a unit somewhere in it."""
    if _DURATION.fullmatch(text):
        return True
    found = [(int(number), unit.lower()) for number, unit in _DURATION_WORD.findall(text)]
    return all(number < 1 << 63 for number, _ in found) and any(
        unit in _DURATION_UNITS or unit.startswith(_DURATION_WORDS) for _, unit in found
    )


def _hostname(text: str) -> bool:
    return (
        len(text.encode()) <= _HOSTNAME_BYTES
        and all(len(label.encode()) <= _HOST_LABEL_BYTES for label in text.split("."))
        and _HOSTNAME.fullmatch("".join(map(_class_of, text))) is not None
    )


def _class_of(character: str) -> str:
    if character in "-.":
        return character
    if character.isascii() and character.isdigit():
        return "d"
    return {"L": "l", "S": "s"}.get(unicodedata.category(character)[0], "_")


def _isbn(*lengths: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        digits = re.sub(r"[\s-]+", "", text)
        if len(digits) == 10 in lengths and re.fullmatch("[0-9]{9}[0-9X]", digits):
            values = [10 if digit == "X" else int(digit) for digit in digits]
            return sum(place * value for place, value in enumerate(values, 1)) % 11 == 0
        if len(digits) == 13 in lengths and re.fullmatch("[0-9]{13}", digits):
            return sum(int(digit) * (1, 3)[place % 2] for place, digit in enumerate(digits)) % 10 == 0
        return False

    return check


def _card(text: str) -> bool:
    digits = re.sub("[^0-9]+", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = [int(digit) * (1, 2)[place % 2] for place, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def _full(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


_CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
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
    "hostname": _hostname,
    "byte": _byte,
    "duration": _duration,
    "hexcolor": _full(_HEX_COLOR),
    "ssn": _full(_SSN),
    "bsonobjectid": _full(_OBJECT_ID),
    "isbn": _isbn(10, 13),
    "isbn10": _isbn(10),
    "isbn13": _isbn(13),
    "creditcard": _card,
    "rgbcolor": _full(_RGB_COLOR),
    "k8sshortname": is_dns_label,
    "k8slongname": is_dns_subdomain,
}
"""By their names without dashes, which say nothing in them."""

_NUMBERS: Final = {"integer": ("int32", "int64"), "number": ("float", "double")}
