"""The ``authorizer`` of admission policies: questions that an expression asks, answered by whoever evaluates it (TS15).

See https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-authorizer-library. A question and its answer are maps.
An expression cannot wait: what has not been answered yet is noted, and the expression is evaluated again with the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cel_expr_python import cel

CHECK_COST: Final = 350_000
CALL_COST: Final = 1_000_000
"""What a question costs, and what an expression may cost: Kubernetes' own amounts."""

_T: Final = cel.Type
_MAP: Final = _T.Map(_T.STRING, _T.DYN)

Asked = dict[str, Any]


class Question(NamedTuple):
    """Whether somebody may do something; ``account`` is (namespace, name) of a service account, or empty for the caller."""

    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    account: tuple[str, ...] = ()


class Answer(NamedTuple):
    """What the authorizer says."""

    allowed: bool
    reason: str = ""


@dataclass(slots=True)
class Hearing:
    """The answers that are known, and the questions that are still to be answered."""

    answers: dict[Question, Answer] = field(default_factory=dict)
    open: list[Question] = field(default_factory=list)
    cost: int = 0


current: Final[ContextVar[Hearing | None]] = ContextVar("hearing", default=None)


class CostExceeded(ValueError):
    """The words of kube-apiserver's evaluator."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


def functions() -> Any:
    """The extension that holds them all, for one environment."""
    declared = [
        _member("path", [_T.STRING], lambda asked, path: {**_subject(asked), "path": path}),
        _member("group", [_T.STRING], lambda asked, group: {**_subject(asked), "group": group}),
        *(_member(name, [_T.STRING], _narrowed(name)) for name in ("resource", "subresource", "namespace", "name")),
        _member("fieldSelector", [_T.STRING], lambda asked, _: asked),
        _member("labelSelector", [_T.STRING], lambda asked, _: asked),
        _member(
            "serviceAccount",
            [_T.STRING, _T.STRING],
            lambda asked, namespace, name: {**_subject(asked), "account": [namespace, name]},
        ),
        _member("check", [_T.STRING], _check),
        _member("allowed", [], lambda answer: answer["allowed"], _T.BOOL),
        _member("reason", [], lambda answer: answer["reason"], _T.STRING),
        _member("errored", [], lambda answer: "allowed" not in answer, _T.BOOL),
        _member("error", [], lambda answer: "" if "allowed" in answer else "no such overload", _T.STRING),
    ]
    return cel.CelExtension("authorizer", declared)


def _member(name: str, parameters: list[Any], call: Callable[..., Any], result: Any = _MAP) -> Any:
    overload = cel.Overload(
        f"authorizer_{name}", return_type=result, parameters=[_MAP, *parameters], is_member=True, impl=call
    )
    return cel.FunctionDecl(name, [overload])


def _subject(asked: Asked) -> Asked:
    return {"account": asked["account"]} if "account" in asked else {}


def _narrowed(field_name: str) -> Callable[[Asked, str], Asked]:
    return lambda asked, value: {**asked, field_name: value}


def _check(asked: Asked, verb: str) -> dict[str, Any]:
    hearing = current.get()
    if hearing is None:
        raise ValueError("no authorizer is there to be asked")
    hearing.cost += CHECK_COST
    if hearing.cost > CALL_COST:
        raise CostExceeded
    fields = {
        name: str(asked.get(name, "")) for name in ("path", "group", "resource", "subresource", "namespace", "name")
    }
    question = Question(verb, **fields, account=tuple(map(str, asked.get("account", ()))))
    answer = hearing.answers.get(question)
    if answer is None:
        if question not in hearing.open:
            hearing.open.append(question)
        raise ValueError("the question is not answered yet")
    return {"allowed": answer.allowed, "reason": answer.reason}
