"""What the objects of a tenant may be: its own rules, and those of its tiers (AD4, AD5)."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from access.policytrials import tenant_policies_try, tier_policies_try
from kube.policies.policy import as_document, rules_of
from portal.api.endpoint import Endpoint
from portal.api.permissions import api_actor, api_operator, require_tenant
from portal.api.serializers.policies import PoliciesRequest, TenantPoliciesSerializer, TrialSerializer
from tenants import selectors, services
from tenants.models import Tenant
from tenants.policies import policies_enforced, policy_for
from tenants.rights import tenant_locked


class TenantPolicies(Endpoint):
    """A tenant's own rules, in place of those of its tiers."""

    conditional = True
    settable = ("policies",)

    @extend_schema(
        operation_id="getTenantPolicies",
        summary="Read what the objects of a tenant may be",
        responses={200: TenantPoliciesSerializer},
    )
    def get(self, request: Request, name: str) -> Response:
        """The tenant's own rules, and what holds in the namespaces of each of its tiers."""
        require_tenant(request, name)
        return Response(_shown(selectors.tenant_visible_to(api_actor(request), name)))

    @extend_schema(
        operation_id="setTenantPolicies",
        summary="Change what the objects of a tenant may be (operators)",
        description="All rules at once; a rule that is left out is as the tiers say. What is there already stays, and "
        "may be changed as long as it breaks no rule more than before.",
        request=PoliciesRequest,
        responses={200: TenantPoliciesSerializer},
    )
    def put(self, request: Request, name: str) -> Response:
        """Holds from the answer on."""
        require_tenant(request, name)
        selectors.tenant_visible_to(api_actor(request), name)
        wanted = self.validated_body(request, PoliciesRequest)["policies"]
        actor = api_operator(request)
        with self.unchanged_since(request, lambda: tenant_locked(name)):
            changed = services.tenant_policies_change(actor=actor, name=name, policies=wanted)
        return Response(_shown(changed))


class TenantPoliciesTrial(Endpoint):
    """A tenant's own rules, tried first."""

    @extend_schema(
        operation_id="tryTenantPolicies",
        summary="Which objects a tenant's own rules would refuse, before they are saved (operators)",
        request=PoliciesRequest,
        responses={200: TrialSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """In stored and placed namespaces; nothing is kept."""
        require_tenant(request, name)
        selectors.tenant_visible_to(api_actor(request), name)
        wanted = self.validated_body(request, PoliciesRequest)["policies"]
        return Response(
            TrialSerializer(tenant_policies_try(actor=api_operator(request), name=name, policies=wanted)).data
        )


class TierPoliciesTrial(Endpoint):
    """A tier's rules, tried first."""

    @extend_schema(
        operation_id="tryTierPolicies",
        summary="Which objects a tier's rules would refuse, before they are saved (operators)",
        request=PoliciesRequest,
        responses={200: TrialSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """In all namespaces of the tier; nothing is kept."""
        wanted = self.validated_body(request, PoliciesRequest)["policies"]
        return Response(
            TrialSerializer(tier_policies_try(actor=api_operator(request), name=name, policies=wanted)).data
        )


def _shown(tenant: Tenant) -> dict[str, Any]:
    tiers = [None, *selectors.tiers_of(tenant)]
    effective = [
        {"tier": tier.name if tier else "", "policies": as_document(rules_of(policy_for(tenant, tier)))}
        for tier in tiers
    ]
    clusters = policies_enforced(tenant, timezone.now())
    answer = {"policies": tenant.policies, "effective": effective, "clusters": clusters}
    shown: dict[str, Any] = TenantPoliciesSerializer(answer).data
    return shown
