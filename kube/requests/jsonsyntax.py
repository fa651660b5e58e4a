"""What is wrong with a text that is no JSON, in the words of Go's ``encoding/json``: clients compare them (TS15)."""

from __future__ import annotations

import re
from typing import Final

from kube.requests.quoting import escaped

END: Final = "unexpected end of JSON input"
LENGTH_MAX: Final = 256 * 1024
"""Bytes that are looked through: the search is slower than decoding, and nobody reads a larger text's error."""

DEPTH_MAX: Final = 10_000
"""As in Go: more open brackets are refused."""

_BLANK: Final = re.compile(rb"[ \t\r\n]*")
_STRING: Final = re.compile(rb'[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*')
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERALS: Final = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_VALUE: Final = "looking for beginning of value"
_KEY: Final = "looking for beginning of object key string"


class _Wrong(Exception):
    """The text is no JSON at a place, for a reason."""

    def __init__(self, at: int, context: str) -> None:
        super().__init__()
        self.at, self.context = at, context


def syntax_error(text: bytes) -> str:
    """The first error, empty when there is none or the text is longer than ``LENGTH_MAX``."""
    if len(text) > LENGTH_MAX:
        return ""
    try:
        _document(text)
    except _Wrong as wrong:
        # At the end Go lets a blank follow, and only says that the end came early when the blank fits.
        if wrong.at < len(text):
            return f"invalid character {_quoted(text[wrong.at])} {wrong.context}"
        return END if wrong.context in _OPEN else f"invalid character ' ' {wrong.context}"
    return ""


_OPEN: Final = frozenset(
    {_VALUE, _KEY, "after object key", "after object key:value pair", "after array element", "in string literal"}
)
"""Where a blank is no error."""


def _document(text: bytes) -> None:
    brackets: list[bool] = []  # of those that are open: whether it is an object
    at = _blank(text, 0)
    while True:
        at, opened = _value(text, at, brackets)
        if opened:
            continue
        while brackets:
            at = _blank(text, at)
            is_object = brackets[-1]
            follows = text[at : at + 1]
            if follows == b",":
                at = _blank(text, at + 1)
                if is_object:
                    at = _key(text, at)
                break
            if follows != (b"}" if is_object else b"]"):
                raise _Wrong(at, "after object key:value pair" if is_object else "after array element")
            brackets.pop()
            at += 1
        else:
            at = _blank(text, at)
            if at < len(text):
                raise _Wrong(at, "after top-level value")
            return


def _value(text: bytes, at: int, brackets: list[bool]) -> tuple[int, bool]:
    """Past a value, or past the bracket that opens one with something in it, and which of them."""
    first = text[at : at + 1]
    if first in (b"{", b"["):
        if len(brackets) >= DEPTH_MAX:
            raise _Wrong(at, "exceeded max depth")
        inside = _blank(text, at + 1)
        if text[inside : inside + 1] == (b"}" if first == b"{" else b"]"):
            return inside + 1, False
        brackets.append(first == b"{")
        return (_key(text, inside) if first == b"{" else inside), True
    if first == b'"':
        return _string(text, at), False
    if first and first in b"-0123456789":
        return _number(text, at), False
    literal = _LITERALS.get(text[at]) if first else None
    if literal is None:
        raise _Wrong(at, _VALUE)
    for offset, expected in enumerate(literal):
        if text[at + offset : at + offset + 1] != bytes((expected,)):
            raise _Wrong(at + offset, f"in literal {literal.decode()} (expecting {_quoted(expected)})")
    return at + len(literal), False


def _key(text: bytes, at: int) -> int:
    if text[at : at + 1] != b'"':
        raise _Wrong(at, _KEY)
    at = _blank(text, _string(text, at))
    if text[at : at + 1] != b":":
        raise _Wrong(at, "after object key")
    return _blank(text, at + 1)


def _string(text: bytes, at: int) -> int:
    match = _STRING.match(text, at + 1)
    end = match.end() if match else at + 1
    if text[end : end + 1] == b'"':
        return end + 1
    if text[end : end + 1] != b"\\":
        raise _Wrong(end, "in string literal")
    if text[end + 1 : end + 2] != b"u":
        raise _Wrong(end + 1, "in string escape code")
    digits = end + 2
    while text[digits : digits + 1] in (bytes((digit,)) for digit in b"0123456789abcdefABCDEF"):
        digits += 1
    raise _Wrong(digits, "in \\u hexadecimal character escape")


def _number(text: bytes, at: int) -> int:
    match = _NUMBER.match(text, at)
    if match is None:
        raise _Wrong(at + 1, "in numeric literal")
    end = match.end()
    follows = text[end : end + 1]
    if follows == b"." and not re.search(rb"[.eE]", match.group()):
        raise _Wrong(end + 1, "after decimal point in numeric literal")
    if follows in (b"e", b"E") and not re.search(rb"[eE]", match.group()):
        raise _Wrong(end + 1 + (text[end + 1 : end + 2] in (b"+", b"-")), "in exponent of numeric literal")
    return end


def _blank(text: bytes, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _quoted(byte: int) -> str:
    """A byte as Go shows it."""
    if byte == ord("'"):
        return "'\\''"
    if byte == ord('"'):
        return "'\"'"
    return f"'{escaped(chr(byte))}'"
