"""What expressions ask of two texts, in time by the length of both together, and not by their product (DOS-03).

The evaluator's own functions compare the second text with every place of the first, and compile a pattern anew for each
call. So such calls are written anew where the second text is not a short one of the expression's own (``replacements``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from kube.cel import regexes
from kube.cel.syntaxtree import Node, Tree
from kube.cel.zones import ZONED

_SHORT: Final = 64
"""Letters with which every place of a text is compared in a moment."""


def contains(text: str, part: str) -> bool:
    """Whether it is anywhere in the text."""
    return part in text


def index_of(text: str, part: str, start: int = 0) -> int:
    """Where it begins first, at ``start`` or behind; -1 where it does not. Raises ``ValueError`` for no place of the text."""
    return text.find(part, _place(text, start))


def last_index_of(text: str, part: str, start: int | None = None) -> int:
    """Where it begins last, at ``start`` or before; -1 where it does not. Raises ``ValueError`` for no place of the text."""
    if start is not None:
        text = text[: _place(text, start) + len(part)]
    # To look for from the end takes Python the product of both.
    found = text[::-1].find(part[::-1])
    return -1 if found < 0 else len(text) - found - len(part)


def split(text: str, separator: str, limit: int = -1) -> list[str]:
    """The parts between separators, at most ``limit`` where it is not negative; without separator each letter."""
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    letters = list(text) or [""]
    return letters if limit < 0 or limit >= len(letters) else [*letters[: limit - 1], text[limit - 1 :]]


def _place(text: str, place: int) -> int:
    if not 0 <= place <= len(text):
        raise ValueError(f"index out of range: {place}")
    return place


OWN: Final[dict[str, Callable[..., Any]]] = {
    "matches": regexes.matches,
    "contains": contains,
    "indexOf": index_of,
    "lastIndexOf": last_index_of,
    "split": split,
}


def replacements(tree: Tree, text: str) -> Iterator[tuple[int, int, str]]:
    """What to write instead of the names of calls: from where, to where, and what. Raises ``ValueError``."""
    for node, _ in tree.nodes():
        if is_own(node):
            # The offset is that of the parenthesis behind the name.
            end = len(text[: tree.offsets.get(node.id, 0)].rstrip())
            start = end - len(node.name)
            if text[max(start, 0) : end] != node.name:
                raise ValueError(f"the name {node.name} has to stand before its parenthesis")
            yield start, end, f"{node.name}__"


def is_own(node: Node) -> bool:
    """Whether it is such a call, or one that names a time zone."""
    if node.kind == "call" and node.name in ZONED and len(node.args) == 2:
        return True
    if node.kind != "call" or node.name not in OWN or len(node.args) < 2:
        return False
    second = node.args[1]
    return node.name == "matches" or second.kind != "const" or len(str(second.value)) > _SHORT
