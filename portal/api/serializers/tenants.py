"""Tenants, their members, quota and usage."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from portal.api.serializers.base import ChangeRequest, CreateRequest, RequestSerializer
from tenants.models import Membership, Offboarding, Role, Tenant
from tenants.services.operating.offboarding import DAYS_KEPT, DAYS_MAX, REASON_MAX


class TenantCreateRequest(CreateRequest):
    """A new tenant."""

    name = serializers.CharField(max_length=63)
    display_name = serializers.CharField(max_length=128, required=False, default="", allow_blank=True)
    owner = serializers.EmailField(
        max_length=254, required=False, allow_blank=True, help_text="An existing user, who becomes the first owner."
    )
    quota = serializers.DictField(
        child=serializers.CharField(max_length=64),
        required=False,
        help_text="What it may hold, by resource name as in a ResourceQuota; the configured default without it.",
    )


class TenantChangeRequest(RequestSerializer):
    """What may change of a tenant."""

    display_name = serializers.CharField(max_length=128, allow_blank=True)


class MemberChangeRequest(ChangeRequest):
    """A member's new role, or when the membership ends."""

    role = serializers.ChoiceField(choices=Role.choices, required=False)
    expires_at = serializers.DateTimeField(required=False, allow_null=True, help_text="null: it does not end by itself")


class MemberCreateRequest(CreateRequest):
    """Somebody who has an account, and as what."""

    email = serializers.EmailField(max_length=254)
    role = serializers.ChoiceField(choices=Role.choices)


class OffboardingSerializer(serializers.ModelSerializer[Offboarding]):
    """That a tenant leaves, and when it is deleted."""

    manner = serializers.ChoiceField(choices=Offboarding.Manner.choices)

    class Meta:
        model = Offboarding
        fields = ("reason", "manner", "begun_by", "begun_at", "ends_at")
        read_only_fields = fields


class OffboardRequest(RequestSerializer):
    """Why a tenant leaves, how it is closed, and for how many days it is kept."""

    reason = serializers.CharField(max_length=REASON_MAX)
    manner = serializers.ChoiceField(
        choices=Offboarding.Manner.choices, required=False, default=Offboarding.Manner.FREEZE
    )
    days = serializers.IntegerField(min_value=1, max_value=DAYS_MAX, required=False, default=DAYS_KEPT)


class ExportRequest(RequestSerializer):
    """What the archive holds beside the rest."""

    secrets = serializers.BooleanField(
        required=False, default=False, help_text="Secrets too, as far as the caller may read them."
    )


class TenantSerializer(serializers.ModelSerializer[Tenant]):
    """A tenant with its state, and where it leaves to."""

    offboarding = serializers.SerializerMethodField()

    class Meta:
        model = Tenant
        fields = (
            "name",
            "display_name",
            "state",
            "cluster_path",
            "suspended_reason",
            "suspended_at",
            "offboarding",
            "managed_by",
            "created_at",
        )
        read_only_fields = fields

    @extend_schema_field(OffboardingSerializer(allow_null=True))
    def get_offboarding(self, tenant: Tenant) -> dict[str, Any] | None:
        """Where it leaves; null where it stays."""
        found = getattr(tenant, "offboarding", None)
        return OffboardingSerializer(found).data if found is not None else None


class MemberSerializer(serializers.ModelSerializer[Membership]):
    """A person's role in a tenant."""

    user_id = serializers.UUIDField()
    email = serializers.EmailField(source="user.email")
    name = serializers.CharField(source="user.name")

    class Meta:
        model = Membership
        fields = ("user_id", "email", "name", "role", "managed_by", "created_at", "expires_at")
        read_only_fields = fields


class MembershipSerializer(MemberSerializer):
    """A membership with its tenant."""

    tenant = serializers.CharField(source="tenant_id")

    class Meta(MemberSerializer.Meta):
        fields = ("tenant", *MemberSerializer.Meta.fields)  # type: ignore[assignment]
        read_only_fields = fields  # type: ignore[assignment]


class QuotaOfWorkspaceSerializer(serializers.Serializer[Any]):
    """One workspace's hard limits."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    tier = serializers.CharField(source="tier_id")
    hard = serializers.DictField(child=serializers.CharField(), source="tier.quota")


class StoredUseSerializer(serializers.Serializer[Any]):
    """What a tenant's objects take in the database, in bytes."""

    used = serializers.IntegerField()
    hard = serializers.IntegerField(help_text="from `stored_mebibytes` of its tiers; 0 where nothing bounds it")


class PlacedUseSerializer(serializers.Serializer[Any]):
    """What one namespace on a cluster takes of the tenant's quota, as of the last look."""

    namespace = serializers.CharField()
    workspace = serializers.CharField()
    used = serializers.DictField(child=serializers.CharField())


class ClusterUseSerializer(serializers.Serializer[Any]):
    """What the tenant takes of its quota on one cluster, and which of its namespaces there does."""

    cluster = serializers.CharField()
    used = serializers.DictField(child=serializers.CharField())
    namespaces = PlacedUseSerializer(many=True, help_text="the first two hundred, by name")
    more = serializers.IntegerField(help_text="how many others there are; they are in the sum")


class QuotaSerializer(serializers.Serializer[Any]):
    """What a tenant may hold and what it holds, by resource name, and the hard limits of its workspaces."""

    hard = serializers.DictField(child=serializers.CharField())
    used = serializers.DictField(child=serializers.CharField())
    scopes = serializers.ListField(
        child=serializers.CharField(),
        help_text="what alone is counted, as in a ResourceQuota; everything where none is named",
    )
    beyond = serializers.DictField(
        child=serializers.CharField(), help_text="what is used of the names of which more is used than may be"
    )
    stored_bytes = StoredUseSerializer()
    clusters = ClusterUseSerializer(many=True)
    workspaces = QuotaOfWorkspaceSerializer(many=True)


class QuotaChangeRequest(RequestSerializer):
    """A tenant's new quota."""

    hard = serializers.DictField(
        child=serializers.CharField(max_length=64), help_text="amounts by resource name, as in a ResourceQuota"
    )


class UsageSerializer(serializers.Serializer[Any]):
    """What a tenant used in the last 24 hours (AD7)."""

    workspaces = serializers.IntegerField()
    ready = serializers.IntegerField()
    suspended = serializers.IntegerField()
    members = serializers.IntegerField()
    requests = serializers.IntegerField(help_text="to the API server in the last 24 hours")
    refused = serializers.IntegerField(help_text="of these, refused")
    credentials_issued = serializers.IntegerField(help_text="in the last 24 hours")
