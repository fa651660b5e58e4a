"""ValidatingAdmissionPolicies: compiled once, and what one says of a request (TS15)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kube.admissionpolicies.expressions import (
    OUT_OF_BUDGET,
    Evaluation,
    EvaluationError,
    Expression,
    compiled,
)
from kube.admissionpolicies.matching import Asked, Body, Form
from kube.admissionpolicies.policies import BOOL, BoundPolicy, read_shared
from kube.cel.admission import Scope
from kube.cel.authorizer import Hearing
from kube.cel.evaluation import MAX_MESSAGE, OutOfBudget
from kube.requests.status import Cause, Forbidden

_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
ANNOTATION_MAX: Final = 10 * 1024
TEXT: Final = ("string",)
TEXT_OR_NULL: Final = ("string", "null_type")


@dataclass(frozen=True, slots=True)
class Validation:
    """One expression that has to be true, and what is said when it is not."""

    source: str
    expression: Expression
    message: str
    message_source: str
    message_expression: Expression | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(BoundPolicy):
    """A compiled policy."""

    validations: tuple[Validation, ...]
    annotations: tuple[tuple[str, str, Expression], ...]

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Policy:
        """Compile a stored policy. Raises ``BadRequest`` for selectors that are none."""
        spec = body.get("spec") or {}
        scope, shared = read_shared(body)
        said = replace(scope, authorizer=False)
        return cls(
            **shared,
            validations=tuple(_validation(each, scope, said) for each in spec.get("validations") or ()),
            annotations=tuple(
                (each["key"], each["valueExpression"], compiled(each["valueExpression"], scope, TEXT_OR_NULL))
                for each in spec.get("auditAnnotations") or ()
            ),
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """One validation's refusal; ``index`` is its place in the policy."""

    index: int
    message: str
    reason: str = "Invalid"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says: refusals, what is for the audit, and why what is for the audit could not be told."""

    refusals: tuple[Decision, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    errors: tuple[str, ...] = ()


def _validation(source: Mapping[str, Any], scope: Scope, said: Scope) -> Validation:
    words = source.get("messageExpression", "")
    return Validation(
        source["expression"],
        compiled(source["expression"], scope, BOOL),
        source.get("message", "").strip(),
        words,
        compiled(words, said, TEXT) if words.strip() else None,
        source.get("reason") or "Invalid",
    )


def judge(
    policy: Policy, asked: Asked, form: Form, params: Body | None, namespace: Body | None, hearing: Hearing
) -> Verdict:
    """What a policy says of a request that it is about; void while ``hearing`` has open questions."""
    evaluation = Evaluation(asked, form, hearing, params=params, namespace=namespace, variables=policy.variables)
    try:
        if not policy.is_asked(asked, form, params, hearing):
            return Verdict()
        refusals = [
            refusal
            for index, validation in enumerate(policy.validations)
            if (refusal := _refusal(policy, validation, index, evaluation)) is not None
        ]
        annotations, errors = _annotations(policy, evaluation)
    except OutOfBudget:
        return Verdict((Decision(0, OUT_OF_BUDGET),)) if policy.fails else Verdict()
    except EvaluationError as error:
        return Verdict((Decision(0, str(error)),))
    return Verdict(tuple(refusals), annotations, errors)


def _refusal(policy: Policy, validation: Validation, index: int, evaluation: Evaluation) -> Decision | None:
    try:
        holds = evaluation.value(validation.expression, validation.source.strip())
    except EvaluationError as error:
        return Decision(index, str(error), "") if policy.fails else None
    return None if holds is True else Decision(index, _message(validation, evaluation), validation.reason)


def _message(validation: Validation, evaluation: Evaluation) -> str:
    if validation.message_expression is not None:
        try:
            said = evaluation.value(validation.message_expression, validation.message_source)
        except EvaluationError:
            said = None
        if isinstance(said, str) and (said := said.strip()) and "\n" not in said and len(said) <= MAX_MESSAGE:
            return said
    return validation.message or f"failed expression: {validation.source.strip()}"


def _annotations(policy: Policy, evaluation: Evaluation) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    found: list[tuple[str, str]] = []
    errors: list[str] = []
    for key, source, expression in policy.annotations:
        try:
            value = evaluation.value(expression, source)
        except EvaluationError as error:
            if policy.fails:
                errors.append(str(error))
            continue
        if isinstance(value, str) and value.strip():
            found.append((key, value.strip()[:ANNOTATION_MAX]))
    return tuple(found), tuple(errors)


def refused(asked: Asked, policy: str, binding: str, refusal: Decision) -> Forbidden:
    """The answer to a request that a policy refuses, in kube-apiserver's words; its code is the reason's."""
    by = f"ValidatingAdmissionPolicy '{policy}'" + (f" with binding '{binding}'" if binding else "")
    message = f"{by} denied request: {refusal.message}"
    return refusal_of(asked, message, refusal.reason, rule=policy, causes=(Cause("", message),))


def refusal_of(asked: Asked, message: str, reason: str, *, rule: str, causes: tuple[Cause, ...] = ()) -> Forbidden:
    """What ``admission.NewForbidden`` says of a request, with another reason and its code."""
    form = asked.form
    where = f"{form.plural}.{form.group}" if form.group else form.plural
    shown = asked.name or ((asked.object or {}).get("metadata") or {}).get("generateName") or "Unknown"
    reason = reason or "Invalid"
    return Forbidden(
        f'{where} "{shown}" is forbidden: {message}',
        group=form.group,
        kind=form.plural,
        name=shown,
        causes=causes,
        reason=reason,
        code=_CODES.get(reason, 422),
        rule=rule,
    )
