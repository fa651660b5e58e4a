"""Pods keep to the standards that their namespace's labels name, as kube-apiserver's PodSecurity plugin sees to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from access.admission.base import CREATE, DELETE, UPDATE, Attributes, NoopPlugin
from kube.authorization.decisions import Decision, Verdict
from kube.objects.podtemplates import TEMPLATES, pod_of
from kube.podsecurity.checks import Violation
from kube.podsecurity.configuration import PodSecurityConfiguration
from kube.podsecurity.evaluation import is_significant, told, violations, warnings_about
from kube.podsecurity.levels import PodPolicy, Standard, labelled_modes, policy_of
from kube.requests.fielderrors import invalid_object, together
from kube.requests.logicalclusters import ROOT
from kube.requests.status import Cause
from store.interface import Store
from store.pace import Pace
from store.types import Check, Key, Operation, Range, Stored

_ANNOTATIONS: Final = "pod-security.kubernetes.io/"
_NAMESPACES: Final = ("", "namespaces")
_PODS: Final = ("", "pods")
_JUDGED: Final = frozenset({"", "ephemeralcontainers", "resize"})
"""Subresources by which a pod can become another."""

_PODS_MAX: Final = 3000
_KNOWN_MAX: Final = 4096


class PodSecurity(NoopPlugin):
    """Refuses pods, and warns of workloads, that a namespace's labels forbid; judges those labels.

    The namespace's revision is held in the same transaction, so that a pod and a stricter label cannot pass each other.
    """

    name = "PodSecurity"
    kinds = frozenset({_NAMESPACES, *((group, f"{kind.lower()}s") for group, kind in TEMPLATES)})

    def __init__(self, store: Store, configuration: PodSecurityConfiguration) -> None:
        self._store = store
        self._configuration = configuration
        self._known: dict[Key, tuple[int, PodPolicy, Sequence[Cause]]] = {}
        """What namespaces ask for, and at which of their revisions: they change seldom, and each new pod asks."""

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` for a pod, ``Invalid`` for labels, in kube-apiserver's words."""
        if attributes.operation == DELETE or attributes.object is None:
            return ()
        if attributes.place == _NAMESPACES:
            await self._judge_namespace(attributes, attributes.object)
        elif (attributes.resource.group, attributes.resource.kind) in TEMPLATES:
            return await self._judge_pods(attributes, attributes.object)
        return ()

    async def _judge_namespace(self, attributes: Attributes, body: dict[str, Any]) -> None:
        if attributes.subresource:
            return
        policy, causes = self._policy(body)
        if attributes.operation == CREATE:
            self._refuse(attributes, causes)
        elif attributes.operation == UPDATE and attributes.old is not None:
            before, known = self._policy(attributes.old)
            if causes != known:
                self._refuse(attributes, causes)
            enforced = policy.enforce
            if enforced == before.enforce or not enforced.level:
                return
            if enforced.minor == before.enforce.minor and enforced.level <= before.enforce.level:
                return
        if self._exempts_namespace(attributes, attributes.name):
            attributes.warnings.extend(self._ignored(attributes.name, policy, body))
        elif attributes.operation == UPDATE:
            await self._warn(attributes, policy.enforce)

    async def _warn(self, attributes: Attributes, enforced: Standard) -> None:
        """Tell of pods that are there already; of more than that, nobody waits for all to be looked at."""
        pods = (await self._store.list(Range(attributes.cluster, "", "pods", attributes.name))).items
        judged: dict[str, Sequence[Violation]] = {}
        async for stored in Pace().over(pods[:_PODS_MAX]):
            pod = orjson.loads(stored.data)
            spec = pod.get("spec") or {}
            if not self._configuration.exempts_class(spec):
                judged[stored.key.name] = violations(enforced, pod.get("metadata") or {}, spec)
        attributes.warnings += warnings_about(judged, attributes.name, enforced, first=_PODS_MAX, of=len(pods))

    @staticmethod
    def _refuse(attributes: Attributes, causes: Sequence[Cause]) -> None:
        if causes:
            raise invalid_object("", "Namespace", attributes.name, causes)

    def _ignored(self, name: str, policy: PodPolicy, body: Mapping[str, Any]) -> Sequence[str]:
        if policy.is_privileged or policy.means(self._configuration.defaults):
            return ()
        labelled = labelled_modes(_labels(body))
        standards = {"enforce": policy.enforce, "audit": policy.audit, "warn": policy.warn}
        said = ", ".join(f"{mode}={standards[mode]}" for mode in labelled if standards[mode].level)
        return (f'namespace "{name}" is exempt from Pod Security, and the policy ({said}) will be ignored',)

    async def _judge_pods(self, attributes: Attributes, body: dict[str, Any]) -> Sequence[Operation]:
        is_pod = attributes.place == _PODS
        if attributes.subresource not in (_JUDGED if is_pod else {""}):
            return ()
        exempted = self._exemption(attributes)
        if exempted:
            self._note(attributes, "exempt", exempted)
            return ()
        key = Key(attributes.cluster, "", "namespaces", "", attributes.namespace)
        stored = await self._store.get(key, cached=True) or await self._store.get(key)
        noted = len(attributes.notes)
        refusal = self._judge(attributes, stored, body, is_pod=is_pod)
        if refusal:
            newest = await self._store.get(key)
            if newest is None or stored is None or newest.revision != stored.revision:
                del attributes.notes[noted:]
                stored, refusal = newest, self._judge(attributes, newest, body, is_pod=is_pod)
        if refusal:
            raise attributes.forbidden(refusal)
        if stored is None or not is_pod or not _is_judged(attributes, body):
            return ()
        return (Check(key, stored.revision),)

    def _judge(self, attributes: Attributes, stored: Stored | None, body: Mapping[str, Any], *, is_pod: bool) -> str:
        """Why a pod is refused, or nothing; notes and warnings are made on the way, in kube-apiserver's order."""
        if stored is None:
            return ""  # Which is refused as such.
        policy, causes = self._policy_in_force(stored)
        if not causes and policy.is_privileged:
            # As there: whichever version the labels name.
            self._note(attributes, "enforce-policy", str(Standard()) if is_pod else "")
            return ""
        pod = pod_of(attributes.resource.group, attributes.resource.kind, body)
        is_told = is_pod or causes or policy.audit.level or policy.warn.level
        if pod is None or not is_told or (is_pod and not _is_judged(attributes, body)):
            return ""
        asked = (pod.get("metadata") or {}), (pod.get("spec") or {})
        if self._configuration.exempts_class(asked[1]):
            self._note(attributes, "exempt", "runtimeClass")
            return ""
        if causes:
            self._note(attributes, "error", f"Failed to parse policy: {together(causes)}")
        if is_pod:
            self._note(attributes, "enforce-policy", str(policy.enforce))
            enforced = violations(policy.enforce, *asked)
        else:
            enforced = []
        audited = violations(policy.audit, *asked)
        if audited:
            self._note(attributes, "audit-violations", f'would violate PodSecurity "{policy.audit}": {told(audited)}')
        if enforced:
            return f'violates PodSecurity "{policy.enforce}": {told(enforced)}'
        warned = violations(policy.warn, *asked)
        if warned:
            attributes.warnings.append(f'would violate PodSecurity "{policy.warn}": {told(warned)}')
        return ""

    def _policy_in_force(self, namespace: Stored) -> tuple[PodPolicy, Sequence[Cause]]:
        known = self._known.get(namespace.key)
        if known is None or known[0] != namespace.revision:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            known = namespace.revision, *self._policy(orjson.loads(namespace.data))
            self._known[namespace.key] = known
        return known[1:]

    def _policy(self, namespace: Mapping[str, Any]) -> tuple[PodPolicy, list[Cause]]:
        return policy_of(_labels(namespace), self._configuration.defaults)

    def _exempts_namespace(self, attributes: Attributes, name: str) -> bool:
        """Names are exempt in the system space alone: in its own, a tenant may call a namespace as it likes."""
        return attributes.cluster == ROOT and name in self._configuration.namespaces

    def _exemption(self, attributes: Attributes) -> str:
        if self._exempts_namespace(attributes, attributes.namespace):
            return "namespace"
        is_free = attributes.principal.is_system and attributes.principal.name in self._configuration.usernames
        return "user" if is_free else ""

    def _note(self, attributes: Attributes, annotation: str, text: str) -> None:
        """What kube-apiserver's audit has as annotation of the event."""
        if text:
            note = Decision(Verdict.NO_OPINION, f"admission/{self.name}", text, _ANNOTATIONS + annotation)
            attributes.notes.append(note)


def _labels(body: Mapping[str, Any]) -> Mapping[str, str]:
    return (body.get("metadata") or {}).get("labels") or {}


def _is_judged(attributes: Attributes, pod: Mapping[str, Any]) -> bool:
    """Whether a pod is new, or becomes another one."""
    return attributes.old is None or is_significant(pod, attributes.old)
