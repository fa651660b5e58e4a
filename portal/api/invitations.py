"""Invitations to tenants (GW14)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api.endpoint import Endpoint, page_schema, paginated_response, secret_response
from portal.api.permissions import api_actor, require_tenant
from portal.api.serializers.base import RequestSerializer
from tenants import selectors, services
from tenants.models import Invitation, Role
from tenants.services.invitations import DAYS_MAX, invitations_waiting


class InvitationRequest(RequestSerializer):
    """Who may join, as what, and for how many days the link counts."""

    email = serializers.EmailField(max_length=254)
    role = serializers.ChoiceField(choices=Role.choices)
    days = serializers.IntegerField(required=False, default=7, min_value=1, max_value=DAYS_MAX)


class InvitationSerializer(serializers.ModelSerializer[Invitation]):
    """An invitation, without its link."""

    invited_by = serializers.EmailField(source="invited_by.email")

    class Meta:
        model = Invitation
        fields = ("id", "email", "role", "invited_by", "created_at", "expires_at", "revoked_at")
        read_only_fields = fields


class CreatedInvitationSerializer(serializers.Serializer[Any]):
    """A new invitation with its link, which is shown this once."""

    invitation = InvitationSerializer()
    link = serializers.CharField()


class InvitationList(Endpoint):
    """Those that wait."""

    @extend_schema(
        operation_id="listInvitations",
        summary="List the invitations to a tenant that wait",
        responses={200: page_schema(InvitationSerializer)},
    )
    def get(self, request: Request, name: str) -> Response:
        """The newest two hundred, for admins."""
        require_tenant(request, name)
        found = invitations_waiting(api_actor(request), name, now=timezone.now())
        return paginated_response(request, found, InvitationSerializer)

    @extend_schema(
        operation_id="createInvitation",
        summary="Invite somebody to a tenant by a link",
        description="The link works once, for whoever has the e-mail address, and is shown this once: only a digest is kept.",
        request=InvitationRequest,
        responses={201: CreatedInvitationSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """Admins invite up to admin, owners and operators everybody."""
        require_tenant(request, name)
        selectors.tenant_visible_to(api_actor(request), name)
        data = self.validated_body(request, InvitationRequest)
        made = services.invitation_create(actor=api_actor(request), tenant=name, now=timezone.now(), **data)
        link = request.build_absolute_uri(reverse("join-by", args=[made.secret]))
        shown = CreatedInvitationSerializer({"invitation": made.invitation, "link": link})
        return secret_response(shown.data, status=201)


class InvitationRevoke(Endpoint):
    """One that is to count no more."""

    @extend_schema(
        operation_id="revokeInvitation",
        summary="Revoke an invitation",
        request=None,
        responses={200: InvitationSerializer},
    )
    def post(self, request: Request, name: str, pk: UUID) -> Response:
        """One that has ended stays as it is."""
        require_tenant(request, name)
        selectors.tenant_visible_to(api_actor(request), name)
        found = services.invitation_revoke(actor=api_actor(request), tenant=name, invitation_id=pk, now=timezone.now())
        return Response(InvitationSerializer(found).data)
