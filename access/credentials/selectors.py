"""Reads of credentials, scoped to what the reader may know of."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from access.models import Credential
from audit.recorder import Actor
from kube.requests.status import NotFound
from tenants.models import Role, User, Workspace
from tenants.rights import require_overseer, require_role, role_at_least


def credentials_of_workspace(actor: Actor, workspace: Workspace, *, limit: int = 50) -> list[Credential]:
    """Who was issued what, newest first: the tenant's admins see all, others their own.

    Raises ``NotFound`` for whoever is no member of the workspace's tenant.
    """
    role = require_role(actor, workspace.tenant_id, Role.VIEWER)
    rows = Credential.objects.filter(workspace=workspace).select_related("issued_to")
    if not (actor.sees_all or role_at_least(role, Role.ADMIN)):
        rows = rows.filter(issued_to_id=actor.user_id)
    return list(rows.order_by("-issued_at")[:limit])


def credentials_of_tenant(actor: Actor, tenant: str, *, limit: int = 50) -> list[Credential]:
    """Credentials for a tenant's whole space, newest first: its admins see all, others their own.

    Raises ``NotFound`` for whoever is no member of the tenant.
    """
    role = require_role(actor, tenant, Role.VIEWER)
    rows = Credential.objects.filter(tenant_id=tenant, workspace=None).select_related("issued_to")
    if not (actor.sees_all or role_at_least(role, Role.ADMIN)):
        rows = rows.filter(issued_to_id=actor.user_id)
    return list(rows.order_by("-issued_at")[:limit])


def credentials_of_person(actor: Actor, *, limit: int = 50) -> list[Credential]:
    """What was issued to the actor, in all tenants, newest first."""
    rows = Credential.objects.filter(issued_to_id=actor.user_id).select_related("issued_to", "workspace")
    return list(rows.order_by("-issued_at")[:limit])


def credentials_issued_to(actor: Actor, user: User, *, limit: int = 50) -> list[Credential]:
    """What was issued to somebody else, newest first. Operators and auditors; raises ``Forbidden``."""
    require_overseer(actor)
    rows = Credential.objects.filter(issued_to=user).select_related("issued_to", "workspace")
    return list(rows.order_by("-issued_at")[:limit])


def credential_visible_to(actor: Actor, jti: str) -> Credential:
    """One credential by its JTI (or by its id, as long as there is no JTI). Raises ``NotFound``."""
    rows = Credential.objects.select_related("workspace__tenant", "workspace__cluster", "issued_to")
    credential = rows.filter(jti=jti[:64]).first()
    if credential is None:
        try:
            credential = rows.filter(pk=UUID(jti)).first()
        except ValueError:
            credential = None
    if credential is not None:
        role = require_role(actor, credential.tenant_id, Role.VIEWER)
        if role_at_least(role, Role.ADMIN) or credential.issued_to_id == actor.user_id:
            return credential
    raise NotFound(f'credentials "{jti[:64]}" not found', kind="credentials", name=jti[:64])


def people_of_credentials(jtis: Iterable[str]) -> dict[str, str]:
    """To whom each of these was issued, by e-mail address; without those that nobody was issued."""
    rows = Credential.objects.filter(jti__in={jti for jti in jtis if jti})
    return {jti: email for jti, email in rows.values_list("jti", "issued_to__email") if jti}
