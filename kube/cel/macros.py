"""Loops over two variables, ``self.all(i, v, …)``, and optional answers in words that the compiler has (TS10).

Kubernetes offers ``all``, ``exists``, ``existsOne``, ``transformList``, ``transformMap`` and ``transformMapEntry`` with an
index or key and a value. Each becomes a loop over the pairs of its list or map:
``self.pairs__().all(pair__, cel.bind(i, pair__.key, cel.bind(v, pair__.value, …)))``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from kube.cel.literals import Literals

_CALL: Final = re.compile(
    r"\.\s*(all|exists|existsOne|exists_one|transformList|transformMap|transformMapEntry|validate|sortBy)\s*\("
    r"|\b(format\.named)\s*\("
)
_TOKEN: Final = re.compile(rf"{_CALL.pattern}|[rRbB]{{0,2}}[\"']|//|[()\[\]{{}},]")
"""Where a call, a literal or a comment may begin, a bracket, or what divides arguments."""
_OPTIONAL: Final = {"format.named": "format.named__", "validate": "validated__"}
"""Functions that answer with an optional, and those that answer with a list of none or one."""
_NAME: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*")
_SPACE: Final = re.compile(r"\s*")
_ARGUMENTS: Final = 4
"""No macro takes more."""
_DEPTH: Final = 8


@dataclass(slots=True, eq=False)
class _Call:
    """What may be a macro: from where to where it goes, and where its arguments are divided, its parentheses with them."""

    macro: str
    start: int
    dividers: list[int] = field(default_factory=list)
    end: int | None = None

    def is_macro(self, text: str) -> bool:
        """Whether the number of its arguments, and the names among them, are those of a loop that is written out."""
        count = len(self.dividers) - 1
        if self.macro in _OPTIONAL:
            return True
        if self.macro == "sortBy":
            return count == 2 and self._name(text, 0) is not None
        if count not in ((3, 4) if self.macro.startswith("transform") else (3,)):
            return False
        key, value = self._name(text, 0), self._name(text, 1)
        return key is not None and value is not None and key != value

    def _name(self, text: str, index: int) -> str | None:
        found = _NAME.fullmatch(text, self.dividers[index] + 1, self.dividers[index + 1])
        return found[1] if found else None


def expand_macros(text: str) -> str:
    """The expression with all that spelled out, ``_DEPTH`` of them in one another; one without any as it is.

    Takes time by the length of the text: tenants write it.
    """
    return _Expansion(text).written(0, len(text), 0) if _CALL.search(text) else text


class _Expansion:
    """A text that is read once for its calls, and written from the inside out."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._calls = deque(_calls(text))

    def written(self, start: int, end: int, depth: int) -> str:
        """A part of it, in ``depth`` macros. Parts are asked for from the left, each once."""
        out, copied = [], start
        while self._calls and self._calls[0].start < end:
            call = self._calls.popleft()
            if depth > _DEPTH or call.end is None or call.end > end or not call.is_macro(self._text):
                continue
            arguments = [self._argument(*between, depth + 1) for between in pairwise(call.dividers)]
            out += [self._text[copied : call.start], _written(call.macro, arguments)]
            copied = call.end
        return "".join([*out, self._text[copied:end]])

    def _argument(self, before: int, behind: int, depth: int) -> str:
        space = _SPACE.match(self._text, before + 1, behind)
        start = space.end() if space else before + 1
        return self.written(start, behind, depth).rstrip()


def _calls(text: str) -> list[_Call]:
    """What may be a macro, from the left."""
    literals = Literals(text)
    calls: list[_Call] = []
    # For each open bracket the calls that end with it. A call whose parenthesis another kind of bracket closes ends with
    # the one around: the compiler will say what is wrong with such a text.
    ending: list[list[_Call]] = [[]]
    position = 0
    while token := _TOKEN.search(text, position):
        macro, letter, position = token[1] or token[2], token[0], token.end()
        if macro:
            calls.append(_Call(macro, token.start(), [position - 1]))
            ending.append(calls[-1:])
        elif letter in "([{":
            ending.append([])
        elif letter == ",":
            for call in ending[-1]:
                call.dividers.append(position - 1)
            ending[-1] = [call for call in ending[-1] if len(call.dividers) <= _ARGUMENTS]
        elif letter in ")]}":
            ended = ending.pop()
            if letter == ")":
                for call in ended:
                    call.dividers.append(position - 1)
                    call.end = position
            else:
                around = ending.pop() if ending else []
                shorter, longer = sorted((ended, around), key=len)
                longer += shorter
                ending.append(longer)
            ending = ending or [[]]
        else:
            position = max(literals.end(token.start()), token.start() + 1)
    return calls


def _written(macro: str, arguments: Sequence[str]) -> str:
    """The call in words that the compiler has: over pairs, where it is a loop."""
    if macro in _OPTIONAL:
        dot = "" if "." in macro else "."
        return f"{dot}{_OPTIONAL[macro]}({', '.join(arguments)})[?0]"
    if macro == "sortBy":
        item, key = arguments
        return f".map({item}, {{'key': ({key}), 'value': {item}}}).sorted__()"
    key, value, *bodies = arguments

    def bound(body: str) -> str:
        return f"cel.bind({key}, pair__.key, cel.bind({value}, pair__.value, ({body})))"

    loop = ".pairs__()"
    if not macro.startswith("transform"):
        name = "exists_one" if macro == "existsOne" else macro
        return f"{loop}.{name}(pair__, {bound(bodies[0])})"
    condition = f"{bound(bodies[0])}, " if len(bodies) == 2 else ""
    if macro == "transformMap":
        entry = f"{{'key': pair__.key, 'value': {bound(bodies[-1])}}}"
        return f"{loop}.map(pair__, {condition}{entry}).mapped__()"
    made = f"{loop}.map(pair__, {condition}{bound(bodies[-1])})"
    return f"{made}.merged__()" if macro == "transformMapEntry" else made
