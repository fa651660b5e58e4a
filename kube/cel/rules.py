"""The rules of a structural schema: judged at creation of the CRD, compiled once (TS10)."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_optional, ext_strings

from kube.cel import regexes
from kube.cel.costs import CostEstimate, estimate_cost
from kube.cel.library import functions
from kube.cel.macros import expand_macros
from kube.cel.plainness import is_plain
from kube.cel.syntaxtree import Tree
from kube.cel.texts import replacements
from kube.cel.typechecker import DeclType, TypeCheckError, check, located
from kube.kinds.schemas import Schema
from kube.requests.caches import Cache, CacheBudget
from kube.requests.fielderrors import forbidden, invalid, not_supported, required
from kube.requests.status import Cause

VALIDATIONS: Final = "x-kubernetes-validations"
MAX_EXPRESSION: Final = 16_384
_SMALL: Final = 512
"""Letters of the expressions of which many are kept compiled, each 130 kB at most: of longer ones a few, for a letter may
take 180 bytes."""

MAX_RULES: Final = 300
"""Rules in one version of a CRD, so that compiling it takes no more than a moment."""

MAX_LETTERS: Final = 65_536
"""Letters of all rules in one version: each takes 10 µs, and up to 250 bytes of memory."""

_TWICE: Final = re.compile(r"\bopt(?:Flat)?Map\b")
"""Macros that the compiler writes out with what they are called on twice: one behind the other, that is twice as long each."""

DOUBLED: Final = "where each optMap and optFlatMap doubles those of its expression"

_LETTER_BYTES: Final = 256
_RULE_BYTES: Final = 4_096
RULES_BUDGET: Final = CacheBudget(256 * 1024 * 1024, parts=8)
"""What the compiled rules of all definitions may take in one process."""

_RULES: Final = "rules"

_REASONS: Final = ("FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired", "FieldValueDuplicate")
_HIDDEN: Final = frozenset({"name", "generateName"})


class InvalidExpression(ValueError):
    """The expression cannot be compiled; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression; one that is not ``plain`` is evaluated where nobody waits (``kube.cel.plainness``)."""

    program: Any
    weight: CostEstimate
    transition: bool
    declared: DeclType
    plain: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """One compiled rule of a schema node."""

    text: str
    expression: Expression
    message: str
    message_expression: Expression | None
    reason: str
    field_path: str
    optional_old: bool


@dataclass(slots=True, eq=False)
class Rules:
    """The rules of a schema node and of those below it; ``None`` stands where there are none."""

    schema: Schema
    own: tuple[Rule, ...] = ()
    properties: Mapping[str, Rules] = field(default_factory=dict)
    additional: Rules | None = None
    items: Rules | None = None

    @property
    def transition(self) -> bool:
        """Whether any of them looks at the old object."""
        below = (*self.properties.values(), *(part for part in (self.additional, self.items) if part is not None))
        return any(rule.expression.transition for rule in self.own) or any(part.transition for part in below)


@lru_cache(maxsize=1)
def _environment() -> Any:
    return cel.NewEnv(
        variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN, "previous": cel.Type.DYN},
        extensions=[
            ext_strings.ExtStrings(),
            ext_optional.ExtOptional(),
            ext_bindings.ExtBindings(),
            ext_encoders.ExtEncoders(),
            functions(),
        ],
    )


def rules_of(schema: Schema) -> Rules | None:
    """The compiled rules of a schema that ``rule_causes`` has accepted, or ``None`` when it has none.

    They are kept with the schema, in bytes that all schemas share.
    """
    steps = compilation(schema)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            rules: Rules | None = done.value
            return rules


def compilation(schema: Schema) -> Generator[None, None, Rules | None]:
    """``rules_of`` in steps, of which each compiles one rule: nothing, where they are kept."""
    kept = schema.kept.get(_RULES)
    if kept is None:
        kept = schema.kept[_RULES] = Cache(RULES_BUDGET)
    if _RULES in kept:
        known: Rules | None = kept[_RULES]
        return known
    letters: list[int] = []
    rules = yield from _compiling(schema, letters)
    kept.keep(_RULES, rules, sum(letters) * _LETTER_BYTES + len(letters) * _RULE_BYTES)
    return rules


def _compiling(schema: Schema, letters: list[int]) -> Generator[None, None, Rules | None]:
    own = []
    for source in schema.rules.get(VALIDATIONS) or ():
        own.append(_compiled(schema, source))
        letters.append(_letters(source))
        yield
    properties: dict[str, Rules] = {}
    for name, child in schema.properties.items():
        below = None if name in _metadata(schema) else (yield from _compiling(child, letters))
        if below is not None:
            properties[name] = below
    additional = (yield from _compiling(schema.additional, letters)) if schema.additional is not None else None
    items = (yield from _compiling(schema.items, letters)) if schema.items is not None else None
    if not (own or properties or additional or items):
        return None
    return Rules(schema, tuple(own), properties, additional, items)


def _letters(source: Mapping[str, Any]) -> int:
    texts = (source.get("rule"), source.get("messageExpression"))
    return sum(written_out(text) for text in texts if isinstance(text, str))


def written_out(text: str) -> int:
    """Letters of an expression, were each ``optMap`` and ``optFlatMap`` called on all of it."""
    # They are counted wherever they stand: the compiler writes out even those of a text whose quotes are not in order.
    return len(text) << len(_TWICE.findall(text))


def rule_causes(schema: Schema, path: str) -> list[Cause]:
    """What is wrong with the rules of a structural schema; ``path`` is the field of its ``openAPIV3Schema``."""
    count = _Count()
    causes = list(_judged(schema, path, None, count))
    if count.rules > MAX_RULES:
        causes.append(forbidden(path, f"must have at most {MAX_RULES} validation rules"))
    if count.letters > MAX_LETTERS:
        causes.append(forbidden(path, f"must have at most {MAX_LETTERS} characters of validation rules, {DOUBLED}"))
    return causes[:100]


@dataclass(slots=True)
class _Count:
    """What has been seen of the rules of one version."""

    rules: int = 0
    letters: int = 0

    def has_room(self, source: Any) -> bool:
        """Count one more; whether it is still to be compiled."""
        self.rules += 1
        self.letters += _letters(source) if isinstance(source, Mapping) else 0
        return self.rules <= MAX_RULES and self.letters <= MAX_LETTERS


def _judged(schema: Schema, path: str, lost: str | None, count: _Count) -> Iterator[Cause]:
    """``lost`` is the path of the part of the schema below which old and new values cannot be told to be the same."""
    for index, source in enumerate(schema.rules.get(VALIDATIONS) or ()):
        if count.has_room(source):
            yield from _rule_causes(schema, source, f"{path}.{VALIDATIONS}[{index}]", lost)
    for name, child in schema.properties.items():
        if name not in _metadata(schema):
            yield from _judged(child, f"{path}.properties[{name}]", lost, count)
    if schema.additional is not None:
        yield from _judged(schema.additional, f"{path}.additionalProperties", lost, count)
    if schema.items is not None:
        below = path if schema.list_type != "map" and lost is None else lost
        yield from _judged(schema.items, f"{path}.items", below, count)


def _rule_causes(schema: Schema, source: Any, path: str, lost: str | None) -> Iterator[Cause]:
    if not isinstance(source, Mapping):
        yield invalid(path, source, "must be an object")
        return
    wrong = [
        name
        for name in ("rule", "message", "messageExpression", "reason", "fieldPath")
        if not isinstance(source.get(name, ""), str)
    ]
    if wrong:
        yield from (invalid(f"{path}.{name}", source[name], "must be a string") for name in wrong)
        return
    text = source.get("rule", "").strip()
    message = source.get("message", "")
    if not text:
        yield required(f"{path}.rule", "rule is not specified")
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip():
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    elif not message and "\n" in text:
        yield required(f"{path}.message", "message must be specified if rule contains line breaks")
    if source.get("messageExpression") and not source["messageExpression"].strip():
        yield required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    reason = source.get("reason")
    if reason is not None and reason not in _REASONS:
        yield not_supported(f"{path}.reason", reason, sorted(_REASONS))
    where = source.get("fieldPath")
    if where and _target(schema, where) is None:
        yield invalid(f"{path}.fieldPath", where, "must be a valid path")
    if not text:
        return
    optional = source.get("optionalOldSelf") is True
    try:
        expression = _expression(schema, text, optional=optional)
    except InvalidExpression as error:
        yield _refused(f"{path}.rule", source, str(error))
        return
    if expression.declared is not None and expression.declared.type != "boolean":
        yield _refused(f"{path}.rule", source, "cel expression must evaluate to a bool")
    if expression.transition and lost is not None:
        words = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}"
        yield invalid(f"{path}.rule", source["rule"], words)
    if source.get("optionalOldSelf") is not None and not expression.transition:
        yield invalid(
            f"{path}.optionalOldSelf", source["optionalOldSelf"], "may not be set if oldSelf is not used in rule"
        )
    if source.get("messageExpression", "").strip():
        yield from _message_causes(schema, source, f"{path}.messageExpression", optional=optional)


def _message_causes(schema: Schema, source: Mapping[str, Any], path: str, *, optional: bool) -> Iterator[Cause]:
    try:
        expression = _expression(schema, source["messageExpression"].strip(), optional=optional)
    except InvalidExpression as error:
        yield _refused(path, source, str(error).replace("compilation", "messageExpression compilation", 1))
        return
    if expression.declared is not None and expression.declared.type != "string":
        yield _refused(path, source, "messageExpression must evaluate to a string")


def _refused(path: str, source: Mapping[str, Any], words: str) -> Cause:
    """A cause that shows the whole rule, as Go prints it."""
    shown = {
        "Rule": source.get("rule", ""),
        "Message": source.get("message", ""),
        "MessageExpression": source.get("messageExpression", ""),
        "Reason": source.get("reason"),
        "FieldPath": source.get("fieldPath", ""),
        "OptionalOldSelf": source.get("optionalOldSelf"),
    }
    text = json.dumps(shown, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Cause("FieldValueInvalid", f"Invalid value: {text}: {words}", path)


def _compiled(schema: Schema, source: Mapping[str, Any]) -> Rule:
    optional = source.get("optionalOldSelf") is True
    words = source.get("messageExpression", "").strip()
    return Rule(
        text=source["rule"].strip(),
        expression=_expression(schema, source["rule"].strip(), optional=optional),
        message=source.get("message", "").strip(),
        message_expression=_expression(schema, words, optional=optional) if words else None,
        reason=source.get("reason") or "FieldValueInvalid",
        field_path=source.get("fieldPath", ""),
        optional_old=optional,
    )


def _expression(schema: Schema, text: str, *, optional: bool) -> Expression:
    """Compile. Raises ``InvalidExpression`` in the words of kube-apiserver's compiler."""
    if len(text) > MAX_EXPRESSION:
        raise InvalidExpression(f"compilation failed: the expression is longer than {MAX_EXPRESSION} characters")
    # 1. Bounded text, macros that the compiler lacks written out; offsets in messages are those of the text written out.
    text = expand_macros(text)
    program = _program(text)
    # 2. The evaluator types everything as dynamic: the tree it gives out is checked against the schema here.
    tree = Tree.read(program.serialize())
    transition = tree.mentions("oldSelf")
    if tree.mentions("previous"):
        words = located("undeclared reference to 'previous' (in container '')", text, 0)
        raise InvalidExpression(f"compilation failed: {words}")
    declared = cel_view(schema)
    edits: set[tuple[int, int, str]] = set()
    scalars: set[int] = set()

    def convert(start: int, end: int, function: str) -> None:
        edits.add((start, end, f"{function}({text[start:end]})"))

    try:
        found = check(
            tree,
            {"self": declared, "oldSelf": None if optional else declared},
            convert,
            regexes.is_pattern,
            scalars,
        )
    except TypeCheckError as problem:
        raise InvalidExpression(f"compilation failed: {located(problem.words, text, problem.offset)}") from None
    # 3. What no object could ever pay for is refused with the CRD, not with each object.
    weight = estimate_cost(tree, scalars)
    if weight.growth > 1 << 12 or weight.steps > 2_000 or weight.depth > 4:
        raise InvalidExpression("estimated rule cost exceeds budget: the rule is too complex")
    # 4. Times, durations and bytes are texts in JSON: convert where they are read; and call what is our own. From the
    #    end, so offsets stay right.
    plain = not edits and is_plain(tree, text)
    edits |= own_calls(tree, text)
    for start, end, written in sorted(edits, reverse=True):
        text = f"{text[:start]}{written}{text[end:]}"
    if optional and transition:
        text = f"cel.bind(oldSelf, previous.?value, ({text}))"
    if edits or (optional and transition):
        program = _program(text)
    # 5. Where the schema says nothing of the result, the compiler's own type decides whether it is a bool or a text.
    if found is None:
        returned = {"BOOL": "boolean", "STRING": "string", "INT": "integer", "DOUBLE": "number"}
        kind = returned.get(str(program.return_type().name()))
        found = Schema(type=kind) if kind else None
        if kind is None and program.return_type().name() not in ("DYN", "dyn"):
            found = Schema(type="object")
    return Expression(program, weight, transition, found, plain)


def own_calls(tree: Tree, text: str) -> set[tuple[int, int, str]]:
    """Which names to replace in the text by those of our own functions. Raises ``InvalidExpression``."""
    try:
        return set(replacements(tree, text))
    except ValueError as error:
        raise InvalidExpression(f"compilation failed: {error}") from None


def _program(text: str) -> Any:
    return _small(text) if written_out(text) <= _SMALL else _large(text)


@lru_cache(maxsize=512)
def _small(text: str) -> Any:
    return _compile(text)


@lru_cache(maxsize=32)
def _large(text: str) -> Any:
    return _compile(text)


def _compile(text: str) -> Any:
    try:
        return _environment().compile(text)
    except RuntimeError as error:
        words = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        raise InvalidExpression(f"compilation failed: {words}") from None


def _metadata(schema: Schema) -> frozenset[str]:
    return frozenset({"metadata", "apiVersion", "kind"}) if schema.embedded_resource else frozenset()


def cel_view(schema: Schema) -> Schema:
    """A node's schema as expressions see it: of an object's metadata they see the names."""
    if not schema.embedded_resource:
        return schema
    names = Schema(type="object", closed=True, properties={name: Schema(type="string") for name in sorted(_HIDDEN)})
    return Schema(type="object", closed=schema.closed, properties={**schema.properties, "metadata": names})


def _target(schema: Schema, path: str) -> Schema | None:
    """The schema at a rule's ``fieldPath`` (``.spec.replicas``, ``.map['key']``), or ``None``."""
    node: Schema | None = schema
    rest = path
    while rest and node is not None:
        if rest.startswith("['"):
            name, end, rest = rest[2:].partition("']")
            if not end:
                return None
        elif rest.startswith("."):
            stop = min((at for at in (rest.find(".", 1), rest.find("[", 1)) if at > 0), default=len(rest))
            name, rest = rest[1:stop], rest[stop:]
        else:
            return None
        node = node.properties.get(name, node.additional)
    return node if path else None
