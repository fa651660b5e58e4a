"""The syntax tree of a compiled expression, read from what the compiler gives out (``cel.expr.CheckedExpr``)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


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


def is_bind(node: Node) -> bool:
    """Whether a fold is ``cel.bind``, which goes round once."""
    return node.kind == "fold" and node.args[0].kind == "list" and not node.args[0].args


def _node(data: bytes) -> Node:
    # The numbers are those of cel.expr.Expr: 2 id; then one of 3 const, 4 ident, 5 select, 6 call, 7 list, 8 struct,
    # 9 comprehension. https://github.com/google/cel-spec/blob/master/proto/cel/expr/syntax.proto
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
    # cel.expr.Constant: 2 bool, 3 int64 (a varint in two's complement), 4 uint64, 5 double, 6 string, 7 bytes.
    for number, value in _fields(data):
        match number:
            case 2:
                return bool(value)
            case 3:
                return value - (1 << 64) if value >> 63 else value
            case 4 | 7:
                return value
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
