"""Warns people of credentials that end: once, by notice and as they chose to be told, never of what was revoked (GW25).

How long before depends on how long it lives: in the last quarter of its life, and ``CREDENTIAL_WARNING_DAYS`` before its
end at most. What lives for less than a day is made for the moment: pages say that it ends soon, and nobody is sent word.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import DurationField, ExpressionWrapper, F, QuerySet, Value

from access.models import PersonalAccessToken
from audit.recorder import WORKER
from tenants.models import NoticeKind, User
from tenants.notices import note
from tenants.services.sweeping import apart

SHARE: Final = 4
"""The last of so many parts of a life is its end."""
TOLD_FROM: Final = timedelta(days=1)
"""What lives for less is shown only."""
_BATCH: Final = 200


def ends_soon(began: datetime, ends: datetime, *, now: datetime) -> bool:
    """Whether a credential is near the end of its life; not one that is over."""
    return now < ends <= now + min((ends - began) / SHARE, timedelta(days=settings.CREDENTIAL_WARNING_DAYS))


def tokens_ending(*, now: datetime) -> QuerySet[PersonalAccessToken]:
    """Living tokens that people are warned of, the next to end first."""
    life = ExpressionWrapper(F("expires_at") - F("created_at"), DurationField())
    left = ExpressionWrapper(F("expires_at") - Value(now), DurationField())
    rows = PersonalAccessToken.objects.annotate(life=life, left_parts=ExpressionWrapper(left * SHARE, DurationField()))
    soon = rows.filter(expires_at__gt=now, expires_at__lte=now + timedelta(days=settings.CREDENTIAL_WARNING_DAYS))
    return soon.filter(revoked_at=None, life__gte=TOLD_FROM, left_parts__lte=F("life")).order_by("expires_at", "pk")


def tokens_ending_of(user_id: UUID | None, *, now: datetime) -> QuerySet[PersonalAccessToken]:
    """Those of one person; nobody has none."""
    rows = tokens_ending(now=now)
    return rows.none() if user_id is None else rows.filter(user_id=user_id)


def credentials_announce(*, now: datetime) -> int:
    """Warn the people whose tokens end soon; how many tokens (a worker's sweep)."""
    rows = tokens_ending(now=now).filter(warned_at=None, user__status=User.Status.ACTIVE)
    warned = 0
    for token in list(rows.select_related("user")[:_BATCH]):
        with apart(f"the warning of token {token.pk}"):
            warned += _warn(token, now)
    return warned


@transaction.atomic
def _warn(token: PersonalAccessToken, now: datetime) -> int:
    if not PersonalAccessToken.objects.filter(pk=token.pk, revoked_at=None, warned_at=None).update(warned_at=now):
        return 0  # revoked meanwhile, or another worker has said it
    words = f"Your access token “{token.name}” ends on {token.expires_at:%d %b %Y %H:%M} UTC; make another one before"
    note(NoticeKind.EXPIRY_AHEAD, words, actor=WORKER, user=token.user)
    return 1
