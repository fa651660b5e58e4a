"""The admission of an API server, in its order: for the server itself, and for who asks what it would say (AZ11)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from access.admission import choice
from access.admission.base import Attributes, Plugin
from access.admission.chain import AdmissionChain
from access.admission.configuration import AdmissionConfiguration
from access.admission.dynamic.compiledobjects import CompiledObjects
from access.admission.dynamic.mutatingadmissionpolicy import MutatingAdmissionPolicy
from access.admission.dynamic.outsidechanges import internal
from access.admission.dynamic.policyinvocations import PolicyInvocations
from access.admission.dynamic.questions import AdmissionQuestions
from access.admission.dynamic.validatingadmissionpolicy import ValidatingAdmissionPolicy
from access.admission.dynamic.webhooks import (
    MutatingAdmissionWebhook,
    ValidatingAdmissionWebhook,
    WebhookCaller,
)
from access.admission.kubernetes.certificaterequests import CertificateRequests, CertificateSigners
from access.admission.kubernetes.customresourcedefinitions import CustomResourceDefinitions
from access.admission.kubernetes.defaultclasses import INGRESS, STORAGE, DefaultClass
from access.admission.kubernetes.defaulttolerationseconds import DefaultTolerationSeconds
from access.admission.kubernetes.escalation import EscalationPrevention
from access.admission.kubernetes.limitranger import LimitRanger
from access.admission.kubernetes.namespacelifecycle import NamespaceLifecycle
from access.admission.kubernetes.noderestriction import NodeRestriction
from access.admission.kubernetes.persistentvolumeclaimresize import PersistentVolumeClaimResize
from access.admission.kubernetes.podsecurity import PodSecurity
from access.admission.kubernetes.podtopologylabels import PodTopologyLabels
from access.admission.kubernetes.priorityandruntimeclass import PriorityAndRuntimeClass
from access.admission.kubernetes.resourcequota import ResourceQuota
from access.admission.kubernetes.serviceaccount import ServiceAccount
from access.admission.kubernetes.strategies import Strategies
from access.admission.kubernetes.validation import ObjectValidation
from access.admission.quotarefusals import NamespaceQuotas
from access.admission.tenancy.apibindings import ApiBindings
from access.admission.tenancy.hostclaims import Elsewhere, HostClaims, HostOwnership
from access.admission.tenancy.placedquota import ClusterQuotaAdmission, PlacedQuotas
from access.admission.tenancy.publishedobjects import PublishedObjects
from access.admission.tenancy.reservedmetadata import ReservedMetadata
from access.admission.tenancy.storedbytes import StoredBytes
from access.admission.tenancy.tenantlifecycle import TenantLifecycle
from access.admission.tenancy.tenantpolicies import TenantPolicies, TenantPolicyAdmission
from access.admission.tenancy.tenantquota import TenantQuotaAdmission
from access.admission.tenancy.tenantreferences import TenantReferences
from access.admission.tenancy.tenantscope import TenantScope
from access.admission.tenancy.workspacelifecycle import WorkspaceLifecycle
from access.admission.tenancy.workspaceobjectprotection import WorkspaceObjectProtection
from access.admission.tenancy.workspaces import WorkspaceTree
from access.authorization.build import Authorization
from gateway.http.messages import LARGE
from gateway.process.keyedlocks import KeyedLocks
from gateway.resources.kinds import Catalogs, Kind, definitions
from gateway.upstream.placed.hosts import UNDERWAY_SECONDS
from kube.admissionpolicies import validating, webhooks
from kube.admissionpolicies.matching import (
    BINDINGS,
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    MUTATING_WEBHOOKS,
    POLICIES,
    VALIDATING_WEBHOOKS,
    Form,
)
from kube.admissionpolicies.mutating import MutatingPolicy
from kube.admissionpolicies.policies import Binding
from kube.customresources.schemas import with_defaults
from kube.customresources.validation import without_nulls
from kube.kinds.mergestrategies import DEDUCED, Structure
from kube.kinds.resources import Catalog
from kube.objects import fieldvalidation
from kube.objects.defaults import fill_defaults
from kube.requests.logicalclusters import ROOT
from store.interface import Store
from store.types import Event, Key, Room


def completed(attributes: Attributes, body: dict[str, Any], *, strict: bool = False) -> dict[str, Any]:
    """An object that somebody outside has changed, as its kind has it: decoded, with defaults. Raises ``StatusError``."""
    schema, resource = attributes.schema, attributes.resource
    if schema is None:
        return body
    if resource.custom:
        return dict(without_nulls(schema, with_defaults(fieldvalidation.prune(body, schema).value, schema, LARGE)))
    try:
        decoded = fieldvalidation.decode_fields(body, schema, kind=resource.kind, version=attributes.info.version)
    except fieldvalidation.DecodeError as error:
        raise internal(error.problem) if strict else error from None
    if strict and decoded.unknown:
        raise internal(fieldvalidation.strict_decoding_error(fieldvalidation.problems(decoded.unknown, ())))
    filled: dict[str, Any] = decoded.value
    fill_defaults(filled)
    return filled


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The chains, and what of them others ask as well.

    ``stored`` is for writes to the store; ``placed`` for what clusters ask about, where what is theirs to decide
    (defaults, validation, limits) has been decided; ``placed_namespaces`` for the Namespaces there. ``parts`` is for what
    is asked of an object and not kept: connections and tokens.
    """

    stored: AdmissionChain
    placed: AdmissionChain
    placed_namespaces: AdmissionChain
    parts: AdmissionChain
    quotas: ResourceQuota
    tenant_quotas: TenantQuotaAdmission
    placed_quotas: PlacedQuotas
    policies: TenantPolicies
    claims: HostClaims
    compiled: Sequence[CompiledObjects[Any]]
    webhooks: WebhookCaller

    @property
    def resources(self) -> Sequence[tuple[str, str]]:
        """What ``on_events`` looks at."""
        return [each.resource for each in self.compiled]

    def on_events(self, events: Sequence[Event]) -> None:
        """Keep what is compiled of policies right; called by the store with every batch of its log."""
        for each in self.compiled:
            each.on_events(events)

    def forget(self) -> None:
        """Look again at what policies there are."""
        for each in self.compiled:
            each.forget()


def build_admission(
    store: Store,
    authorization: Authorization,
    configured: AdmissionConfiguration,
    *,
    catalogs: Catalogs,
    ensure: Callable[[str], Awaitable[None]],
    locks: KeyedLocks,
    namespace_quotas: NamespaceQuotas,
    hosts: Elsewhere,
    room: Callable[[Key], Awaitable[Room | None]],
    workspace_depth: int,
    disabled: Sequence[str] = (),
) -> Admission:
    """The admission on a store.

    ``ensure`` makes the catalog of a logical cluster whole; ``namespace_quotas`` and ``hosts`` look into placed
    namespaces; ``room`` tells what a tenant's objects may take; ``disabled`` are the plug-ins of Kubernetes that are switched off.
    """

    def namespaced(cluster: str) -> Sequence[tuple[str, str, str]]:
        found = {(*r.storage_key, r.place[1]) for r in catalogs.of(cluster) if r.namespaced and r.persistent}
        return sorted(found)

    async def served(cluster: str) -> Sequence[tuple[str, str, str]]:
        await ensure(cluster)
        return sorted({(*r.storage_key, r.place[1]) for r in catalogs.of(cluster) if r.persistent})

    quotas = ResourceQuota(store, namespaced, locks.line_up)
    rules = configured.tenant_quota.rules
    tenant_quotas = TenantQuotaAdmission(store, served, rules, locks.line_up_tenant)
    placed_quotas = PlacedQuotas(store, rules, namespace_quotas, tenant_quotas.count, turns=locks.of_tenant_quota)
    policies, claims = TenantPolicies(store, configured.tenant_policy), HostClaims(store, hosts, configured.host_names)

    async def catalog() -> Catalog:
        await ensure(ROOT)
        return catalogs.of(ROOT)

    questions = AdmissionQuestions(store, authorization.chain, catalog)

    async def structure(form: Form) -> Structure:
        resource = (await catalog()).find(form.group, form.version, form.plural)
        version = resource and resource.version(form.version)
        return Kind(resource, version).structure if resource and version else DEDUCED

    changing = CompiledObjects(store, MUTATING_POLICIES, MutatingPolicy.read)
    changing_bindings = CompiledObjects(store, MUTATING_BINDINGS, Binding.read)
    mutating_policies = MutatingAdmissionPolicy(
        PolicyInvocations(changing, changing_bindings, questions), questions, structure, completed
    )
    judging = CompiledObjects(store, POLICIES, validating.Policy.read)
    judging_bindings = CompiledObjects(store, BINDINGS, Binding.read)
    validating_policies = ValidatingAdmissionPolicy(PolicyInvocations(judging, judging_bindings, questions), questions)
    asked = [
        CompiledObjects(store, plural, webhooks.webhooks_of) for plural in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
    ]
    caller = WebhookCaller(questions)
    mutating_webhooks = MutatingAdmissionWebhook(asked[0], questions, caller, completed)
    validating_webhooks = ValidatingAdmissionWebhook(asked[1], questions, caller)
    # What changes objects first, then what judges them; quotas last, when nothing else can refuse.
    plugins: list[Plugin] = [
        ReservedMetadata(),
        PublishedObjects(authorization.chain, store, served),
        TenantScope(configured.refused_to_tenants),
        TenantLifecycle(store),
        TenantReferences(store),
        CertificateRequests(),
        WorkspaceTree(store, authorization.workspaces, workspace_depth),
        ApiBindings(store, authorization.workspaces, definitions),
        ServiceAccount(store),
        DefaultTolerationSeconds(),
        PriorityAndRuntimeClass(store),
        DefaultClass(store, STORAGE),
        DefaultClass(store, INGRESS),
        PodTopologyLabels(store),
        PersistentVolumeClaimResize(store),
        LimitRanger(store),
        mutating_policies,
        mutating_webhooks,
        Strategies(),
        CustomResourceDefinitions(store, definitions),
        ObjectValidation(definitions),
        EscalationPrevention(authorization.policies, authorization.chain),
        CertificateSigners(authorization.chain),
        NodeRestriction(store),
        WorkspaceObjectProtection(),
        NamespaceLifecycle(store),
        WorkspaceLifecycle(store),
        PodSecurity(store, configured.pod_security),
        TenantPolicyAdmission(policies),
        HostOwnership(claims),
        StoredBytes(store, room),
        validating_policies,
        validating_webhooks,
        quotas,
        tenant_quotas,
    ]
    ownership = WorkspaceObjectProtection(lambda _: True)
    placed: list[Plugin] = [
        TenantScope(configured.refused_to_tenants),
        ownership,
        TenantPolicyAdmission(policies),
        HostOwnership(claims, underway=UNDERWAY_SECONDS),
        ClusterQuotaAdmission(placed_quotas, locks.line_up_tenant),
    ]
    return Admission(
        stored=AdmissionChain(choice.chosen(plugins, disabled)),
        placed=AdmissionChain(placed),
        placed_namespaces=AdmissionChain([ownership]),
        parts=AdmissionChain(
            choice.chosen([mutating_policies, mutating_webhooks, validating_policies, validating_webhooks], disabled)
        ),
        quotas=quotas,
        tenant_quotas=tenant_quotas,
        placed_quotas=placed_quotas,
        policies=policies,
        claims=claims,
        compiled=(changing, changing_bindings, judging, judging_bindings, *asked),
        webhooks=caller,
    )
