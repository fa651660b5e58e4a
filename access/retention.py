"""What ended long ago goes: rows that people make and that stay when they are over, so that nobody fills a table (AD8).

The audit keeps what was done. How fast such rows come is bounded where they are made, and together that bounds how many
there are (``portal.database.bounds``).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db.models import Model, Q

from access.models import Credential, Login, PersonalAccessToken
from tenants.models import (
    AccessRequest,
    CredentialKind,
    Invitation,
    Operation,
    PasswordReset,
    RequestState,
    Status,
    Workspace,
)

BATCH: Final = 500
"""Rows of a table at a time; the next call goes on."""


def ended_before(moment: datetime) -> Mapping[type[Model], Q]:
    """The rows of each table that were over by then. A suspension's receipt stays for as long as the suspension."""
    expired = Q(expires_at__lt=moment)
    return {
        Invitation: expired,
        PersonalAccessToken: expired | Q(revoked_at__lt=moment),
        PasswordReset: expired,
        Login: Q(revoked_at__lt=moment),
        AccessRequest: ~Q(state=RequestState.OPEN) & Q(decided_at__lt=moment),
        Credential: Q(failed_at__lt=moment)
        | expired & Q(revocation_confirmed_at__isnull=False)
        | ~Q(kind=CredentialKind.DIRECT) & (expired | Q(revoked_at__lt=moment)),
        Operation: Q(finished_at__lt=moment) & ~Q(workspace__status=Status.SUSPENDED),
        Workspace: Q(status=Status.DELETED, deleted_at__lt=moment),
    }


def ended_rows_forget(*, now: datetime) -> int:
    """Delete what has been over for ``ENDED_ROWS_KEEP_DAYS``; how many rows there were (a worker's)."""
    gone = 0
    for model, ended in ended_before(now - timedelta(days=settings.ENDED_ROWS_KEEP_DAYS)).items():
        rows = model._default_manager  # noqa: SLF001 - Django documents it
        some = list(rows.filter(ended).order_by("pk").values_list("pk", flat=True)[:BATCH])
        if some:
            gone += rows.filter(pk__in=some).delete()[0]
    return gone
