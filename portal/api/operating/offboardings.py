"""A tenant's way out, and what its people take along (GW28)."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api.endpoint import Endpoint
from portal.api.permissions import api_actor, api_operator, require_tenant
from portal.api.serializers.tenants import ExportRequest, OffboardingSerializer, OffboardRequest
from portal.offboarding.export import export_response
from tenants import selectors
from tenants.services.operating.offboarding import tenant_offboard, tenant_retain


class TenantOffboard(Endpoint):
    """Let a tenant leave."""

    @extend_schema(
        operation_id="offboardTenant",
        summary="Let a tenant leave: closed now, deleted after some days (operators)",
        description="Again, with another reason or other days: these count from now on. The manner stays.",
        request=OffboardRequest,
        responses={200: OffboardingSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """Its people export what they may read until then."""
        require_tenant(request, name)
        selectors.tenant_visible_to(api_actor(request), name)
        actor, now = api_operator(request), timezone.now()
        wanted = self.validated_body(request, OffboardRequest)
        ends_at = now + timedelta(days=wanted.pop("days"))
        made = tenant_offboard(actor=actor, name=name, ends_at=ends_at, now=now, **wanted)
        return Response(OffboardingSerializer(made).data)


class TenantRetain(Endpoint):
    """Call it off."""

    @extend_schema(
        operation_id="retainTenant",
        summary="Call off that a tenant leaves (operators)",
        request=None,
        responses={204: None},
    )
    def post(self, request: Request, name: str) -> Response:
        """What it has closed is opened again."""
        require_tenant(request, name)
        selectors.tenant_visible_to(api_actor(request), name)
        tenant_retain(actor=api_operator(request), name=name)
        return Response(status=204)


class TenantExport(Endpoint):
    """All of a tenant that the caller may read."""

    @extend_schema(
        operation_id="exportTenant",
        summary="Download all of a tenant that the caller may read, as one ZIP archive",
        description="Stored objects as YAML by namespace and kind, members, workspaces, quota, rules, usage, and for "
        "admins the audit log; `manifest.json` comes last and has the SHA-256 of every file, and what was left out.",
        request=ExportRequest,
        responses={(200, "application/zip"): OpenApiResponse(OpenApiTypes.BINARY)},
    )
    def post(self, request: Request, name: str) -> HttpResponseBase:
        """Streamed; that it was made is an event."""
        require_tenant(request, name)
        actor = api_actor(request)
        selectors.tenant_visible_to(actor, name)
        wanted = self.validated_body(request, ExportRequest)
        return export_response(actor, name, secrets=wanted["secrets"], now=timezone.now())
