"""No clock decides a test: what is waited for gets a time that no neighbour on the machine can use up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.requirements import ROOT

SECONDS_LEAST = 30
"""Where a test gives up. What must be quick is counted, or compared with something else in the same run."""


def test_nothing_is_given_up_in_a_hurry() -> None:
    hurried = [
        f"{path.relative_to(ROOT)}:{line}: {seconds}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, seconds in _limits(path)
        if seconds < SECONDS_LEAST
    ]
    assert hurried == []


def _limits(path: Path) -> Iterator[tuple[int, float]]:
    """Seconds after which something fails: of ``asyncio``, and of deadlines by a clock. Not where the failure is the point."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wanted = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.With) and any("TimeoutError" in ast.unparse(item.context_expr) for item in block.items)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if node in wanted:
            continue
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"asyncio.timeout", "asyncio.wait_for"}:
            given = [*node.args, *(keyword.value for keyword in node.keywords)][-1]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and "monotonic()" in ast.unparse(node.left):
            given = node.right
        else:
            continue
        if isinstance(given, ast.Constant) and isinstance(given.value, int | float):
            yield node.lineno, given.value
