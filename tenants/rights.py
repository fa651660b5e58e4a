"""Who may do what with a tenant: memberships, decided in one place for every service and selector.

Whoever is no member may not know of the tenant: NotFound, not Forbidden.
"""

from __future__ import annotations

from audit.recorder import Actor
from kube.requests.status import Forbidden, NotFound
from tenants.models import Membership, Role

_RANK = {Role.OWNER: 3, Role.ADMIN: 2, Role.EDITOR: 1, Role.VIEWER: 0}


def role_at_least(role: str, needed: Role) -> bool:
    """Whether ``role`` is ``needed`` or more."""
    return _RANK[Role(role)] >= _RANK[needed]


def role_of(actor: Actor, tenant: str) -> Role | None:
    """The actor's role in the tenant; operators count as owners everywhere."""
    if actor.operator:
        return Role.OWNER
    if actor.user_id is None:
        return None
    role = Membership.objects.filter(tenant_id=tenant, user_id=actor.user_id).values_list("role", flat=True).first()
    return Role(role) if role else None


def require_role(actor: Actor, tenant: str, needed: Role) -> Role:
    """The actor's role, which is at least ``needed``; else Forbidden, or NotFound for whoever is no member."""
    role = role_of(actor, tenant)
    if role is None:
        raise NotFound(f"There is no tenant {tenant!r}.", kind="tenants", name=tenant)
    if not role_at_least(role, needed):
        raise Forbidden(f"This needs the role {needed.label} in {tenant}; yours is {role.label}.", kind="tenants")
    return role


def require_operator(actor: Actor) -> None:
    """Forbidden for everybody but operators."""
    if not actor.operator:
        raise Forbidden("Only operators may do this.")
