"""Announcements: what operators say on top of every page of those whom it is meant for (GW28)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import Case, Q, QuerySet, When

from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.requests.status import Cause, Conflict, Invalid, NotFound
from tenants.models import Announcement, Audience, Membership, Severity, Tenant, Tier, User, Workspace
from tenants.naming import check_text
from tenants.rights import require_operator, require_overseer

TEXT_MAX: Final = 500
LIVING_MAX: Final = 20
"""That are not over: what is on top of every page, every page asks for."""
SHOWN_MAX: Final = 5
NAMES_MAX: Final = 200
KEPT: Final = timedelta(days=90)
"""How long those that are over can be looked up here; the audit log keeps them."""
_DAYS_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What an announcement says, to whom, and when."""

    text: str
    severity: str = Severity.INFO
    audience: str = Audience.EVERYBODY
    tenants: Sequence[str] = ()
    tiers: Sequence[str] = ()
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    dismissible: bool = True


@transaction.atomic
def announcement_create(*, actor: Actor, said: Said, now: datetime) -> Announcement:
    """Say something, at once or from ``starts_at``. Operators only.

    Raises ``Forbidden``, ``Invalid``, ``Conflict`` for more at a time than anybody reads.
    """
    require_operator(actor)
    fields, tenants, tiers = _checked(said, now)
    Announcement.objects.filter(ends_at__lt=now - KEPT).delete()
    if Announcement.objects.filter(_not_over(now)).count() >= LIVING_MAX:
        raise Conflict(f"At most {LIVING_MAX} announcements that are not over; end one first.", kind="announcements")
    made = Announcement.objects.create(**fields, created_by=actor.name[:254], created_at=now)
    made.tenants.set(tenants)
    made.tiers.set(tiers)
    _record(actor, Action.ANNOUNCEMENT_CREATED, made, said)
    return made


@transaction.atomic
def announcement_change(*, actor: Actor, announcement_id: UUID, said: Said, now: datetime) -> Announcement:
    """Say it otherwise; whoever has put it away sees it again when its words are new. Operators only.

    Raises ``Forbidden``, ``NotFound``, ``Invalid``, ``Conflict`` for one that is over.
    """
    require_operator(actor)
    found = _locked(announcement_id)
    if found.ends_at is not None and found.ends_at <= now:
        raise Conflict("It is over; make a new one.", kind="announcements", name=str(announcement_id))
    fields, tenants, tiers = _checked(said, now, begun=found.starts_at)
    if fields["text"] != found.text:
        found.dismissed_by.clear()
    for name, value in fields.items():
        setattr(found, name, value)
    found.save()
    found.tenants.set(tenants)
    found.tiers.set(tiers)
    _record(actor, Action.ANNOUNCEMENT_CHANGED, found, said)
    return found


@transaction.atomic
def announcement_end(*, actor: Actor, announcement_id: UUID, now: datetime) -> Announcement:
    """Say it no more; one that is over stays so. Operators only. Raises ``Forbidden``, ``NotFound``."""
    require_operator(actor)
    found = _locked(announcement_id)
    if found.ends_at is not None and found.ends_at <= now:
        return found
    found.starts_at, found.ends_at = min(found.starts_at, now), now
    found.save(update_fields=["starts_at", "ends_at"])
    actor.record(
        Action.ANNOUNCEMENT_ENDED,
        chain=SYSTEM_CHAIN,
        target=f"announcements/{announcement_id}",
        detail={"text": found.text},
    )
    return found


def announcement_dismiss(*, user: User, announcement_id: UUID, now: datetime) -> None:
    """Put it away for this person. Raises ``NotFound`` for one that is not theirs, ``Conflict`` if it has to be seen."""
    found = announcements_for(user, now=now).filter(pk=announcement_id).first()
    if found is None:
        raise _unknown(announcement_id)
    if not found.dismissible:
        raise Conflict("This one stays until it is over.", kind="announcements", name=str(announcement_id))
    found.dismissed_by.add(user)


def announcements_for(user: User, *, now: datetime) -> QuerySet[Announcement]:
    """What is said to this person now and was not put away: what matters most first. Operators are nobody special."""
    mine = Membership.objects.filter(user=user).values("tenant_id")
    tiers = Workspace.objects.filter(tenant_id__in=mine).exclude(status="deleted").values("tier_id")
    told = _links(Announcement.tenants).filter(tenant_id__in=mine)
    of_tiers = _links(Announcement.tiers).filter(tier_id__in=tiers)
    meant = (
        Q(audience=Audience.EVERYBODY)
        | Q(audience=Audience.TENANTS, pk__in=told.values("announcement_id"))
        | Q(audience=Audience.TIERS, pk__in=of_tiers.values("announcement_id"))
    )
    put_away = _links(Announcement.dismissed_by).filter(user_id=user.pk).values("announcement_id")
    rows = Announcement.objects.filter(_not_over(now), meant, starts_at__lte=now).exclude(pk__in=put_away)
    weight = Case(When(severity=Severity.CRITICAL, then=2), When(severity=Severity.WARNING, then=1), default=0)
    return rows.alias(weight=weight).order_by("-weight", "-starts_at", "id")


def announcements_of(actor: Actor) -> QuerySet[Announcement]:
    """All that there are, the newest first. Operators and auditors."""
    require_overseer(actor)
    return Announcement.objects.prefetch_related("tenants", "tiers").order_by("-created_at", "-id")


def announcement_visible_to(actor: Actor, announcement_id: UUID) -> Announcement:
    """One of them. Operators and auditors. Raises ``NotFound``, ``Forbidden``."""
    found = announcements_of(actor).filter(pk=announcement_id).first()
    if found is None:
        raise _unknown(announcement_id)
    return found


def _links(field: Any) -> Any:
    """The rows of a table between two others."""
    return field.through.objects.all()


def _not_over(now: datetime) -> Q:
    return Q(ends_at=None) | Q(ends_at__gt=now)


def _checked(
    said: Said, now: datetime, *, begun: datetime | None = None
) -> tuple[dict[str, Any], list[Tenant], list[Tier]]:
    text = check_text(said.text, field="text", kind="Announcement", limit=TEXT_MAX, required=True)
    if said.severity not in Severity.values:
        raise _invalid("severity", f"One of {', '.join(Severity.values)}.")
    if said.audience not in Audience.values:
        raise _invalid("audience", f"One of {', '.join(Audience.values)}.")
    starts_at = said.starts_at or begun or now
    if abs(starts_at - now) > timedelta(days=_DAYS_MAX) and starts_at != begun:
        raise _invalid("starts_at", f"Within {_DAYS_MAX} days.")
    if said.ends_at is not None and not max(starts_at, now) < said.ends_at <= now + timedelta(days=_DAYS_MAX):
        raise _invalid("ends_at", f"After its beginning, between now and {_DAYS_MAX} days ahead.")
    tenants = _named(Tenant, said.tenants, "tenants", wanted=said.audience == Audience.TENANTS)
    tiers = _named(Tier, said.tiers, "tiers", wanted=said.audience == Audience.TIERS)
    fields = {
        "text": text,
        "severity": said.severity,
        "audience": said.audience,
        "starts_at": starts_at,
        "ends_at": said.ends_at,
        "dismissible": said.dismissible,
    }
    return fields, tenants, tiers


def _named(model: Any, names: Sequence[str], field: str, *, wanted: bool) -> list[Any]:
    """The rows of these names; all of them are there, and there are some exactly when they are ``wanted``."""
    names = sorted(set(names))
    if wanted is not bool(names):
        raise _invalid(field, "Name at least one." if wanted else f"Only for the audience {field}.")
    if len(names) > NAMES_MAX:
        raise _invalid(field, f"At most {NAMES_MAX}.")
    found = {row.pk: row for row in model.objects.filter(pk__in=names)}
    if missing := [name for name in names if name not in found]:
        raise _invalid(field, f'Not found: "{missing[0][:63]}"')
    return [found[name] for name in names]


def _locked(announcement_id: UUID) -> Announcement:
    found = Announcement.objects.select_for_update(no_key=True).filter(pk=announcement_id).first()
    if found is None:
        raise _unknown(announcement_id)
    return found


def _record(actor: Actor, action: Action, announcement: Announcement, said: Said) -> None:
    names = {"tenants": sorted(set(said.tenants)), "tiers": sorted(set(said.tiers))}
    actor.record(
        action,
        chain=SYSTEM_CHAIN,
        target=f"announcements/{announcement.pk}",
        detail={
            "text": announcement.text,
            "severity": announcement.severity,
            "audience": announcement.audience,
            **{field: named for field, named in names.items() if named},
            "from": announcement.starts_at.isoformat(),
            "until": announcement.ends_at and announcement.ends_at.isoformat(),
        },
    )


def _unknown(announcement_id: UUID) -> NotFound:
    return NotFound("There is no such announcement.", kind="announcements", name=str(announcement_id))


def _invalid(field: str, message: str) -> Invalid:
    causes = [Cause("FieldValueInvalid", message, field)]
    return Invalid(f"Announcement is invalid: {field}: {message}", kind="Announcement", causes=causes)
