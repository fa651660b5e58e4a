"""Operations: what workers are asked to do for workspaces; and who is asking."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from portal.api.serializers.base import RequestSerializer
from tenants.models import Operation, Role


class OperationSerializer(serializers.ModelSerializer[Operation]):
    """An operation: what is wanted of which workspace, how far it is, and what stands in its way."""

    workspace = serializers.UUIDField(source="workspace_id")
    workspace_name = serializers.CharField(source="workspace.name")
    tenant = serializers.CharField(source="workspace.tenant_id")
    cluster = serializers.CharField(source="workspace.cluster.name")
    steps_done = serializers.ListField(child=serializers.DictField())

    class Meta:
        model = Operation
        fields = (
            "id",
            "workspace",
            "workspace_name",
            "tenant",
            "cluster",
            "desired",
            "state",
            "step",
            "steps_done",
            "attempts",
            "error",
            "not_before",
            "requested_by",
            "created_at",
            "finished_at",
        )
        read_only_fields = fields


class AbandonRequest(RequestSerializer):
    """Why a workspace is given up without its cluster."""

    reason = serializers.CharField(max_length=512)


class MembershipOfMe(serializers.Serializer[Any]):
    """A tenant of the caller's, and the role there."""

    tenant = serializers.CharField(source="tenant_id")
    role = serializers.ChoiceField(choices=Role.choices, source="present_role")


class MeSerializer(serializers.Serializer[Any]):
    """Who is asking, by which token, and what they may."""

    id = serializers.UUIDField()
    email = serializers.EmailField()
    name = serializers.CharField()
    operator = serializers.BooleanField(help_text="Whether this request may do what operators may.")
    scope = serializers.CharField(help_text="The token's; empty with a session.")
    tenant = serializers.CharField(help_text="The only tenant that the token is good for; empty for all.")
    memberships = MembershipOfMe(many=True)
