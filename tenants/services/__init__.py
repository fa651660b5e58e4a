"""Writes: keyword-only, typed, one transaction each, with an ``actor`` and an audit entry in the same transaction.

All raise subclasses of ``kube.requests.status.StatusError``: ``NotFound`` for what is not there or not the actor's to know of,
``Forbidden`` for too small a role, ``Conflict`` or ``AlreadyExists`` for the wrong moment, ``Invalid`` (with a cause
for each field) for bad input, ``TooManyRequests`` for too much of it.
"""

from tenants.services.clustercredentials import cluster_credential_rotate
from tenants.services.clusters import cluster_change, cluster_check, cluster_delete, cluster_register
from tenants.services.connections import pod_connection_end
from tenants.services.endings import workspace_end_at
from tenants.services.invitations import invitation_accept, invitation_create, invitation_revoke
from tenants.services.memberships import membership_end_at, membership_remove, membership_set
from tenants.services.operations import operation_retry, workspace_abandon
from tenants.services.policies import tenant_policies_change
from tenants.services.prices import prices_change
from tenants.services.recordings import recording_watch, recordings_close, recordings_forget
from tenants.services.tenants import (
    tenant_change,
    tenant_create,
    tenant_delete,
    tenant_quota_change,
    tenant_resume,
    tenant_suspend,
)
from tenants.services.tiers import tier_change, tier_create, tier_delete, tiers_create_defaults
from tenants.services.workspaces import (
    workspace_change_tier,
    workspace_delete,
    workspace_init,
    workspace_resume,
    workspace_suspend,
)

__all__ = [
    "cluster_change",
    "cluster_check",
    "cluster_credential_rotate",
    "cluster_delete",
    "cluster_register",
    "invitation_accept",
    "invitation_create",
    "invitation_revoke",
    "membership_end_at",
    "membership_remove",
    "membership_set",
    "operation_retry",
    "pod_connection_end",
    "prices_change",
    "recording_watch",
    "recordings_close",
    "recordings_forget",
    "tenant_change",
    "tenant_create",
    "tenant_delete",
    "tenant_policies_change",
    "tenant_quota_change",
    "tenant_resume",
    "tenant_suspend",
    "tier_change",
    "tier_create",
    "tier_delete",
    "tiers_create_defaults",
    "workspace_abandon",
    "workspace_change_tier",
    "workspace_delete",
    "workspace_end_at",
    "workspace_init",
    "workspace_resume",
    "workspace_suspend",
]
