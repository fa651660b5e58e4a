"""What evaluating an expression may cost at the most, told from its syntax tree before anything is evaluated (DOS-03)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from kube.cel.syntaxtree import Node, Tree, is_bind

_BUILDS_TEXT: Final = frozenset(
    {"_+_", "format", "replace", "join", "split", "substring", "lowerAscii", "upperAscii", "trim", "reverse", "quote"}
)
_READS_TEXT: Final = frozenset(
    {"matches", "find", "findAll", "contains", "startsWith", "endsWith", "indexOf", "lastIndexOf", "size"}
)
HANDED_OVER: Final = frozenset(
    {
        *("pairs__", "mapped__", "merged__", "sorted__", "sort", "reverse", "slice", "distinct", "flatten"),
        *("isSorted", "sum", "min", "max", "indexOf", "lastIndexOf"),
        *("sets.contains", "sets.equivalent", "sets.intersects"),
    }
)
"""Functions that are handed whole lists and maps: each member is made anew for them, every time."""

_LOOKED_THROUGH: Final = frozenset({"_==_", "_!=_", "_+_", "@in"})


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What evaluating costs: ``steps`` in loops ``depth`` deep; ``texts`` calls go through texts, ``built`` make some.

    ``growth`` is by how much a text can grow by being put together with itself, ``copies`` the same for lists and maps,
    and ``nested`` how often a loop puts into a list what is as large as the whole. ``wholes`` calls look through lists
    and maps, and to ``handed`` they are handed over. ``lists`` are the lists that loops make, each with the number of
    loops around and the path of what it is made of. ``ranges`` and ``splits`` say where long lists come from nothing.
    """

    steps: int
    depth: int
    texts: int
    built: int
    growth: int
    squares: bool
    copies: int
    nested: int
    wholes: int
    handed: int
    lists: tuple[tuple[int, tuple[str, ...] | None], ...]
    ranges: bool
    splits: bool


def estimate_cost(tree: Tree, scalars: Collection[int] = ()) -> CostEstimate:
    """The weight of an expression; ``scalars`` are the nodes whose values are known to be no lists and no maps."""
    # 1. Nothing is evaluated: what is counted holds for every object that the schema admits, and rather too high.
    # 2. ``map`` and ``filter`` are folds whose step is ``accumulator + [member]``. That sum is how a list is built and no
    #    copying of lists: it is found first (``appends``), and left out of what looks through whole lists and maps.
    # 3. What is known to be a number, a text or a truth value cannot multiply what it is put into: ``literals`` counts
    #    for each list or map that is written out the members that may be large.
    # 4. ``cel.bind`` names a value that may then be put together with itself: with it each sum can double what is there,
    #    hence powers of two; without it a sum adds once what the expression writes out.
    # 5. The shifts are cut at 40: more is refused in any case, and numbers stay small.
    nodes = list(tree.nodes())
    calls = [node.name for node, _ in nodes if node.kind == "call"]
    binds = any(is_bind(node) for node, _ in nodes)
    sums = calls.count("_+_")
    folds = [(node, depth, grown) for node, depth in nodes if node.kind == "fold" and (grown := _put_in(node))]
    appends = {id(grown) for _, _, grown in folds}
    plain = frozenset(scalars)
    wholes = sum(_looks_through(node, plain) for node, _ in nodes if id(node) not in appends)
    made = {id(grown.args[1]) for _, _, grown in folds}
    literals = [
        many
        for node, _ in nodes
        if node.kind in ("list", "struct") and id(node) not in made
        if (many := sum(not _is_scalar(arg, plain) for arg in node.args)) > 1
    ]
    doubles = sum(node.name == "_+_" and _looks_through(node, plain) for node, _ in nodes if id(node) not in appends)
    return CostEstimate(
        steps=len(nodes),
        depth=max(depth for _, depth in nodes),
        texts=sum(name in _READS_TEXT or name in _BUILDS_TEXT for name in calls),
        built=sum(name in _BUILDS_TEXT for name in calls),
        growth=1 << min(sums, 40) if binds else 1 + sums,
        squares="replace" in calls or "join" in calls,
        copies=min(math.prod(literals) << min(doubles, 40), 1 << 40) if binds else sum(literals, 1) + doubles,
        nested=sum(not _is_own(grown, node, plain) for node, _, grown in folds),
        wholes=wholes,
        handed=sum(name in HANDED_OVER for name in calls),
        lists=tuple((depth, _path(node.args[0])) for node, depth, _ in folds),
        ranges="lists.range" in calls,
        splits="split" in calls or "findAll" in calls,
    )


def _put_in(node: Node) -> Node | None:
    """The sum by which a loop puts one more member into its list (what ``map`` and ``filter`` become)."""
    step = node.args[3]
    for part in (step, *step.args):
        if part.name == "_+_" and part.args[0].name == node.value and part.args[1].kind == "list":
            return part
    return None


def _is_own(grown: Node, fold: Node, scalars: Collection[int]) -> bool:
    """Whether a loop puts in what is, or is a part of, what it goes through: all of it is no more than that."""
    made = grown.args[1]
    bound = {fold.name}
    for node in _below(made):
        if node.kind == "fold":
            bound |= {node.name, node.value}
    free = (node for node in _below(made) if node.kind == "ident" and node.name not in bound)
    return all(_is_scalar(arg, scalars) for arg in made.args) or not any(free)


def _below(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += found.args


def _looks_through(node: Node, scalars: Collection[int]) -> bool:
    """Whether a call looks through a list or a map, as far as one can tell."""
    if node.kind != "call" or node.name not in _LOOKED_THROUGH:
        return False
    if node.name == "@in":
        return node.args[1].kind not in ("list", "struct")
    return not any(_is_scalar(arg, scalars) for arg in node.args)


def _is_scalar(node: Node, scalars: Collection[int]) -> bool:
    return node.kind == "const" or node.id in scalars


def _path(node: Node) -> tuple[str, ...] | None:
    """The names of a plain path (``self.a.b``), or ``None``."""
    names: list[str] = []
    while node.kind == "select" and not node.test:
        names.append(node.name)
        node = node.args[0]
    return (node.name, *reversed(names)) if node.kind == "ident" and node.name in ("self", "oldSelf") else None
