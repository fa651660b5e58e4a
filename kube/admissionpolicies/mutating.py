"""MutatingAdmissionPolicies: compiled once, and what one makes of an object (TS15).

See https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kube.admissionpolicies.expressions import OUT_OF_BUDGET, Evaluation, EvaluationError, Expression, compiled
from kube.admissionpolicies.matching import Asked, Body, Form
from kube.admissionpolicies.policies import BoundPolicy, read_shared
from kube.cel.admission import EXPRESSIONS, JSON_PATCH, OBJECT, RETURNS
from kube.cel.authorizer import Hearing
from kube.cel.constructions import MARK, PATCH, Mistyped, as_json, check_types
from kube.cel.evaluation import OutOfBudget
from kube.kinds.mergestrategies import ATOMIC, Structure
from kube.objects.patches import json_patch, weight
from kube.objects.typedvalues import TypedError, merge, validate
from kube.requests.status import Cause, Forbidden, Invalid, RequestEntityTooLarge, StatusError

_VALUED: Final = frozenset({"add", "replace", "test"})
_VERBS: Final = frozenset({"add", "copy", "move", "remove", "replace", "test"})


class MutationError(Exception):
    """What a mutation is to make cannot be made; the message is kube-apiserver's."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One expression that makes a patch."""

    is_patch: bool
    source: str
    expression: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class MutatingPolicy(BoundPolicy):
    """A compiled policy."""

    reinvoked: bool
    mutations: tuple[Mutation, ...]

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> MutatingPolicy:
        """Compile a stored policy. Raises ``BadRequest`` for selectors that are none."""
        spec = body.get("spec") or {}
        scope, shared = read_shared(body)
        scope = replace(scope, constructs=True)
        mutations = []
        for each in spec.get("mutations") or ():
            kind = each.get("patchType", "")
            source = (each.get(EXPRESSIONS.get(kind, "")) or {}).get("expression", "")
            if source:
                mutations.append(Mutation(kind == JSON_PATCH, source, compiled(source, scope, RETURNS[kind])))
        return cls(**shared, reinvoked=spec.get("reinvocationPolicy") == "IfNeeded", mutations=tuple(mutations))


def made(
    policy: MutatingPolicy,
    mutation: Mutation,
    asked: Asked,
    form: Form,
    params: Body | None,
    namespace: Body | None,
    hearing: Hearing,
) -> Any:
    """What a mutation's expression makes: a configuration, or operations. Void while ``hearing`` has open questions.

    Raises ``MutationError``.
    """
    evaluation = Evaluation(asked, form, hearing, params=params, namespace=namespace, variables=policy.variables)
    try:
        value = evaluation.whole(mutation.expression, mutation.source)
        if mutation.is_patch:
            return _operations(value)
        if not isinstance(value, dict) or value.get(MARK) != OBJECT:
            raise MutationError("unsupported return type from ApplyConfiguration expression")
        check_types(value)
        return as_json(value)
    except OutOfBudget:
        raise MutationError(OUT_OF_BUDGET) from None
    except (EvaluationError, Mistyped) as error:
        raise MutationError(str(error)) from None


def _operations(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise MutationError("type mismatch: JSONPatchType.expression should evaluate to array")
    operations = []
    for each in value:
        if not isinstance(each, dict) or each.get(MARK) != PATCH:
            raise MutationError("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
        check_types(each.get("value"))
        given: dict[str, Any] = as_json(each)
        operation: dict[str, Any] = {"op": "", "path": "", **given}
        if operation["op"] in _VALUED:
            operation.setdefault("value", None)
        operations.append(operation)
    return operations


def applied(structure: Structure, live: Body, configuration: Body) -> Body:
    """A configuration laid over an object, as server-side apply does it. Raises ``MutationError``."""
    identity: Body = {name: live[name] for name in ("apiVersion", "kind") if name in live}
    patch: Body = {**configuration, **identity}
    try:
        validate(structure, patch, nulls=False)
    except TypedError as error:
        raise MutationError(f"error applying patch: failed to convert patch object to typed object: {error}") from None
    atomics = list(_atomics(structure, patch, ""))
    if atomics:
        words = f"may not mutate atomic arrays, maps or structs: {', '.join(atomics)}"
        raise MutationError(f"error applying patch: invalid ApplyConfiguration: {words}")
    try:
        weight(patch)
        return merge(structure, live, patch)
    except (TypedError, RequestEntityTooLarge) as error:
        raise MutationError(f"error applying patch: failed to merge patch: {error}") from None


def _atomics(structure: Structure, value: Any, path: str) -> Iterator[str]:
    """Where the value has lists and maps that are only replaced as a whole: what it does not name would be lost."""
    if isinstance(value, dict) and structure.is_map and not structure.is_scalar:
        if structure.atomic:
            yield path
        for name, member in value.items():
            if name in structure.fields:
                yield from _atomics(structure.fields[name], member, f"{path}.{name}")
    elif isinstance(value, list) and structure.is_list and not structure.is_scalar:
        if structure.list_type == ATOMIC:
            yield path
        for index, item in enumerate(value):
            yield from _atomics(structure.item, item, f"{path}[{index}]")


def patched(live: Body, operations: Sequence[Mapping[str, Any]]) -> Body:
    """The object after a JSON patch; ``live`` itself where a ``test`` in it fails. Raises ``MutationError``."""
    whole = list(operations)
    try:
        return json_patch(live, whole)
    except Invalid:
        pass
    except StatusError as error:
        raise MutationError(f"JSON Patch: {error.message}") from None
    # The first that does not apply, by halves: each try takes the whole object.
    good, bad = 0, len(whole)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            json_patch(live, whole[:middle])
            good = middle
        except Invalid:
            bad = middle
    failing = whole[good]
    if failing["op"] == "test":
        return live
    raise MutationError(f"JSON Patch: {_complaint(json_patch(live, whole[:good]), failing)}")


def _complaint(document: Body, operation: Mapping[str, Any]) -> str:
    verb, path = operation["op"], operation["path"]
    if verb not in _VERBS:
        return f"Unexpected kind: {verb}"
    place: Any = document
    if verb == "move" and operation.get("from"):
        path = operation["from"]
    *parents, last = path.split("/")[1:] or [""]
    for name in parents:
        place = place.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(place, dict) else None
    if verb in ("move", "remove") and isinstance(place, dict) and last not in place:
        told = path if verb == "remove" else last
        return f"error in {verb} for path: '{told}': Unable to remove nonexistent key: {last}: missing value"
    return f'{verb} operation does not apply: doc is missing path: "{path}": missing value'


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a policy could not be asked, or what it was to make cannot be made."""

    policy: str
    binding: str
    message: str
    evaluated: bool = True

    def __str__(self) -> str:
        if self.binding:
            return f"policy '{self.policy}' with binding '{self.binding}' denied request: {self.message}"
        return f'policy "{self.policy}" denied request: {self.message}'


def refused(asked: Asked, failures: Sequence[Failure]) -> Forbidden:
    """The answer to a request that policies cannot change as they have to, in kube-apiserver's words."""
    first, form = failures[0], asked.form
    shown = asked.name or ((asked.object or {}).get("metadata") or {}).get("generateName") or "Unknown"
    return Forbidden(
        str(first),
        group=form.group,
        kind=form.plural,
        name=shown,
        causes=tuple(Cause("", str(each)) for each in failures),
        reason="Invalid" if first.evaluated else "Forbidden",
        code=403,
        rule=first.policy,
    )
