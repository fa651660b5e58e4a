"""Objects in the system space are what the MutatingAdmissionPolicies there make of them (TS15)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from access.admission.base import Attributes, NoopPlugin
from access.admission.dynamic.outsidechanges import Completed, change
from access.admission.dynamic.policyinvocations import Invocation, Invocations, PolicyInvocations, Unconfigured
from access.admission.dynamic.questions import AdmissionQuestions
from kube.admissionpolicies.expressions import EvaluationError
from kube.admissionpolicies.matching import Form
from kube.admissionpolicies.mutating import (
    Failure,
    MutatingPolicy,
    Mutation,
    MutationError,
    applied,
    made,
    patched,
    refused,
)
from kube.kinds.mergestrategies import DEDUCED, Structure

_Mark = tuple[str, str, str]


class MutatingAdmissionPolicy(NoopPlugin):
    """Kubernetes' plug-in of this name: one policy after the other, each about what those before it have made."""

    name = "MutatingAdmissionPolicy"
    system_only = True

    def __init__(
        self,
        invocations: PolicyInvocations[MutatingPolicy],
        questions: AdmissionQuestions,
        structures: Callable[[Form], Awaitable[Structure]],
        completed: Completed,
    ) -> None:
        self._invocations = invocations
        self._questions = questions
        self._structures = structures
        self._completed = completed

    async def admit(self, attributes: Attributes) -> None:
        """Change the object as policies say. Raises ``Forbidden`` with the first reason why that cannot be."""
        found = await self._invocations.of(attributes)
        if found is None:
            return
        turns = attributes.turns_of(self.name)
        turns.begin(found.asked.object)
        unconfigured: list[Failure] = []
        failures: list[Failure] = []
        for each in found.each:
            if isinstance(each, Unconfigured):
                unconfigured.append(Failure(each.policy, each.binding, each.message, evaluated=False))
                continue
            mark = _mark(each)
            try:
                if not await self._is_asked(each, found, attributes):
                    continue
            except EvaluationError as error:
                failures.append(Failure(each.policy.name, each.binding.name, str(error)))
                continue
            if attributes.round and mark not in turns.again:
                continue
            errors = await self._mutated(each, found, attributes)
            if each.policy.fails:
                failures += [Failure(each.policy.name, each.binding.name, error) for error in errors]
            if each.policy.reinvoked:
                turns.invoked.add(mark)
        if attributes.changed:
            turns.again |= turns.invoked
        turns.end(found.asked.object)
        failures = unconfigured + failures
        if failures:
            raise refused(found.asked, failures)

    async def _is_asked(
        self, each: Invocation[MutatingPolicy], found: Invocations[MutatingPolicy], attributes: Attributes
    ) -> bool:
        return await self._questions.heard(
            lambda hearing: each.policy.is_asked(found.asked, each.form, each.params, hearing), attributes
        )

    async def _mutated(
        self, each: Invocation[MutatingPolicy], found: Invocations[MutatingPolicy], attributes: Attributes
    ) -> list[str]:
        """Make the changes of one invocation; a later one goes on where an earlier one could not be made."""
        errors: list[str] = []
        for mutation in each.policy.mutations:
            # Others get a turn between any two expressions: each is bounded, all together are not.
            await asyncio.sleep(0)
            try:
                changed = await self._changed(each, mutation, found, attributes)
            except MutationError as error:
                errors.append(str(error))
                continue
            if changed:
                attributes.changed = True
                turns = attributes.turns_of(self.name)
                turns.again |= turns.invoked
        return errors

    async def _changed(
        self,
        each: Invocation[MutatingPolicy],
        mutation: Mutation,
        found: Invocations[MutatingPolicy],
        attributes: Attributes,
    ) -> bool:
        asked = found.asked
        if asked.object is None:
            return False
        value: Any = await self._questions.heard(
            lambda hearing: made(each.policy, mutation, asked, each.form, each.params, found.namespace, hearing),
            attributes,
        )
        live = asked.in_form(asked.object, each.form)
        if mutation.is_patch:
            result = patched(live, value)
        else:
            structure = await self._structures(each.form) if attributes.sent is None else DEDUCED
            result = applied(structure, live, value)
        if result is live:
            return False
        by = f'MutatingAdmissionPolicy "{each.policy.name}"'
        return change(attributes, asked, result, self._completed, by=by, strict=mutation.is_patch)


def _mark(each: Invocation[MutatingPolicy]) -> _Mark:
    metadata = (each.params or {}).get("metadata") or {}
    params = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    return each.policy.name, each.binding.name, params
