"""Who may read which part of the audit, for the pages and the REST API (GW13)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from uuid import UUID

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse

from audit import export
from audit.actions import Action
from audit.models import AuditEntry
from audit.recorder import SYSTEM_CHAIN, Actor
from audit.selectors import (
    Filters,
    Page,
    anchored_chain_names,
    chain_began,
    entries_everywhere,
    entries_of_chain,
    entry_rows,
    is_chain,
)
from kube.requests.status import BadRequest, Forbidden, NotFound
from portal.http.places import require_large
from portal.pages.forms import CHOICES_MAX
from tenants import actionlimits, selectors
from tenants.models import Membership, Role

_PORTION = 500
"""Lines that are read at once."""


class Lines(StreamingHttpResponse):
    """A long file, read while it is sent. Django would read all of it first where it serves asynchronously."""

    portion = _PORTION
    """Lines that are read at a time."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        lines = iter(self)
        while portion := await sync_to_async(lambda: b"".join(islice(lines, self.portion)))():
            yield portion


def visible_chains(actor: Actor) -> list[str]:
    """The chains that the actor may read whole; of those who read every one, no more than tell a list from a field."""
    if actor.sees_all:
        return anchored_chain_names(CHOICES_MAX + 1)
    admins = Membership.objects.filter(Membership.as_one_of([Role.OWNER, Role.ADMIN]), user_id=actor.user_id)  # type: ignore[misc]
    return list(admins.order_by("tenant_id").values_list("tenant_id", flat=True))


def visible_since(actor: Actor, chain: str) -> datetime | None:
    """From when on the actor may read a chain: its tenant's own time, not that of whoever bore the name before."""
    return None if actor.sees_all else chain_began(chain)


def entries_page(
    actor: Actor, filters: Filters, *, chain: str = "", chains: Sequence[str], after: str = "", limit: int = 50
) -> Page[AuditEntry]:
    """One page of what the actor may see (``_visible``); ``chains`` are ``visible_chains(actor)``.

    Raises ``NotFound`` for a chain or a workspace that is not theirs to know of.
    """
    chain, filters = _as_visible(actor, filters, chain, chains)
    if not chain:
        return entries_everywhere(filters=filters, after=after, limit=limit)
    return entries_of_chain(chain, filters=filters, after=after, limit=limit)


def require_chain(actor: Actor, chain: str, chains: Sequence[str]) -> None:
    """Raises ``NotFound`` for a chain that is not theirs to know of, ``Forbidden`` for that of a tenant they don't administer."""
    if chain in chains or (actor.sees_all and is_chain(chain)):
        return
    selectors.tenant_visible_to(actor, chain)
    if not actor.sees_all:
        raise Forbidden("Only the tenant's admins read its audit log.")


def _visible(actor: Actor, chain: str, chains: Sequence[str]) -> Filters:
    """What the actor may see of a chain (empty: of all), which decides lists, exports and single events alike.

    Operators and auditors everything; admins of a tenant its chain since it began; everybody what they did themselves.
    Events tell from where and with what somebody came: what a workspace's members are told of it is on its page.
    """
    if actor.sees_all:
        return Filters()
    return Filters(since=chain_began(chain)) if chain in chains else Filters(user_id=actor.user_id)


def _as_visible(actor: Actor, filters: Filters, chain: str, chains: Sequence[str]) -> tuple[str, Filters]:
    """The chain and the filters, narrowed to what the actor may see. All of a workspace is in its tenant's chain."""
    if filters.workspace_id:
        found = selectors.workspace_visible_to(actor, filters.workspace_id)
        chain = chain or (found.tenant_id if found.tenant_id in chains else "")
    elif chain and not actor.sees_all and chain not in chains:
        selectors.tenant_visible_to(actor, chain)
    seen = _visible(actor, chain, chains)
    since = max(filter(None, (filters.since, seen.since)), default=None)
    return chain, replace(filters, user_id=seen.user_id, since=since)


def entry_visible_to(actor: Actor, pk: UUID) -> AuditEntry:
    """One event, of those that the lists show. Raises ``NotFound`` for any other."""
    entry, chains = AuditEntry.objects.filter(pk=pk).first(), visible_chains(actor)
    if entry is None or not any(_is_among(entry, _visible(actor, chain, chains)) for chain in ("", entry.chain)):
        raise NotFound("There is no such event.", kind="audit-logs")
    return entry


def _is_among(entry: AuditEntry, seen: Filters) -> bool:
    return seen.user_id in {None, entry.user_id} and (seen.since is None or entry.created_at >= seen.since)


def is_visible(actor: Actor, chain: str, moment: datetime) -> bool:
    """Whether the actor may read what was recorded in a chain at this moment."""
    if chain not in visible_chains(actor):
        return False
    began = visible_since(actor, chain)
    return began is None or moment >= began


def export_of(
    actor: Actor, filters: Filters, form: str, *, chain: str = "", chains: Sequence[str]
) -> StreamingHttpResponse:
    """The download of what ``entries_page`` would list, oldest first; of a chain alone the whole, which can be verified.

    Raises ``NotFound``, ``BadRequest``, ``TooManyRequests``, ``ServiceUnavailable``.
    """
    chain, filters = _as_visible(actor, filters, chain, chains)
    lines = {"csv": (export.csv_lines, "text/csv"), "jsonl": (export.json_lines, "application/jsonl")}.get(form)
    if lines is None:
        raise BadRequest("The format is csv or jsonl.")
    require_large(actor, chain)
    actionlimits.take(actionlimits.EXPORT, actor.user_id or actor.name)
    target = f"audit/{chain}" if chain else "audit"
    # What an operator takes from all chains is the platform's business, what people take of their own is theirs.
    actor.record(Action.AUDIT_EXPORTED, chain=chain or SYSTEM_CHAIN, target=target, detail={"format": form})
    response = Lines(lines[0](entry_rows(chain, filters=filters)), content_type=f"{lines[1]}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="audit{"-" if chain else ""}{chain}.{form}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
