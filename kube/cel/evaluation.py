"""What the rules of a schema have against an object, asked on every write (TS10).

Nothing here waits or looks at a clock; what evaluating may cost is counted. A rule that cannot be evaluated within its
bounds fails, as in Kubernetes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cel_expr_python import cel

from kube.cel import regexes
from kube.cel.costs import ANYWHERE, KIBIBYTE, CostEstimate, Source
from kube.cel.library import RANGE_MAX
from kube.cel.rules import Expression, Rule, Rules, cel_view
from kube.cel.typechecker import RESERVED, escaped
from kube.kinds.schemas import Schema
from kube.objects.patches import same
from kube.requests.fielderrors import forbidden, invalid, required
from kube.requests.status import Cause

MAX_MESSAGE: Final = 5_120
BUDGET: Final = 500_000
"""Steps that the rules of one request may take together; a step is one node of an expression, or 0.1 µs of other work."""
CALL_STEPS: Final = 50
"""What it takes to evaluate anything at all."""
MEMBER_STEPS: Final = 1 / 8
"""What each member of a value takes before an expression can see it."""
WHOLE_STEPS: Final = 1 / 4
HANDED_STEPS: Final = 2
"""What each member takes when a list or map is looked through by the evaluator, and when it is handed to a function."""
PAIRS_MAX: Final = 100_000
PAIR_STEPS: Final = 3 / 2
"""What two members take that are compared, of which no more are than that."""
OWN_STEPS: Final = 50
"""What each call of a function takes that is not the evaluator's own."""
LIST_STEPS: Final = 1 / 8
"""What each member takes of a list that a loop makes, each time another is put in: the evaluator copies it."""
LOOP_STEPS: Final = 10_000
"""Rounds that all loops of one evaluation may make together; the evaluator stops there."""


class OutOfBudget(Exception):
    """What evaluating would cost is more than is left."""


def violations(rules: Rules, new: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[Cause]:
    """What the rules have against an object, or against a change of it when ``old`` is given.

    Both are complete: pruned, with defaults, valid by their schema. What a change leaves as it was is not held
    against it, unless a rule compares (Kubernetes' ratcheting).
    """
    schema = rules.schema
    pair = _Pair(new, _value(schema, new), old, _value(schema, old) if old is not None and rules.transition else None)
    evaluation = _Evaluation()
    try:
        evaluation.node(rules, pair, "")
    except OutOfBudget:
        words = "validation failed due to running out of cost budget, no further validation rules will be run"
        evaluation.causes.append(invalid("", "object", words))
    return evaluation.causes


@dataclass(frozen=True, slots=True)
class _Pair:
    """A value as JSON and as expressions see it, and the value that was in its place (``None``: there was none)."""

    raw: Any
    value: Any
    old_raw: Any
    old_value: Any


class _Evaluation:
    def __init__(self) -> None:
        self.causes: list[Cause] = []
        self._left = BUDGET
        regexes.reset_budget()

    def node(self, rules: Rules, pair: _Pair, path: str) -> None:
        # 1. Compare once a node: an unchanged value is not held against a change elsewhere (ratcheting).
        # 2. Measure once a node what its rules see; each rule is then paid for before it runs, see ``_evaluate``.
        # 3. Go down beside the old value: by field name, by map key, by the keys of an associative list. A list without
        #    keys has no old items, which is why rules below it must not use ``oldSelf`` (``kube.cel.rules``).
        unchanged = pair.old_raw is not None and same(pair.raw, pair.old_raw)
        size = Size()
        if rules.own:
            size.add(pair.value)
            size.add(pair.old_value)
        for rule in rules.own:
            if pair.value is not None and len(self.causes) < 100:
                self._rule(rules.schema, rule, pair, path, size, unchanged=unchanged)
        if isinstance(pair.raw, dict):
            for name, child in rules.properties.items():
                if name in pair.raw:
                    self.node(child, _below(pair, name, escaped(name)), f"{path}.{name}" if path else name)
            if rules.additional is not None:
                for name in pair.raw:
                    if name not in rules.schema.properties:
                        self.node(rules.additional, _below(pair, name, name), f"{path}[{name}]")
        elif isinstance(pair.raw, list) and rules.items is not None:
            for index, at in enumerate(rules.schema.places_before(pair.raw, pair.old_raw)):
                old = pair.old_raw[at] if at is not None else None
                seen = pair.old_value[at] if at is not None and pair.old_value is not None else None
                self.node(rules.items, _Pair(pair.raw[index], pair.value[index], old, seen), f"{path}[{index}]")

    def _rule(self, schema: Schema, rule: Rule, pair: _Pair, path: str, size: Size, *, unchanged: bool) -> None:
        expression = rule.expression
        if expression.transition and pair.old_value is None and not rule.optional_old:
            return
        if unchanged and not expression.transition:
            return
        result, error = self._evaluate(expression, pair, size)
        if result is True:
            return
        kind = schema.type or "object"
        if error:
            self.causes.append(invalid(path, kind, f"{error} evaluating rule: {rule.message or _line(rule.text)}"))
            return
        message = self._message(rule, pair, size)
        where = _joined(path, rule.field_path)
        match rule.reason:
            case "FieldValueForbidden":
                self.causes.append(forbidden(where, message))
            case "FieldValueRequired":
                self.causes.append(required(where, message))
            case "FieldValueDuplicate":
                self.causes.append(Cause("FieldValueDuplicate", "Duplicate value", where))
            case _:
                if isinstance(pair.raw, dict | list):
                    self.causes.append(Cause("FieldValueInvalid", f"Invalid value: {message}", where))
                else:
                    self.causes.append(invalid(where, pair.raw, message))

    def _message(self, rule: Rule, pair: _Pair, size: Size) -> str:
        if rule.message_expression is not None:
            said, error = self._evaluate(rule.message_expression, pair, size)
            if not error and isinstance(said, str) and said.strip() and "\n" not in said and len(said) <= MAX_MESSAGE:
                return said.strip()
        return rule.message or f"failed rule: {_line(rule.text)}"

    def _evaluate(self, expression: Expression, pair: _Pair, size: Size) -> tuple[Any, str]:
        # Taken off before the evaluator starts: what is too much never runs, so no thread is held by it.
        if not expression.plain:
            regexes.require_beside()
        data = {"self": pair.value, "oldSelf": pair.old_value, "previous": {}}
        self._left -= size.cost(expression.weight, data)
        if self._left < 0:
            raise OutOfBudget
        if pair.old_value is not None:
            data["previous"] = {"value": pair.old_value}
        try:
            result = expression.program.eval(data=data)
        except RuntimeError as error:
            if "budget" in str(error):
                raise OutOfBudget from None
            return None, "internal error"
        regexes.require_light()
        if result.type() == cel.Type.ERROR:
            return None, reason_of(str(result.value()))
        # Rules give truth, messages text: nothing else is worth being made into values of ours.
        return result.plain_value() if result.type() in (cel.Type.BOOL, cel.Type.STRING) else None, ""


class Size:
    """How large a value is: all its members, its longest list or map, its longest text."""

    __slots__ = ("_within", "longest", "members", "most")

    def __init__(self) -> None:
        self.members = 0
        self.most = 0
        self.longest = 0
        self._within: dict[Source, int] = {}

    def add(self, value: Any) -> None:
        """Count one more value with all that is in it."""
        self.members += 1
        if isinstance(value, str | bytes):
            self.longest = max(self.longest, len(value))
        elif isinstance(value, dict):
            self.most = max(self.most, len(value))
            for name, member in value.items():
                self.longest = max(self.longest, len(name))
                self.add(member)
        elif isinstance(value, list):
            self.most = max(self.most, len(value))
            for member in value:
                self.add(member)

    def cost(self, weight: CostEstimate, data: Mapping[str, Any]) -> int:
        """The steps that an expression of this weight takes on it, at most; ``data`` are the values by the names of its parts."""
        # Every term is an upper bound, computed from sizes alone:
        # 1. ``most``: the longest list that a loop can go through, lists out of nothing (ranges, split texts) included.
        # 2. Lists that loops make larger are at most ``most ** nested``; the evaluator stops any loop at LOOP_STEPS.
        # 3. ``rounds``: loops in loops multiply. ``text``: text joined with itself grows by ``growth``, or squares. Of a text
        #    that was not made it is known in what it is, and how long the longest text is there.
        # 4. Calls that go through whole lists pay for every member in every round; those that compare each with each, for
        #    the square of the longest list.
        # 5. A list that a loop makes is copied with each member put in: its length squared, times LIST_STEPS.
        made = max(RANGE_MAX if weight.ranges else 0, self.longest if weight.splits else 0)
        most = max(self.most, made, 1)
        grown = weight.copies * min(int(most**weight.nested), LOOP_STEPS)
        if grown > 1:
            most = min(most * grown, max(most, LOOP_STEPS))
        times = [min(most**depth, LOOP_STEPS) for depth in range(weight.depth + 1)]
        rounds = times[weight.depth]
        text = self.longest * weight.growth
        if weight.squares:
            text *= max(min(self.longest, 1 << 20), most)
        whole = (self.members + made) * grown
        steps: float = rounds * weight.steps
        steps += sum(times[depth] for depth in weight.calls) * OWN_STEPS
        for read in weight.reads:
            steps += times[read.depth] * read.steps * self._length(read.source, data, text) / KIBIBYTE
        steps += rounds * whole * (weight.wholes * WHOLE_STEPS + weight.handed * HANDED_STEPS)
        steps += rounds * weight.paired * min(most * most, PAIRS_MAX) * PAIR_STEPS
        for depth, path in weight.lists:
            long = min(_length(path, data, most), LOOP_STEPS)
            steps += min(most**depth * long, LOOP_STEPS) * long * LIST_STEPS
        return CALL_STEPS + math.ceil(min(self.members * MEMBER_STEPS + steps, 2 * BUDGET))

    def _length(self, source: Source | None, data: Mapping[str, Any], text: int) -> int:
        """How long a text can be that is held there; ``text`` where nothing is known of it."""
        if source is None:
            return text
        if self.longest < KIBIBYTE or source[0] not in data:
            return self.longest
        found = self._within.get(source)
        if found is None:
            found = self._within[source] = _longest(_held(source, data))
        return found


def _held(source: Source, data: Mapping[str, Any]) -> Any:
    value: Any = data
    for name in source:
        if name == ANYWHERE or not isinstance(value, dict) or name not in value:
            break
        value = value[name]
    return value


def _longest(value: Any) -> int:
    longest, waiting = 0, [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str | bytes):
            longest = max(longest, len(value))
        elif isinstance(value, dict):
            longest = max(longest, *map(len, value)) if value else longest
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return longest


def _length(path: Source | None, data: Mapping[str, Any], most: int) -> int:
    """How long the list or map at a path of an expression is; ``most`` where that cannot be told."""
    if path is None or path[0] not in data:
        return most
    found: Any = data[path[0]]
    for name in path[1:]:
        found = found.get(name) if isinstance(found, dict) else None
    return len(found) if isinstance(found, (dict, list)) else 0


def _below(pair: _Pair, name: str, seen: str) -> _Pair:
    old = pair.old_raw.get(name) if isinstance(pair.old_raw, dict) else None
    old_value = pair.old_value.get(seen) if isinstance(pair.old_value, dict) and old is not None else None
    return _Pair(pair.raw[name], pair.value.get(seen), old, old_value)


def _value(schema: Schema, value: Any) -> Any:
    """A value as expressions see it: fields under their escaped names, numbers in their type, no unknown fields."""
    if isinstance(value, dict):
        if schema.additional is not None and not schema.properties:
            return {name: _value(schema.additional, member) for name, member in value.items()}
        if schema.embedded_resource:
            schema = cel_view(schema)
        seen = {}
        for name, member in value.items():
            child = schema.properties.get(name, schema.additional)
            if child is not None:
                if member is not None:
                    seen[escaped(name)] = _value(child, member)
                    if name in RESERVED:
                        seen[name] = seen[escaped(name)]
            elif not schema.closed:
                seen[name] = bounded(member)
        return seen
    if isinstance(value, list):
        items = schema.items
        return [_value(items, item) for item in value] if items is not None else bounded(value)
    if schema.type == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if schema.type == "integer" and isinstance(value, float):
        return int(value)
    return bounded(value)


def bounded(value: Any) -> Any:
    """A value that no schema describes: whole numbers beyond 64 bits become floating."""
    if isinstance(value, dict):
        return {name: bounded(member) for name, member in value.items()}
    if isinstance(value, list):
        return [bounded(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 63:
        return float(value) if value.bit_length() < 1024 else math.inf
    return value


def reason_of(error: str) -> str:
    """An evaluator's error in the words of kube-apiserver's."""
    kind, _, words = error.partition(": ")
    if kind == "NOT_FOUND" and words.startswith("Key not found in map"):
        return f"no such key: {words.rpartition(':')[2].strip().strip(chr(34))}"
    if words.startswith("No matching overloads"):
        return "no such overload"
    if words.startswith("Index error"):
        return f"index out of bounds: {words.partition('index=')[2].partition(' ')[0]}"
    if words == "divide by zero":
        return "division by zero"
    return words or error


def _line(text: str) -> str:
    return " ".join(text.split())


def _joined(path: str, field_path: str) -> str:
    where = field_path.replace("['", "[").replace("']", "]")
    return (path + where).removeprefix(".")
