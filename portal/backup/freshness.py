"""Whether there is a backup that is new enough, by what the audit has of backups and restores (P12, GW12).

A restored database knows nothing of the backup that it came from, and may know of one that was under way meanwhile, of what it
held before. So what counts after a restore is the backup that was restored, and of later ones those of the new history alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db.models import QuerySet

from audit.actions import Action
from audit.models import AuditEntry, Outcome
from audit.recorder import SYSTEM_CHAIN

_UNDER_WAY: Final = 8
"""So many backups may have been under way when the database was restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What there is of backups.

    ``holds`` is the moment that the newest good one is of, ``bytes`` its size (unknown of one that was restored),
    ``restored`` whether it is the one that this database was restored from. ``failed_at`` and ``failure`` tell of the last
    one that was tried, if it came to nothing. ``due`` is when the next one has to be there: nobody expects any without it.
    """

    holds: datetime | None = None
    bytes: int | None = None
    restored: bool = False
    failed_at: datetime | None = None
    failure: str = ""
    due: datetime | None = None

    def overdue(self, now: datetime) -> timedelta:
        """For how long one is missing."""
        return max(now - self.due, timedelta()) if self.due else timedelta()


def backups_standing() -> Standing:
    """How it stands with backups, in one query, however many there were."""
    rows = _rows(AuditEntry.objects.filter(chain=SYSTEM_CHAIN, sequence=1), 1).union(
        _rows(_ends(Outcome.SUCCESS), _UNDER_WAY),
        _rows(_ends(Outcome.FAILURE), 1),
        _rows(AuditEntry.objects.filter(action=Action.RESTORED), 1),
        all=True,
    )
    # In the order of the chain: clocks may go back.
    found = sorted(rows, key=lambda entry: entry.sequence, reverse=True)
    begins = next((entry for entry in found if entry.action == Action.RESTORED), None)
    good = next((entry for entry in found if _is_good(entry, begins)), None)
    known = good or begins
    holds = _moment(known) if known else None
    failed = next((entry for entry in found if entry.outcome == Outcome.FAILURE), None)
    told = failed is not None and (known is None or failed.sequence > known.sequence)
    hours = settings.BACKUP_MAX_AGE_HOURS
    began = holds or (found[-1].created_at if found else None)
    return Standing(
        holds=holds,
        bytes=good.detail.get("bytes") if good else None,
        restored=good is None and begins is not None,
        failed_at=failed.created_at if failed and told else None,
        failure=str(failed.detail.get("error", "")) if failed and told else "",
        due=began + timedelta(hours=hours) if began and hours else None,
    )


def _rows(entries: QuerySet[AuditEntry], most: int) -> QuerySet[AuditEntry]:
    return entries.order_by("-created_at", "-id")[:most]


def _ends(outcome: Outcome) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(action=Action.BACKUP_MADE, outcome=outcome)


def _is_good(entry: AuditEntry, begins: AuditEntry | None) -> bool:
    """Whether it is a backup of the history that goes on here."""
    if entry.action != Action.BACKUP_MADE or entry.outcome != Outcome.SUCCESS:
        return False
    if begins is None:
        return True
    return entry.sequence > begins.sequence and entry.detail.get("revision", 0) >= begins.detail["revision"]


def _moment(entry: AuditEntry) -> datetime:
    """The moment that a backup is of: by its own host's clock, but never later than the database has heard of it."""
    told = entry.detail.get("made_at")
    return min(datetime.fromisoformat(told), entry.created_at) if told else entry.created_at
