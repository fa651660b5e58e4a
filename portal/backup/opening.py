"""Opens a restored installation: by an operator, once clusters have shown that what was issued on them is dead (P12)."""

from __future__ import annotations

from django.db import transaction

from audit.actions import Action
from audit.recorder import Actor
from kube.requests.status import Conflict
from portal.backup.newer import RESTORE
from tenants.models import Offboarding, Phase, Tenant, TenantState, Workspace
from tenants.rights import require_operator
from tenants.services.tenants import tenant_resume
from tenants.suspensions import installation_closed, installation_open


def unconfirmed() -> list[str]:
    """Workspaces of closed tenants whose cluster has not shown yet that every right is gone, and why."""
    waiting = Workspace.objects.exclude(phase__in=[Phase.SUSPENDED, Phase.DELETED]).filter(
        tenant__suspended_by=RESTORE.name
    )
    return [
        f"workspace {each} on the cluster {each.cluster}: {each.cluster.last_error or 'a worker has not come to it yet'}"
        for each in waiting.select_related("cluster", "tenant").order_by("tenant_id", "name")
    ]


@transaction.atomic
def restored_open(*, actor: Actor, despite_unconfirmed: bool = False) -> int:
    """Open the doors, and the tenants that the restore has closed; how many they are. Operators only.

    What others have suspended stays so, and so does who leaves by suspension. Raises ``Forbidden``, and ``Conflict`` when
    nothing is closed, or while a cluster has not confirmed, unless that is waited for no longer: a resumed workspace has
    new accounts in any case.
    """
    require_operator(actor)
    if not installation_closed():
        raise Conflict("The platform is open.")
    waiting = unconfirmed()
    if waiting and not despite_unconfirmed:
        raise Conflict(
            f"Not confirmed yet, {len(waiting)} in all: {'; '.join(waiting[:3])}. Let workers run and look at the"
            " clusters; or open despite it: what was issued straight at such a cluster then works until it expires."
        )
    closed = Tenant.objects.filter(state=TenantState.SUSPENDED, suspended_by=RESTORE.name)
    names = list(closed.exclude(offboarding__manner=Offboarding.Manner.SUSPEND).values_list("name", flat=True))
    for name in names:
        tenant_resume(actor=actor, name=name, leaving=True)
    installation_open()
    detail = {"tenants": len(names), "unconfirmed": len(waiting)}
    actor.record(Action.RESTORE_OPENED, chain="system", target="installation", detail=detail)
    return len(names)
