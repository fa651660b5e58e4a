"""Admission policies, their bindings, and webhooks: who writes one is told at once what could never work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kube.cel.admission import EXPRESSIONS, RETURNS, Compiled, Scope, compile_expression
from kube.cel.rules import MAX_LETTERS, MAX_RULES, InvalidExpression
from kube.requests.fielderrors import duplicate, forbidden, invalid, not_supported, required, too_many
from kube.requests.names import dns_subdomain, qualified_name
from kube.requests.status import Cause
from kube.validation.metadata import selector_causes

Body = Mapping[str, Any]

_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES: Final = ("*", "Cluster", "Namespaced")
_FAILURE_POLICIES: Final = ("Fail", "Ignore")
_REINVOCATIONS: Final = ("IfNeeded", "Never")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_CONDITIONS_MAX: Final = 64
_ANNOTATIONS_MAX: Final = 20
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED: Final = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
BOOL: Final = ("bool",)


def policy_causes(body: Body) -> list[Cause]:
    """What is wrong with a ValidatingAdmissionPolicy."""
    spec = body.get("spec") or {}
    too_much = size_causes(spec)
    if too_much:
        return too_much
    scope = Scope(params=bool(spec.get("paramKind")))
    causes = [*_shared_causes(spec)]
    conditions = list(condition_causes(spec, scope, "spec.matchConditions"))
    found, scope = variable_causes(spec, scope)
    causes += conditions + found
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        words = "validations or auditAnnotations must contain at least one item"
        return [*causes, required("spec.validations", words), required("spec.auditAnnotations", words)]
    for index, validation in enumerate(spec.get("validations") or ()):
        causes += _validation_causes(validation, scope, f"spec.validations[{index}]")
    annotations = spec.get("auditAnnotations") or ()
    if len(annotations) > _ANNOTATIONS_MAX:
        words = f"must not have more than {_ANNOTATIONS_MAX} auditAnnotations"
        causes.append(invalid("spec.auditAnnotations", "[]", words))
    for index, annotation in enumerate(annotations):
        causes += _annotation_causes(annotation, scope, f"spec.auditAnnotations[{index}]")
    return causes


def mutating_policy_causes(body: Body) -> list[Cause]:
    """What is wrong with a MutatingAdmissionPolicy."""
    spec = body.get("spec") or {}
    too_much = size_causes(spec)
    if too_much:
        return too_much
    scope = Scope(params=bool(spec.get("paramKind")))
    causes = [*_shared_causes(spec), *_unsupported_operations(spec)]
    conditions = list(condition_causes(spec, scope, "spec.matchConditions"))
    found, scope = variable_causes(spec, scope)
    causes += conditions + found
    mutations = spec.get("mutations") or ()
    if not mutations:
        causes.append(required("spec.mutations", "mutations must contain at least one item"))
    for index, mutation in enumerate(mutations):
        causes += _mutation_causes(mutation, replace(scope, constructs=True), f"spec.mutations[{index}]")
    policy = spec.get("reinvocationPolicy")
    if not policy:
        causes.append(required("spec.reinvocationPolicy"))
    elif policy not in _REINVOCATIONS:
        causes.append(not_supported("spec.reinvocationPolicy", policy, _REINVOCATIONS))
    return causes


def _unsupported_operations(spec: Body) -> Iterator[Cause]:
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        for operation in rule.get("operations") or ():
            if operation == "DELETE":
                supported = tuple(each for each in _OPERATIONS if each != operation)
                yield not_supported("spec.matchConstraints.resourceRules.operations", operation, supported)


def _mutation_causes(mutation: Body, scope: Scope, path: str) -> Iterator[Cause]:
    kind = mutation.get("patchType") or ""
    if not kind:
        yield required(f"{path}.patchType")
    elif kind not in EXPRESSIONS:
        yield not_supported(f"{path}.patchType", kind, tuple(EXPRESSIONS))
    if kind not in EXPRESSIONS:
        return
    wanted = EXPRESSIONS[kind]
    given = mutation.get(wanted)
    if given is None:
        yield required(f"{path}.{wanted}", f"must be specified when patchType is {kind}")
    else:
        yield from _expression_causes(
            given.get("expression") or "", scope, f"{path}.{wanted}.expression", RETURNS[kind]
        )
    for other in EXPRESSIONS.values():
        if other != wanted and mutation.get(other) is not None:
            words = f"must not be specified when patchType is {kind}"
            yield invalid(f"{path}.{other}", f"{{{other}}}", words)


def mutating_binding_causes(body: Body) -> list[Cause]:
    """What is wrong with a MutatingAdmissionPolicyBinding."""
    return list(_reference_causes(body.get("spec") or {}))


def size_causes(spec: Body) -> list[Cause]:
    """What is wrong with how many expressions there are: compiling them takes no more than a moment."""
    parts = [
        each
        for field in ("matchConditions", "variables", "validations", "auditAnnotations", "mutations")
        for each in spec.get(field) or ()
    ]
    letters = sum(len(text) for part in parts for text in _texts(part))
    if len(parts) > MAX_RULES:
        return [forbidden("spec", f"must have at most {MAX_RULES} expressions")]
    if letters > MAX_LETTERS:
        return [forbidden("spec", f"must have at most {MAX_LETTERS} characters of expressions")]
    return []


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, Mapping):
        for value in part.values():
            yield from _texts(value)


def binding_causes(body: Body) -> list[Cause]:
    """What is wrong with a ValidatingAdmissionPolicyBinding."""
    spec = body.get("spec") or {}
    causes = list(_reference_causes(spec))
    actions = spec.get("validationActions") or ()
    if not actions:
        causes.append(required("spec.validationActions", "at least one validation action is required"))
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            causes.append(not_supported(f"spec.validationActions[{index}]", action, _ACTIONS))
        if action in actions[:index]:
            causes.append(duplicate(f"spec.validationActions[{index}]", action))
    if "Deny" in actions and "Warn" in actions:
        words = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response "
            "and headers serves no purpose)"
        )
        causes.append(invalid("spec.validationActions", list(actions), words))
    return causes


def _shared_causes(spec: Body) -> Iterator[Cause]:
    if spec.get("failurePolicy", "Fail") not in _FAILURE_POLICIES:
        yield not_supported("spec.failurePolicy", spec["failurePolicy"], _FAILURE_POLICIES)
    kind = spec.get("paramKind")
    if kind is not None:
        for name in ("apiVersion", "kind"):
            if not kind.get(name):
                yield required(f"spec.paramKind.{name}")
    match = spec.get("matchConstraints")
    if match is None:
        yield required("spec.matchConstraints")
        return
    yield from _match_causes(match, "spec.matchConstraints")
    if not match.get("resourceRules"):
        yield required("spec.matchConstraints.resourceRules")


def _reference_causes(spec: Body) -> Iterator[Cause]:
    name = spec.get("policyName") or ""
    if not name:
        yield required("spec.policyName")
    else:
        yield from (invalid("spec.policyName", name, reason) for reason in dns_subdomain(name))
    ref = spec.get("paramRef")
    if ref is not None:
        yield from _param_ref_causes(ref)
    if spec.get("matchResources") is not None:
        yield from _match_causes(spec["matchResources"], "spec.matchResources")


def _param_ref_causes(ref: Body) -> Iterator[Cause]:
    if ref.get("name"):
        if ref.get("selector") is not None:
            for field in ("name", "selector"):
                yield forbidden(f"spec.paramRef.{field}", "name and selector are mutually exclusive")
    elif ref.get("selector") is None:
        yield required("spec.paramRef", "one of name or selector must be specified")
    else:
        yield from selector_causes(ref["selector"], "spec.paramRef.selector")
    action = ref.get("parameterNotFoundAction")
    if not action:
        yield required("spec.paramRef.parameterNotFoundAction")
    elif action not in ("Allow", "Deny"):
        yield not_supported("spec.paramRef.parameterNotFoundAction", action, ("Deny", "Allow"))


def _match_causes(match: Body, path: str) -> Iterator[Cause]:
    for field in ("namespaceSelector", "objectSelector"):
        yield from selector_causes(match.get(field) or {}, f"{path}.{field}")
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(field) or ()):
            yield from rule_causes(rule, f"{path}.{field}[{index}]")


def rule_causes(rule: Body, path: str) -> Iterator[Cause]:
    """What is wrong with a rule about groups, versions, resources and operations."""
    operations = rule.get("operations") or ()
    if not operations:
        yield required(f"{path}.operations")
    if len(operations) > 1 and "*" in operations:
        yield invalid(f"{path}.operations", list(operations), "if '*' is present, must not specify other operations")
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS)
    for field in ("apiGroups", "apiVersions", "resources"):
        values = rule.get(field) or ()
        if not values:
            yield required(f"{path}.{field}")
        if field != "resources" and len(values) > 1 and "*" in values:
            yield invalid(
                f"{path}.{field}", list(values), "if '*' is present, must not specify other " + _OTHERS[field]
            )
        if field == "resources" and rule.get("scope", "*") not in _SCOPES:
            yield not_supported(f"{path}.scope", rule["scope"], _SCOPES)
        for index, value in enumerate(values):
            if not value and field != "apiGroups":
                yield required(f"{path}.{field}[{index}]")


_OTHERS: Final = {"apiGroups": "API groups", "apiVersions": "API versions"}


def condition_causes(spec: Body, scope: Scope, path: str) -> Iterator[Cause]:
    """What is wrong with ``matchConditions``."""
    conditions = spec.get("matchConditions") or ()
    if len(conditions) > _CONDITIONS_MAX:
        yield too_many(path, len(conditions), _CONDITIONS_MAX)
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        here, name = f"{path}[{index}]", condition.get("name") or ""
        yield from _expression_causes(condition.get("expression") or "", scope, f"{here}.expression", BOOL)
        if not name:
            yield required(f"{here}.name")
        elif name in seen:
            yield duplicate(f"{here}.name", name)
        else:
            yield from (invalid(f"{here}.name", name, reason) for reason in qualified_name(name))
        seen.add(name)


def variable_causes(spec: Body, scope: Scope) -> tuple[list[Cause], Scope]:
    """What is wrong with a policy's variables, and the scope of what comes after them."""
    causes: list[Cause] = []
    variables: dict[str, Compiled] = {}
    for index, variable in enumerate(spec.get("variables") or ()):
        here, name = f"spec.variables[{index}]", variable.get("name") or ""
        if not name:
            causes.append(required(f"{here}.name", "name is not specified"))
        elif not _IDENTIFIER.fullmatch(name) or name in _RESERVED:
            causes.append(invalid(f"{here}.name", name, "name is not a valid CEL identifier"))
        elif name in variables:
            causes.append(duplicate(f"{here}.name", name))
        text = (variable.get("expression") or "").strip()
        if not text:
            causes.append(required(f"{here}.expression", "expression is not specified"))
            continue
        try:
            variables[name] = compile_expression(text, scope)
        except InvalidExpression as error:
            causes.append(invalid(f"{here}.expression", variable["expression"], str(error)))
            # What comes after it is judged as if it were there, of any type.
            variables[name] = compile_expression("dyn(object)", scope)
        scope = replace(scope, variables=dict(variables))
    return causes, scope


def _validation_causes(validation: Body, scope: Scope, path: str) -> Iterator[Cause]:
    text, message = (validation.get("expression") or "").strip(), validation.get("message") or ""
    words = validation.get("messageExpression") or ""
    if not text:
        yield required(f"{path}.expression", "expression is not specified")
    else:
        yield from _expression_causes(validation["expression"], scope, f"{path}.expression", BOOL)
    if words and not words.strip():
        yield invalid(f"{path}.messageExpression", words, "must be non-empty if specified")
    elif words:
        said = replace(scope, authorizer=False)
        yield from _expression_causes(words, said, f"{path}.messageExpression", ("string",))
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif not {"\n", "\r"}.isdisjoint(message.strip()):
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    reason = validation.get("reason")
    if reason is not None and reason not in _REASONS:
        yield not_supported(f"{path}.reason", reason, _REASONS)


def _annotation_causes(annotation: Body, scope: Scope, path: str) -> Iterator[Cause]:
    key, text = annotation.get("key") or "", (annotation.get("valueExpression") or "").strip()
    if not key:
        yield required(f"{path}.key")
    else:
        yield from (invalid(f"{path}.key", key, reason) for reason in qualified_name(key))
    if not text:
        yield required(f"{path}.valueExpression", "valueExpression is not specified")
    else:
        returns = ("string", "null_type")
        yield from _expression_causes(annotation["valueExpression"], scope, f"{path}.valueExpression", returns)


def _expression_causes(text: str, scope: Scope, path: str, returns: Sequence[str]) -> Iterator[Cause]:
    if not text.strip():
        yield required(path)
        return
    try:
        compile_expression(text.strip(), scope, tuple(returns))
    except InvalidExpression as error:
        yield invalid(path, text, str(error))
