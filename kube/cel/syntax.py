"""What a compiled expression says: its syntax tree, and what its schema makes of it before anything is evaluated.

The evaluator knows values, not schemas. So fields that do not exist and operators between types that cannot meet
are found here, in kube-apiserver's words, when a CRD is written and not when its first object is.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kube.kinds.schemas import Schema

DeclType = Schema | None
"""The declared type of an expression's value, or nothing where it is ``dyn``."""

_BOOL: Final = Schema(type="boolean")
_INT: Final = Schema(type="integer")
_TEXT: Final = Schema(type="string")
_NULL: Final = Schema(type="null")
_NAMES: Final = {
    "null": "null",
    "integer": "int",
    "number": "double",
    "string": "string",
    "boolean": "bool",
    "array": "list",
}
_COMPARISONS: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_ARITHMETIC: Final = frozenset({"_+_", "_-_", "_*_", "_/_", "_%_"})
_LOGIC: Final = frozenset({"_&&_", "_||_", "!_"})
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
_SCALARS: Final = frozenset({"string", "integer", "number", "boolean", "null"})
_CONVERTED: Final = {"date-time": "timestamp", "date": "timestamp", "duration": "duration", "byte": "base64.decode"}
_PATTERNS: Final = frozenset({"matches", "find", "findAll"})
_RESERVED: Final = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
_ESCAPES: Final = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))


@dataclass(frozen=True, slots=True)
class Node:
    """One node. ``kind`` is const, ident, select, call, list, struct or fold (what macros become).

    ``name`` is the identifier, field, function or loop variable; a fold's ``value`` is its accumulator's name and its
    ``args`` are range, start, condition, step and result. A call's target is its first argument.
    """

    id: int
    kind: str
    name: str = ""
    args: tuple[Node, ...] = ()
    value: Any = None
    test: bool = False


@dataclass(frozen=True, slots=True)
class Tree:
    """An expression's tree with the offset of each node in the text."""

    root: Node
    offsets: Mapping[int, int]

    @classmethod
    def read(cls, serialized: bytes) -> Tree:
        """From the checked expression that the compiler gives out (``cel.expr.CheckedExpr``)."""
        checked = dict(_fields(dict(_fields(serialized))[2]))
        offsets: dict[int, int] = {}
        for number, value in _fields(checked[5]):
            if number == 4:
                entry = dict(_fields(value))
                offsets[entry.get(1, 0)] = entry.get(2, 0)
        return cls(_node(checked[4]), offsets)

    def nodes(self) -> Iterator[tuple[Node, int]]:
        """Every node with the number of loops around it."""
        waiting = [(self.root, 0)]
        while waiting:
            node, depth = waiting.pop()
            yield node, depth
            deeper = depth + (node.kind == "fold" and not is_bind(node))
            waiting += [(arg, deeper if index > 1 else depth) for index, arg in enumerate(node.args)]

    def mentions(self, name: str) -> bool:
        """Whether a variable of that name is read."""
        return any(node.kind == "ident" and node.name == name for node, _ in self.nodes())


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


def is_bind(node: Node) -> bool:
    """Whether a fold is ``cel.bind``, which goes round once."""
    return node.kind == "fold" and node.args[0].kind == "list" and not node.args[0].args


class TypeCheckError(Exception):
    """What the checker refuses: the words, and the offset that they are about."""

    def __init__(self, words: str, offset: int) -> None:
        super().__init__(words)
        self.words = words
        self.offset = offset


def check(
    tree: Tree,
    variables: Mapping[str, DeclType],
    edit: Callable[[int, int, str], None],
    is_pattern: Callable[[str], bool],
    scalars: set[int],
) -> DeclType:
    """What an expression's value is. Raises ``TypeCheckError``. The ids of nodes that are no lists and no maps go to ``scalars``.

    ``edit`` is told of the texts (start, end, function) that stand for times, durations and bytes: the values are
    JSON, so the expression has to convert them. ``is_pattern`` tells whether a regular expression can be compiled.
    """
    return _Checker(tree.offsets, edit, is_pattern, scalars).of(tree.root, variables)


class _Checker:
    def __init__(
        self,
        offsets: Mapping[int, int],
        edit: Callable[[int, int, str], None],
        is_pattern: Callable[[str], bool],
        scalars: set[int],
    ) -> None:
        self._offsets = offsets
        self._edit = edit
        self._is_pattern = is_pattern
        self._scalars = scalars

    def of(self, node: Node, scope: Mapping[str, DeclType], *, whole: bool = True) -> DeclType:
        declared = self._of(node, scope)
        if declared is not None and declared.type in _SCALARS:
            self._scalars.add(node.id)
        if (
            whole
            and declared is not None
            and declared.type == "string"
            and declared.format in _CONVERTED
            and not node.test
        ):
            self._convert(node, _CONVERTED[declared.format])
            return None
        return declared

    def _of(self, node: Node, scope: Mapping[str, DeclType]) -> DeclType:
        match node.kind:
            case "const":
                return _constant(node.value)
            case "ident":
                return scope.get(node.name)
            case "select":
                found = self._field(self.of(node.args[0], scope, whole=False), node.name, node)
                return _BOOL if node.test else found
            case "fold":
                return self._fold(node, scope)
            case "call":
                return self._call(node, scope)
        for arg in node.args:
            self.of(arg, scope)
        return None

    def _field(self, declared: DeclType, name: str, node: Node) -> DeclType:
        if declared is None or declared.type == "":
            return None
        if declared.type != "object":
            raise self._problem(f"type '{type_name(declared)}' does not support field selection", node)
        if declared.additional is not None:
            return declared.additional
        found = next((child for field, child in declared.properties.items() if escaped(field) == name), None)
        if found is None:
            raise self._problem(f"undefined field '{name}'", node)
        return found

    def _fold(self, node: Node, scope: Mapping[str, DeclType]) -> DeclType:
        over, start, *rest = node.args
        ranged = self.of(over, scope)
        item: DeclType = None
        if ranged is not None and ranged.type == "array":
            item = ranged.items
        elif ranged is not None and ranged.type == "object" and ranged.additional is not None:
            item = _TEXT
        elif ranged is not None and ranged.type:
            words = "cannot be range of a comprehension (must be list, map, or dynamic)"
            raise self._problem(f"expression of type '{type_name(ranged)}' {words}", over)
        inner = {**scope, node.name: item, node.value: self.of(start, scope)}
        types = [self.of(arg, inner) for arg in rest]
        return types[-1]

    def _call(self, node: Node, scope: Mapping[str, DeclType]) -> DeclType:
        name = node.name
        if name == "_?._":
            self._field(self.of(node.args[0], scope, whole=False), str(node.args[1].value), node)
            return None
        if name in ("_[_]", "_[?_]"):
            container = self.of(node.args[0], scope, whole=False)
            self.of(node.args[1], scope)
            if container is None or name == "_[?_]":
                return None
            return container.items or container.additional
        types = [self.of(arg, scope) for arg in node.args]
        known = [
            type_name(declared)
            for declared in types
            if declared is not None and declared.type and not declared.int_or_string
        ]
        if name in _LOGIC:
            for arg, declared in zip(node.args, types, strict=True):
                if type_name(declared) not in ("bool", "dyn"):
                    raise self._problem(f"expected type 'bool' but found '{type_name(declared)}'", arg)
            return _BOOL
        if "null" in known and any(kind == "object" or kind.startswith(("list", "map")) for kind in known):
            return _BOOL if name in _COMPARISONS else None
        if name in _COMPARISONS or name in _ARITHMETIC:
            ordered = name not in ("_==_", "_!=_")
            if len(known) == 2 and (known[0] != known[1] or (ordered and known[0] == "bool" and name in _ARITHMETIC)):
                mixed = name in _COMPARISONS and ordered and set(known) <= {"int", "double"}
                if not mixed:
                    raise self._mismatch(node, types)
            return _BOOL if name in _COMPARISONS else types[0] if len(known) == 2 else None
        if name == "_?_:_":
            return types[1] if types[1] is types[2] or type_name(types[1]) == type_name(types[2]) else None
        if name == "size":
            if known and known[0] in ("int", "double", "bool"):
                raise self._mismatch(node, types)
            return _INT
        if name in ("sum", "min", "max") and types[0] is not None and len(types) == 1:
            return types[0].items
        pattern = node.args[1] if name in _PATTERNS and len(node.args) > 1 else node
        if pattern.kind == "const" and not self._is_pattern(str(pattern.value)):
            raise self._problem(f"invalid {name} argument", pattern)
        return None

    def _convert(self, node: Node, function: str) -> None:
        """Have the text of a plain path converted. Raises ``TypeCheckError`` for anything less plain."""
        if node.kind == "ident":
            start = self._offsets.get(node.id, -1)
            if start >= 0:
                self._edit(start, start + len(node.name), function)
            return
        first = node
        while first.kind == "select":
            first = first.args[0]
        if node.kind == "select" and first.kind == "ident":
            self._edit(self._offsets[first.id], self._offsets[node.id] + 1 + len(node.name), function)
            return
        raise self._problem(f"a value of format {function} is reached in a way that this server cannot convert", node)

    def _mismatch(self, node: Node, types: list[DeclType]) -> TypeCheckError:
        words = ", ".join(type_name(declared) for declared in types)
        return self._problem(f"found no matching overload for '{node.name}' applied to '({words})'", node)

    def _problem(self, words: str, node: Node) -> TypeCheckError:
        return TypeCheckError(words, self._offsets.get(node.id, 0))


def type_name(declared: DeclType) -> str:
    """A type as messages name it."""
    if declared is None or not declared.type or declared.int_or_string:
        return "dyn"
    if declared.type == "array":
        return f"list({type_name(declared.items)})"
    if declared.type == "object":
        return f"map(string, {type_name(declared.additional)})" if declared.additional is not None else "object"
    return _NAMES[declared.type]


def escaped(name: str) -> str:
    """A property's name as expressions write it: ``foo-bar`` is ``foo__dash__bar``."""
    if name in _RESERVED:
        return f"__{name}__"
    for text, escape in _ESCAPES:
        if text in name:
            name = name.replace(text, escape)
    return name


def located(words: str, text: str, offset: int) -> str:
    """A problem as CEL's compilers show it: position, line, and an arrow under it."""
    before = text[:offset]
    line, column = before.count("\n") + 1, offset - (before.rfind("\n") + 1)
    shown = text.split("\n")[line - 1]
    return f"ERROR: <input>:{line}:{column + 1}: {words}\n | {shown}\n | {'.' * column}^"


def _constant(value: Any) -> DeclType:
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, int):
        return _INT
    if isinstance(value, float):
        return Schema(type="number")
    if isinstance(value, str):
        return _TEXT
    return _NULL if value is None else None


def _node(data: bytes) -> Node:
    fields = dict(_fields(data))
    number = fields.get(2, 0)
    if 3 in fields:
        return Node(number, "const", value=_const(fields[3]))
    if 4 in fields:
        return Node(number, "ident", dict(_fields(fields[4])).get(1, b"").decode())
    if 5 in fields:
        part = dict(_fields(fields[5]))
        return Node(number, "select", part[2].decode(), (_node(part[1]),), test=bool(part.get(3)))
    if 6 in fields:
        call = list(_fields(fields[6]))
        target = [_node(value) for key, value in call if key == 1]
        args = [_node(value) for key, value in call if key == 3]
        return Node(number, "call", dict(call)[2].decode(), (*target, *args))
    if 7 in fields:
        return Node(number, "list", args=tuple(_node(value) for key, value in _fields(fields[7]) if key == 1))
    if 9 in fields:
        fold = dict(_fields(fields[9]))
        loop = tuple(_node(fold[key]) for key in (2, 4, 5, 6, 7))
        return Node(number, "fold", fold.get(1, b"").decode(), loop, fold[3].decode())
    entries = [dict(_fields(value)) for key, value in _fields(fields.get(8, b"")) if key == 2]
    parts = tuple(_node(entry[key]) for entry in entries for key in (3, 4) if key in entry)
    return Node(number, "struct", args=parts)


def _const(data: bytes) -> Any:
    for number, value in _fields(data):
        match number:
            case 2:
                return bool(value)
            case 3:
                return value - (1 << 64) if value >> 63 else value
            case 5:
                return struct.unpack("<d", value)[0]
            case 6:
                return value.decode()
    return None


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The (number, value) pairs of a protobuf message; texts and messages are bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            size, at = _varint(data, at)
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
