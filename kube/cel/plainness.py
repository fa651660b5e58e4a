"""Which expressions are evaluated where others wait: those that only look at what there is (DOS-03).

The evaluator is native code with many functions. What some of them make of hostile values takes long, or much memory, or
ends the process. So an expression of a tenant's that uses more than is named here is evaluated in the process beside the
server, which a request can take with it, and nobody else.
"""

from __future__ import annotations

from typing import Final

from kube.cel.syntaxtree import Node, Tree, is_bind

LETTERS: Final = 2_000
"""Literals are of no price, so that an expression that is evaluated where others wait has few."""

_PLAIN: Final = frozenset(
    {
        *("_&&_", "_||_", "!_", "_?_:_", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "@not_strictly_false"),
        *("_+_", "_-_", "_*_", "_/_", "_%_", "-_", "_[_]", "size", "int", "string", "dyn"),
        *("matches", "startsWith", "endsWith", "contains", "lowerAscii", "upperAscii", "trim"),
    }
)
_NAMES: Final = frozenset({"self", "oldSelf"})


def is_plain(tree: Tree, text: str) -> bool:
    """Whether it has nothing but comparisons, sums, loops over what is there, and short questions about texts."""
    return len(text) <= LETTERS and all(_is_plain(node) for node, _ in tree.nodes())


def _is_plain(node: Node) -> bool:
    if node.kind == "call":
        return node.name in _PLAIN
    if node.kind == "fold":
        # A loop's name may hide what another part of the expression is taken to be.
        return not is_bind(node) and node.name not in _NAMES and node.value not in _NAMES
    if node.kind == "list":
        # One member is what ``map`` and ``filter`` put into their list.
        return len(node.args) == 1 or all(arg.kind == "const" for arg in node.args)
    if node.kind == "const":
        return node.value is None or isinstance(node.value, bool | int | float | str)
    return node.kind in ("ident", "select")
