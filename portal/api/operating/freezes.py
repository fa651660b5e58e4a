"""What is held still: read by its people, and changed by none of them (GW28)."""

from __future__ import annotations

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api.endpoint import Endpoint, page_schema, paginated_response, parse_uuid
from portal.api.permissions import api_actor, api_operator, require_tenant, token_tenant
from portal.api.serializers.base import RequestSerializer
from portal.pages.freezing import what_remains
from tenants import selectors
from tenants.models import Freeze, Workspace
from tenants.services.operating.freezing import tenant_freeze, tenant_thaw, workspace_freeze, workspace_thaw

TENANT = OpenApiParameter("tenant", str, description="Of this tenant only.")


class FreezeRequest(RequestSerializer):
    """Why, and until when."""

    reason = serializers.CharField(max_length=512)
    until = serializers.DateTimeField(
        required=False, allow_null=True, default=None, help_text="When it ends by itself; by hand without."
    )


class FreezeSerializer(serializers.ModelSerializer[Freeze]):
    """A freeze; of a whole tenant without ``workspace``."""

    tenant = serializers.CharField(source="tenant_id")
    workspace = serializers.UUIDField(source="workspace_id", allow_null=True)

    class Meta:
        model = Freeze
        fields = ("tenant", "workspace", "namespace", "reason", "frozen_by", "frozen_at", "until")
        read_only_fields = fields


class FreezeReceiptSerializer(serializers.ModelSerializer[Freeze]):
    """The same with what writes nevertheless."""

    tenant = serializers.CharField(source="tenant_id")
    workspace = serializers.UUIDField(source="workspace_id", allow_null=True)
    remains = serializers.SerializerMethodField()

    class Meta:
        model = Freeze
        fields = ("tenant", "workspace", "namespace", "reason", "frozen_by", "frozen_at", "until", "remains")
        read_only_fields = fields

    def get_remains(self, freeze: Freeze) -> list[str]:
        """What a freeze leaves as it is, a sentence each."""
        return what_remains(freeze, now=timezone.now())


class FreezeList(Endpoint):
    """What is frozen."""

    query_parameters = frozenset({"tenant"})

    @extend_schema(
        operation_id="listFreezes",
        summary="List what is frozen",
        parameters=[TENANT],
        responses={200: page_schema(FreezeSerializer)},
    )
    def get(self, request: Request) -> Response:
        """Of the caller's tenants, the newest two hundred; operators see all."""
        wanted = request.query_params.get("tenant", "") or token_tenant(request)
        require_tenant(request, wanted)
        rows = Freeze.objects.filter(tenant__in=selectors.tenants_visible_to(api_actor(request)))
        if wanted:
            rows = rows.filter(tenant_id=selectors.tenant_visible_to(api_actor(request), wanted).pk)
        return paginated_response(request, rows.order_by("-frozen_at", "id")[:200], FreezeSerializer)


class TenantFreeze(Endpoint):
    """Hold a tenant still."""

    @extend_schema(
        operation_id="freezeTenant",
        summary="Refuse every write in a tenant (operators)",
        request=FreezeRequest,
        responses={200: FreezeReceiptSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """In its space and all its workspaces; reads and watches go on."""
        require_tenant(request, name)
        selectors.tenant_visible_to(api_actor(request), name)
        actor = api_operator(request)
        made = tenant_freeze(actor=actor, name=name, **self.validated_body(request, FreezeRequest))
        return Response(FreezeReceiptSerializer(made).data)


class TenantThaw(Endpoint):
    """Let a tenant go."""

    @extend_schema(
        operation_id="thawTenant",
        summary="Let a tenant be written to again (operators)",
        request=None,
        responses={204: None},
    )
    def post(self, request: Request, name: str) -> Response:
        """What is not frozen stays so."""
        require_tenant(request, name)
        selectors.tenant_visible_to(api_actor(request), name)
        tenant_thaw(actor=api_operator(request), name=name)
        return Response(status=204)


class WorkspaceFreeze(Endpoint):
    """Hold a workspace still."""

    @extend_schema(
        operation_id="freezeWorkspace",
        summary="Refuse every write in a workspace (operators)",
        request=FreezeRequest,
        responses={200: FreezeReceiptSerializer},
    )
    def post(self, request: Request, pk: str) -> Response:
        """Reads and watches go on."""
        found = _workspace(request, pk)
        actor = api_operator(request)
        made = workspace_freeze(actor=actor, workspace_id=found.pk, **self.validated_body(request, FreezeRequest))
        return Response(FreezeReceiptSerializer(made).data)


class WorkspaceThaw(Endpoint):
    """Let a workspace go."""

    @extend_schema(
        operation_id="thawWorkspace",
        summary="Let a workspace be written to again (operators)",
        request=None,
        responses={204: None},
    )
    def post(self, request: Request, pk: str) -> Response:
        """While its tenant is frozen it stays still."""
        found = _workspace(request, pk)
        workspace_thaw(actor=api_operator(request), workspace_id=found.pk)
        return Response(status=204)


def _workspace(request: Request, pk: str) -> Workspace:
    found = selectors.workspace_visible_to(api_actor(request), parse_uuid(pk) or pk)
    require_tenant(request, found.tenant_id)
    return found
