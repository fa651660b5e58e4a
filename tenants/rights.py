"""Who may do what with a tenant: memberships, decided in one place for every service and selector.

Whoever is no member may not know of the tenant: NotFound, not Forbidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from audit.recorder import Actor
from kube.requests.status import Conflict, Forbidden, NotFound, StatusError
from tenants.models import Membership, Offboarding, Role, Status, Tenant, TenantState, User, Workspace
from tenants.suspensions import freezes_over

_RANK = {Role.OWNER: 3, Role.ADMIN: 2, Role.EDITOR: 1, Role.VIEWER: 0}


def as_actor(user: User) -> Actor:
    """Somebody who is not asking now, with the rights that the account has at this moment; disabled, with none."""
    if not user.is_active:
        return Actor(name=user.email)
    return Actor(name=user.email, user_id=user.pk, operator=user.is_staff, auditor=user.is_auditor)


def role_at_least(role: str, needed: Role) -> bool:
    """Whether ``role`` is ``needed`` or more."""
    return _RANK[Role(role)] >= _RANK[needed]


def role_of(actor: Actor, tenant: str) -> Role | None:
    """The actor's role in the tenant; operators count as owners everywhere, auditors as viewers, whatever else they are."""
    if actor.operator:
        return Role.OWNER
    if actor.auditor:
        return Role.VIEWER if Tenant.objects.filter(pk=tenant).exists() else None
    if actor.user_id is None:
        return None
    found = Membership.objects.filter(tenant_id=tenant, user_id=actor.user_id).first()
    return Role(found.present_role) if found else None


def require_role(actor: Actor, tenant: str, needed: Role) -> Role:
    """The actor's role, which is at least ``needed``; else Forbidden, or NotFound for whoever is no member."""
    role = role_of(actor, tenant)
    if role is None:
        raise tenant_unknown(tenant)
    if not role_at_least(role, needed):
        raise Forbidden(f"This needs the role {needed.label} in {tenant}; yours is {role.label}.", kind="tenants")
    return role


def lasting_role_of(actor: Actor, tenant: str) -> Role | None:
    """``role_of`` without what break-glass gives: whoever is let in for an hour lets in nobody else (GW25)."""
    if actor.sees_all or actor.user_id is None:
        return role_of(actor, tenant)
    found = Membership.objects.filter(tenant_id=tenant, user_id=actor.user_id, break_glass=False).first()
    return Role(found.role) if found else None


def require_lasting_role(actor: Actor, tenant: str, needed: Role) -> Role:
    """``require_role`` of ``lasting_role_of``."""
    require_role(actor, tenant, needed)
    own = lasting_role_of(actor, tenant)
    if own is None or not role_at_least(own, needed):
        raise Forbidden(f"A role by break-glass does not do this: it needs {needed.label} in {tenant} for good.")
    return own


def roles_given_by(actor: Actor, tenant: str) -> list[Role]:
    """The roles that the actor may give, change and take in the tenant: owners all, admins all below."""
    own = lasting_role_of(actor, tenant)
    if own is None or not role_at_least(own, Role.ADMIN):
        return []
    return [role for role in Role if role_at_least(own, role)]


def tenant_locked(name: str) -> Tenant:
    """The tenant, its row locked until the transaction's end: what is done on the strength of its state is done in it.

    Whoever locks a workspace or a user as well does so after it. Raises ``NotFound``.
    """
    tenant = Tenant.objects.select_for_update(no_key=True).filter(name=name).first()
    if tenant is None:
        raise tenant_unknown(name)
    return tenant


def person_locked(user: User) -> None:
    """Lock the row of somebody who is about to add what opens their account, until the transaction's end (RV-11).

    Raises ``Forbidden`` where what ends their sessions has happened since the request began, a new password for one: what is
    added afterwards would outlive it.
    """
    present = User.objects.select_for_update(no_key=True).get(pk=user.pk)
    if present.get_session_auth_hash() != user.get_session_auth_hash():
        raise Forbidden("Your access was ended meanwhile. Sign in again.", kind="users")


def rights_locked(actor: Actor, tenant: str) -> Actor:
    """The actor with the rights of this moment in a tenant and on the platform, which stay until the transaction's end.

    What gives or takes a membership holds the tenant's row, what gives or takes a rank, or disables, the person's: whoever
    hands something out that no later look takes back asks here first. Never more than the actor came with, whom an access
    token may have narrowed; nobody's, once the account is disabled. Raises ``NotFound``.
    """
    tenant_locked(tenant)
    if actor.user_id is None:
        return actor
    present = as_actor(User.objects.select_for_update(no_key=True).get(pk=actor.user_id))
    return replace(
        actor, user_id=present.user_id, operator=actor.operator and present.operator, auditor=present.auditor
    )


def tenant_unknown(name: str) -> NotFound:
    """The same for a tenant that is not and one that is nothing to the actor."""
    return NotFound(f"There is no tenant {name[:63]!r}.", kind="tenants", name=name[:63])


def require_open(actor: Actor, tenant: Tenant, workspace: Workspace | None = None) -> None:
    """Forbidden, with the reason, for whoever is no operator where an operator has closed the door, or it ends (GW5).

    Also where one holds everything still (GW28).

    And for auditors, wherever it is: they change nothing.

    Its people go on to read, may leave, and may end what gives rights (credentials, personal access tokens, policies);
    every service that does anything else with a tenant, or with a workspace of it, asks here.
    """
    require_unlocked(actor, tenant, workspace)
    require_thawed(actor, tenant, workspace)


def lets(rule: Callable[..., object], *of: Any) -> bool:
    """Whether one of these rules lets somebody pass: what is offered on pages is decided by what the services ask."""
    try:
        rule(*of)
    except StatusError:
        return False
    return True


def require_unlocked(actor: Actor, tenant: Tenant, workspace: Workspace | None = None) -> None:
    """The same as far as doors are closed: for what takes rights away, which nothing that is held still is to keep."""
    if actor.operator:
        return
    if actor.auditor:
        raise Forbidden("Auditors see everything and change nothing.", kind="tenants")
    if tenant.state != TenantState.ACTIVE:
        raise Forbidden(
            _closed(f"tenant {tenant.name}", tenant.get_state_display(), tenant.suspended_reason), kind="tenants"
        )
    if workspace is not None and workspace.status == Status.SUSPENDED:
        raise Forbidden(_closed("workspace", "suspended", workspace.suspended_reason), kind="workspaces")


def require_thawed(actor: Actor, tenant: Tenant, workspace: Workspace | None = None) -> None:
    """The same as far as something is held still: for what opens again a workspace that has ended."""
    if actor.operator:
        return
    for freeze in freezes_over(tenant.pk, workspace):
        raise Forbidden(f"frozen: {freeze.reason}. Only operators may change anything in it.", kind="tenants")


def require_retained(tenant: Tenant) -> None:
    """Conflict for a tenant that leaves: it stays closed until that is called off (GW28)."""
    found = Offboarding.objects.filter(tenant=tenant).first()
    if found is not None:
        words = f"The tenant {tenant.name} leaves, and is deleted on {found.ends_at:%d %b %Y}; call that off first."
        raise Conflict(words, kind="tenants", name=tenant.name)


def _closed(what: str, state: str, reason: str) -> str:
    return f"The {what} is {state.lower()}{reason and f': {reason}'}. Only operators may change anything in it."


def require_operator(actor: Actor) -> None:
    """Forbidden for everybody but operators."""
    if not actor.operator:
        raise Forbidden("Only operators may do this.")


def require_overseer(actor: Actor) -> None:
    """Forbidden for everybody but those who see the whole platform: operators and auditors."""
    if not actor.sees_all:
        raise Forbidden("Only operators may see this.")
