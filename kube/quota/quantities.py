"""Quantities of resources: ``500m``, ``1.5Gi``, ``2e3``, exact and in Kubernetes' canonical form.

The grammar and the rounding are those of ``k8s.io/apimachinery/pkg/api/resource``: nothing finer than a nano unit, away
from zero; and a text that is as good as canonical stays as it is. Length and exponent are bounded before a digit is
read, for ``1e2147483647`` keeps a processor busy for ever.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final

LENGTH_MAX: Final = 64
EXPONENT_MAX: Final = 300
INT64_MAX: Final = 2**63 - 1

_NANO: Final = 10**9
_MILLI: Final = 10**6
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXA: Final = 18
_FAST_DIGITS: Final = 18
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Final = ("", *_BINARY)
_SHAPE: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*)([+-]?[0-9]*)", re.ASCII)
_READ_MAX: Final = 4096
"""Texts of which is remembered what they say: most amounts are written a few ways, and read with every write."""

_WHITE: Final = " \t\n\v\f\r"

_FORMAT_WORDS: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class InvalidQuantity(ValueError):
    """A text that is no quantity; the message is Kubernetes'."""


class Format(Enum):
    """How a quantity is written: by powers of ten, by powers of 1024, or with an exponent."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount. Equality and order look at the amount alone; sums keep the left side's format.

    ``text`` is what was read, where Kubernetes writes it again as it is.
    """

    nanos: int = 0
    format: Format = field(default=Format.DECIMAL, compare=False)
    text: str = field(default="", compare=False)

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos + other.nanos, self.format if self.nanos else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self.format if self.nanos else other.format)

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, self.format)

    def __mul__(self, factor: int) -> Quantity:
        return Quantity(self.nanos * factor, self.format)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def value(self) -> int:
        """Whole units, rounded away from zero, within 64 bits."""
        return _clamped(_away_from_zero(self.nanos, _NANO))

    def milli(self) -> int:
        """Thousandths, rounded away from zero, within 64 bits."""
        return _clamped(_away_from_zero(self.nanos, _MILLI))

    def rounded(self) -> Quantity:
        """No finer than a thousandth, as amounts of resources are kept (``0.0001`` becomes ``1m``)."""
        if not self.nanos % _MILLI:
            return self
        return Quantity(_away_from_zero(self.nanos, _MILLI) * _MILLI, self.format)

    def __str__(self) -> str:
        """The canonical form, or what was read."""
        if self.text:
            return self.text
        if not self.nanos:
            return "0"
        if self.format is Format.BINARY and abs(self.nanos) >= 1024 * _NANO and not self.nanos % _NANO:
            return _by_1024(self.nanos // _NANO)
        mantissa, exponent = self.nanos, -9
        while mantissa % 1000 == 0 and (exponent < _EXA or self.format is Format.EXPONENT):
            mantissa //= 1000
            exponent += 3
        if self.format is Format.EXPONENT:
            return f"{mantissa}e{exponent}" if exponent else str(mantissa)
        return f"{mantissa}{_DECIMAL_SUFFIX[exponent]}"


UNITS_MAX: Final = Quantity(INT64_MAX * _NANO)
"""What Kubernetes adds up at most; the sum of as many of these as there can be objects is short enough to be read again."""


def _by_1024(units: int) -> str:
    power = 0
    while units % 1024 == 0 and power < len(_BINARY):
        units //= 1024
        power += 1
    return f"{units}{_BINARY_SUFFIX[power]}"


def _away_from_zero(amount: int, unit: int) -> int:
    whole = -(-abs(amount) // unit)
    return whole if amount >= 0 else -whole


def _clamped(number: int) -> int:
    return max(-INT64_MAX, min(INT64_MAX, number))


def _suffix(letters: str, digits: str) -> tuple[int, int, Format]:
    """Base, exponent and format that a suffix means."""
    if not digits:
        if letters in _BINARY:
            return 2, _BINARY[letters], Format.BINARY
        if letters in _DECIMAL:
            return 10, _DECIMAL[letters], Format.DECIMAL
    elif letters in {"e", "E"} and digits[-1:].isdigit():
        exponent = int(digits)
        if abs(exponent) > EXPONENT_MAX:
            raise InvalidQuantity(f"a quantity's exponent must be between -{EXPONENT_MAX} and {EXPONENT_MAX}")
        return 10, exponent, Format.EXPONENT
    raise InvalidQuantity("unable to parse quantity's suffix")


def parse_quantity(text: str | int) -> Quantity:
    """Read a quantity; blanks around it do not count, and JSON integers are quantities too.

    Raises ``InvalidQuantity`` for what Kubernetes refuses, for more than ``LENGTH_MAX`` characters and for exponents
    beyond ``EXPONENT_MAX``. Negative amounts are read: whether one may be is the caller's business.
    """
    if not isinstance(text, str):
        if not isinstance(text, int) or isinstance(text, bool):
            raise InvalidQuantity(_FORMAT_WORDS)
        if abs(text) > 10**LENGTH_MAX:
            raise InvalidQuantity("the quantity is too long")
        text = str(text)
    if len(text) > LENGTH_MAX:
        text = text.strip(_WHITE)
        if len(text) > LENGTH_MAX:
            raise InvalidQuantity("the quantity is too long")
    return _parsed(text)


@lru_cache(maxsize=_READ_MAX)
def _parsed(text: str) -> Quantity:
    text = text.strip(_WHITE)
    shape = _SHAPE.fullmatch(text)
    if shape is None or not text:
        raise InvalidQuantity(_FORMAT_WORDS)
    whole, part = shape[2].lstrip("0"), shape[3] or ""
    base, exponent, style = _suffix(shape[4], shape[5])
    digits = int(f"0{whole}{part}")
    # Kubernetes looks at what it can calculate with 64 bits first. The rest it caps there if it is a power of 1024.
    if base == 10:
        power = exponent - len(part)
        fits = len(whole or "0") + len(part) <= _FAST_DIGITS and power >= -9
        kept = fits and power % 3 == 0 and whole != "" and not (whole + part).endswith("000")
        nanos = digits * 10 ** (power + 9) if power >= -9 else _away_from_zero(digits, 10 ** (-9 - power))
    else:
        fits = not part and 15 - len(whole or "0") - int(exponent * 3 / 10) - 1 >= 0
        kept = fits and digits % 8 != 0
        nanos = _away_from_zero(digits * 2**exponent * _NANO, 10 ** len(part))
        if not fits:
            nanos = min(nanos, INT64_MAX * _NANO)
            if 0 < nanos < _NANO:
                style = Format.DECIMAL
    if not fits and not (shape[2] or part):
        raise InvalidQuantity("unable to parse numeric part of quantity")
    return Quantity(-nanos if shape[1] == "-" else nanos, style, text if kept else "")


ZERO: Final = Quantity()
