"""Requests in the system space are what the ValidatingAdmissionPolicies there allow (TS15)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import orjson

from access.admission.base import Attributes, NoopPlugin
from access.admission.dynamic.policyinvocations import Invocation, Invocations, PolicyInvocations, Unconfigured
from access.admission.dynamic.questions import AdmissionQuestions
from kube.admissionpolicies.policies import Binding
from kube.admissionpolicies.validating import Decision as Refusal
from kube.admissionpolicies.validating import Policy, Verdict, judge, refused
from kube.authorization.decisions import Decision
from kube.authorization.decisions import Verdict as Opinion
from store.types import Operation

_FAILURE: Final = "validation.policy.admission.k8s.io/validation_failure"


class ValidatingAdmissionPolicy(NoopPlugin):
    """Kubernetes' plug-in of this name: the first refusal is the answer, after all policies have spoken."""

    name = "ValidatingAdmissionPolicy"
    system_only = True

    def __init__(self, invocations: PolicyInvocations[Policy], questions: AdmissionQuestions) -> None:
        self._invocations = invocations
        self._questions = questions

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` with the reason and code of the first refusal."""
        found = await self._invocations.of(attributes)
        if found is None:
            return ()
        refusals: list[tuple[str, str, Refusal]] = []
        published: defaultdict[str, list[str]] = defaultdict(list)
        for each in found.each:
            if isinstance(each, Unconfigured):
                refusals.append((each.policy, each.binding, Refusal(0, each.message)))
                continue
            policy, binding = each.policy, each.binding
            verdict = await self._verdict(each, found, attributes)
            for refusal in verdict.refusals:
                if "Deny" in binding.actions:
                    refusals.append((policy.name, binding.name, refusal))
                self._tell(policy, binding, refusal, attributes)
            for key, value in verdict.annotations:
                values = published[f"{policy.name}/{key}"]
                if value not in values:
                    values.append(value)
            refusals += [(policy.name, binding.name, Refusal(0, error)) for error in verdict.errors]
        for annotation, values in published.items():
            self._note(attributes, ", ".join(values), annotation)
        if refusals:
            raise refused(found.asked, *refusals[0])
        return ()

    async def _verdict(self, each: Invocation[Policy], found: Invocations[Policy], attributes: Attributes) -> Verdict:
        # Others get a turn between any two policies: each is bounded, all together are not.
        await asyncio.sleep(0)
        return await self._questions.heard(
            lambda hearing: judge(each.policy, found.asked, each.form, each.params, found.namespace, hearing),
            attributes,
        )

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
