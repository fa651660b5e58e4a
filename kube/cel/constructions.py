"""Objects that expressions make: ``Object.spec{replicas: 1}`` and ``JSONPatch{op: "add", path: "/a"}`` (TS15).

The evaluator knows no types of objects. So each is written as a map that also holds the name of its type, and what the
types say is looked at here: ``{'Object{}': 'Object.spec', 'replicas': 1}``.
See https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from kube.cel.literals import Literals

MARK: Final = "Object{}"
"""The key of a type's name: no field is called so."""
PATCH: Final = "JSONPatch"
PATCH_FIELDS: Final = ("op", "path", "from", "value")

_OPENED: Final = re.compile(r"(Object(?:\s*\.\s*[A-Za-z_][A-Za-z0-9_]*)*|JSONPatch)(\s*)\{")
_FIELD: Final = re.compile(r"(\??)(\s*)([A-Za-z_][A-Za-z0-9_]*)(?=(?:\s|//[^\n]*\n)*:)")
_WORD: Final = re.compile(r"[A-Za-z0-9_.]")
_SPACE: Final = re.compile(r"\s+")
_SEEN: Final = re.compile(r"(ERROR: <input>:)(\d+):(\d+)(: [^\n]*)\n \| ([^\n]*)\n \| \.*\^")


class Mistyped(ValueError):
    """What an expression made is of another type than its place; the message is kube-apiserver's."""


class Constructions:
    """An expression's text with its objects written as maps, and where each letter of it was before."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._literals = Literals(source)
        self._parts: list[tuple[int, int]] = []
        self.text = self._written()

    def _written(self) -> str:
        # One pass from the left; literals and comments are jumped over. ``open_brackets`` says of each bracket whether
        # it is an object's, and ``expected`` whether a field of such a one begins here.
        source, out, position, length = self.source, [], 0, 0
        open_brackets: list[bool] = []
        expected = False

        def copy(text: str, end: int) -> None:
            nonlocal position, length
            self._parts.append((length, position))
            out.append(text)
            length += len(text)
            position = end

        while position < len(source):
            space = _SPACE.match(source, position)
            end = space.end() if space else self._literals.end(position)
            if end > position:
                expected = expected and (space is not None or source.startswith("//", position))
                copy(source[position:end], end)
                continue
            letter = source[position]
            field = _FIELD.match(source, position) if expected else None
            opened = _OPENED.match(source, position) if not (position and _WORD.match(source[position - 1])) else None
            if field:
                copy(f"{field[1]}{field[2]}'{field[3]}'", field.end())
                expected = False
            elif opened:
                name = "".join(opened[1].split())
                empty = self._closes(opened.end())
                copy(f"{{'{MARK}': '{name}'" + ("" if empty else ", "), opened.end())
                open_brackets.append(True)
                expected = True
            else:
                if letter in "([{":
                    open_brackets.append(False)
                elif letter in ")]}" and open_brackets:
                    open_brackets.pop()
                expected = letter == "," and bool(open_brackets) and open_brackets[-1]
                copy(letter, position + 1)
        return "".join(out)

    def _closes(self, position: int) -> bool:
        while position < len(self.source):
            space = _SPACE.match(self.source, position)
            if space:
                position = space.end()
            elif self.source.startswith("//", position):
                position = self._literals.end(position)
            else:
                return self.source[position] == "}"
        return False

    def before(self, offset: int) -> int:
        """Where a place of the text was in the source."""
        found = (0, 0)
        for part in self._parts:
            if part[0] > offset:
                break
            found = part
        return min(found[1] + offset - found[0], len(self.source))

    def as_written(self, words: str) -> str:
        """A compiler's complaints with the lines and columns of the source."""
        return _SEEN.sub(self._shown, words) if self.text != self.source else words

    def _shown(self, found: re.Match[str]) -> str:
        lines = self.text.split("\n")
        offset = sum(len(line) + 1 for line in lines[: int(found[2]) - 1]) + int(found[3]) - 1
        at = self.before(offset)
        before = self.source[:at]
        line, column = before.count("\n") + 1, at - (before.rfind("\n") + 1)
        return f"{found[1]}{line}:{column + 1}{found[4]}\n | {self.source.split(chr(10))[line - 1]}\n | {'.' * column}^"


def escape_key(name: str) -> str:
    """``jsonpatch.escapeKey``: a name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def check_types(value: Any) -> None:
    """See that every object is of the type that its place is called by. Raises ``Mistyped``."""
    if isinstance(value, Mapping) and MARK in value:
        errors = list(_mistyped(value, str(value[MARK])))
        if errors:
            raise Mistyped("type mismatch: " + "\n".join(errors))


def _mistyped(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        if MARK in value and value[MARK] != place:
            words = "which matches field name path from root Object type"
            yield f'unexpected type name "{value[MARK]}", expected "{place}", {words}'
        for name, member in value.items():
            if name != MARK:
                yield from _mistyped(member, f"{place}.{name}" if MARK in value else place)
    elif isinstance(value, list):
        for item in value:
            yield from _mistyped(item, place)


def as_json(value: Any) -> Any:
    """What an expression made as JSON. Raises ``Mistyped`` for what is none."""
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise Mistyped("the key of a map is not of type string")
        return {name: as_json(member) for name, member in value.items() if name != MARK}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise Mistyped(f"a value of type {type(value).__name__} is no JSON")
