"""Tenants, their members, quota, usage and policies."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Q, Sum
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from access.credentials import credential_revoke, tenant_kubeconfig_issue
from access.credentials.selectors import credential_visible_to, credentials_of_tenant
from access.models import Credential
from audit.models import ApiRequest
from audit.recorder import Actor
from kube.requests.status import BadRequest, NotFound
from portal.api.endpoint import (
    AFTER,
    LIMIT,
    Endpoint,
    choice_parameter,
    created_response,
    page_parameters,
    page_schema,
    paginated_response,
    secret_response,
)
from portal.api.permissions import api_actor, api_operator, require_tenant, require_unbound, token_tenant
from portal.api.serializers.base import SuspendRequest
from portal.api.serializers.tenants import (
    MemberChangeRequest,
    MemberCreateRequest,
    MemberSerializer,
    MembershipSerializer,
    QuotaChangeRequest,
    QuotaSerializer,
    TenantChangeRequest,
    TenantCreateRequest,
    TenantSerializer,
    UsageSerializer,
)
from portal.api.serializers.workspaces import (
    CredentialSerializer,
    IssuedTenantKubeconfigSerializer,
    TenantKubeconfigRequest,
)
from portal.http.actors import person_named
from tenants import selectors, services
from tenants.models import Membership, Role, Tenant, TenantState
from tenants.quotas import placed_use, stored_use, tenant_quota
from tenants.rights import require_lasting_role, tenant_locked


class TenantList(Endpoint):
    """The caller's tenants."""

    query_parameters = frozenset({"after", "limit", "search", "managed_by", "state", "order"})

    @extend_schema(
        operation_id="listTenants",
        summary="List tenants by name",
        parameters=[
            OpenApiParameter("after", str, description="The last name of the page before: follow `next`."),
            LIMIT,
            OpenApiParameter("search", str, description="Any part of a name."),
            OpenApiParameter("managed_by", str, description="The declaration that made them."),
            OpenApiParameter("state", str, enum=TenantState.values),
            OpenApiParameter("order", str, enum=["name", "-name"]),
        ],
        responses={200: page_schema(TenantSerializer)},
    )
    def get(self, request: Request) -> Response:
        """The caller's; operators see all."""
        after, limit = page_parameters(request)
        actor = api_actor(request)
        query = request.query_params
        found = selectors.tenants_page(
            actor,
            name=token_tenant(request),
            search=query.get("search", ""),
            managed_by=query.get("managed_by", "")[:63],
            state=choice_parameter(request, "state", TenantState.values),
            descending=choice_parameter(request, "order", ("name", "-name")) == "-name",
            after=after[:63],
            limit=limit + 1,
        )
        # The selector gives two hundred at most: a page of that size cannot see whether there is more.
        more = len(found) > limit or (limit == 200 and len(found) == 200)
        return paginated_response(request, found[:limit], TenantSerializer, found[limit - 1].name if more else "")

    @extend_schema(
        operation_id="createTenant",
        summary="Create a tenant with its space (operators)",
        request=TenantCreateRequest,
        responses={201: TenantSerializer},
    )
    def post(self, request: Request) -> Response:
        """One code path with kubectl, admin and pages (TS1)."""
        actor = api_operator(request)
        data = self.validated_body(request, TenantCreateRequest)
        owner = person_named(data["owner"], field="owner") if data.get("owner") else None
        made = services.tenant_create(
            actor=actor,
            name=data["name"],
            display_name=data["display_name"],
            owner=owner,
            quota=data.get("quota"),
            managed_by=data["managed_by"],
        )
        return created_response(TenantSerializer, made, f"/api/v1/tenants/{made.name}/")


class TenantDetail(Endpoint):
    """A tenant that the caller may see."""

    conditional = True

    @extend_schema(operation_id="getTenant", summary="Read a tenant", responses={200: TenantSerializer})
    def get(self, request: Request, name: str) -> Response:
        """404 for what the caller may not know of."""
        return Response(TenantSerializer(_visible(request, name)).data)

    @extend_schema(
        operation_id="changeTenant",
        summary="Give a tenant another display name (owners, operators)",
        request=TenantChangeRequest,
        responses={200: TenantSerializer},
    )
    def patch(self, request: Request, name: str) -> Response:
        """In the tenant's object too."""
        _visible(request, name)
        wanted = self.validated_body(request, TenantChangeRequest)
        with self.unchanged_since(request, lambda: tenant_locked(name)):
            changed = services.tenant_change(actor=api_actor(request), name=name, **wanted)
        return Response(TenantSerializer(changed).data)

    @extend_schema(
        operation_id="deleteTenant",
        summary="Delete a tenant and everything in it at once (operators)",
        request=None,
        responses={202: TenantSerializer},
    )
    def delete(self, request: Request, name: str) -> Response:
        """Closed at once; workers do the rest."""
        _visible(request, name)
        with self.unchanged_since(request, lambda: tenant_locked(name)):
            deleted = services.tenant_delete(actor=api_actor(request), name=name)
        return Response(TenantSerializer(deleted).data, status=202)


class TenantSuspend(Endpoint):
    """Close a tenant."""

    @extend_schema(
        operation_id="suspendTenant",
        summary="Close a tenant and suspend its workspaces (operators)",
        description="Those that are being deleted too. With `stop` their pods end as well. Again: what waits for "
        "another attempt is tried at once.",
        request=SuspendRequest,
        responses={200: TenantSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """Nothing of the tenant's is let through from this moment on."""
        _visible(request, name)
        actor = api_operator(request)
        wanted = self.validated_body(request, SuspendRequest)
        closed = services.tenant_suspend(actor=actor, name=name, **wanted)
        return Response(TenantSerializer(closed).data)


class TenantResume(Endpoint):
    """Open a tenant again."""

    @extend_schema(
        operation_id="resumeTenant",
        summary="Open a tenant again (operators)",
        request=None,
        responses={200: TenantSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """With the workspaces that were suspended with it."""
        _visible(request, name)
        return Response(TenantSerializer(services.tenant_resume(actor=api_operator(request), name=name)).data)


class MemberList(Endpoint):
    """Who is in a tenant."""

    @extend_schema(operation_id="listMembers", summary="List members", responses={200: page_schema(MemberSerializer)})
    def get(self, request: Request, name: str) -> Response:
        """Owners first, then admins, editors and viewers."""
        _visible(request, name)
        return paginated_response(request, selectors.members_of(api_actor(request), name), MemberSerializer)

    @extend_schema(
        operation_id="setMember",
        summary="Add a member or change the role",
        request=MemberCreateRequest,
        responses={201: MemberSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """By e-mail address; the account must exist."""
        _visible(request, name)
        actor = api_actor(request)
        # Before the address is looked up: members without the right learn nothing about accounts.
        require_lasting_role(actor, name, Role.ADMIN)
        data = self.validated_body(request, MemberCreateRequest)
        made = services.membership_set(
            actor=actor,
            tenant=name,
            user=person_named(data["email"], field="email"),
            role=Role(data["role"]),
            managed_by=data["managed_by"],
        )
        return Response(MemberSerializer(made).data, status=201)


class MemberDetail(Endpoint):
    """A person's membership in a tenant."""

    conditional = True

    @extend_schema(operation_id="getMember", summary="Read a membership", responses={200: MemberSerializer})
    def get(self, request: Request, name: str, user_id: UUID) -> Response:
        """Of a tenant that the caller knows of."""
        _visible(request, name)
        actor = api_actor(request)
        member = selectors.member_of(actor, name, user_id)
        rows = selectors.members_of(actor, name)
        return Response(MemberSerializer(next(row for row in rows if row.user_id == member.pk)).data)

    @extend_schema(
        operation_id="changeMember",
        summary="Change a member's role, or when the membership ends",
        request=MemberChangeRequest,
        responses={200: MemberSerializer},
    )
    def patch(self, request: Request, name: str, user_id: UUID) -> Response:
        """The last owner stays one, and has no end."""
        _visible(request, name)
        actor = api_actor(request)
        member = selectors.member_of(actor, name, user_id)
        wanted = self.validated_body(request, MemberChangeRequest)
        with self.unchanged_since(request, lambda: tenant_locked(name)), transaction.atomic():
            if "role" in wanted:
                services.membership_set(actor=actor, tenant=name, user=member, role=Role(wanted["role"]))
            if "expires_at" in wanted:
                services.membership_end_at(
                    actor=actor, tenant=name, user=member, expires_at=wanted["expires_at"], now=timezone.now()
                )
        return self.get(request, name, user_id)

    @extend_schema(operation_id="removeMember", summary="Remove a member", request=None, responses={204: None})
    def delete(self, request: Request, name: str, user_id: UUID) -> Response:
        """Members may remove themselves."""
        _visible(request, name)
        member = selectors.member_of(api_actor(request), name, user_id)
        with self.unchanged_since(request, lambda: tenant_locked(name)):
            services.membership_remove(actor=api_actor(request), tenant=name, user=member)
        return Response(status=204)


class MembershipList(Endpoint):
    """What a declaration made of memberships, in all tenants."""

    query_parameters = frozenset({"after", "limit", "managed_by"})

    @extend_schema(
        operation_id="listMemberships",
        summary="List the memberships that a declaration made, in all of the caller's tenants",
        parameters=[
            AFTER,
            LIMIT,
            OpenApiParameter("managed_by", str, required=True, description="The declaration's name."),
        ],
        responses={200: page_schema(MembershipSerializer)},
    )
    def get(self, request: Request) -> Response:
        """Those of the caller's tenants; operators see all."""
        require_unbound(request)
        after, limit = page_parameters(request)
        manager = request.query_params.get("managed_by", "")
        if not manager or len(manager) > 63:
            raise BadRequest("managed_by names a declaration.")
        if not ((after.isascii() and after.isdigit() and len(after) <= 18) or after == ""):
            raise BadRequest("The page cursor is not one of ours; start from the first page.")
        found = selectors.memberships_page(
            api_actor(request), managed_by=manager, after=int(after or 0), limit=limit + 1
        )
        cursor = str(found[limit - 1].pk) if len(found) > limit else ""
        return paginated_response(request, found[:limit], MembershipSerializer, cursor)


class TenantCredentialList(Endpoint):
    """Credentials for a tenant's whole space."""

    @extend_schema(
        operation_id="listTenantCredentials",
        summary="Who was issued what for the whole tenant, newest first",
        responses={200: page_schema(CredentialSerializer)},
    )
    def get(self, request: Request, name: str) -> Response:
        """The last two hundred; admins see all, others their own."""
        _visible(request, name)
        rows = credentials_of_tenant(api_actor(request), name, limit=200)
        return paginated_response(request, rows, CredentialSerializer)


class TenantCredentialRevoke(Endpoint):
    """End one credential for the whole tenant before its time."""

    @extend_schema(
        operation_id="revokeTenantCredential",
        summary="Revoke one credential for the whole tenant",
        request=None,
        responses={200: CredentialSerializer},
    )
    def post(self, request: Request, name: str, jti: str) -> Response:
        """Dead with the answer's commit."""
        actor = api_actor(request)
        _visible(request, name)
        found = credential_visible_to(actor, jti)
        if found.tenant_id != name or found.workspace_id is not None:
            raise NotFound("There is no such credential.", kind="credentials")
        return Response(CredentialSerializer(credential_revoke(actor=actor, jti=jti, now=timezone.now())).data)


class TenantKubeconfig(Endpoint):
    """One file for everything that a tenant has."""

    @extend_schema(
        operation_id="issueTenantKubeconfig",
        summary="Issue one kubeconfig for the tenant's space, with a context for each workspace",
        description="The space and all workspaces that are reached through Tenantry share a credential for two hours at "
        "most; with `via` `exec` there is none, and `tenantry-login` signs in by the browser. By `gateway` each other "
        "workspace has a credential of its own. What a cluster refuses is left out and named in `missing`.",
        request=TenantKubeconfigRequest,
        responses={201: IssuedTenantKubeconfigSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """The workspaces that are ready, the first hundred by name."""
        _visible(request, name)
        wanted = self.optional_body(request, TenantKubeconfigRequest)
        issued = tenant_kubeconfig_issue(actor=api_actor(request), tenant=name, **wanted, now=timezone.now())
        return secret_response(IssuedTenantKubeconfigSerializer(issued).data, status=201)


class TenantQuota(Endpoint):
    """What a tenant may hold, and what its workspaces may use (AD1)."""

    conditional = True
    settable = ("hard",)

    @extend_schema(
        operation_id="getQuota",
        summary="Read a tenant's quota, what is used of it, and its workspaces' limits",
        responses={200: QuotaSerializer},
    )
    def get(self, request: Request, name: str) -> Response:
        """With the first two hundred workspaces."""
        _visible(request, name)
        return Response(self._shown(request, name))

    @extend_schema(
        operation_id="setQuota",
        summary="Change a tenant's quota (operators)",
        description="Below what is used, nothing is taken away and nothing more is admitted; `beyond` names it.",
        request=QuotaChangeRequest,
        responses={200: QuotaSerializer},
    )
    def put(self, request: Request, name: str) -> Response:
        """All bounds at once: what is not named is not bounded."""
        _visible(request, name)
        hard = self.validated_body(request, QuotaChangeRequest)["hard"]
        actor = api_operator(request)
        with self.unchanged_since(request, lambda: tenant_locked(name)):
            services.tenant_quota_change(actor=actor, name=name, hard=hard)
        return Response(self._shown(request, name))

    @staticmethod
    def _shown(request: Request, name: str) -> dict[str, Any]:
        tenant = selectors.tenant_visible_to(api_actor(request), name)
        found = selectors.workspaces_page(api_actor(request), tenant=name, limit=200).rows
        quota = tenant_quota(name)
        shown: dict[str, Any] = QuotaSerializer(
            {
                "hard": quota.hard,
                "used": quota.used,
                "scopes": [str(scope) for scope in quota.scopes],
                "beyond": quota.beyond,
                "stored_bytes": stored_use(name),
                "clusters": placed_use(tenant),
                "workspaces": found,
            }
        ).data
        return shown


class TenantUsage(Endpoint):
    """What a tenant used (AD7)."""

    @extend_schema(operation_id="getUsage", summary="Read a tenant's usage", responses={200: UsageSerializer})
    def get(self, request: Request, name: str) -> Response:
        """Of the last 24 hours."""
        found = _visible(request, name)
        return Response(UsageSerializer(_usage(api_actor(request), found)).data)


def _usage(actor: Actor, tenant: Tenant) -> dict[str, int]:
    numbers = selectors.overview_of(actor, tenant=tenant.name)
    since = timezone.now() - timedelta(hours=24)
    requests = ApiRequest.objects.filter(tenant=tenant.name, created_at__gte=since).aggregate(
        all=Sum("count"), refused=Sum("count", filter=Q(allowed=False))
    )
    issued = Credential.objects.filter(tenant=tenant, issued_at__gte=since, failed_at=None).aggregate(all=Count("pk"))
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
