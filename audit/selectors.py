"""Reads of the audit: scoped, filtered, page by page from the newest, never by OFFSET or count(*).

A page costs the same whether it is the first or the ten-thousandth, at a thousand rows or at ten million.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.contrib.postgres.search import SearchQuery
from django.db.models import Count, Model, Q, QuerySet, Sum
from django.db.models.functions import TruncDay, TruncHour
from django.utils.dateparse import parse_datetime

from audit import chain as chains
from audit.actions import Action
from audit.checkpoints import Checkpoint
from audit.models import ApiRequest, AuditChain, AuditEntry, Outcome, key_of
from kube.requests.status import BadRequest

PAGE_LIMIT = 200
"""The largest page."""

_TOGETHER = 1000

_Item = TypeVar("_Item")
_Row = TypeVar("_Row", bound=Model)


@dataclass(frozen=True, slots=True)
class Page(Generic[_Item]):
    """Some rows, and the cursor of the next page (empty: there is none)."""

    rows: Sequence[_Item]
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What to look for; an empty value filters nothing. ``since`` is included, ``until`` is not.

    ``text`` is matched by whole words, or by their beginnings, in action, actor and target.
    """

    action: str = ""
    outcome: str = ""
    actor: str = ""
    user_id: UUID | None = None
    workspace_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str = ""
    settled: bool = False
    """Without intents: what was begun is followed by how it ended."""


def entries_of_chain(
    chain: str, *, filters: Filters | None = None, after: str = "", limit: int = 50
) -> Page[AuditEntry]:
    """One page of a chain's entries (a tenant's name, or ``system``).

    Raises ``BadRequest`` for a cursor that did not come from here.
    """
    return page_of(_filtered(AuditEntry.objects.filter(chain=chain), filters), after, limit)


def entries_everywhere(*, filters: Filters | None = None, after: str = "", limit: int = 50) -> Page[AuditEntry]:
    """One page over all chains: operators only. Raises ``BadRequest`` for a foreign cursor."""
    return page_of(_filtered(AuditEntry.objects.all(), filters), after, limit)


def chain_began(chain: str) -> datetime | None:
    """When the tenant began that bears this name now: what a chain holds from before is of those who bore it earlier."""
    entries = AuditEntry.objects.filter(chain=chain, action=Action.TENANT_CREATED).order_by("-sequence")
    return entries.values_list("created_at", flat=True).first()


def requests_of_tenant(
    tenant: str,
    *,
    since: datetime | None = None,
    allowed: bool | None = None,
    actor: str = "",
    after: str = "",
    limit: int = 50,
) -> Page[ApiRequest]:
    """One page of a tenant's API requests. Raises ``BadRequest`` for a foreign cursor."""
    rows = ApiRequest.objects.filter(tenant=tenant)
    if since:
        rows = rows.filter(created_at__gte=since)
    if allowed is not None:
        rows = rows.filter(allowed=allowed)
    if actor:
        rows = rows.filter(actor=actor)
    return page_of(rows, after, limit)


def requests_refused_by(tenant: str, steps: Sequence[str], *, since: datetime, limit: int) -> list[ApiRequest]:
    """The last of a tenant's API requests that one of these steps refused, newest first."""
    rows = ApiRequest.objects.filter(tenant=tenant, allowed=False, created_at__gte=since, step__in=steps)
    return list(rows.order_by("-created_at", "-id")[:limit])


def request_of(key: str) -> ApiRequest | None:
    """The request of ``ApiRequest.key``, found by the primary key. Raises ``BadRequest`` for what is no key."""
    moment, identifier = _read_cursor(key)
    return ApiRequest.objects.filter(created_at=moment, id=identifier).first()


def refused_request(request_id: str, *, since: datetime) -> ApiRequest | None:
    """The last request that was answered with an error under this audit ID, or ``None``."""
    rows = ApiRequest.objects.filter(request_id=request_id, code__gte=400, created_at__gte=since)
    return rows.order_by("-created_at", "-id").first()


def requests_by_hour(since: datetime, *, tenant: str = "") -> list[tuple[datetime, int, int]]:
    """How many requests of a tenant, or of all, were let through and refused in each hour that had any, in order."""
    rows = ApiRequest.objects.filter(created_at__gte=since, **({"tenant": tenant} if tenant else {}))
    counted = (
        rows.order_by()
        .annotate(when=TruncHour("created_at"))
        .values_list("when")
        .annotate(
            good=Sum("count", filter=Q(allowed=True), default=0), bad=Sum("count", filter=Q(allowed=False), default=0)
        )
    )
    return list(counted.order_by("when"))


def events_by_day(workspace_id: UUID, since: datetime) -> list[tuple[datetime, int, int]]:
    """How many events about a workspace succeeded and did not on each day that had any, in order."""
    rows = AuditEntry.objects.filter(workspace_id=workspace_id, created_at__gte=since).exclude(outcome=Outcome.INTENT)
    well = Q(outcome=Outcome.SUCCESS)
    counted = (
        rows.order_by()
        .annotate(when=TruncDay("created_at"))
        .values_list("when")
        .annotate(good=Count("id", filter=well), bad=Count("id", filter=~well))
    )
    return list(counted.order_by("when"))


def entry_rows(chain: str, *, filters: Filters | None = None) -> Iterator[dict[str, Any]]:
    """A chain's rows in the order of their sequence, streamed, with hashes: for verification and export.

    Without a chain those of all, chain by chain.
    """
    rows = AuditEntry.objects.filter(chain=chain) if chain else AuditEntry.objects.all()
    rows = _filtered(rows, filters).order_by("chain", "sequence")
    yield from rows.values(*chains.FIELDS, "previous_hash", "hash").iterator(chunk_size=2000)


def chain_names() -> list[str]:
    """Every chain there is, or of which rows are left: reads the whole log, for ``audit verify``."""
    return sorted({*anchored_chain_names(), *AuditEntry.objects.order_by().values_list("chain", flat=True).distinct()})


def anchored_chain_names(limit: int | None = None) -> list[str]:
    """Every chain that has an end on record, which is every one that was written to, in order; the first ``limit``."""
    return list(AuditChain.objects.order_by("chain").values_list("chain", flat=True)[:limit])


def is_chain(name: str) -> bool:
    """Whether there is such a chain."""
    return AuditChain.objects.filter(chain=name).exists()


def chain_heads() -> dict[str, tuple[int, str]]:
    """Where each chain ends by its anchor: its last sequence and hash."""
    return {
        chain: (sequence, end) for chain, sequence, end in AuditChain.objects.values_list("chain", "sequence", "hash")
    }


def signed_flaws(checkpoints: Iterable[Checkpoint], *, chain: str = "") -> list[chains.ChainViolation]:
    """Where the rows of ``chain``, or of every chain, are not those that were signed: one flaw a chain, in order.

    The rows themselves are compared, not the anchors, which whoever cuts a chain can set as well.
    """
    points: dict[str, list[tuple[int, str, Checkpoint]]] = {}
    for checkpoint in checkpoints:
        for name, (sequence, end) in checkpoint.heads.items():
            if not chain or name == chain:
                points.setdefault(name, []).append((sequence, end, checkpoint))
    # Those of several files are in any order.
    found = (_signed_flaw(name, sorted(signed, key=lambda each: each[0])) for name, signed in sorted(points.items()))
    return [flaw for flaw in found if flaw is not None]


def _signed_flaw(chain: str, signed: list[tuple[int, str, Checkpoint]]) -> chains.ChainViolation | None:
    rows = AuditEntry.objects.filter(chain=chain)
    last = rows.order_by("-sequence").values_list("sequence", flat=True).first()
    if last is None:
        count, _, checkpoint = signed[-1]
        message = f"the whole chain is gone: {count} rows, as checkpoint {checkpoint.number} of {checkpoint.time} says"
        return chains.ChainViolation(chain, 1, "truncation", message)
    right = 0
    for some in (signed[begin : begin + _TOGETHER] for begin in range(0, len(signed), _TOGETHER)):
        hashes = dict(rows.filter(sequence__in=[point[0] for point in some]).values_list("sequence", "hash"))
        for sequence, end, checkpoint in some:
            by = f"checkpoint {checkpoint.number} of {checkpoint.time}"
            if hashes.get(sequence) == end:
                right = sequence
            elif sequence > last:
                return chains.ChainViolation(
                    chain, last + 1, "truncation", f"rows {last + 1} to {sequence} were cut off, says {by}"
                )
            else:
                return chains.ChainViolation(
                    chain, right + 1, "rewrite", f"rows {right + 1} to {sequence} are not those of {by}"
                )
    return None


def _filtered(rows: QuerySet[AuditEntry], filters: Filters | None) -> QuerySet[AuditEntry]:
    if filters is None:
        return rows
    exact = {
        "action": filters.action,
        "outcome": filters.outcome,
        "actor": filters.actor,
        "user_id": filters.user_id,
        "workspace_id": filters.workspace_id,
    }
    rows = rows.filter(**{name: value for name, value in exact.items() if value})
    if filters.since:
        rows = rows.filter(created_at__gte=filters.since)
    if filters.until:
        rows = rows.filter(created_at__lt=filters.until)
    if filters.settled:
        rows = rows.exclude(outcome=Outcome.INTENT)
    words = ["".join(c for c in word if c.isalnum() or c in "-_.@:/") for word in filters.text.split()[:8]]
    for word in words:
        if any(c.isalnum() for c in word):
            quoted = "'" + word.replace("'", "")[:64] + "':*"
            rows = rows.filter(words=SearchQuery(quoted, config="simple", search_type="raw"))
    return rows


def page_of(rows: QuerySet[_Row], after: str, limit: int, *, oldest_first: bool = False) -> Page[_Row]:
    """One page of anything with ``created_at`` and a UUID ``id``, newest first unless ``oldest_first``.

    Raises ``BadRequest`` for a foreign cursor.
    """
    limit = max(1, min(limit, PAGE_LIMIT))
    if after:
        moment, identifier = _read_cursor(after)
        # The first condition alone can use the index; the second breaks ties.
        if oldest_first:
            behind = Q(created_at__gte=moment) & (Q(created_at__gt=moment) | Q(id__gt=identifier))
        else:
            behind = Q(created_at__lte=moment) & (Q(created_at__lt=moment) | Q(id__lt=identifier))
        rows = rows.filter(behind)
    order = ("created_at", "id") if oldest_first else ("-created_at", "-id")
    found = list(rows.order_by(*order)[: limit + 1])
    more = len(found) > limit
    found = found[:limit]
    return Page(found, _cursor(found[-1]) if more else "")


def _cursor(row: Any) -> str:
    return key_of(row.created_at, row.id)


def _read_cursor(cursor: str) -> tuple[datetime, UUID]:
    try:
        text = base64.urlsafe_b64decode(cursor[:256] + "=" * (-len(cursor[:256]) % 4)).decode("ascii")
        moment, identifier = text.split(" ")
        parsed = parse_datetime(moment)
        row = UUID(identifier)
        if parsed is not None and parsed.tzinfo is not None:
            return parsed.astimezone(UTC), row
    except (ValueError, OverflowError, binascii.Error):
        pass
    raise BadRequest("The page cursor is not one of ours; start from the first page.")
