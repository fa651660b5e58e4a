"""Requests in the system space are what the ValidatingAdmissionPolicies there allow (TS15)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import orjson

from access.admission.base import Attributes, NoopPlugin
from access.admission.kubernetes.admissionquestions import AdmissionQuestions, UnusableParameters, concerns
from access.admission.kubernetes.compiledobjects import CompiledObjects
from kube.admissionpolicies.expressions import namespace_object
from kube.admissionpolicies.matching import Asked, Body, Form, NoNamespace
from kube.admissionpolicies.validating import Binding, Policy, Verdict, judge, refused
from kube.admissionpolicies.validating import Decision as Refusal
from kube.authorization.decisions import Decision
from kube.authorization.decisions import Verdict as Opinion
from kube.cel.authorizer import Hearing
from kube.requests.status import NotFound
from store.types import Operation

_FAILURE: Final = "validation.policy.admission.k8s.io/validation_failure"


class ValidatingAdmissionPolicy(NoopPlugin):
    """Kubernetes' plug-in of this name: the first refusal is the answer, after all policies have spoken."""

    name = "ValidatingAdmissionPolicy"

    def __init__(
        self, policies: CompiledObjects[Policy], bindings: CompiledObjects[Binding], questions: AdmissionQuestions
    ) -> None:
        self._policies = policies
        self._bindings = bindings
        self._questions = questions

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` with the reason and code of the first refusal."""
        if not concerns(attributes):
            return ()
        policies = self._policies.known
        if policies is None:
            policies = await self._policies.all()
        if not policies:
            return ()
        bindings = await self._bindings.all()
        asked = await self._questions.asked(attributes)
        bound: defaultdict[str, list[Binding]] = defaultdict(list)
        for binding in bindings.values():
            bound[binding.policy].append(binding)
        refusals: list[tuple[str, str, Refusal]] = []
        for name, policy in policies.items():
            if bound[name]:
                refusals += await self._judged(policy, bound[name], asked, attributes)
        if refusals:
            raise refused(asked, *refusals[0])
        return ()

    async def _judged(
        self, policy: Policy, bindings: Sequence[Binding], asked: Asked, attributes: Attributes
    ) -> list[tuple[str, str, Refusal]]:
        try:
            form = policy.matcher.form_of(asked)
        except NoNamespace:
            raise NotFound(
                f'namespaces "{asked.namespace}" not found', kind="namespaces", name=asked.namespace
            ) from None
        if form is None:
            return []
        if policy.param_kind is not None:
            try:
                await self._questions.param_resource(policy.param_kind)
            except UnusableParameters as error:
                why = Refusal(0, f"failed to configure policy: {error}")
                return [(policy.name, "", why)] if policy.fails else []
        namespace = namespace_object(await self._questions.namespace(asked))
        refusals: list[tuple[str, str, Refusal]] = []
        published: defaultdict[str, list[str]] = defaultdict(list)
        for binding in bindings:
            if binding.matcher.form_of(asked) is None:
                continue
            try:
                params = await self._questions.params(policy.param_kind, binding.param_ref, asked.namespace)
            except UnusableParameters as error:
                if policy.fails:
                    refusals.append((policy.name, binding.name, Refusal(0, f"failed to configure binding: {error}")))
                continue
            for param in params:
                verdict = await self._verdict(policy, asked, form, param, namespace, attributes)
                for refusal in verdict.refusals:
                    if "Deny" in binding.actions:
                        refusals.append((policy.name, binding.name, refusal))
                    self._tell(policy, binding, refusal, attributes)
                for key, value in verdict.annotations:
                    if value not in published[key]:
                        published[key].append(value)
                refusals += [(policy.name, binding.name, Refusal(0, error)) for error in verdict.errors]
        for key, values in published.items():
            self._note(attributes, ", ".join(values), f"{policy.name}/{key}")
        return refusals

    async def _verdict(
        self,
        policy: Policy,
        asked: Asked,
        form: Form,
        param: Body | None,
        namespace: Body | None,
        attributes: Attributes,
    ) -> Verdict:
        hearing = Hearing()
        while True:
            verdict = judge(policy, asked, form, param, namespace, hearing)
            # Others get a turn between any two policies: each is bounded, all together are not.
            await asyncio.sleep(0)
            if not hearing.open:
                return verdict
            for question in hearing.open:
                hearing.answers[question] = await self._questions.answer(question, attributes)
            hearing.open.clear()

    def _tell(self, policy: Policy, binding: Binding, refusal: Refusal, attributes: Attributes) -> None:
        if "Warn" in binding.actions:
            attributes.warnings.append(
                f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}': "
                f"{refusal.message}"
            )
        if "Audit" in binding.actions:
            failure = {
                "message": refusal.message,
                "policy": policy.name,
                "binding": binding.name,
                "expressionIndex": refusal.index,
                "validationActions": list(binding.actions),
            }
            self._note(attributes, orjson.dumps([failure]).decode(), _FAILURE)

    def _note(self, attributes: Attributes, text: str, annotation: str) -> None:
        """What kube-apiserver's audit has as annotation of the event."""
        attributes.notes.append(Decision(Opinion.NO_OPINION, f"admission/{self.name}", text, annotation))
