"""Tenants, their members, quota, usage and policies."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.db.models import Count, Q, Sum
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from access.models import Credential
from audit.models import ApiRequest
from audit.recorder import Actor
from kube.status import Forbidden
from portal.api import serializers as shapes
from portal.api.endpoint import LIMIT, Endpoint, listed, page, window
from portal.api.permissions import api_actor, api_operator, require_tenant, token_tenant
from tenants import selectors, services
from tenants.models import Membership, Role, Tenant


class Tenants(Endpoint):
    """The collection."""

    filters = frozenset({"after", "limit", "search"})

    @extend_schema(
        operation_id="listTenants",
        summary="List tenants by name",
        parameters=[
            OpenApiParameter("after", str, description="The last name of the page before: follow `next`."),
            LIMIT,
            OpenApiParameter("search", str, description="The beginning of a name."),
        ],
        responses={200: listed(shapes.TenantAnswer)},
    )
    def get(self, request: Request) -> Response:
        """The caller's; operators see all."""
        after, limit = window(request)
        actor = api_actor(request)
        if token_tenant(request):
            return page(request, [selectors.tenant_visible_to(actor, token_tenant(request))], shapes.TenantAnswer)
        found = selectors.tenants_page(
            actor, search=request.query_params.get("search", ""), after=after[:63], limit=limit + 1
        )
        # The selector gives two hundred at most: a page of that size cannot see whether there is more.
        more = len(found) > limit or (limit == 200 and len(found) == 200)
        return page(request, found[:limit], shapes.TenantAnswer, found[limit - 1].name if more else "")

    @extend_schema(
        operation_id="createTenant",
        summary="Create a tenant with its space (operators)",
        request=shapes.TenantBody,
        responses={201: shapes.TenantAnswer},
    )
    def post(self, request: Request) -> Response:
        """One code path with kubectl, admin and pages (TS1)."""
        actor = api_operator(request)
        data = self.body(request, shapes.TenantBody)
        owner = selectors.user_by_email(data["owner"], field="owner") if data["owner"] else None
        made = services.tenant_create(actor=actor, name=data["name"], display_name=data["display_name"], owner=owner)
        return Response(
            shapes.TenantAnswer(made).data, status=201, headers={"Location": f"/api/v1/tenants/{made.name}/"}
        )


class OneTenant(Endpoint):
    """One of them."""

    @extend_schema(operation_id="getTenant", summary="Read a tenant", responses={200: shapes.TenantAnswer})
    def get(self, request: Request, name: str) -> Response:
        """Its state."""
        return Response(shapes.TenantAnswer(_visible(request, name)).data)

    @extend_schema(
        operation_id="deleteTenant",
        summary="Delete a tenant and everything in it (owners, operators)",
        request=None,
        responses={202: shapes.TenantAnswer},
    )
    def delete(self, request: Request, name: str) -> Response:
        """Closed at once; workers do the rest."""
        _visible(request, name)
        return Response(
            shapes.TenantAnswer(services.tenant_delete(actor=api_actor(request), name=name)).data, status=202
        )


class SuspendTenant(Endpoint):
    """Close a tenant."""

    @extend_schema(
        operation_id="suspendTenant",
        summary="Close a tenant and suspend its workspaces (operators)",
        request=shapes.ReasonBody,
        responses={200: shapes.TenantAnswer},
    )
    def post(self, request: Request, name: str) -> Response:
        """From this moment on."""
        _visible(request, name)
        actor = api_operator(request)
        reason = self.body(request, shapes.ReasonBody)["reason"]
        return Response(shapes.TenantAnswer(services.tenant_suspend(actor=actor, name=name, reason=reason)).data)


class ResumeTenant(Endpoint):
    """Open it again."""

    @extend_schema(
        operation_id="resumeTenant",
        summary="Open a tenant again (operators)",
        request=None,
        responses={200: shapes.TenantAnswer},
    )
    def post(self, request: Request, name: str) -> Response:
        """With the workspaces that were suspended with it."""
        _visible(request, name)
        return Response(shapes.TenantAnswer(services.tenant_resume(actor=api_operator(request), name=name)).data)


class Members(Endpoint):
    """Who is in a tenant."""

    @extend_schema(operation_id="listMembers", summary="List members", responses={200: listed(shapes.MemberAnswer)})
    def get(self, request: Request, name: str) -> Response:
        """Owners first."""
        _visible(request, name)
        return page(request, selectors.members_of(api_actor(request), name), shapes.MemberAnswer)

    @extend_schema(
        operation_id="setMember",
        summary="Add a member or change the role",
        request=shapes.MemberBody,
        responses={201: shapes.MemberAnswer},
    )
    def post(self, request: Request, name: str) -> Response:
        """By e-mail address; the account must exist."""
        _visible(request, name)
        actor = api_actor(request)
        if not selectors.may_manage(actor, name):
            # Before the address is looked up: members without the right learn nothing about accounts.
            raise Forbidden(f"This needs the role Admin in {name}.", kind="members")
        data = self.body(request, shapes.MemberBody)
        made = services.membership_set(
            actor=actor,
            tenant=name,
            user=selectors.user_by_email(data["email"], field="email"),
            role=Role(data["role"]),
        )
        return Response(shapes.MemberAnswer(made).data, status=201)


class OneMember(Endpoint):
    """One member."""

    @extend_schema(
        operation_id="changeMember",
        summary="Change a member's role",
        request=shapes.MemberRoleBody,
        responses={200: shapes.MemberAnswer},
    )
    def patch(self, request: Request, name: str, user_id: UUID) -> Response:
        """The last owner stays one."""
        _visible(request, name)
        member = selectors.member_of(api_actor(request), name, user_id)
        role = Role(self.body(request, shapes.MemberRoleBody)["role"])
        changed = services.membership_set(actor=api_actor(request), tenant=name, user=member, role=role)
        return Response(shapes.MemberAnswer(changed).data)

    @extend_schema(operation_id="removeMember", summary="Remove a member", request=None, responses={204: None})
    def delete(self, request: Request, name: str, user_id: UUID) -> Response:
        """Members may remove themselves."""
        _visible(request, name)
        member = selectors.member_of(api_actor(request), name, user_id)
        services.membership_remove(actor=api_actor(request), tenant=name, user=member)
        return Response(status=204)


class Quota(Endpoint):
    """What a tenant's workspaces may use."""

    @extend_schema(
        operation_id="getQuota", summary="Read the limits of a tenant's workspaces", responses={200: shapes.QuotaAnswer}
    )
    def get(self, request: Request, name: str) -> Response:
        """The first two hundred workspaces."""
        _visible(request, name)
        found = selectors.workspaces_page(api_actor(request), tenant=name, limit=200).rows
        rows = [{"id": row.pk, "name": row.name, "tier": row.tier_id, "hard": row.tier.quota} for row in found]
        return Response(shapes.QuotaAnswer({"workspaces": rows}).data)


class Usage(Endpoint):
    """What a tenant used (AD7)."""

    @extend_schema(operation_id="getUsage", summary="Read a tenant's usage", responses={200: shapes.UsageAnswer})
    def get(self, request: Request, name: str) -> Response:
        """Of the last 24 hours."""
        found = _visible(request, name)
        return Response(shapes.UsageAnswer(_usage(api_actor(request), found)).data)


def _usage(actor: Actor, tenant: Tenant) -> dict[str, int]:
    numbers = selectors.overview_of(actor, tenant=tenant.name)
    since = timezone.now() - timedelta(hours=24)
    requests = ApiRequest.objects.filter(tenant=tenant.name, created_at__gte=since).aggregate(
        all=Sum("count"), refused=Sum("count", filter=Q(allowed=False))
    )
    issued = Credential.objects.filter(workspace__tenant=tenant, issued_at__gte=since, failed_at=None).aggregate(
        all=Count("pk")
    )
    return {
        "workspaces": numbers.workspaces,
        "ready": numbers.ready,
        "suspended": numbers.suspended,
        "members": Membership.objects.filter(tenant=tenant).count(),
        "requests": requests["all"] or 0,
        "refused": requests["refused"] or 0,
        "credentials_issued": issued["all"],
    }


def _visible(request: Request, name: str) -> Tenant:
    require_tenant(request, name)
    return selectors.tenant_visible_to(api_actor(request), name)
