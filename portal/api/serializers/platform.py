"""Tiers and clusters."""

from __future__ import annotations

from rest_framework import serializers

from kube.quota.storedbytes import MEBIBYTES_MAX
from kube.requests.ratelimits import SETTINGS
from portal.api.serializers.base import CreateRequest, RequestSerializer
from portal.api.serializers.policies import PoliciesSerializer
from tenants.models import Approval, Cluster, CredentialKind, Network, PodSecurity, RecordingMode, Tier

_LIMITS = f"What its tenants may ask of an API server: {', '.join(SETTINGS)}."
_STORED = "What all objects of a tenant may take in the database, together; 0: no bound, null: the server's default."
_RECORDING = "What is kept of sessions (exec, attach) in pods of its workspaces; input never is."
_PROXIES = "Whether `pods/proxy` and `services/proxy` are open in its workspaces, to editors."
_KINDS = "What people may be given for its workspaces; everything when nothing is said."

_APPROVAL = "Who decides when it is asked for; empty: it is taken freely."


class TierChangeRequest(RequestSerializer):
    """What may change of a tier."""

    display_name = serializers.CharField(max_length=64)
    description = serializers.CharField(max_length=256, required=False, default="", allow_blank=True)
    quota = serializers.DictField(child=serializers.CharField(max_length=32))
    limit_range = serializers.ListField(child=serializers.DictField(), required=False, default=list, max_length=20)
    pod_security = serializers.ChoiceField(choices=PodSecurity.choices, required=False, default=PodSecurity.BASELINE)
    network = serializers.ChoiceField(choices=Network.choices, required=False, default=Network.TENANT)
    policies = PoliciesSerializer(required=False, default=dict)
    request_limits = serializers.DictField(
        child=serializers.IntegerField(min_value=0, max_value=1_000_000),
        required=False,
        default=dict,
        help_text=_LIMITS,
    )
    stored_mebibytes = serializers.IntegerField(
        min_value=0, max_value=MEBIBYTES_MAX, required=False, default=None, allow_null=True, help_text=_STORED
    )
    recording = serializers.ChoiceField(
        choices=RecordingMode.choices, required=False, default=RecordingMode.OFF, help_text=_RECORDING
    )
    proxies = serializers.BooleanField(required=False, default=False, help_text=_PROXIES)
    approval = serializers.ChoiceField(
        choices=Approval.choices, required=False, default="", allow_blank=True, help_text=_APPROVAL
    )
    workspaces_per_user = serializers.IntegerField(min_value=0, max_value=1000, required=False, default=1)
    is_available = serializers.BooleanField(required=False, default=True)
    position = serializers.IntegerField(min_value=0, max_value=1000, required=False, default=0)


class TierCreateRequest(CreateRequest, TierChangeRequest):
    """A new tier."""

    name = serializers.CharField(max_length=63)


class ClusterSettingsRequest(RequestSerializer):
    """What a new cluster may say and a registered one may change."""

    client_url = serializers.CharField(max_length=512, required=False, default="", allow_blank=True)
    tenant_role = serializers.CharField(max_length=253, required=False, default="tenantry-tenant-admin")
    ingress_domain = serializers.CharField(max_length=190, required=False, default="", allow_blank=True)
    limits_events = serializers.BooleanField(required=False, default=False)
    opened = serializers.CharField(max_length=16_384, required=False, default="", allow_blank=True)
    credential_kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=CredentialKind.choices), required=False, help_text=_KINDS
    )
    is_default = serializers.BooleanField(required=False, default=False)


class ClusterCreateRequest(ClusterSettingsRequest):
    """A cluster by its kubeconfig, which is encrypted and never shown."""

    name = serializers.CharField(max_length=63)
    kubeconfig = serializers.CharField(max_length=262_144, write_only=True, trim_whitespace=False)


class ClusterCredentialRequest(RequestSerializer):
    """The credential that takes over, in a kubeconfig of the same cluster."""

    kubeconfig = serializers.CharField(max_length=262_144, write_only=True, trim_whitespace=False)


class ClusterChangeRequest(ClusterSettingsRequest):
    """What to change of a cluster; another server or CA wipes the stored credential."""

    server = serializers.CharField(max_length=512, required=False)
    ca_data = serializers.CharField(max_length=65_536, required=False, trim_whitespace=False)


class TierSerializer(serializers.ModelSerializer[Tier]):
    """A tier: what its workspaces may use, and what they are fenced by."""

    quota = serializers.DictField(child=serializers.CharField())
    limit_range = serializers.ListField(child=serializers.DictField())
    policies = PoliciesSerializer()
    request_limits = serializers.DictField(child=serializers.IntegerField())
    approval = serializers.ChoiceField(choices=Approval.choices, allow_blank=True, help_text=_APPROVAL)

    class Meta:
        model = Tier
        fields = (
            "name",
            "display_name",
            "description",
            "quota",
            "limit_range",
            "pod_security",
            "network",
            "policies",
            "request_limits",
            "stored_mebibytes",
            "recording",
            "proxies",
            "approval",
            "workspaces_per_user",
            "is_available",
            "position",
            "managed_by",
        )
        read_only_fields = fields


class UnclaimedNamespaceSerializer(serializers.Serializer[dict[str, str]]):
    """A namespace with the labels of a workspace that belongs to nobody: an operator's to look at, and to delete there."""

    name = serializers.CharField()
    uid = serializers.CharField()
    tenant = serializers.CharField()
    workspace = serializers.CharField()
    created_at = serializers.CharField()


class ClusterSerializer(serializers.ModelSerializer[Cluster]):
    """A cluster, without its credential."""

    client_url = serializers.CharField(help_text="empty: as the server")
    credential_kinds = serializers.ListField(child=serializers.ChoiceField(choices=CredentialKind.choices))
    storage_classes = serializers.ListField(child=serializers.CharField())
    unclaimed_namespaces = UnclaimedNamespaceSerializer(many=True)
    checks = serializers.ListField(child=serializers.DictField())

    class Meta:
        model = Cluster
        fields = (
            "id",
            "name",
            "kind",
            "server",
            "client_url",
            "ca_data",
            "tenant_role",
            "ingress_domain",
            "limits_events",
            "opened",
            "credential_kinds",
            "storage_classes",
            "unclaimed_namespaces",
            "checks",
            "checked_at",
            "is_default",
            "last_error",
            "last_seen_at",
            "version",
            "latency_ms",
            "unreached_since",
            "unreached_why",
            "credential_expires_at",
            "created_at",
        )
        read_only_fields = fields
