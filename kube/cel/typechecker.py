"""What the schema makes of an expression: its type, or what is wrong with it.

The evaluator knows values, not schemas. So fields that do not exist and operators between types that cannot meet
are found here, in kube-apiserver's words, when a CRD is written and not when its first object is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kube.cel.constructions import MARK, PATCH, PATCH_FIELDS
from kube.cel.syntaxtree import Node, Tree
from kube.kinds.schemas import Schema

DeclType = Schema | None
"""The declared type of an expression's value, or nothing where it is ``dyn``."""

REQUESTS: Final = "admission"
"""The ``definition`` of what tells of a request to be admitted; no kind is called so."""

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
_SCALARS: Final = frozenset({"string", "integer", "number", "boolean", "null"})
_CONVERTED: Final = {"date-time": "timestamp", "date": "timestamp", "duration": "duration", "byte": "base64.decode"}
_PATTERNS: Final = frozenset({"matches", "find", "findAll"})
RESERVED: Final = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
"""Words of the language."""

_ESCAPES: Final = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))


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


def problems(
    tree: Tree, variables: Mapping[str, DeclType], is_pattern: Callable[[str], bool]
) -> tuple[list[TypeCheckError], DeclType]:
    """All that types have against an expression, in its order, and what its value is.

    As ``check``, for whoever only tells: the values that it is evaluated about say their types themselves, so nothing has
    to be converted, and what is wrong is of no known type.
    """
    teller = _Teller(tree.offsets, is_pattern)
    declared = teller.of(tree.root, variables)
    return sorted(teller.found, key=lambda problem: problem.offset), declared


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
        types = [self.of(arg, scope) for arg in node.args]
        if node.kind == "struct":
            return self._made(node, types)
        made = {type_name(declared) for declared in types if is_made(declared)}
        return Schema(type="array", items=types[0]) if len(made) == 1 and all(map(is_made, types)) else None

    def _made(self, node: Node, types: list[DeclType]) -> DeclType:
        """The type of an object that the expression makes; a map has none."""
        if not node.args or node.args[0].value != MARK:
            return None
        name = str(node.args[1].value)
        for key, declared in zip(node.args[2::2], types[3::2], strict=True):
            wanted = "" if key.value not in PATCH_FIELDS else "dyn" if key.value == "value" else "string"
            given = type_name(declared)
            if name == PATCH and wanted not in ("dyn", given) and (given != "dyn" or not wanted):
                words = f"expected type of field '{key.value}' is '{wanted}' but provided type is '{given}'"
                raise TypeCheckError(words, self._offsets.get(key.id, 0) + len(str(key.value)) + 2)
        return Schema(type="object", format=name, additional=Schema())

    def _field(self, declared: DeclType, name: str, node: Node) -> DeclType:
        if declared is None or declared.type == "":
            return None
        if declared.type != "object":
            raise self._problem(f"type '{type_name(declared)}' does not support field selection", node)
        if declared.additional is not None:
            return declared.additional
        found = self._property(declared, name)
        if found is None:
            raise self._problem(f"undefined field '{name}'", node)
        return found

    def _property(self, declared: Schema, name: str) -> DeclType:
        if declared.definition:
            # A type of the API itself, not of a CRD: its fields are called as they are.
            return declared.properties.get(name)
        return _escaped_property(declared, name)

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
        if inner[node.value] is None and is_made(made := self.of(rest[1], inner)):
            # A loop that begins with an empty list makes one of what it puts into it.
            inner[node.value] = made
        types = [self.of(arg, inner) for arg in rest]
        return types[-1]

    def _call(self, node: Node, scope: Mapping[str, DeclType]) -> DeclType:
        # 1. Optional selection and indexing give what may be absent: the field is checked, the result is not known.
        # 2. Every argument is checked, the unknown ones too; ``known`` are the types of those with one.
        # 3. Refused is only what no value of the known types could mean. ``None`` lets everything pass: the evaluator
        #    says at run time what cannot be said here, and a rule that works on a real server is never refused.
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
                    if name == "!_":
                        raise self._mismatch(node, types)
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
            if name == "_+_" and len(known) == 1 and (made := [each for each in types if is_made(each)]):
                return made[0]
            return _BOOL if name in _COMPARISONS else types[0] if len(known) == 2 else None
        if name == "_?_:_":
            if is_made(types[1]) is not is_made(types[2]) and None in types[1:]:
                # An empty list is one of anything, and so is what a loop has made so far.
                return types[1] or types[2]
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


class _Teller(_Checker):
    def __init__(self, offsets: Mapping[int, int], is_pattern: Callable[[str], bool]) -> None:
        super().__init__(offsets, lambda _start, _end, _function: None, is_pattern, set())
        self.found: list[TypeCheckError] = []

    def of(self, node: Node, scope: Mapping[str, DeclType], *, whole: bool = True) -> DeclType:
        try:
            return super().of(node, scope, whole=whole)
        except TypeCheckError as problem:
            self.found.append(problem)
            return None

    def _field(self, declared: DeclType, name: str, node: Node) -> DeclType:
        return None if declared is not None and declared.int_or_string else super()._field(declared, name, node)

    def _property(self, declared: Schema, name: str) -> DeclType:
        if declared.definition == REQUESTS:
            return declared.properties.get(name)
        # As kube-apiserver declares them, of built-in kinds too: what has no type cannot be named.
        found = _escaped_property(declared, name)
        return found if found is not None and _is_declared(found) else None

    def _convert(self, node: Node, function: str) -> None:
        """Nothing is."""


def _escaped_property(declared: Schema, name: str) -> DeclType:
    """The field of a name as expressions write it; words of the language name theirs as they are as well."""
    name = escaped(name) if name in RESERVED else name
    return next((child for field, child in declared.properties.items() if escaped(field) == name), None)


def _is_declared(declared: Schema) -> bool:
    if declared.int_or_string:
        return True
    if declared.type == "array":
        return declared.items is not None and _is_declared(declared.items)
    if declared.type == "object" and declared.additional is not None:
        return _is_declared(declared.additional)
    return bool(declared.type) and declared.format != "quantity"


def type_name(declared: DeclType) -> str:
    """A type as messages name it."""
    if declared is None or not declared.type or declared.int_or_string:
        return "dyn"
    if declared.type == "array":
        return f"list({type_name(declared.items)})"
    if declared.type == "object" and declared.format:
        return declared.format
    if declared.type == "object":
        return f"map(string, {type_name(declared.additional)})" if declared.additional is not None else "object"
    return _NAMES[declared.type]


def is_made(declared: DeclType) -> bool:
    """Whether it is the type of an object that an expression makes, or of a list of such."""
    if declared is not None and declared.type == "array":
        return is_made(declared.items)
    return declared is not None and declared.type == "object" and bool(declared.format)


def escaped(name: str) -> str:
    """A property's name as expressions write it: ``foo-bar`` is ``foo__dash__bar``."""
    if name in RESERVED:
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
