"""A tenant leaves: closed, kept for its people to take along what is theirs, and deleted at a date (GW28)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q

from audit.actions import Action
from audit.recorder import WORKER, Actor
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import Cause, Conflict, Invalid
from tenants.models import Freeze, NoticeKind, Offboarding, Tenant, TenantState
from tenants.naming import check_text
from tenants.notices import note
from tenants.rights import require_operator, tenant_locked
from tenants.services.operating.freezing import tenant_freeze, tenant_thaw
from tenants.services.sweeping import apart
from tenants.services.tenants import tenant_delete, tenant_resume, tenant_suspend
from tenants.suspensions import installation_closed

DAYS_KEPT: Final = 30
"""How long a tenant that leaves is kept where nothing else is said."""
DAYS_MAX: Final = 365
REASON_MAX: Final = 400
WARNED_DAYS: Final = (7, 1)
_BATCH: Final = 200


@transaction.atomic
def tenant_offboard(
    *,
    actor: Actor,
    name: str,
    reason: str,
    ends_at: datetime,
    manner: str = Offboarding.Manner.FREEZE,
    now: datetime,
) -> Offboarding:
    """Close a tenant from the commit on, and have it deleted at ``ends_at`` by a worker. Operators only.

    Until then its people export what they may read (``portal.offboarding``), and operators call it off. Again, with
    other words, the newest count; the manner stays. Raises ``NotFound``, ``Forbidden``, ``Invalid``, ``Conflict`` for one
    that is being deleted, and for the operators' own.
    """
    require_operator(actor)
    reason = check_text(reason, field="reason", kind="Tenant", limit=REASON_MAX, required=True)
    if manner not in Offboarding.Manner.values:
        raise _invalid("manner", f"One of {', '.join(Offboarding.Manner.values)}.")
    if not now < ends_at <= now + timedelta(days=DAYS_MAX):
        raise _invalid("ends_at", f"Between now and {DAYS_MAX} days ahead.")
    tenant = tenant_locked(name)
    if tenant.state == TenantState.TERMINATING or name == SYSTEM_TENANT:
        raise Conflict(f"The tenant {name} cannot leave.", kind="tenants", name=name)
    before = Offboarding.objects.filter(tenant=tenant).first()
    if before is not None and (before.reason, before.ends_at) == (reason, ends_at):
        return before
    facts = {"reason": reason, "ends_at": ends_at, "begun_by": actor.name[:254], "begun_at": now, "warned_days": None}
    kept = {} if before else {"manner": manner, "was_closed": _close(actor, tenant, manner, reason)}
    made, _ = Offboarding.objects.update_or_create(tenant=tenant, defaults={**facts, **kept})
    detail = {"reason": reason, "manner": made.manner, "until": ends_at.isoformat()}
    actor.record(Action.TENANT_OFFBOARDED, chain=name, target=f"tenants/{name}", detail=detail)
    words = f"The tenant {name} leaves, and is deleted on {_day(ends_at)} unless an operator calls it off: {reason}"
    note(NoticeKind.EXPIRY_AHEAD, words, actor=actor, tenant=tenant)
    return made


@transaction.atomic
def tenant_retain(*, actor: Actor, name: str) -> bool:
    """Call it off, and open what it has closed; whether it was leaving. Operators only.

    Raises ``NotFound``, ``Forbidden``, ``Conflict`` where the deletion has begun.
    """
    require_operator(actor)
    tenant = tenant_locked(name)
    found = Offboarding.objects.filter(tenant=tenant).first()
    if found is None:
        return False
    if tenant.state == TenantState.TERMINATING:
        raise Conflict(f"The tenant {name} is being deleted.", kind="tenants", name=name)
    found.delete()
    actor.record(Action.TENANT_RETAINED, chain=name, target=f"tenants/{name}", detail={"reason": found.reason})
    if found.was_closed:
        return True
    if found.manner == Offboarding.Manner.SUSPEND:
        tenant_resume(actor=actor, name=name)
    else:
        tenant_thaw(actor=actor, name=name)
    return True


def offboardings_end(*, now: datetime) -> int:
    """Begin the deletion of those whose time is over; how many. Nothing while the platform is closed after a restore.

    A worker's sweep: the state of the tenant changes with the deletion's beginning, so that it begins once.
    """
    if installation_closed():
        return 0
    over = Offboarding.objects.filter(ends_at__lte=now).exclude(tenant__state=TenantState.TERMINATING)
    ended = 0
    for name in list(over.order_by("ends_at").values_list("pk", flat=True)[:_BATCH]):
        with apart(f"the end of tenant {name}"), transaction.atomic():
            # It may have been called off, or put off, since: the newest word counts.
            if Tenant.objects.select_for_update(no_key=True).filter(pk=name).exists() and over.filter(pk=name).exists():
                tenant_delete(actor=WORKER, name=name)
                ended += 1
    return ended


def offboardings_announce(*, now: datetime) -> int:
    """Remind owners a week and a day before, each once; how many reminders there were (a worker's sweep)."""
    told = 0
    for days in WARNED_DAYS:
        soon = Offboarding.objects.filter(ends_at__gt=now, ends_at__lte=now + timedelta(days=days))
        fresh = soon.filter(Q(warned_days=None) | Q(warned_days__gt=days)).exclude(
            tenant__state=TenantState.TERMINATING
        )
        for found in list(fresh.select_related("tenant")[:_BATCH]):
            with apart(f"reminding the owners of {found.pk}"):
                told += _remind(found, days)
    return told


@transaction.atomic
def _remind(found: Offboarding, days: int) -> int:
    rows = Offboarding.objects.filter(pk=found.pk, ends_at=found.ends_at)
    if not rows.filter(Q(warned_days=None) | Q(warned_days__gt=days)).update(warned_days=days):
        return 0  # called off meanwhile, or another worker has said it
    words = f"The tenant {found.pk} is deleted on {_day(found.ends_at)}, with all that is in it; export what you need"
    note(NoticeKind.EXPIRY_AHEAD, words, actor=WORKER, tenant=found.tenant)
    return 1


def _close(actor: Actor, tenant: Tenant, manner: str, reason: str) -> bool:
    """Close it without an end of its own; whether it was closed so before."""
    if manner == Offboarding.Manner.SUSPEND:
        was_closed = tenant.state == TenantState.SUSPENDED
        tenant_suspend(actor=actor, name=tenant.name, reason=f"It leaves: {reason}")
        return was_closed
    frozen = Freeze.objects.filter(tenant=tenant, workspace=None).first()
    tenant_freeze(actor=actor, name=tenant.name, reason=frozen.reason if frozen else f"It leaves: {reason}")
    return frozen is not None


def _day(moment: datetime) -> str:
    return f"{moment:%d %b %Y %H:%M} UTC"


def _invalid(field: str, message: str) -> Invalid:
    causes = [Cause("FieldValueInvalid", message, field)]
    return Invalid(f"Tenant is invalid: {field}: {message}", kind="Tenant", causes=causes)
