"""Expressions of admission policies and webhooks: compiled once, judged when they are written (TS15).

What they see is dynamic but for ``request`` and ``namespaceObject``, whose fields are known, and ``variables``, whose
types come of their own expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_optional, ext_strings

from kube.cel import authorizer, library, regexes
from kube.cel.constructions import Constructions
from kube.cel.costs import CostEstimate, estimate_cost
from kube.cel.macros import expand_macros
from kube.cel.rules import DOUBLED, MAX_EXPRESSION, MAX_LETTERS, InvalidExpression, own_calls, written_out
from kube.cel.syntaxtree import Node, Tree
from kube.cel.typechecker import (
    REQUESTS,
    DeclType,
    TypeCheckError,
    check,
    is_made,
    located,
    problems,
    type_name,
)
from kube.kinds.schemas import Schema

_INLINED: Final = frozenset({"TIMESTAMP", "DURATION", "BYTES", "TYPE"})
"""Types that only the evaluator itself can hold: such variables are written out where they are read."""

_UNDECLARED: Final = re.compile(
    r"ERROR: <input>:(\d+):(\d+): undeclared reference to '(\w+)\.[\w.]+'([^\n]*)\n \| ([^\n]*)\n \| \.*\^"
)
_MADE: Final = re.compile(
    r"ERROR: <input>:(\d+):(\d+): undeclared reference to '([\w.]+)'([^\n]*)\n \| ([^\n]*)\n \| \.*\^"
)
_VARIABLE: Final = "variable__"
_TEXT: Final = Schema(type="string")
_BOOL: Final = Schema(type="boolean")
_TEXTS: Final = Schema(type="array", items=_TEXT)
_MAP: Final = Schema(type="object", additional=_TEXT)


def _object(**properties: Schema) -> Schema:
    return Schema(type="object", closed=True, definition=REQUESTS, properties=properties)


_KIND: Final = _object(group=_TEXT, version=_TEXT, kind=_TEXT)
_RESOURCE: Final = _object(group=_TEXT, version=_TEXT, resource=_TEXT)
_TIME: Final = Schema(type="string", format="date-time")
REQUEST: Final = _object(
    kind=_KIND,
    resource=_RESOURCE,
    subResource=_TEXT,
    requestKind=_KIND,
    requestResource=_RESOURCE,
    requestSubResource=_TEXT,
    name=_TEXT,
    namespace=_TEXT,
    operation=_TEXT,
    userInfo=_object(
        username=_TEXT,
        uid=_TEXT,
        groups=_TEXTS,
        extra=Schema(type="object", additional=Schema(type="array", items=_TEXT)),
    ),
    dryRun=_BOOL,
    options=Schema(),
)
NAMESPACE: Final = _object(
    metadata=_object(
        name=_TEXT,
        generateName=_TEXT,
        namespace=_TEXT,
        labels=_MAP,
        annotations=_MAP,
        UID=_TEXT,
        creationTimestamp=_TIME,
        deletionGracePeriodSeconds=Schema(type="integer"),
        deletionTimestamp=_TIME,
        generation=Schema(type="integer"),
        resourceVersion=_TEXT,
        finalizers=_TEXTS,
    ),
    spec=_object(finalizers=_TEXTS),
    status=_object(phase=_TEXT),
)

_RETURNED: Final = {
    "BOOL": _BOOL,
    "STRING": _TEXT,
    "INT": Schema(type="integer"),
    "DOUBLE": Schema(type="number"),
    "NULL": Schema(type="null"),
}

OBJECT: Final = "Object"
PATCHES: Final = "list(JSONPatch)"
_TYPES: Final = frozenset({OBJECT, PATCHES})
"""Types of what an expression makes."""

APPLY: Final = "ApplyConfiguration"
JSON_PATCH: Final = "JSONPatch"
EXPRESSIONS: Final = {APPLY: "applyConfiguration", JSON_PATCH: "jsonPatch"}
"""The field that holds the expression of a type of patch."""
RETURNS: Final = {APPLY: (OBJECT,), JSON_PATCH: (PATCHES,)}

reader: Final[ContextVar[Callable[[str], Any] | None]] = ContextVar("reader", default=None)
"""Gives the value of a variable to the expression that is being evaluated."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled expression. ``source`` is as it was written, ``text`` as it is evaluated, ``declared`` its type, if known."""

    source: str
    text: str
    program: Any
    weight: CostEstimate
    declared: DeclType
    inlined: tuple[str, ...] = ()
    """The variables that are written out in the text."""

    @property
    def is_inlined(self) -> bool:
        """Whether its value cannot leave the evaluator."""
        name = str(self.program.return_type().name())
        return name in _INLINED or name.startswith("optional")


@dataclass(frozen=True, slots=True)
class Scope:
    """What an expression may name besides the request's objects, and the variables before it."""

    params: bool = False
    authorizer: bool = True
    namespace: bool = True
    variables: Mapping[str, Compiled] | None = None
    constructs: bool = False
    """Whether it may make objects: ``Object{}``, ``JSONPatch{}``."""


def compile_expression(text: str, scope: Scope, returns: tuple[str, ...] = ()) -> Compiled:
    """Compile, and see that the value is of one of the types, where some are wanted: ``bool``, ``string``, ``Object``.

    Raises ``InvalidExpression`` in the words of kube-apiserver.
    """
    if not scope.constructs:
        return _compiled(text, text, scope, returns)
    constructions = Constructions(text)
    try:
        return _compiled(text, constructions.text, scope, returns)
    except InvalidExpression as error:
        raise InvalidExpression(constructions.as_written(str(error))) from None


def _compiled(source: str, text: str, scope: Scope, returns: tuple[str, ...]) -> Compiled:
    if len(source) > MAX_EXPRESSION:
        raise InvalidExpression(f"compilation failed: the expression is longer than {MAX_EXPRESSION} characters")
    if written_out(source) > MAX_LETTERS:
        raise InvalidExpression(f"compilation failed: longer than {MAX_LETTERS} characters, {DOUBLED}")
    # 1. Compile for what is wrong with the text, and check the tree against what is known of types.
    # 2. Write the reading of variables as calls, which evaluate them when they are needed, and compile that.
    text = expand_macros(text)
    names = _names(scope, variables=bool(scope.variables))
    program = _compile(text, names)
    tree = Tree.read(program.serialize())
    variables = scope.variables or {}
    types = {name: compiled.declared or Schema() for name, compiled in variables.items()}
    edits: set[tuple[int, int, str]] = set()
    scalars: set[int] = set()

    def convert(start: int, end: int, function: str) -> None:
        edits.add((start, end, f"{function}({text[start:end]})"))

    declared = {"request": REQUEST, "namespaceObject": NAMESPACE, "variables": _object(**types)}
    try:
        found = check(tree, declared, convert, regexes.is_pattern, scalars)
        edits |= set(_readings(tree, variables))
    except TypeCheckError as problem:
        raise InvalidExpression(f"compilation failed: {located(problem.words, text, problem.offset)}") from None
    if returns:
        _require(program, tree.root, found, returns)
    weight = estimate_cost(tree, scalars)
    if weight.growth > 1 << 12 or weight.steps > 2_000 or weight.depth > 4:
        raise InvalidExpression("compilation failed: the expression is too complex")
    edits |= own_calls(tree, text)
    for start, end, written in sorted(edits, reverse=True):
        text = f"{text[:start]}{written}{text[end:]}"
    if edits:
        program = _compile(text, names)
    if found is None:
        found = _RETURNED.get(str(program.return_type().name()))
    inlined = [name for name, compiled in variables.items() if compiled.is_inlined and f"variables.{name}" in source]
    return Compiled(source, text, program, weight, found, tuple(inlined))


def type_problems(
    text: str, scope: Scope, types: Mapping[str, DeclType], variables: Mapping[str, DeclType]
) -> tuple[str, DeclType]:
    """What the types of what an expression names have against it, one complaint below the other, and what its value is.

    ``types`` are those of ``object``, ``oldObject`` and ``params``, as far as they are known.
    """
    text = expand_macros(text)
    try:
        program = _compile(text, _names(scope, variables=bool(variables)))
    except InvalidExpression as error:
        return str(error).removeprefix("compilation failed: "), None
    named = _object(**{name: declared or Schema() for name, declared in variables.items()})
    tree = Tree.read(program.serialize())
    declared = {**types, "request": REQUEST, "namespaceObject": NAMESPACE, "variables": named}
    found, value = problems(tree, declared, regexes.is_pattern)
    words = [located(problem.words, text, problem.offset) for problem in found]
    return "\n".join(words), value or _RETURNED.get(str(program.return_type().name()))


def _names(scope: Scope, *, variables: bool) -> tuple[str, ...]:
    """What an expression may name."""
    there = {
        "params": scope.params,
        "authorizer": scope.authorizer,
        "namespaceObject": scope.namespace,
        "variables": variables,
    }
    return ("object", "oldObject", "request", *(name for name, is_there in there.items() if is_there))


def _readings(tree: Tree, variables: Mapping[str, Compiled]) -> list[tuple[int, int, str]]:
    """Where variables are read, and what is written there instead."""
    found: list[tuple[int, int, str]] = []
    nodes = [node for node, _ in tree.nodes()]
    named = {id(node.args[0]) for node in nodes if node.kind == "select" and _is_variables(node.args[0])}
    for node in nodes:
        if _is_variables(node) and id(node) not in named:
            raise TypeCheckError("undeclared reference to 'variables' (in container '')", tree.offsets.get(node.id, 0))
        if node.kind != "select" or node.test or not _is_variables(node.args[0]):
            continue
        start, end = tree.offsets[node.args[0].id], tree.offsets[node.id] + 1 + len(node.name)
        compiled = variables[node.name]
        found.append((start, end, f"({compiled.text})" if compiled.is_inlined else f"{_VARIABLE}('{node.name}')"))
    return found


def _is_variables(node: Node) -> bool:
    return node.kind == "ident" and node.name == "variables"


def _require(program: Any, root: Node, found: DeclType, returns: tuple[str, ...]) -> None:
    name = str(program.return_type().name())
    given = {"BOOL": "bool", "STRING": "string", "NULL": "null_type"}.get(name) or _go_type(name)
    if is_made(found) or (given == "dyn" and found is not None and found.type in ("boolean", "string")):
        given = type_name(found)
    elif found is None and root.kind in ("call", "fold") and "dyn" in given and not _TYPES.isdisjoint(returns):
        # What functions give of what they are given cannot be told here: its value will be looked at.
        return
    if given not in returns:
        wanted = returns[0] if len(returns) == 1 else f"one of [{' '.join(returns)}]"
        raise InvalidExpression(f"must evaluate to {wanted} but got {given}")


def _go_type(name: str) -> str:
    return name.lower().replace("<", "(").replace(">", ")")


def _read(name: str) -> Any:
    read = reader.get()
    if read is None:
        raise ValueError(f"no such key: {name}")
    return read(name)


@lru_cache(maxsize=16)
def _environment(names: tuple[str, ...]) -> Any:
    read = cel.Overload(
        "variable_text", return_type=cel.Type.DYN, parameters=[cel.Type.STRING], is_member=False, impl=_read
    )
    return cel.NewEnv(
        variables=dict.fromkeys(names, cel.Type.DYN),
        extensions=[
            ext_strings.ExtStrings(),
            ext_optional.ExtOptional(),
            ext_bindings.ExtBindings(),
            ext_encoders.ExtEncoders(),
            library.functions(),
            authorizer.functions(),
            cel.CelExtension("variables", [cel.FunctionDecl(_VARIABLE, [read])]),
        ],
    )


def _compile(text: str, names: tuple[str, ...]) -> Any:
    try:
        return _environment(names).compile(text)
    except RuntimeError as error:
        words = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        raise InvalidExpression(f"compilation failed: {_with_roots(words)}") from None


def _with_roots(words: str) -> str:
    """A compiler's complaints with undeclared names as kube-apiserver has them: of ``a.b.c`` it is ``a``."""
    return _UNDECLARED.sub(_with_root, _MADE.sub(_at_brace, words))


def _at_brace(found: re.Match[str]) -> str:
    """Of a type that is not known, the brace after its name is what kube-apiserver points to."""
    column = int(found[2]) - 1
    behind = found[5][column:]
    if not behind.startswith(f"{found[3]}{{"):
        return found[0]
    column += len(found[3])
    said = f"ERROR: <input>:{found[1]}:{column + 1}: undeclared reference to '{found[3]}'{found[4]}"
    return f"{said}\n | {found[5]}\n | {'.' * column}^"


def _with_root(found: re.Match[str]) -> str:
    line, column, root, container, shown = found[1], int(found[2]), found[3], found[4], found[5]
    start = max(shown.rfind(root, 0, column), 0)
    said = f"ERROR: <input>:{line}:{start + 1}: undeclared reference to '{root}'{container}"
    return f"{said}\n | {shown}\n | {'.' * start}^"
