"""No clock decides a test: what is waited for gets a time that no neighbour on the machine can use up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.requirements import ROOT

SECONDS_LEAST = 240
"""Where a test gives up. What must be quick is counted, or compared with something else in the same run."""


def test_nothing_is_given_up_in_a_hurry() -> None:
    hurried = [
        f"{path.relative_to(ROOT)}:{line}: {seconds}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, seconds in _limits(path)
        if seconds < SECONDS_LEAST
    ]
    assert hurried == []


WAITING = {"asyncio.timeout", "asyncio.wait_for"}
WAITING_METHODS = {"wait", "communicate", "run", "result", "join", "eventually", "wait_for"}


def _limits(path: Path) -> Iterator[tuple[int, float]]:
    """Seconds after which something fails: of ``asyncio``, of processes and threads, and of deadlines by a clock.

    Not where the failure is the point, and not where something else is done then.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wanted = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.With) and any("TimeoutError" in ast.unparse(item.context_expr) for item in block.items)
        for node in ast.walk(block)
    }
    wanted |= {node for denial in ast.walk(tree) if isinstance(denial, ast.UnaryOp) for node in ast.walk(denial)}
    wanted |= {node for choice in ast.walk(tree) if isinstance(choice, ast.If) for node in ast.walk(choice.test)}
    for node in ast.walk(tree):
        if node in wanted:
            continue
        if isinstance(node, ast.Call):
            given = _limit(node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and "monotonic()" in ast.unparse(node.left):
            given = node.right
        else:
            continue
        if isinstance(given, ast.Constant) and isinstance(given.value, int | float):
            yield node.lineno, given.value


def _limit(call: ast.Call) -> ast.expr | None:
    """How long a call waits at most, where it says so."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    function = ast.unparse(call.func)
    if function in WAITING:
        return [*call.args, *named.values()][-1]
    if function.rpartition(".")[2] not in WAITING_METHODS:
        return None
    place = 0 if function.endswith((".wait", ".join", ".result")) else 1 if function.endswith("eventually") else None
    positional = call.args[place] if place is not None and len(call.args) > place else None
    return named.get("timeout") or named.get("within") or named.get("seconds") or positional
