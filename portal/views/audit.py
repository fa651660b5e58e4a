"""The audit log: filtered, paged by key, exported, its chains checked."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from audit.selectors import Filters, request_of, requests_of_tenant
from audit.verifying import flaw_in, newest
from kube.requests.status import NotFound
from portal.access.auditlog import (
    entries_page,
    entry_visible_to,
    export_of,
    is_visible,
    require_chain,
    visible_chains,
    visible_since,
)
from portal.access.explanation import traced_request
from portal.admin.places import console_of
from portal.caching import cached
from portal.http.actors import actor_of
from portal.pages import labels
from portal.pages.forms import ApiRequestForm, AuditForm
from portal.pages.lists import filters_of, pager
from portal.views.actions import form_status
from tenants import selectors

_LAST_DAY = date.max - timedelta(days=1)
"""The last one that ends within what a date can be."""

_VERIFIED_FOR = 60
"""Seconds for which a check of a chain is shown again: reading a whole chain on every visit would not end."""


@require_safe
@login_required
def audit(request: HttpRequest) -> HttpResponse:
    """Events: operators see every chain, tenants' admins their own, everybody what they did themselves."""
    actor = actor_of(request)
    chains = visible_chains(actor)
    form = _form(request, actor, chains)
    query = request.GET.copy()
    query.pop("after", None)
    context = {"form": form, "listed": "Events", "filters": query.urlencode(), "requests_shown": bool(chains)}
    if not form.errors:
        chain, filters = _asked(request, actor, chains, form)
        page = entries_page(actor, filters, chain=chain, chains=chains, after=request.GET.get("after", ""))
        context |= {
            "rows": page.rows,
            "pager": pager(request, page.next),
            "chain_status": _remembered_status(chain or SYSTEM_CHAIN) if chain or actor.sees_all else None,
        }
    return render(request, "pages/audit/list.html", context, status=form_status(request, form))


@require_safe
@login_required
def audit_entry(request: HttpRequest, pk: UUID) -> HttpResponse:
    """One event with its hashes; ``NotFound`` for one that the caller may not see."""
    actor = actor_of(request)
    entry = entry_visible_to(actor, pk)
    detail = json.dumps(entry.detail, indent=2, ensure_ascii=False) if entry.detail else ""
    return render(
        request,
        "pages/audit/entry.html",
        {
            "entry": entry,
            "detail": detail,
            "workspaces": selectors.workspaces_known(actor, [entry.workspace_id]),
            "console": console_of(actor, entry),
        },
    )


@require_safe
@login_required
def audit_requests(request: HttpRequest) -> HttpResponse:
    """Requests to the API server, the refused ones first of all: for operators and tenants' admins."""
    actor = actor_of(request)
    chains = visible_chains(actor)
    if not chains and not actor.sees_all:
        raise NotFound("There is no such audit log.", kind="audit-logs")
    wanted = request.GET.get("tenant", "")
    if not actor.sees_all and wanted not in ["", *chains]:
        raise NotFound("There is no such audit log.", kind="audit-logs")
    if wanted:
        require_chain(actor, wanted, chains)
    first = SYSTEM_CHAIN if actor.sees_all else chains[0]
    # What is shown when nothing is chosen stands first in the list, and so is what the list says.
    form = ApiRequestForm(request.GET or None, tenants=list(dict.fromkeys([first, *_known(chains, wanted)])))
    context: dict[str, Any] = {"form": form, "listed": "Requests"}
    if not form.errors:
        data = filters_of(form)
        tenant = data.get("tenant") or first
        page = requests_of_tenant(
            tenant,
            since=visible_since(actor, tenant),
            allowed=None if data.get("show") == "all" else False,
            actor=data.get("actor", ""),
            after=request.GET.get("after", ""),
        )
        everything = "?" + urlencode({"tenant": tenant, "show": "all"})
        context |= {
            "tenant": tenant,
            "rows": page.rows,
            "all": "" if data.get("show") == "all" and not data.get("actor") else everything,
            "pager": pager(request, page.next),
        }
    return render(request, "pages/audit/requests.html", context, status=form_status(request, form))


@require_safe
@login_required
def audit_request(request: HttpRequest, key: str) -> HttpResponse:
    """One request with its trace, where one was kept (AZ11)."""
    actor = actor_of(request)
    row = request_of(key)
    if row is None or not (actor.sees_all or is_visible(actor, row.tenant, row.created_at)):
        raise NotFound("There is no such request.", kind="audit-logs")
    return render(request, "pages/audit/request.html", {"row": row, "explanation": traced_request(row)})


@require_safe
@login_required
def audit_export(request: HttpRequest) -> StreamingHttpResponse:
    """What the page lists under the same filters, as CSV or JSON Lines with hashes; the export is an event itself.

    Raises ``BadRequest`` for a filter that cannot be read: a file without it would hold what nobody asked for.
    """
    actor = actor_of(request)
    chains = visible_chains(actor)
    chain, filters = _asked(request, actor, chains, _form(request, actor, chains))
    return export_of(actor, filters, request.GET.get("format", "jsonl"), chain=chain, chains=chains)


def _form(request: HttpRequest, actor: Actor, chains: list[str]) -> AuditForm:
    """The page's filters. Raises as ``require_chain``."""
    wanted = request.GET.get("chain", "")
    if wanted:
        require_chain(actor, wanted, chains)
    choices = _choices(actor, chains, wanted)
    return AuditForm(request.GET or None, chains=choices, actions=[action.value for action in Action])


def _asked(request: HttpRequest, actor: Actor, chains: list[str], form: AuditForm) -> tuple[str, Filters]:
    """What the page's filters say: the chain (empty: all that the actor sees) and the rest. Raises ``BadRequest``."""
    data = filters_of(form)
    workspace = data.get("workspace")
    filters = Filters(
        action=data.get("action", ""),
        outcome=data.get("outcome", ""),
        text=data.get("text", ""),
        workspace_id=selectors.workspace_visible_to(actor, workspace).pk if workspace else None,
        since=_midnight(data.get("since")),
        until=_midnight_after(data.get("until")),
    )
    if workspace:
        return "", filters
    # Who administers one tenant and asks for nothing in particular means that one.
    return data.get("chain") or (chains[0] if len(chains) == 1 and not actor.sees_all else ""), filters


def _known(chains: list[str], wanted: str) -> list[str]:
    """With the one that is asked for, which has no chain before its first event."""
    return chains if wanted in ["", *chains] else [*chains, wanted]


def _choices(actor: Actor, chains: list[str], wanted: str) -> list[tuple[str, str]]:
    first = "Everything" if actor.sees_all else (chains[0] if len(chains) == 1 else "What I did")
    return [("", first), *((name, name) for name in _known(chains, wanted))]


def _midnight(day: date | None) -> datetime | None:
    return datetime.combine(day, time(0), UTC) if day else None


def _midnight_after(day: date | None) -> datetime | None:
    """The end of the day, which is not included any more."""
    return _midnight(min(day, _LAST_DAY) + timedelta(days=1)) if day else None


def _remembered_status(chain: str) -> dict[str, str]:
    return cached(f"portal:chain:{chain}", _VERIFIED_FOR, lambda: _chain_status(chain))


def _chain_status(chain: str) -> dict[str, str]:
    stretch = newest(chain)
    flaw = flaw_in(stretch)
    if flaw is None:
        status = {
            "verdict": labels.ALLOW,
            "title": f"The chain {chain} is whole.",
            "text": "Every row follows from the one before it.",
        }
        if stretch.after[0]:
            status["title"] = f"The newest {stretch.end[0] - stretch.after[0]} rows of the chain {chain} are whole."
            status["text"] = "Each follows from the one before it. All are checked by manage.py audit verify."
    else:
        status = {
            "verdict": labels.DENY,
            "title": f"The chain {chain} is broken at row {flaw.sequence}.",
            "text": flaw.message,
        }
    return status
