"""Which admission policies are asked about a request: by their matchers, their bindings and their parameters (TS15)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from access.admission.base import Attributes
from access.admission.dynamic.compiledobjects import CompiledObjects
from access.admission.dynamic.questions import AdmissionQuestions, UnusableParameters, concerns, form_of
from kube.admissionpolicies.expressions import namespace_object
from kube.admissionpolicies.matching import Asked, Body, Form
from kube.admissionpolicies.policies import Binding, BoundPolicy

P = TypeVar("P", bound=BoundPolicy)


@dataclass(frozen=True, slots=True)
class Invocation(Generic[P]):
    """A policy that is asked once, as a binding says, with one parameter object."""

    policy: P
    binding: Binding
    form: Form
    params: Body | None


@dataclass(frozen=True, slots=True)
class Unconfigured:
    """A policy, or a binding of it, that cannot be asked although it would have to be."""

    policy: str
    binding: str
    message: str


@dataclass(frozen=True, slots=True)
class Invocations(Generic[P]):
    """What is asked of one request, in the order of the policies' names and of their bindings'."""

    asked: Asked
    namespace: Body | None
    each: Sequence[Invocation[P] | Unconfigured]


class PolicyInvocations(Generic[P]):
    """Finds the policies of one kind."""

    def __init__(
        self,
        policies: CompiledObjects[P],
        bindings: CompiledObjects[Binding],
        questions: AdmissionQuestions,
    ) -> None:
        self._policies = policies
        self._bindings = bindings
        self._questions = questions

    async def of(self, attributes: Attributes) -> Invocations[P] | None:
        """Those of a request, ``None`` where there can be none. Raises ``NotFound`` for a namespace that is not there."""
        if not concerns(attributes):
            return None
        policies = self._policies.known
        if policies is None:
            policies = await self._policies.all()
        if not policies:
            return None
        bindings = await self._bindings.all()
        asked = await self._questions.asked(attributes)
        bound: defaultdict[str, list[Binding]] = defaultdict(list)
        for binding in bindings.values():
            bound[binding.policy].append(binding)
        found: list[Invocation[P] | Unconfigured] = []
        for name, policy in policies.items():
            if bound[name]:
                found += await self._of(policy, bound[name], asked)
        if not found:
            return None
        return Invocations(asked, namespace_object(await self._questions.namespace(asked)), found)

    async def _of(self, policy: P, bindings: Sequence[Binding], asked: Asked) -> list[Invocation[P] | Unconfigured]:
        form = form_of(policy.matcher, asked)
        if form is None:
            return []
        if policy.param_kind is not None:
            try:
                await self._questions.param_resource(policy.param_kind)
            except UnusableParameters as error:
                why = Unconfigured(policy.name, "", f"failed to configure policy: {error}")
                return [why] if policy.fails else []
        found: list[Invocation[P] | Unconfigured] = []
        for binding in bindings:
            if binding.matcher.form_of(asked) is None:
                continue
            try:
                params = await self._questions.params(policy.param_kind, binding.param_ref, asked.namespace)
            except UnusableParameters as error:
                if policy.fails:
                    found.append(Unconfigured(policy.name, binding.name, f"failed to configure binding: {error}"))
                continue
            found += [Invocation(policy, binding, form, param) for param in params]
        return found
