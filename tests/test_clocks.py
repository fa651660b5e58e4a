"""No clock decides a test: what is waited for gets a time that no neighbour on the machine can use up."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.requirements import ROOT

SECONDS_LEAST = 240
"""Where a test gives up. What must be quick is counted, or compared with something else in the same run."""


def test_nothing_is_given_up_in_a_hurry() -> None:
    trees = {path: _tree(path) for path in sorted((ROOT / "tests").rglob("*.py"))}
    limits = _limits(trees.values())
    hurried = [
        f"{path.relative_to(ROOT)}:{line}: {seconds:g}"
        for path, tree in trees.items()
        for line, seconds in limits[tree]
        if seconds < SECONDS_LEAST
    ]
    assert hurried == []


@pytest.mark.parametrize(
    "text",
    [
        "process.wait(30)",
        "asyncio.to_thread(event.wait, 30)",
        "LONG = 400\nasyncio.timeout(LONG / 2)",
        "LONG: Final = 30.0\ndeadline = time.monotonic() + LONG",
        "from tests.store.checker import FROZEN_SECONDS\nasyncio.timeout(FROZEN_SECONDS)",
        "async def ask(what, patience):\n    asyncio.timeout(patience)\nask('', 30)",
        "async def ask(*, patience=30):\n    asyncio.timeout(patience)",
        "class Asking:\n    def ask(self, what, patience):\n        process.wait(patience)\nAsking().ask('', 30)",
        "def ask(patience):\n    process.wait(patience)\ndef more(long):\n    ask(long)\nmore(long=30)",
    ],
)
def test_a_hurry_is_seen_whatever_it_is_called(text: str) -> None:
    tree = ast.parse(text)
    ((_, seconds),) = _limits([tree])[tree]
    assert seconds < SECONDS_LEAST


NARROWED = ("datname", "application_name", "'SyncRep'", "pid = {")
SERVER_WIDE = re.compile(r"FROM (?:pg_locks|pg_stat_activity)")


def test_no_look_at_a_server_takes_a_neighbours_connections_for_its_own() -> None:
    """What a PostgreSQL has of all its databases is narrowed to one, or to an application that only the test has."""
    assert [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, look.start()) + 1}"
        for folder in ("tests", "bench")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in [path.read_text(encoding="utf-8")]
        for look in SERVER_WIDE.finditer(text)
        if path != Path(__file__) and not any(word in text[look.start() : look.start() + 240] for word in NARROWED)
    ] == []


WAITING = {"asyncio.timeout", "asyncio.wait_for"}
WAITING_METHODS = {"wait", "communicate", "run", "result", "join", "eventually", "wait_for"}
CALCULATED: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Handing = Mapping[str, Mapping[str, int]]
"""The parameters of functions that are limits in them, each with its place among those that need no name."""


def _limits(trees: Collection[ast.Module]) -> Mapping[ast.Module, list[tuple[int, float]]]:
    """Seconds after which something fails: of ``asyncio``, of processes and threads, and of deadlines by a clock.

    Not where the failure is the point, and not where something else is done then. A limit may be a constant of a module,
    or a parameter: then what is given for it counts where it is given.
    """
    read = {tree: [*_waits(tree, (), _exempt(tree))] for tree in trees}
    handing: dict[str, dict[str, int]] = {}
    found = -1
    while found < (now := sum(map(len, handing.values()))):
        # Who hands a limit on to one who hands it on is found the next time.
        found = now
        for given, functions in (each for waits in read.values() for wait in waits for each in wait.given(handing)):
            for function in functions:
                if isinstance(given, ast.Name) and (place := _place(function, given.id)) is not None:
                    handing.setdefault(function.name, {})[given.id] = place
    return {
        tree: [
            (given.lineno, seconds)
            for wait in waits
            for given, _ in wait.given(handing)
            if (seconds := _seconds(given, _constants(tree))) is not None
        ]
        for tree, waits in read.items()
    }


@dataclass(frozen=True)
class Wait:
    """What may say how long is waited, with the functions around it."""

    node: ast.AST
    functions: tuple[Function, ...]

    def given(self, handing: Handing) -> Iterator[tuple[ast.expr, tuple[Function, ...]]]:
        """Each limit that is given here."""
        node, found = self.node, list[ast.expr | None]()
        if isinstance(node, ast.Call):
            parameters = handing.get(_name(node), {})
            found = [keyword.value for keyword in node.keywords if keyword.arg in parameters]
            found += [node.args[place] for place in parameters.values() if 0 <= place < len(node.args)]
            found += [_limit(node)]
        elif isinstance(node, ast.BinOp):
            found = [node.right]
        elif isinstance(node, Function):
            defaults = _defaults(node)
            found = [defaults.get(name) for name in handing.get(node.name, {})]
        return ((each, self.functions) for each in dict.fromkeys(found) if each is not None)


def _waits(node: ast.AST, functions: tuple[Function, ...], exempt: Collection[ast.AST]) -> Iterator[Wait]:
    if node in exempt:
        return
    deadline = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and "monotonic()" in ast.unparse(node.left)
    if deadline or isinstance(node, ast.Call | Function):
        yield Wait(node, functions)
    inside = (*functions, node) if isinstance(node, Function) else functions
    for child in ast.iter_child_nodes(node):
        yield from _waits(child, inside, exempt)


def _exempt(tree: ast.Module) -> set[ast.AST]:
    """Where the failure is the point, or something else is done then."""
    found = set[ast.AST]()
    for node in ast.walk(tree):
        if isinstance(node, ast.UnaryOp):
            found.add(node)
        elif isinstance(node, ast.If):
            found.add(node.test)
        elif isinstance(node, ast.With) and any(
            "TimeoutError" in ast.unparse(item.context_expr) for item in node.items
        ):
            found.add(node)
    return found


def _name(call: ast.Call) -> str:
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _place(function: Function, parameter: str) -> int | None:
    """Where it stands among those that may be given without a name; -1 is nowhere, ``None`` is no parameter."""
    places = [each.arg for each in function.args.args if each.arg not in ("self", "cls")]
    if parameter in places:
        return places.index(parameter)
    return -1 if parameter in [each.arg for each in function.args.kwonlyargs] else None


def _defaults(function: Function) -> dict[str, ast.expr]:
    given = function.args
    found = {each.arg: value for each, value in zip(reversed(given.args), reversed(given.defaults), strict=False)}
    return found | {each.arg: value for each, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value}


@cache
def _constants(tree: ast.Module) -> dict[str, float]:
    """The numbers that a module has names for, its own and those of other tests; the product's own say what it promises."""
    known: dict[str, float] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            path = ROOT / f"{str(node.module).replace('.', '/')}.py"
            theirs = _constants(_tree(path)) if path.is_file() else {}
            known |= {each.asname or each.name: theirs[each.name] for each in node.names if each.name in theirs}
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            seconds = _seconds(node.value, known)
            names = node.targets if isinstance(node, ast.Assign) else [node.target]
            if seconds is not None:
                known |= {name.id: seconds for name in names if isinstance(name, ast.Name)}
    return known


def _seconds(given: ast.expr, constants: Mapping[str, float]) -> float | None:
    """The number that is meant, where it is one."""
    if isinstance(given, ast.Constant) and isinstance(given.value, int | float):
        return given.value
    if isinstance(given, ast.Name):
        return constants.get(given.id)
    if isinstance(given, ast.BinOp) and type(given.op) in CALCULATED:
        left, right = _seconds(given.left, constants), _seconds(given.right, constants)
        return None if left is None or right is None else CALCULATED[type(given.op)](left, right)
    return None


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _limit(call: ast.Call) -> ast.expr | None:
    """How long a call waits at most, where it says so."""
    if (name := _name(call)) == "to_thread":
        waiting, *rest = call.args
        return rest[0] if rest and isinstance(waiting, ast.Attribute) and waiting.attr in ("wait", "join") else None
    if name != "timeout" and name not in WAITING_METHODS:
        return None
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    function = ast.unparse(call.func)
    if function in WAITING:
        return [*call.args, *named.values()][-1]
    if name not in WAITING_METHODS:
        return None
    place = 0 if function.endswith((".wait", ".join", ".result")) else 1 if function.endswith("eventually") else None
    positional = call.args[place] if place is not None and len(call.args) > place else None
    return named.get("timeout") or named.get("within") or named.get("seconds") or positional
