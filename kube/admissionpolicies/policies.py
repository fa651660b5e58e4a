"""What validating and mutating admission policies share: what they are about, and what puts them in force (TS15)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kube.admissionpolicies.expressions import Evaluation, Expression, compiled, met
from kube.admissionpolicies.matching import Asked, Body, Form, Matcher
from kube.cel.admission import Compiled, Scope
from kube.cel.authorizer import Hearing

BOOL: Final = ("bool",)


@dataclass(frozen=True, slots=True)
class ParamKind:
    """The kind of object that a policy takes its parameters from."""

    api_version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.api_version}, Kind={self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPolicy:
    """A compiled policy of either kind."""

    name: str
    matcher: Matcher
    fails: bool
    param_kind: ParamKind | None
    variables: Mapping[str, Expression]
    conditions: tuple[tuple[str, str, Expression], ...]

    def is_asked(self, asked: Asked, form: Form, params: Body | None, hearing: Hearing) -> bool:
        """Whether its ``matchConditions`` hold. Raises ``EvaluationError``."""
        if not self.conditions:
            return True
        evaluation = Evaluation(asked, form, hearing, params=params, variables=self.variables)
        return met(self.conditions, evaluation, fails=self.fails)


@dataclass(frozen=True, slots=True)
class Binding:
    """What puts a policy in force."""

    name: str
    policy: str
    matcher: Matcher
    actions: tuple[str, ...]
    param_ref: Mapping[str, Any] | None

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Binding:
        """A stored binding. Raises ``BadRequest`` for selectors that are none."""
        spec = body.get("spec") or {}
        return cls(
            body["metadata"]["name"],
            spec.get("policyName", ""),
            Matcher.read(spec.get("matchResources")),
            tuple(spec.get("validationActions") or ()),
            spec.get("paramRef"),
        )


def read_shared(body: Mapping[str, Any]) -> tuple[Scope, dict[str, Any]]:
    """The scope of a stored policy's own expressions, and its fields of ``BoundPolicy``.

    Raises ``BadRequest`` for selectors that are none.
    """
    spec = body.get("spec") or {}
    param_kind = param_kind_of(spec)
    scope, variables = with_variables(spec, Scope(params=param_kind is not None))
    return scope, {
        "name": body["metadata"]["name"],
        "matcher": Matcher.read(spec.get("matchConstraints")),
        "fails": spec.get("failurePolicy", "Fail") != "Ignore",
        "param_kind": param_kind,
        "variables": variables,
        "conditions": conditions_of(spec, scope),
    }


def param_kind_of(spec: Mapping[str, Any]) -> ParamKind | None:
    """The kind of a policy's parameters."""
    given = spec.get("paramKind")
    return ParamKind(given.get("apiVersion", ""), given.get("kind", "")) if given else None


def with_variables(spec: Mapping[str, Any], scope: Scope) -> tuple[Scope, dict[str, Expression]]:
    """The scope with a policy's variables, each of which sees those before it."""
    variables: dict[str, Expression] = {}
    for each in spec.get("variables") or ():
        variables[each["name"]] = compiled(each["expression"], scope)
        scope = replace(scope, variables=_usable(variables))
    return scope, variables


def _usable(variables: Mapping[str, Expression]) -> dict[str, Compiled]:
    return {name: each for name, each in variables.items() if isinstance(each, Compiled)}


def conditions_of(spec: Mapping[str, Any], scope: Scope) -> tuple[tuple[str, str, Expression], ...]:
    """The ``matchConditions``: name, text, expression."""
    return tuple(
        (each["name"], each["expression"], compiled(each["expression"], scope, BOOL))
        for each in spec.get("matchConditions") or ()
    )
