"""Loops over two variables, ``self.all(i, v, …)``, and optional answers in words that the compiler has (TS10).

Kubernetes offers ``all``, ``exists``, ``existsOne``, ``transformList``, ``transformMap`` and ``transformMapEntry`` with an
index or key and a value. Each becomes a loop over the pairs of its list or map:
``self.pairs__().all(pair__, cel.bind(i, pair__.key, cel.bind(v, pair__.value, …)))``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_CALL: Final = re.compile(
    r"\.\s*(all|exists|existsOne|exists_one|transformList|transformMap|transformMapEntry|validate|sortBy)\s*\("
    r"|\b(format\.named)\s*\("
)
_OPTIONAL: Final = {"format.named": "format.named__", "validate": "validated__"}
"""Functions that answer with an optional, and those that answer with a list of none or one."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
LITERAL: Final = re.compile(
    r"[rRbB]{0,2}(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|//[^\n]*",
    re.DOTALL,
)
"""A literal, or a comment: nothing in it is part of the expression."""
_OPEN: Final = "([{"
_CLOSE: Final = ")]}"
_DEPTH: Final = 8


def expand_macros(text: str, depth: int = 0) -> str:
    """The expression with all that spelled out; one without any as it is."""
    if depth > _DEPTH or not _CALL.search(text):
        return text
    # One pass from the left; literals and comments are jumped over, so that words in a text are no macros. The
    # arguments are expanded by themselves, ``_DEPTH`` deep at most, and the position moves behind the call.
    out, position, copied = [], 0, 0
    while position < len(text):
        literal = LITERAL.match(text, position)
        if literal and literal.end() > position:
            position = literal.end()
            continue
        call = _CALL.match(text, position)
        found = _arguments(text, call.end()) if call else None
        if call is None or found is None:
            position += 1
            continue
        arguments, end = found
        written = _written(call[1] or call[2], [expand_macros(argument, depth + 1) for argument in arguments])
        if written is None:
            position = call.end()
            continue
        out += [text[copied:position], written]
        position = copied = end
    return "".join([*out, text[copied:]])


def _arguments(text: str, start: int) -> tuple[list[str], int] | None:
    """The arguments of a call that was opened before ``start``, and where it ends; ``None`` when it does not end."""
    arguments: list[str] = []
    begun, nesting, position = start, 0, start
    while position < len(text):
        literal = LITERAL.match(text, position)
        if literal and literal.end() > position:
            position = literal.end()
            continue
        letter = text[position]
        if letter in _OPEN:
            nesting += 1
        elif letter in _CLOSE and nesting:
            nesting -= 1
        elif letter == ")":
            return [*arguments, text[begun:position].strip()], position + 1
        elif letter == "," and not nesting:
            arguments.append(text[begun:position].strip())
            begun = position + 1
        position += 1
    return None


def _written(macro: str, arguments: Sequence[str]) -> str | None:
    """The call over pairs, or ``None`` when it is one over one variable, or none at all."""
    if macro in _OPTIONAL:
        dot = "" if "." in macro else "."
        return f"{dot}{_OPTIONAL[macro]}({', '.join(arguments)})[?0]"
    if macro == "sortBy":
        if len(arguments) != 2 or not _NAME.match(arguments[0]):
            return None
        item, key = arguments
        return f".map({item}, {{'key': ({key}), 'value': {item}}}).sorted__()"
    transforms = macro.startswith("transform")
    if len(arguments) not in ((3, 4) if transforms else (3,)):
        return None
    key, value, *bodies = arguments
    if not (_NAME.match(key) and _NAME.match(value)) or key == value:
        return None

    def bound(body: str) -> str:
        return f"cel.bind({key}, pair__.key, cel.bind({value}, pair__.value, ({body})))"

    loop = ".pairs__()"
    if not transforms:
        name = "exists_one" if macro == "existsOne" else macro
        return f"{loop}.{name}(pair__, {bound(bodies[0])})"
    condition = f"{bound(bodies[0])}, " if len(bodies) == 2 else ""
    if macro == "transformMap":
        entry = f"{{'key': pair__.key, 'value': {bound(bodies[-1])}}}"
        return f"{loop}.map(pair__, {condition}{entry}).mapped__()"
    made = f"{loop}.map(pair__, {condition}{bound(bodies[-1])})"
    return f"{made}.merged__()" if macro == "transformMapEntry" else made
