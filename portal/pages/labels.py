"""The words people read for what the database stores: states, steps and audit actions. One place, one voice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from audit.actions import Action
from audit.models import Outcome
from kube.quota import storedbytes
from tenants.models import (
    AccessRequest,
    DeliveryState,
    OperationState,
    Phase,
    RequestState,
    Status,
    TenantState,
    Workspace,
)

ALLOW: Final = "allow"
DENY: Final = "deny"
WAIT: Final = "wait"
PASS: Final = "pass"  # noqa: S105 (a verdict)


@dataclass(frozen=True, slots=True)
class State:
    """A state in words and the verdict that colours it; never a colour without a word."""

    verdict: str
    text: str


_PHASES: Final = {
    Phase.PROVISIONING: State(WAIT, "Provisioning"),
    Phase.READY: State(ALLOW, "Ready"),
    Phase.SUSPENDING: State(WAIT, "Suspending"),
    Phase.SUSPENDED: State(DENY, "Suspended"),
    Phase.RESUMING: State(WAIT, "Resuming"),
    Phase.DELETING: State(WAIT, "Deleting"),
    Phase.DELETED: State(PASS, "Deleted"),
}
_TENANTS: Final = {
    TenantState.ACTIVE: State(ALLOW, "Active"),
    TenantState.SUSPENDED: State(DENY, "Suspended"),
    TenantState.TERMINATING: State(WAIT, "Terminating"),
}
_OPERATIONS: Final = {
    OperationState.PENDING: State(WAIT, "Waiting"),
    OperationState.RUNNING: State(WAIT, "Running"),
    OperationState.DONE: State(ALLOW, "Done"),
    OperationState.FAILED: State(DENY, "Failed"),
    OperationState.SUPERSEDED: State(PASS, "Replaced by a later request"),
}
_OUTCOMES: Final = {
    Outcome.INTENT: State(WAIT, "Intent"),
    Outcome.SUCCESS: State(ALLOW, "Success"),
    Outcome.DENIED: State(DENY, "Denied"),
    Outcome.FAILURE: State(DENY, "Failure"),
}
_REQUESTS: Final = {
    RequestState.OPEN: State(WAIT, "Open"),
    RequestState.APPROVED: State(ALLOW, "Approved"),
    RequestState.DENIED: State(DENY, "Denied"),
    RequestState.WITHDRAWN: State(PASS, "Withdrawn"),
    RequestState.EXPIRED: State(PASS, "Expired"),
}
_DELIVERIES: Final = {
    DeliveryState.WAITING: State(WAIT, "Waiting"),
    DeliveryState.SENT: State(ALLOW, "Sent"),
    DeliveryState.FAILED: State(DENY, "Given up"),
}
_PENDING_PHASE: Final = {Status.SUSPENDED: Phase.SUSPENDED, Status.DELETED: Phase.DELETED}


def workspace_state(workspace: Workspace) -> State:
    """What to show for a workspace: never "suspended" before the cluster has been read back."""
    if workspace.status == Status.SUSPENDED and workspace.phase != Phase.SUSPENDED:
        return State(WAIT, "Suspending")
    if workspace.status == Status.DELETED and workspace.phase != Phase.DELETED:
        return State(WAIT, "Deleting")
    return _PHASES[Phase(workspace.phase)]


def workspace_is_moving(workspace: Workspace) -> bool:
    """Whether a worker still has something to do for it."""
    return workspace.phase != _PENDING_PHASE.get(Status(workspace.status), Phase.READY)


def tenant_state(state: str) -> State:
    """The state of a tenant."""
    return _TENANTS[TenantState(state)]


def operation_state(state: str) -> State:
    """The state of an operation."""
    return _OPERATIONS[OperationState(state)]


def outcome_state(outcome: str) -> State:
    """How an audited event ended."""
    return _OUTCOMES[Outcome(outcome)]


def request_state(state: str) -> State:
    """What has become of a request."""
    return _REQUESTS[RequestState(state)]


def delivery_state(state: str) -> State:
    """Where a message to a webhook is."""
    return _DELIVERIES[DeliveryState(state)]


def request_facts(found: AccessRequest) -> list[tuple[str, str]]:
    """What a request asks for, fact by fact."""
    facts = [
        ("Asked for", found.get_kind_display()),
        ("Tenant", found.tenant_id or found.name),
        ("Display name", found.display_name),
        ("Workspace", str(found.workspace or "")),
        ("Tier now", str(found.workspace.tier) if found.workspace else ""),
        ("Tier asked for", str(found.tier or "")),
        ("Role", found.get_role_display()),
        ("For", f"{found.minutes} minutes" if found.minutes else ""),
        *((resource_name(name), amount) for name, amount in found.hard.items()),
        ("Decided by", found.get_approvers_display()),
    ]
    return [(name, str(value)) for name, value in facts if value]


STEPS: Final = {
    "shown": "Shown in the tenant's space",
    "namespace": "Namespace",
    "quota": "Resource quota",
    "limits": "Default limits",
    "quota-counted": "Quota in force",
    "service-accounts": "Service accounts",
    "role-bindings": "Access rights",
    "restored-bindings": "Bindings from before",
    "lock": "Closed at the portal and the gateway",
    "bindings": "Role bindings taken away",
    "canary": "Tried with a token: refused",
    "anchors": "Credentials revoked",
    "old-accounts": "Accounts from before taken away",
    "old-tokens": "Tokens from before dead",
    "held": "No right left",
    "streams": "What goes on",
    "own-accounts": "The tenant's own service accounts made anew",
    "pods-ended": "Pods stopped",
    "namespace-deleted": "Deletion asked for",
    "namespace-gone": "Namespace gone",
}


def step_name(step: str) -> str:
    """A step's name in words; an unknown one as it is, so that nothing is hidden."""
    return STEPS.get(step, step.replace("-", " ").capitalize())


RESOURCES: Final = {
    "requests.cpu": "CPU requested",
    "requests.memory": "Memory requested",
    "limits.cpu": "CPU limit",
    "limits.memory": "Memory limit",
    "requests.storage": "Storage requested",
    "requests.ephemeral-storage": "Local storage requested",
    "limits.ephemeral-storage": "Local storage limit",
    "pods": "Pods",
    "count/pods": "Pods, ended ones too",
    "services": "Services",
    "secrets": "Secrets",
    "configmaps": "Config maps",
    "persistentvolumeclaims": "Volume claims",
    "services.loadbalancers": "Load balancers",
    "services.nodeports": "Node ports",
    "cronjobs": "Cron jobs",
    "horizontalpodautoscalers": "Pod autoscalers",
    "networkpolicies": "Network policies",
    "poddisruptionbudgets": "Disruption budgets",
    "replicasets": "Replica sets",
    "replicationcontrollers": "Replication controllers",
    "rolebindings": "Role bindings",
    "serviceaccounts": "Service accounts",
    "statefulsets": "Stateful sets",
    storedbytes.NAME: "All objects, in bytes",
}


def resource_name(resource: str) -> str:
    """A quota resource in words; ``count/deployments.apps`` is Deployments, what has no words stays what it is."""
    if resource in RESOURCES or not resource.startswith("count/"):
        return RESOURCES.get(resource, resource)
    kind = resource.removeprefix("count/").split(".")[0]
    return RESOURCES.get(kind, kind.capitalize())


_NOUNS: Final = {
    "audit": "audit log",
    "clusters": "cluster",
    "tenants": "tenant",
    "tiers": "tier",
    "tokens": "access token",
    "users": "user",
}


def target_name(target: str) -> str:
    """What an event is about: ``workspaces/acme/web`` is the workspace web of acme; what has no words stays as it is."""
    match target.split("/"):
        case ["workspaces", tenant, name]:
            return f"workspace {name} of {tenant}"
        case ["workspaces", tenant, name, "credentials", _]:
            return f"credential for the workspace {name} of {tenant}"
        case ["tenants", tenant, "members", _]:
            return f"member of {tenant}"
        case ["tenants", tenant, "invitations", _]:
            return f"invitation to {tenant}"
        case [noun, name] if noun in _NOUNS:
            return f"{_NOUNS[noun]} {name}"
    return target


ACTIONS: Final = {
    Action.ACCESS_DENIED: "Access denied",
    Action.ACCESS_ENDED: "All access ended",
    Action.ANNOUNCEMENT_CHANGED: "Announcement changed",
    Action.ANNOUNCEMENT_CREATED: "Announcement made",
    Action.ANNOUNCEMENT_ENDED: "Announcement ended",
    Action.AUDIT_EXPORTED: "Audit log exported",
    Action.AUTHORIZER_FAILED: "Authorizer failed",
    Action.BACKUP_MADE: "Backup",
    Action.CLUSTER_AWAY: "Cluster not reached",
    Action.CLUSTER_BACK: "Cluster reached again",
    Action.CLUSTER_CHANGED: "Cluster changed",
    Action.CLUSTER_CHECKED: "Cluster checked",
    Action.CLUSTER_DELETED: "Cluster removed",
    Action.CLUSTER_REGISTERED: "Cluster registered",
    Action.CLUSTER_ROTATED: "Cluster's credential rotated",
    Action.KEY_ROTATED: "Key of the installation rotated",
    Action.CONNECTION_ENDED: "Connection into a pod ended",
    Action.CONTENTS_OPENED: "Contents looked at",
    Action.CREDENTIAL_REVOKED: "Credential revoked",
    Action.FACTOR_ADDED: "Second factor set up",
    Action.FACTOR_REMOVED: "Second factor removed",
    Action.PASSKEY_ADDED: "Passkey added",
    Action.PASSKEY_REMOVED: "Passkey removed",
    Action.INBOX_POSTPONED: "Put off in the inbox",
    Action.INBOX_RESUMED: "Brought back into the inbox",
    Action.INVITATION_ACCEPTED: "Invitation accepted",
    Action.INVITATION_CREATED: "Invited",
    Action.INVITATION_REVOKED: "Invitation revoked",
    Action.KUBECONFIG_ISSUED: "Kubeconfig issued",
    Action.LOGIN_ALLOWED: "Machine signed in",
    Action.LOGIN_DENIED: "Machine turned away",
    Action.LOGIN_REVOKED: "Machine signed out",
    Action.MEMBERSHIP_LOWERED: "Break-glass ended",
    Action.MEMBERSHIP_RAISED: "Break-glass",
    Action.MEMBERSHIP_REMOVED: "Member removed",
    Action.MEMBERSHIP_SET: "Member set",
    Action.PASSWORD_GIVEN: "Password given",
    Action.PASSWORD_LINK_MADE: "Link for a new password made",
    Action.POLICY_CHANGED: "Policy changed",
    Action.PRICES_CHANGED: "Prices changed",
    Action.RECORDING_BEGUN: "Recorded session begun",
    Action.RECORDING_ENDED: "Recorded session ended",
    Action.RECORDING_WATCHED: "Recording watched",
    Action.RECORDINGS_FORGOTTEN: "Recordings past their time deleted",
    Action.REQUEST_APPROVED: "Request approved",
    Action.REQUEST_COMMENTED: "Request commented",
    Action.REQUEST_CREATED: "Request made",
    Action.REQUEST_DENIED: "Request denied",
    Action.REQUEST_EXPIRED: "Request expired",
    Action.REQUEST_SECONDED: "Request approved by the first of two",
    Action.REQUEST_WITHDRAWN: "Request withdrawn",
    Action.RESTORED: "Backup restored",
    Action.RESTORE_OPENED: "Opened after a restore",
    Action.RECOVERY_CODES_MADE: "Recovery codes made",
    Action.SESSION_ENDED: "Sessions ended",
    Action.SETTINGS_CHANGED: "Settings changed",
    Action.SIGN_IN: "Sign-in",
    Action.SIGN_OUT: "Sign-out",
    Action.TENANT_CHANGED: "Tenant changed",
    Action.TENANT_CREATED: "Tenant created",
    Action.TENANT_DELETED: "Tenant deletion begun",
    Action.TENANT_ENDED: "Tenant ended",
    Action.TENANT_EXPORTED: "Tenant exported",
    Action.TENANT_FROZEN: "Tenant frozen",
    Action.TENANT_OFFBOARDED: "Tenant's leaving begun",
    Action.TENANT_POLICIES_CHANGED: "Tenant's policies changed",
    Action.TENANT_QUOTA_CHANGED: "Tenant's quota changed",
    Action.TENANT_RESUMED: "Tenant resumed",
    Action.TENANT_RETAINED: "Tenant's leaving called off",
    Action.TENANT_SUSPENDED: "Tenant suspended",
    Action.TENANT_THAWED: "Tenant thawed",
    Action.TIER_CHANGED: "Tier changed",
    Action.TIER_CREATED: "Tier created",
    Action.TIER_DELETED: "Tier deleted",
    Action.TOKEN_CREATED: "Access token created",
    Action.TOKEN_REFUSED: "Access token refused",
    Action.TOKEN_REVOKED: "Access token revoked",
    Action.USER_CHANGED: "User changed",
    Action.USER_CREATED: "User created",
    Action.VIEWING_BEGUN: "Seeing the portal as somebody",
    Action.VIEWING_ENDED: "Seeing it as oneself again",
    Action.WEBHOOK_CREATED: "Webhook made",
    Action.WEBHOOK_DELETED: "Webhook deleted",
    Action.WORKSPACE_CREATED: "Workspace asked for",
    Action.WORKSPACE_DELETED: "Workspace deletion begun",
    Action.WORKSPACE_DRIFTED: "Drift repaired",
    Action.WORKSPACE_FAILED: "Workspace failed",
    Action.WORKSPACE_FROZEN: "Workspace frozen",
    Action.WORKSPACE_GONE: "Workspace gone",
    Action.WORKSPACE_READY: "Workspace ready",
    Action.WORKSPACE_RENEWED: "Workspace's end set",
    Action.WORKSPACE_RESUMED: "Workspace resumed",
    Action.WORKSPACE_SUSPENDED: "Workspace suspended",
    Action.WORKSPACE_SUSPENSION_HELD: "Suspension confirmed",
    Action.WORKSPACE_THAWED: "Workspace thawed",
    Action.WORKSPACE_TIER_CHANGED: "Workspace tier changed",
    Action.WORKSPACE_TOKEN_ISSUED: "Workspace token issued to the API server",
}


def action_name(action: str) -> str:
    """An event in words; one without words by its own name."""
    return ACTIONS.get(action, action)  # type: ignore[call-overload,no-any-return]
