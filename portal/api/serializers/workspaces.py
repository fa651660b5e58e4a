"""Workspaces and their credentials."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers

from access.models import Credential
from portal.api.serializers.base import ChangeRequest, RequestSerializer
from portal.pages import labels
from tenants.models import CredentialKind, Status, Workspace


class WorkspaceCreateRequest(RequestSerializer):
    """A tier, and where and under which name; by default the caller's only tenant, ``default``, the default cluster."""

    tier = serializers.CharField(max_length=63)
    tenant = serializers.CharField(max_length=63, required=False, default="", allow_blank=True)
    name = serializers.CharField(max_length=63, required=False, default="", allow_blank=True)
    cluster = serializers.CharField(max_length=63, required=False, default="", allow_blank=True)


class WorkspaceChangeRequest(ChangeRequest):
    """Another tier for a workspace, or another end."""

    tier = serializers.CharField(max_length=63, required=False)
    expires_at = serializers.DateTimeField(required=False, allow_null=True, help_text="null: it does not end by itself")


CREDENTIAL_ROLES = ["admin", "editor", "viewer"]
_WHOLE = [choice for choice in CredentialKind.choices if choice[0] != CredentialKind.DIRECT]


class CredentialCreateRequest(RequestSerializer):
    """By which of the ways that the cluster offers, and with which rights; the caller's own by default."""

    via = serializers.ChoiceField(
        source="kind",
        choices=CredentialKind.choices,
        required=False,
        help_text="by default what the cluster recommends",
    )
    role = serializers.ChoiceField(choices=CREDENTIAL_ROLES, required=False)
    minutes = serializers.IntegerField(
        min_value=10, max_value=120, required=False, help_text="how long its token works; two hours by default"
    )
    at_cluster = serializers.BooleanField(
        required=False,
        help_text="of a gateway credential: the file points at the cluster itself, which asks about the token, and nobody "
        "else takes it",
    )


class TenantKubeconfigRequest(RequestSerializer):
    """By which way, and with which rights; the caller's own by default."""

    via = serializers.ChoiceField(source="kind", choices=_WHOLE, required=False, help_text="by default gateway")
    role = serializers.ChoiceField(choices=CREDENTIAL_ROLES, required=False)


class WorkspaceSerializer(serializers.ModelSerializer[Workspace]):
    """A workspace with its place, its state and its receipt."""

    tenant = serializers.CharField(source="tenant_id")
    user = serializers.EmailField(source="user.email")
    cluster = serializers.CharField(source="cluster.name")
    credential_kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=CredentialKind.choices), source="cluster.credential_kinds"
    )
    tier = serializers.CharField(source="tier_id")
    namespace = serializers.CharField(source="k8s_namespace")
    service_account = serializers.CharField(source="k8s_sa_name")
    status = serializers.SerializerMethodField()
    quota = serializers.SerializerMethodField()
    receipt = serializers.ListField(child=serializers.DictField())
    url = serializers.SerializerMethodField()

    class Meta:
        model = Workspace
        fields = (
            "id",
            "name",
            "tenant",
            "user",
            "cluster",
            "credential_kinds",
            "tier",
            "namespace",
            "service_account",
            "status",
            "quota",
            "suspended_reason",
            "suspended_at",
            "receipt",
            "created_at",
            "ready_at",
            "expires_at",
            "url",
        )
        read_only_fields = fields

    def get_status(self, workspace: Workspace) -> str:
        """``provisioned``, or what is going on: never ``suspended`` before the cluster was read back."""
        if workspace.status == Status.ACTIVE and not labels.workspace_is_moving(workspace):
            return "provisioned"
        return labels.workspace_state(workspace).text.lower()

    def get_quota(self, workspace: Workspace) -> dict[str, str]:
        """The tier's hard limits by name; ``requests.cpu`` and ``requests.memory`` also as ``cpu`` and ``memory``."""
        quota = {str(key): str(value) for key, value in workspace.tier.quota.items()}
        short = {key: quota[f"requests.{key}"] for key in ("cpu", "memory") if f"requests.{key}" in quota}
        return short | quota

    def get_url(self, workspace: Workspace) -> str:
        """Where the workspace is in this API."""
        return reverse("api-workspace", args=[workspace.pk])


class WorkspaceInitSerializer(WorkspaceSerializer):
    """A workspace in short, with the CPU and memory that may be requested (GW6)."""

    class Meta(WorkspaceSerializer.Meta):
        fields = ("id", "name", "tenant", "namespace", "status", "quota")  # type: ignore[assignment]
        read_only_fields = fields  # type: ignore[assignment]

    def get_quota(self, workspace: Workspace) -> dict[str, str]:
        """``cpu`` and ``memory`` alone."""
        return {key: value for key, value in super().get_quota(workspace).items() if key in {"cpu", "memory"}}


class CredentialSerializer(serializers.ModelSerializer[Credential]):
    """What is known of an issued credential, never its token."""

    via = serializers.ChoiceField(choices=CredentialKind.choices, source="kind")
    issued_to = serializers.EmailField(source="issued_to.email")

    class Meta:
        model = Credential
        fields = (
            "id",
            "jti",
            "via",
            "tenant",
            "workspace",
            "issued_to",
            "role",
            "ip_address",
            "user_agent",
            "issued_at",
            "expires_at",
            "failed_at",
            "revoked_at",
            "revocation_confirmed_at",
        )
        read_only_fields = fields


class IssuedKubeconfigSerializer(serializers.Serializer[Any]):
    """The one copy of a kubeconfig, and the credential in it: null where it holds no secret."""

    via = serializers.ChoiceField(choices=CredentialKind.choices, source="kind")
    id = serializers.UUIDField(source="credential.id", allow_null=True)
    jti = serializers.CharField(source="credential.jti", allow_null=True)
    issued_to = serializers.EmailField(source="credential.issued_to.email", allow_null=True)
    role = serializers.CharField(source="credential.role", allow_null=True)
    issued_at = serializers.DateTimeField(source="credential.issued_at", allow_null=True)
    expires_at = serializers.DateTimeField(source="credential.expires_at", allow_null=True)
    kubeconfig = serializers.CharField(source="yaml")


class MissingWorkspaceSerializer(serializers.Serializer[Any]):
    """What is not in a tenant's file, and why."""

    workspace = serializers.CharField(
        source="workspace.name", allow_null=True, help_text="null for what is no workspace: the reason names it."
    )
    reason = serializers.CharField()


class IssuedTenantKubeconfigSerializer(serializers.Serializer[Any]):
    """The one copy of a tenant's kubeconfig, the credentials in it, and when the first of them ends."""

    via = serializers.ChoiceField(choices=CredentialKind.choices, source="kind")
    credentials = CredentialSerializer(many=True)
    missing = MissingWorkspaceSerializer(many=True)
    expires_at = serializers.DateTimeField(allow_null=True)
    kubeconfig = serializers.CharField(source="yaml")
