"""Evaluating the expressions of one policy, or of one webhook's conditions, about one request (TS15).

Nothing here waits. What the authorizer has to be asked is noted in the ``Hearing``: whoever evaluates answers it and
evaluates again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cel_expr_python import cel

from kube.admissionpolicies.matching import Asked, Body, Form
from kube.cel import admission, authorizer, regexes
from kube.cel.admission import Compiled, Scope, compile_expression
from kube.cel.authorizer import CALL_COST, Hearing
from kube.cel.evaluation import BUDGET, OutOfBudget, Size, bounded, reason_of
from kube.cel.rules import InvalidExpression

Expression = Compiled | InvalidExpression
"""One that cannot be compiled is an error each time it is evaluated."""

OUT_OF_BUDGET: Final = "validation failed due to running out of cost budget, no further validation rules will be run"
_CONVERTED: Final = re.compile(r"cannot convert (\w+) to (\w+)")
_NOTHING: Final = "Applying SELECT to non-message type"
_READ: Final = re.compile(r"\b(object|oldObject|params|namespaceObject)\.(\w+)")
_FROM_TEXT: Final = {
    "String to Duration conversion failed": "duration",
    "String to Timestamp conversion failed": "timestamp",
}
_GO_TYPES: Final = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}


class EvaluationError(Exception):
    """An expression had no value; the message is kube-apiserver's."""


def compiled(text: str, scope: Scope, returns: tuple[str, ...] = ()) -> Expression:
    """The expression, or what is wrong with it."""
    try:
        return compile_expression(text.strip() if isinstance(text, str) else "", scope, returns)
    except InvalidExpression as error:
        return error


class Evaluation:
    """The values of expressions about one request, with one parameter object; variables are evaluated when they are read."""

    def __init__(
        self,
        asked: Asked,
        form: Form,
        hearing: Hearing,
        *,
        namespace: Body | None = None,
        params: Body | None = None,
        variables: Mapping[str, Expression] | None = None,
    ) -> None:
        # A form that nobody asked for has its objects converted; all are measured once.
        objects = [body and bounded(asked.in_form(body, form)) for body in (asked.object, asked.old)]
        request = asked.review(form)
        whole: Body = {"account": [], "requestResource": _requested(asked)}
        self._data: dict[str, Any] = {
            "object": objects[0],
            "oldObject": objects[1],
            "request": request,
            "params": bounded(params),
            "namespaceObject": namespace,
            "authorizer": whole,
            "variables": dict.fromkeys(variables or {}, True),
        }
        self._variables = variables or {}
        self._values: dict[str, Any] = {}
        self._hearing = hearing
        self._left = BUDGET
        self._size = Size()
        for value in self._data.values():
            self._size.add(value)

    def value(self, expression: Expression, source: str) -> Any:
        """Truth, text or nothing. Raises ``EvaluationError`` and ``OutOfBudget``."""
        result = self._result(expression, source)
        return result.plain_value() if result.type() in (cel.Type.BOOL, cel.Type.STRING) else None

    def whole(self, expression: Expression, source: str) -> Any:
        """The value, whatever it is. Raises ``EvaluationError`` and ``OutOfBudget``."""
        return self._result(expression, source).plain_value()

    def _result(self, expression: Expression, source: str) -> Any:
        if isinstance(expression, InvalidExpression):
            raise EvaluationError(f"compilation error: {expression}")
        self._hearing.cost = 0
        regexes.reset_budget()
        tokens = admission.reader.set(self._read), authorizer.current.set(self._hearing)
        try:
            result = self._evaluated(expression)
        finally:
            admission.reader.reset(tokens[0])
            authorizer.current.reset(tokens[1])
        words = "" if result.type() != cel.Type.ERROR else self._error(expression, str(result.value()))
        if self._hearing.cost > CALL_COST:
            words = str(authorizer.CostExceeded())
        if words:
            raise EvaluationError(f"expression '{source}' resulted in error: {words}")
        return result

    def _evaluated(self, expression: Compiled) -> Any:
        self._left -= self._size.cost(expression.weight, self._data)
        if self._left < 0:
            raise OutOfBudget
        try:
            result = expression.program.eval(data=self._data)
        except RuntimeError as error:
            if "budget" in str(error):
                raise OutOfBudget from None
            raise EvaluationError("internal error") from None
        regexes.require_light()
        return result

    def _error(self, expression: Compiled, text: str) -> str:
        for name in expression.inlined:
            value = self._first(name)
            if isinstance(value, ValueError):
                return str(value)
        words = error_of(text)
        if words == _NOTHING:
            read = (found[2] for found in _READ.finditer(expression.text) if self._data.get(found[1]) is None)
            words = f"no such key: {next(read, '')}"
        return words

    def _read(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = self._first(name)
        value = self._values[name]
        if isinstance(value, ValueError):
            raise value
        return value

    def _first(self, name: str) -> Any:
        expression = self._variables[name]
        if isinstance(expression, InvalidExpression):
            return ValueError(f'composited variable "{name}" fails to compile: {expression}')
        try:
            result = self._evaluated(expression)
        except OutOfBudget:
            return ValueError(OUT_OF_BUDGET)
        except EvaluationError as error:
            return ValueError(str(error))
        if result.type() == cel.Type.ERROR:
            return ValueError(
                f'composited variable "{name}" fails to evaluate: {self._error(expression, str(result.value()))}'
            )
        if expression.is_inlined:
            return None
        value = result.plain_value()
        self._size.add(value)
        return value


def met(conditions: Sequence[tuple[str, str, Expression]], evaluation: Evaluation, *, fails: bool) -> bool:
    """Whether all ``matchConditions`` (name, text, expression) hold; with ``fails`` an error is one, else it holds none.

    Raises ``EvaluationError``.
    """
    errors: list[str] = []
    for _, source, expression in conditions:
        try:
            if evaluation.value(expression, source) is False:
                return False
        except OutOfBudget:
            errors = [OUT_OF_BUDGET]
            break
        except EvaluationError as error:
            errors.append(str(error))
    if not errors:
        return True
    if not fails:
        return False
    raise EvaluationError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")


def namespace_object(body: Body | None) -> Body | None:
    """What expressions see of a Namespace."""
    if body is None:
        return None
    metadata = dict(body.get("metadata") or {})
    metadata["UID"] = metadata.pop("uid", "")
    seen = {name: metadata[name] for name in admission.NAMESPACE.properties["metadata"].properties if name in metadata}
    spec, status = body.get("spec") or {}, body.get("status") or {}
    return {
        "metadata": seen,
        "spec": {"finalizers": list(spec.get("finalizers") or ())},
        "status": {"phase": status.get("phase", "")},
    }


def error_of(text: str) -> str:
    """An evaluator's error in the words of kube-apiserver's."""
    words = reason_of(text)
    if words in _FROM_TEXT:
        return f"type conversion error from 'string' to '{_GO_TYPES[_FROM_TEXT[words]]}'"
    found = _CONVERTED.search(words)
    if found:
        return f"type conversion error from '{found[1]}' to '{_GO_TYPES.get(found[2], found[2])}'"
    return words


def _requested(asked: Asked) -> Body:
    form = asked.form
    return {
        "account": [],
        "group": form.group,
        "resource": form.plural,
        "subresource": asked.subresource,
        "namespace": asked.namespace,
        "name": asked.name,
    }
