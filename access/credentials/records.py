"""What all credentials have in common: how long they live, which roles they may have, how their issue is recorded."""

from __future__ import annotations

from typing import Any, Final

from access.models import Credential
from audit.actions import Action
from audit.models import Outcome
from audit.recorder import Actor
from kube.requests.status import Conflict, Forbidden
from tenants.models import Phase, Role, Status, TenantState, Workspace
from tenants.suspensions import freezes_over

_ROLE_OF_MEMBER: Final = {Role.OWNER: "admin", Role.ADMIN: "admin", Role.EDITOR: "editor", Role.VIEWER: "viewer"}
_RANK: Final = {"owner": 3, "admin": 2, "editor": 1, "viewer": 0}


def highest_role(member: Role) -> str:
    """The most that a member's credential for a workspace may be."""
    return _ROLE_OF_MEMBER[member]


def credential_roles(member: Role) -> list[str]:
    """The roles that a member's credentials for a workspace may have, the highest first."""
    return [role for role, rank in _RANK.items() if rank <= _RANK[highest_role(member)]]


def allows(member: Role, role: str) -> bool:
    """Whether a member may have a credential of this role; one for the tenant's space may be an owner's."""
    return role in _RANK and _RANK[role] <= _RANK[member.value]


def require_allowed(member: Role, role: str, tenant: str) -> None:
    """Raise ``Forbidden`` for a role above the member's in a tenant; no role is none above."""
    if role and not allows(member, role):
        raise Forbidden(f"Your role in {tenant} is less than {role}.", kind="tenants")


def closed_because(workspace: Workspace) -> str:
    """Why nobody is given a credential for a workspace, or for its namespace, now; empty where they are."""
    if workspace.status == Status.SUSPENDED:
        return f"The workspace is suspended: {workspace.suspended_reason}"
    if workspace.status != Status.ACTIVE or workspace.tenant.state != TenantState.ACTIVE:
        return "The workspace is closed."
    return "" if workspace.phase == Phase.READY else "The workspace is not ready yet."


def require_direct(workspace: Workspace, role: str) -> None:
    """Raise ``Conflict`` for a direct credential that may write in what is frozen (GW28)."""
    if role == Role.VIEWER:
        return
    for freeze in freezes_over(workspace.tenant_id, workspace):
        # It would write past the API server, wherever its cluster does not ask.
        raise Conflict(f"frozen: {freeze.reason}. A direct credential is given to viewers alone.", kind="workspaces")


def issue_record(actor: Actor, credential: Credential, outcome: Outcome, detail: dict[str, Any]) -> None:
    """Write down what became of an issue."""
    of_portal = credential.login is not None and credential.login.of_portal
    action = Action.CONTENTS_OPENED if of_portal else Action.KUBECONFIG_ISSUED
    detail = {**detail, "kind": str(credential.kind)}
    _record(actor, action, credential.tenant_id, credential.workspace, outcome, detail)


def refusal_record(actor: Actor, workspace: Workspace, detail: dict[str, Any]) -> None:
    """Write down that nothing was issued, and why."""
    _record(actor, Action.KUBECONFIG_ISSUED, workspace.tenant_id, workspace, Outcome.DENIED, detail)


def _record(
    actor: Actor, action: Action, tenant: str, workspace: Workspace | None, outcome: Outcome, detail: dict[str, Any]
) -> None:
    actor.record(
        action,
        chain=tenant,
        outcome=outcome,
        target=f"workspaces/{workspace}" if workspace is not None else f"tenants/{tenant}",
        workspace_id=workspace.id if workspace is not None else None,
        detail=detail,
    )
