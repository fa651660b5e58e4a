"""Tenants, their members, quota and usage."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from portal.api.serializers.base import RequestSerializer
from tenants.models import Membership, Role, Tenant


class TenantCreateRequest(RequestSerializer):
    """A new tenant."""

    name = serializers.CharField(max_length=63)
    display_name = serializers.CharField(max_length=128, required=False, default="", allow_blank=True)
    owner = serializers.EmailField(
        max_length=254, required=False, allow_blank=True, help_text="An existing user, who becomes the first owner."
    )


class MemberChangeRequest(RequestSerializer):
    """A member's new role."""

    role = serializers.ChoiceField(choices=Role.choices)


class MemberCreateRequest(MemberChangeRequest):
    """Somebody who has an account, and as what."""

    email = serializers.EmailField(max_length=254)


class TenantSerializer(serializers.ModelSerializer[Tenant]):
    """A tenant."""

    class Meta:
        model = Tenant
        fields = (
            "name",
            "display_name",
            "state",
            "cluster_path",
            "suspended_reason",
            "suspended_at",
            "created_at",
        )
        read_only_fields = fields


class MemberSerializer(serializers.ModelSerializer[Membership]):
    """A membership."""

    user_id = serializers.UUIDField()
    email = serializers.EmailField(source="user.email")
    name = serializers.CharField(source="user.name")

    class Meta:
        model = Membership
        fields = ("user_id", "email", "name", "role", "created_at")
        read_only_fields = fields


class QuotaOfWorkspaceSerializer(serializers.Serializer[Any]):
    """One workspace's hard limits."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    tier = serializers.CharField(source="tier_id")
    hard = serializers.DictField(child=serializers.CharField(), source="tier.quota")


class QuotaSerializer(serializers.Serializer[Any]):
    """The hard limits of a tenant's workspaces."""

    workspaces = QuotaOfWorkspaceSerializer(many=True)


class UsageSerializer(serializers.Serializer[Any]):
    """What a tenant used in the last 24 hours (AD7)."""

    workspaces = serializers.IntegerField()
    ready = serializers.IntegerField()
    suspended = serializers.IntegerField()
    members = serializers.IntegerField()
    requests = serializers.IntegerField(help_text="to the API server in the last 24 hours")
    refused = serializers.IntegerField(help_text="of these, refused")
    credentials_issued = serializers.IntegerField(help_text="in the last 24 hours")
