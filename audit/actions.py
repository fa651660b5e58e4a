"""The names of security events, and nowhere else.

A name is ``<noun>.<verb>``, alphabetical; exports and filters depend on them, so they are never renamed.
"""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    """What happened: the column ``action`` of ``audit_logs`` (GW8)."""

    ACCESS_DENIED = "access.deny"
    AUDIT_EXPORTED = "audit.export"
    AUTHORIZER_FAILED = "authorizer.fail"
    BACKUP_MADE = "backup.create"
    CLUSTER_AWAY = "cluster.away"
    CLUSTER_BACK = "cluster.back"
    CLUSTER_CHANGED = "cluster.change"
    CLUSTER_CHECKED = "cluster.check"
    CLUSTER_DELETED = "cluster.delete"
    CLUSTER_REGISTERED = "cluster.register"
    CLUSTER_ROTATED = "cluster.rotate"
    KEY_ROTATED = "key.rotate"
    CONNECTION_ENDED = "connection.end"
    CREDENTIAL_REVOKED = "credential.revoke"
    INVITATION_ACCEPTED = "invitation.accept"
    INVITATION_CREATED = "invitation.create"
    INVITATION_REVOKED = "invitation.revoke"
    KUBECONFIG_ISSUED = "IssueKubeconfig"
    LOGIN_ALLOWED = "login.allow"
    LOGIN_DENIED = "login.deny"
    LOGIN_REVOKED = "login.revoke"
    MEMBERSHIP_REMOVED = "membership.remove"
    MEMBERSHIP_SET = "membership.set"
    POLICY_CHANGED = "policy.change"
    PRICES_CHANGED = "prices.change"
    RECORDING_BEGUN = "recording.begin"
    RECORDING_ENDED = "recording.end"
    RECORDING_WATCHED = "recording.watch"
    RECORDINGS_FORGOTTEN = "recording.forget"
    REQUESTS_DROPPED = "requests.drop"
    RESTORED = "backup.restore"
    RESTORE_OPENED = "backup.open"
    SETTINGS_CHANGED = "settings.change"
    SIGN_IN = "session.open"
    SIGN_OUT = "session.close"
    TENANT_CHANGED = "tenant.change"
    TENANT_CREATED = "tenant.create"
    TENANT_DELETED = "tenant.delete"
    TENANT_ENDED = "tenant.end"
    TENANT_POLICIES_CHANGED = "tenant.policies"
    TENANT_QUOTA_CHANGED = "tenant.quota"
    TENANT_RESUMED = "tenant.resume"
    TENANT_SUSPENDED = "tenant.suspend"
    TIER_CHANGED = "tier.change"
    TIER_CREATED = "tier.create"
    TIER_DELETED = "tier.delete"
    TOKEN_CREATED = "token.create"  # noqa: S105 (the name of an event)
    TOKEN_REFUSED = "token.refuse"  # noqa: S105 (the name of an event)
    TOKEN_REVOKED = "token.revoke"  # noqa: S105 (the name of an event)
    USER_CHANGED = "user.change"
    USER_CREATED = "user.create"
    WEBHOOK_CREDENTIAL_ISSUED = "webhook.credential"
    WORKSPACE_ABANDONED = "workspace.abandon"
    WORKSPACE_CREATED = "workspace.create"
    WORKSPACE_DELETED = "workspace.delete"
    WORKSPACE_DRIFTED = "workspace.drift"
    WORKSPACE_FAILED = "workspace.fail"
    WORKSPACE_GONE = "workspace.gone"
    WORKSPACE_READY = "workspace.ready"
    WORKSPACE_RESUMED = "workspace.resume"
    WORKSPACE_SUSPENDED = "workspace.suspend"
    WORKSPACE_SUSPENSION_HELD = "workspace.suspension.hold"
    WORKSPACE_TIER_CHANGED = "workspace.tier"
    WORKSPACE_TOKEN_ISSUED = "workspace.token"  # noqa: S105 (the name of an event)
