"""Seeing the portal as a member of a tenant sees it, without a right to do anything (GW28).

The session remembers, signed, whom an operator looks at, for half an hour. Each request asks anew whether that may be:
whether the one is an operator still, and the other a member. The pages that can be seen so are named here; what is not
named, and whatever could change anything, is refused before a view is reached. In the records there is nobody but the
operator: who is looked at does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.core import signing
from django.db import transaction
from django.http import HttpRequest

from audit.actions import Action
from audit.models import AuditEntry
from audit.recorder import Actor
from kube.requests.status import Conflict, Forbidden, NotFound
from portal.signin.ranks import is_superuser
from tenants.models import Membership, User
from tenants.naming import check_text
from tenants.rights import require_operator

LASTS: Final = timedelta(minutes=30)
_KEY: Final = "viewing-as"
_SALT: Final = "tenantry.viewing-as"
_REMEMBERED: Final = timedelta(days=90)
_SHOWN: Final = 20

PAGES: Final = frozenset(
    {
        *("overview", "requests", "inbox", "search", "my-requests", "identity"),
        *("workspaces", "workspace", "workspace-progress", "workspace-quota", "workspace-activity"),
        *("tenants", "tenant", "tenant-activity", "tenant-requests", "tenant-usage", "tenant-quota", "tenant-objects"),
        *("members", "policies", "credentials", "pod-connections", "recordings"),
        *("audit", "audit-entry", "audit-requests", "audit-request"),
        *("explain", "explain-choices", "who-can", "what-if"),
    }
)
"""What can be seen as somebody else: pages that tell, of which none gives out anything, or asks a cluster as the person."""


@dataclass(frozen=True, slots=True)
class Viewing:
    """Who looks, as whom, and until when."""

    viewer: User
    person: User
    tenant: str
    ends_at: datetime


@transaction.atomic
def viewing_begin(*, actor: Actor, request: HttpRequest, person: User, tenant: str, reason: str, now: datetime) -> None:
    """See the portal as a member of a tenant from the next page on. Operators only; superusers are seen by superusers.

    Raises ``Forbidden``, ``NotFound`` for who is no member, ``Invalid`` without a reason, ``Conflict`` for oneself, and for
    an account that is disabled.
    """
    require_operator(actor)
    reason = check_text(reason, field="reason", kind="User", limit=512, required=True)
    if person.pk == actor.user_id or not person.is_active:
        raise Conflict("Only as somebody else, whose account is enabled.", kind="users")
    if person.is_superuser and not is_superuser(actor):
        raise Forbidden("Only superusers see the portal as superusers do.", kind="users")
    membership = Membership.objects.filter(user=person, tenant=tenant).first()
    if membership is None:
        raise NotFound("There is no such member.", kind="members")
    said = {
        "viewer": str(actor.user_id),
        "membership": membership.pk,  # a later one, of a later tenant of the name, is another
        "person": str(person.pk),
        "tenant": tenant,
        "at": now.timestamp(),
    }
    request.session[_KEY] = signing.dumps(said, salt=_SALT)
    detail = {"user": person.email, "reason": reason, "until": (now + LASTS).isoformat()}
    actor.record(Action.VIEWING_BEGUN, chain=tenant, target=f"users/{person.pk}", detail=detail)


def viewing_of(request: HttpRequest, *, now: datetime) -> Viewing | None:
    """Whom the signed-in operator looks at now. What does not hold any more is ended by the asking."""
    text = request.session.get(_KEY)
    if text is None:
        return None
    viewer: Any = request.user
    try:
        said = signing.loads(text, salt=_SALT)
        begun = datetime.fromtimestamp(said["at"], tz=now.tzinfo)
    except (signing.BadSignature, KeyError, TypeError, ValueError):
        del request.session[_KEY]
        return None
    found = Membership.objects.filter(pk=said["membership"]).select_related("user").first()
    holds = (
        viewer.is_authenticated
        and viewer.is_active
        and viewer.is_staff
        and str(viewer.pk) == said["viewer"]
        and found is not None
        and found.user.is_active
        and (viewer.is_superuser or not found.user.is_superuser)
    )
    if found is None or not holds or not begun <= now < begun + LASTS:
        viewing_end(request, _actor(viewer))
        return None
    return Viewing(viewer, found.user, found.tenant_id, begun + LASTS)


def viewing_end(request: HttpRequest, actor: Actor) -> None:
    """Be oneself again; being so already is no fault."""
    text = request.session.pop(_KEY, None)
    if text is None:
        return
    try:
        said = signing.loads(text, salt=_SALT)
    except signing.BadSignature:
        return
    actor.record(Action.VIEWING_ENDED, chain=said["tenant"], target=f"users/{said['person']}")


def viewings_of(user: User, *, now: datetime) -> list[AuditEntry]:
    """Who has seen the portal as this person in the last ninety days, as far as the person's tenants go; newest first."""
    rows = AuditEntry.objects.filter(
        chain__in=Membership.objects.filter(user=user).values("tenant_id"),
        action=Action.VIEWING_BEGUN,
        target=f"users/{user.pk}",
        created_at__gte=now - _REMEMBERED,
    )
    return list(rows.order_by("-created_at", "-id")[:_SHOWN])


def _actor(user: Any) -> Actor:
    return Actor(name=user.email, user_id=user.pk) if user.is_authenticated else Actor(name="")
