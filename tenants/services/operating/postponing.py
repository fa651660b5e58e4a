"""Putting a row of the inbox off until a date: for all operators, and with a reason (GW28)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.requests.status import Cause, Conflict, Invalid
from tenants.models import Postponement
from tenants.models.postponements import CAUSE_MAX
from tenants.naming import check_text
from tenants.rights import require_operator

DAYS_MAX: Final = 30
LIVING_MAX: Final = 500
"""At a time: more is no inbox any more."""


@transaction.atomic
def inbox_postpone(
    *, actor: Actor, kind: str, name: str, cause: str, until: datetime, reason: str, now: datetime
) -> Postponement:
    """Keep one row out of the list and of the counter until ``until``, or until its cause is not ``cause`` any more.

    Again, with other words, the newest count. Operators only. Raises ``Forbidden``, ``Invalid``, ``Conflict`` for more
    at a time than anybody keeps in mind.
    """
    require_operator(actor)
    reason = check_text(reason, field="reason", kind="Postponement", limit=512, required=True)
    if not now < until <= now + timedelta(days=DAYS_MAX):
        message = f"Later than now, and at most {DAYS_MAX} days ahead."
        causes = [Cause("FieldValueInvalid", message, "until")]
        raise Invalid(f"Postponement is invalid: until: {message}", kind="Postponement", causes=causes)
    if Postponement.objects.filter(until__gt=now).exclude(kind=kind, name=name).count() >= LIVING_MAX:
        raise Conflict(f"At most {LIVING_MAX} rows are put off at a time; bring one back first.", kind="inbox")
    facts = {"cause": cause[:CAUSE_MAX], "reason": reason, "until": until}
    who = {"postponed_by": actor.name[:254], "postponed_at": now}
    made, _ = Postponement.objects.update_or_create(kind=kind, name=name, defaults={**facts, **who})
    _record(actor, Action.INBOX_POSTPONED, made)
    return made


@transaction.atomic
def inbox_resume(*, actor: Actor, kind: str, name: str) -> bool:
    """Bring a row back at once; whether it was put off. Operators only. Raises ``Forbidden``."""
    require_operator(actor)
    found = Postponement.objects.select_for_update(no_key=True).filter(kind=kind, name=name).first()
    if found is None:
        return False
    found.delete()
    _record(actor, Action.INBOX_RESUMED, found)
    return True


def postponements_by_row(*, now: datetime) -> Mapping[tuple[str, str], Postponement]:
    """What is put off now, by kind and name of the row. One query; operators and auditors alone can read the table."""
    rows = Postponement.objects.filter(until__gt=now).order_by("until", "id")[:LIVING_MAX]
    return {(each.kind, each.name): each for each in rows}


def postponements_end(*, now: datetime) -> int:
    """Forget those whose time is over; how many. What they hid is back already (a worker's sweep)."""
    return Postponement.objects.filter(until__lte=now).delete()[0]


def _record(actor: Actor, action: Action, found: Postponement) -> None:
    detail = {"reason": found.reason, "until": found.until.isoformat(), "cause": found.cause}
    actor.record(action, chain=SYSTEM_CHAIN, target=f"inbox/{found.kind}/{found.name}", detail=detail)
