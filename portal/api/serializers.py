"""Shapes of the API. Bodies with members that nobody reads are refused; answers never carry a stored secret."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers

from access.models import Credential, PersonalAccessToken
from audit.models import AuditEntry
from kube.inspection import TEXT_MAX
from kube.whatif import Effect
from portal import wording
from tenants.models import Cluster, Membership, Role, Status, Tenant, Tier, Workspace


class Body(serializers.Serializer[Any]):
    """A request body: unknown members are an error, so that a typing mistake is not a silent default."""

    def to_internal_value(self, data: Any) -> Any:
        """The checked values."""
        if isinstance(data, dict):
            unknown = sorted(set(data) - set(self.fields))
            if unknown:
                raise serializers.ValidationError({str(name)[:80]: "There is no such field." for name in unknown[:10]})
        return super().to_internal_value(data)


class InitBody(Body):
    """What the seed asks for a workspace, and what one may add."""

    tier = serializers.CharField(max_length=63)
    tenant = serializers.CharField(max_length=63, required=False, default="")
    name = serializers.CharField(max_length=63, required=False, default="")
    cluster = serializers.CharField(max_length=63, required=False, default="")


class TierBody(Body):
    """Another tier for a workspace."""

    tier = serializers.CharField(max_length=63)


class ReasonBody(Body):
    """Why."""

    reason = serializers.CharField(max_length=512)


class RoleBody(Body):
    """With which rights; the caller's own by default."""

    role = serializers.ChoiceField(choices=["admin", "editor", "viewer"], required=False, default="")


class TenantBody(Body):
    """A new tenant."""

    name = serializers.CharField(max_length=63)
    display_name = serializers.CharField(max_length=128, required=False, default="", allow_blank=True)
    owner = serializers.EmailField(
        max_length=254, required=False, default="", help_text="An existing user, who becomes the first owner."
    )


class MemberBody(Body):
    """Somebody who has an account, and as what."""

    email = serializers.EmailField(max_length=254)
    role = serializers.ChoiceField(choices=Role.choices)


class MemberRoleBody(Body):
    """A member's new role."""

    role = serializers.ChoiceField(choices=Role.choices)


class TierFields(Body):
    """What may change of a tier."""

    display_name = serializers.CharField(max_length=64)
    description = serializers.CharField(max_length=256, required=False, default="", allow_blank=True)
    quota = serializers.DictField(child=serializers.CharField(max_length=32))
    limit_range = serializers.ListField(child=serializers.DictField(), required=False, default=list, max_length=20)
    workspaces_per_user = serializers.IntegerField(min_value=0, max_value=1000, required=False, default=1)
    is_available = serializers.BooleanField(required=False, default=True)
    position = serializers.IntegerField(min_value=0, max_value=1000, required=False, default=0)


class NewTierBody(TierFields):
    """A new tier."""

    name = serializers.CharField(max_length=63)


class ClusterBody(Body):
    """A cluster by its kubeconfig, which is sealed and never shown."""

    name = serializers.CharField(max_length=63)
    kubeconfig = serializers.CharField(max_length=262_144, write_only=True, trim_whitespace=False)
    client_url = serializers.CharField(max_length=512, required=False, default="", allow_blank=True)
    tenant_role = serializers.CharField(max_length=253, required=False, default="tenantry-tenant-admin")
    is_default = serializers.BooleanField(required=False, default=False)


class ClusterChangeBody(Body):
    """What to change of a cluster; another server or CA wipes the stored credential."""

    server = serializers.CharField(max_length=512, required=False)
    ca_data = serializers.CharField(max_length=65_536, required=False, trim_whitespace=False)
    client_url = serializers.CharField(max_length=512, required=False, allow_blank=True)
    tenant_role = serializers.CharField(max_length=253, required=False)
    is_default = serializers.BooleanField(required=False)


class TokenBody(Body):
    """A new personal access token."""

    name = serializers.CharField(max_length=64)
    scope = serializers.ChoiceField(choices=PersonalAccessToken.Scope.choices, required=False, default="read")
    tenant = serializers.CharField(max_length=63, required=False, default="")
    expires_at = serializers.DateTimeField()


class UserFacts(Body):
    """A user as the API server would see them."""

    name = serializers.CharField(max_length=253)
    groups = serializers.ListField(
        child=serializers.CharField(max_length=253), required=False, default=list, max_length=100
    )
    tenant = serializers.CharField(max_length=63, required=False, default="", allow_blank=True)
    extra = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField(max_length=1024), max_length=100),
        required=False,
        default=dict,
    )


class ExplainBody(Body):
    """A request that somebody might send."""

    user = UserFacts()
    method = serializers.CharField(max_length=7, required=False, default="GET")
    path = serializers.CharField(max_length=2048, trim_whitespace=False)
    cluster = serializers.CharField(max_length=512, required=False, default="", allow_blank=True)


class InspectBody(Body):
    """What somebody might show to the API server."""

    text = serializers.CharField(max_length=TEXT_MAX, trim_whitespace=False)


class WhoCanBody(Body):
    """A thing that somebody might do: on a resource, or on a path that is none."""

    cluster = serializers.CharField(max_length=512)
    verb = serializers.CharField(max_length=63)
    group = serializers.CharField(max_length=253, required=False, default="", allow_blank=True)
    resource = serializers.CharField(max_length=253, required=False, default="", allow_blank=True)
    subresource = serializers.CharField(max_length=253, required=False, default="", allow_blank=True)
    namespace = serializers.CharField(max_length=63, required=False, default="", allow_blank=True)
    name = serializers.CharField(max_length=253, required=False, default="", allow_blank=True)
    path = serializers.CharField(max_length=2048, required=False, default="", allow_blank=True)


class WhatIfBody(Body):
    """A role, a binding or a policy as it would be written, or deleted."""

    cluster = serializers.CharField(max_length=512)
    manifest = serializers.DictField()
    delete = serializers.BooleanField(required=False, default=False)


class WorkspaceAnswer(serializers.Serializer[Workspace]):
    """A workspace."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    tenant = serializers.CharField(source="tenant_id")
    user = serializers.EmailField(source="user.email")
    cluster = serializers.CharField(source="cluster.name")
    tier = serializers.CharField(source="tier_id")
    namespace = serializers.CharField(source="k8s_namespace")
    service_account = serializers.CharField(source="k8s_sa_name")
    status = serializers.SerializerMethodField()
    quota = serializers.SerializerMethodField()
    suspended_reason = serializers.CharField()
    suspended_at = serializers.DateTimeField(allow_null=True)
    receipt = serializers.ListField(child=serializers.DictField())
    created_at = serializers.DateTimeField()
    ready_at = serializers.DateTimeField(allow_null=True)
    url = serializers.SerializerMethodField()

    def get_status(self, workspace: Workspace) -> str:
        """``provisioned``, or what is going on: never ``suspended`` before the cluster was read back."""
        return workspace_status(workspace)

    def get_quota(self, workspace: Workspace) -> dict[str, str]:
        """The requests that the tier allows, as the seed shows them, and every other hard limit by its name."""
        return workspace_quota(workspace)

    def get_url(self, workspace: Workspace) -> str:
        """Where the workspace is in this API."""
        return reverse("api-workspace", args=[workspace.pk])


class InitAnswer(serializers.Serializer[Workspace]):
    """The seed's answer."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    tenant = serializers.CharField(source="tenant_id")
    namespace = serializers.CharField(source="k8s_namespace")
    status = serializers.SerializerMethodField()
    quota = serializers.SerializerMethodField()

    def get_status(self, workspace: Workspace) -> str:
        """``provisioned``, or ``provisioning`` while the worker is busy."""
        return workspace_status(workspace)

    def get_quota(self, workspace: Workspace) -> dict[str, str]:
        """Cpu and memory that may be requested."""
        return {key: value for key, value in workspace_quota(workspace).items() if key in {"cpu", "memory"}}


class CredentialAnswer(serializers.Serializer[Credential]):
    """An issued credential: facts, never the token."""

    id = serializers.UUIDField()
    jti = serializers.CharField(allow_null=True)
    issued_to = serializers.EmailField(source="issued_to.email")
    role = serializers.CharField()
    ip_address = serializers.IPAddressField(allow_null=True)
    user_agent = serializers.CharField()
    issued_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    failed_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)
    revocation_confirmed_at = serializers.DateTimeField(allow_null=True)


class IssuedAnswer(CredentialAnswer):
    """A new credential with the one copy of its kubeconfig."""

    kubeconfig = serializers.CharField()


class TenantAnswer(serializers.Serializer[Tenant]):
    """A tenant."""

    name = serializers.CharField()
    display_name = serializers.CharField()
    state = serializers.CharField()
    cluster_path = serializers.CharField()
    suspended_reason = serializers.CharField()
    suspended_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()


class MemberAnswer(serializers.Serializer[Membership]):
    """A membership."""

    user_id = serializers.UUIDField()
    email = serializers.EmailField(source="user.email")
    name = serializers.CharField(source="user.name")
    role = serializers.CharField()
    created_at = serializers.DateTimeField()


class TierAnswer(serializers.Serializer[Tier]):
    """A tier."""

    name = serializers.CharField()
    display_name = serializers.CharField()
    description = serializers.CharField()
    quota = serializers.DictField(child=serializers.CharField())
    limit_range = serializers.ListField(child=serializers.DictField())
    workspaces_per_user = serializers.IntegerField()
    is_available = serializers.BooleanField()
    position = serializers.IntegerField()


class ClusterAnswer(serializers.Serializer[Cluster]):
    """A cluster; of its credential only whether there is one."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    kind = serializers.CharField()
    server = serializers.CharField()
    client_url = serializers.CharField()
    ca_data = serializers.CharField()
    tenant_role = serializers.CharField()
    is_default = serializers.BooleanField()
    last_error = serializers.CharField()
    last_seen_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()


class AuditAnswer(serializers.Serializer[AuditEntry]):
    """An audit entry with everything that its hash needs."""

    id = serializers.UUIDField()
    chain = serializers.CharField()
    sequence = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    action = serializers.CharField()
    outcome = serializers.CharField()
    actor = serializers.CharField()
    user_id = serializers.UUIDField(allow_null=True)
    workspace_id = serializers.UUIDField(allow_null=True)
    target = serializers.CharField()
    ip_address = serializers.IPAddressField(allow_null=True)
    user_agent = serializers.CharField()
    request_id = serializers.CharField()
    detail = serializers.DictField()
    previous_hash = serializers.CharField()
    hash = serializers.CharField()


class TokenAnswer(serializers.Serializer[PersonalAccessToken]):
    """A personal access token without its text."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField()
    scope = serializers.CharField()
    tenant = serializers.CharField(source="tenant_id", allow_null=True)
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)


class MintedAnswer(TokenAnswer):
    """A new token with its text, shown once."""

    token = serializers.CharField()


class ResolvedAnswer(serializers.Serializer[Any]):
    """What a request means once it is resolved."""

    tenant = serializers.CharField()
    cluster = serializers.CharField()
    verb = serializers.CharField()
    apiGroup = serializers.CharField()
    apiVersion = serializers.CharField()
    namespace = serializers.CharField()
    resource = serializers.CharField()
    subresource = serializers.CharField()
    name = serializers.CharField()
    path = serializers.CharField()


class TraceStep(serializers.Serializer[Any]):
    """One authorizer's answer."""

    step = serializers.CharField()
    decision = serializers.CharField()
    reason = serializers.CharField()
    rule = serializers.CharField()


class ExplainAnswer(serializers.Serializer[Any]):
    """A decision with every step."""

    resolved = ResolvedAnswer()
    decision = serializers.ChoiceField(choices=["allow", "deny"])
    decidedBy = serializers.CharField()
    reason = serializers.CharField()
    trace = TraceStep(many=True)


class IdentityAnswer(serializers.Serializer[Any]):
    """A user, the tenant empty for none."""

    user = serializers.CharField()
    groups = serializers.ListField(child=serializers.CharField())
    tenant = serializers.CharField()


class InspectStep(serializers.Serializer[Any]):
    """One rule."""

    rule = serializers.CharField()
    matched = serializers.BooleanField()
    reason = serializers.CharField()


class InspectAnswer(serializers.Serializer[Any]):
    """Who it would be, `null` for nobody, and what each rule says."""

    kind = serializers.CharField()
    identity = IdentityAnswer(allow_null=True)
    rule = serializers.CharField()
    steps = InspectStep(many=True)


class RemedyAnswer(serializers.Serializer[Any]):
    """Objects that would allow a request."""

    text = serializers.CharField()
    cluster = serializers.CharField()
    objects = serializers.ListField(child=serializers.DictField())
    permissions = serializers.IntegerField(help_text="how many single permissions that hands out")


class HolderAnswer(serializers.Serializer[Any]):
    """Somebody who may."""

    kind = serializers.CharField()
    name = serializers.CharField()
    namespace = serializers.CharField()
    tenant = serializers.CharField()
    path = serializers.ListField(child=serializers.CharField())


class EffectAnswer(serializers.Serializer[Any]):
    """What somebody gains and loses."""

    kind = serializers.CharField()
    name = serializers.CharField()
    tenant = serializers.CharField()
    namespace = serializers.CharField()
    gains = serializers.SerializerMethodField()
    losses = serializers.SerializerMethodField()

    def get_gains(self, effect: Effect) -> list[dict[str, Any]]:
        """As PolicyRules."""
        return [rule.as_dict() for rule in effect.gains]

    def get_losses(self, effect: Effect) -> list[dict[str, Any]]:
        """As PolicyRules."""
        return [rule.as_dict() for rule in effect.losses]


class PolicyAnswer(serializers.Serializer[Any]):
    """Somebody whom a tenant has let in."""

    name = serializers.CharField()
    spec = serializers.DictField()
    since = serializers.CharField()
    opens = serializers.BooleanField(help_text="false for a policy that is not understood")


class UsageAnswer(serializers.Serializer[Any]):
    """What a tenant used in the last 24 hours (AD7)."""

    workspaces = serializers.IntegerField()
    ready = serializers.IntegerField()
    suspended = serializers.IntegerField()
    members = serializers.IntegerField()
    requests = serializers.IntegerField(help_text="to the API server in the last 24 hours")
    refused = serializers.IntegerField(help_text="of these, refused")
    credentials_issued = serializers.IntegerField(help_text="in the last 24 hours")


class QuotaWorkspace(serializers.Serializer[Any]):
    """One workspace's hard limits."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    tier = serializers.CharField()
    hard = serializers.DictField(child=serializers.CharField())


class QuotaAnswer(serializers.Serializer[Any]):
    """The hard limits of a tenant's workspaces."""

    workspaces = QuotaWorkspace(many=True)


def workspace_status(workspace: Workspace) -> str:
    """The status in one word: the seed's ``provisioned`` when it is ready."""
    if workspace.status == Status.ACTIVE and not wording.workspace_is_moving(workspace):
        return "provisioned"
    return wording.workspace_state(workspace).text.lower()


def workspace_quota(workspace: Workspace) -> dict[str, str]:
    """``requests.cpu`` and ``requests.memory`` as ``cpu`` and ``memory`` (GATEWAY 4.1), the rest by their own names."""
    quota = {str(key): str(value) for key, value in workspace.tier.quota.items()}
    short = {key: quota[f"requests.{key}"] for key in ("cpu", "memory") if f"requests.{key}" in quota}
    return short | quota
