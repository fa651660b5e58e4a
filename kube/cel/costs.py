"""What evaluating an expression may cost at the most, told from its syntax tree before anything is evaluated (DOS-03)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kube.cel.library import NAMES
from kube.cel.syntaxtree import Node, Tree, is_bind
from kube.cel.texts import is_own
from kube.cel.zones import ZONED

KIBIBYTE: Final = 1_024

READ_STEPS: Final[dict[str, float]] = {
    **dict.fromkeys(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "startsWith", "endsWith"), 0.5),
    **dict.fromkeys(("size", "charAt", "lowerAscii", "substring", "replace", "format", "join", "string", "bytes"), 30),
    **dict.fromkeys(("int", "uint", "double", "bool", "timestamp", "duration", "jsonpatch.escapeKey"), 50),
    **dict.fromkeys(("base64.encode", "base64.decode", "upperAscii", "contains", "matches"), 50),
    **dict.fromkeys(
        ("indexOf", "lastIndexOf", "trim", "reverse", "find", "findAll", "ip", "isIP", "cidr", "isCIDR"), 100
    ),
    **dict.fromkeys(("containsIP", "containsCIDR", "ip.isCanonical", "quantity", "isQuantity", "validate"), 100),
    **dict.fromkeys(
        ("family", "isUnspecified", "isLoopback", "isLinkLocalUnicast", "isLinkLocalMulticast", "_[_]"), 100
    ),
    **dict.fromkeys(("isGlobalUnicast", "masked", "prefixLength", "sign", "isInteger", "asInteger"), 100),
    **dict.fromkeys(
        ("add", "sub", "asApproximateFloat", "strings.quote", "format.named", "validated__", "format.named__"), 150
    ),
    **dict.fromkeys(("semver", "isSemver", "major", "minor", "patch"), 400),
    **dict.fromkeys(("compareTo", "isLessThan", "isGreaterThan"), 400),
    **dict.fromkeys(
        ("split", "url", "isURL", "getScheme", "getHost", "getHostname", "getPort", "getEscapedPath"), 1_000
    ),
    "getQuery": 3_000,
    **dict.fromkeys(ZONED, 30),
}
"""Steps for each kibibyte of the texts that a function is given; one that has none here is given none, or small ones."""

BUILT_STEPS: Final = 45
"""Steps for each kibibyte of text that is made."""

_PARTS: Final = frozenset({"split", "substring", "charAt", "lowerAscii", "upperAscii", "trim", "reverse"})
"""Functions that make texts which are no longer than what they are given."""

_BUILDS_TEXT: Final = frozenset({*_PARTS, "_+_", "format", "replace", "join", "strings.quote"})
HANDED_OVER: Final = frozenset(
    {
        *("pairs__", "mapped__", "merged__", "sorted__", "sort", "reverse", "slice", "distinct", "flatten"),
        *("isSorted", "sum", "min", "max", "indexOf", "lastIndexOf", "indexOf__", "lastIndexOf__"),
        *("sets.contains", "sets.equivalent", "sets.intersects"),
    }
)
"""Functions that are handed whole lists and maps: each member is made anew for them, every time."""

_COMPARES: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "startsWith", "endsWith"})
_PAIRING: Final = frozenset({"distinct", "sets.contains", "sets.equivalent", "sets.intersects"})
"""Functions that compare the members of lists with one another."""

_LOOKED_THROUGH: Final = frozenset({"_==_", "_!=_", "_+_", "@in"})


Source = tuple[str, ...]
"""The path of what holds a value: a name, and those of fields below it, up to ``ANYWHERE``."""

ANYWHERE: Final = "*"
"""In a path: the value is somewhere in what stands there."""


@dataclass(frozen=True, slots=True)
class Read:
    """A call in so many loops that goes through a text, or makes one of it: ``steps`` for each kibibyte.

    ``source`` holds the text, where that is known.
    """

    steps: float
    depth: int
    source: Source | None


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What evaluating costs: ``steps`` in loops ``depth`` deep; ``reads`` go through texts.

    ``calls`` says of each call of our own how many loops are around it.

    ``growth`` is by how much a text can grow by being put together with itself, ``copies`` the same for lists and maps,
    and ``nested`` how often a loop puts into a list what is as large as the whole. ``wholes`` calls look through lists
    and maps, and to ``handed`` they are handed over; ``paired`` compare each member with each. ``lists`` are the lists
    that loops make, each with the number of loops around and the path of what it is made of. ``ranges`` and ``splits``
    say where long lists come from nothing.
    """

    steps: int
    depth: int
    reads: tuple[Read, ...]
    calls: tuple[int, ...]
    growth: int
    squares: bool
    copies: int
    nested: int
    wholes: int
    handed: int
    paired: int
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
    bound = {name for node, _ in nodes if node.kind == "fold" for name in (node.name, node.value)}
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
        reads=tuple(_reads(tree.root, appends)),
        calls=tuple(depth for node, depth in nodes if node.kind == "call" and (node.name in NAMES or is_own(node))),
        growth=1 << min(sums, 40) if binds else 1 + sums,
        squares="replace" in calls or "join" in calls,
        copies=min(math.prod(literals) << min(doubles, 40), 1 << 40) if binds else sum(literals, 1) + doubles,
        nested=sum(not _is_own(grown, node, plain) for node, _, grown in folds),
        wholes=wholes,
        handed=sum(name in HANDED_OVER for name in calls),
        paired=sum(name in _PAIRING for name in calls),
        lists=tuple((depth, _path(node.args[0], bound)) for node, depth, _ in folds),
        ranges="lists.range" in calls,
        splits="split" in calls or "findAll" in calls,
    )


def _reads(root: Node, appends: Collection[int]) -> Iterator[Read]:
    """The calls that go through texts, with what holds each text."""
    waiting: list[tuple[Node, Mapping[str, Source | None], int]] = [(root, {}, 0)]
    while waiting:
        node, scope, depth = waiting.pop()
        if node.kind == "fold":
            over = _source(node.args[0], scope)
            bound = _source(node.args[1], scope) if is_bind(node) else None
            inner = {**scope, node.name: over and (*over, ANYWHERE), node.value: bound}
            waiting += [(arg, scope, depth) for arg in node.args[:2]]
            waiting += [(arg, inner, depth + (not is_bind(node))) for arg in node.args[2:]]
            continue
        waiting += [(arg, scope, depth) for arg in node.args]
        if node.kind == "call" and id(node) not in appends:
            yield from (Read(steps, depth, source) for steps, source in _texts_of(node, scope))


def _texts_of(call: Node, scope: Mapping[str, Source | None]) -> Iterator[tuple[float, Source | None]]:
    name = call.name
    numbers = (arg for arg in call.args if arg.kind == "const" and not isinstance(arg.value, str | bytes))
    # What is compared with a literal is looked at as far as that goes; what a number is added to is none.
    if (name in _COMPARES and any(arg.kind == "const" for arg in call.args)) or (name == "_+_" and any(numbers)):
        return
    steps = READ_STEPS.get(name, 0)
    made = BUILT_STEPS if name in _BUILDS_TEXT else 0
    read = call.args[:1] if name == "@in" else call.args[1:] if name == "_[_]" else call.args
    for arg in (each for given in read for each in (given.args if given.kind == "list" else (given,))):
        if arg.kind != "const" and (steps or made):
            source = _source(arg, scope)
            # What is put together is as long as all of it.
            yield steps, source
            yield made, source if name in _PARTS or name == "_+_" else None


def _source(node: Node, scope: Mapping[str, Source | None]) -> Source | None:
    """What holds the value of a node, or ``None`` where that cannot be told: it was made."""
    names: list[str] = []
    while True:
        if node.kind == "ident":
            found = scope.get(node.name, (node.name,))
            return found and (*found, *reversed(names))
        if node.kind == "select" and not node.test:
            names.append(node.name)
        elif node.kind == "call" and node.name in ("_[_]", "_[?_]", "_?._", "pairs__"):
            # Somewhere in it: nothing is asked of its fields' names.
            names = [ANYWHERE]
        elif node.kind == "call" and node.name in _PARTS and node.args:
            names = [ANYWHERE]
        else:
            return None
        node = node.args[0]


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


def _path(node: Node, bound: Collection[str]) -> tuple[str, ...] | None:
    """The names of a plain path (``self.a.b``), or ``None``; where a loop calls its member so, nobody knows what it is."""
    names: list[str] = []
    while node.kind == "select" and not node.test:
        names.append(node.name)
        node = node.args[0]
    known = node.kind == "ident" and node.name in ("self", "oldSelf") and node.name not in bound
    return (node.name, *reversed(names)) if known else None
