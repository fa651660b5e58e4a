"""The audit log: filtered, paged by key, exported, its chains checked."""

from __future__ import annotations

import json
from datetime import UTC, datetime, time
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core.cache import cache
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
from portal.http.actors import actor_of
from portal.pages import labels
from portal.pages.forms import ApiRequestForm, AuditForm
from portal.pages.lists import pager
from tenants import selectors

_VERIFIED_FOR = 60
"""Seconds for which a check of a chain is shown again: reading a whole chain on every visit would not end."""


@require_safe
@login_required
def audit(request: HttpRequest) -> HttpResponse:
    """Events: operators see every chain, tenants' admins their own, everybody what they did themselves."""
    actor = actor_of(request)
    chains = visible_chains(actor)
    form, chain, filters = _asked(request, actor, chains)
    page = entries_page(actor, filters, chain=chain, chains=chains, after=request.GET.get("after", ""))
    query = request.GET.copy()
    query.pop("after", None)
    context = {
        "form": form,
        "rows": page.rows,
        "listed": "Events",
        "filters": query.urlencode(),
        "pager": pager(request, page.next),
        "requests_shown": bool(chains),
        "chain_status": _chain_status(chain or SYSTEM_CHAIN) if chain or actor.sees_all else None,
    }
    return render(request, "pages/audit/list.html", context)


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
    if not actor.sees_all and request.GET.get("tenant", "") not in ["", *chains]:
        raise NotFound("There is no such audit log.", kind="audit-logs")
    first = SYSTEM_CHAIN if actor.sees_all else chains[0]
    # What is shown when nothing is chosen stands first in the list, and so is what the list says.
    form = ApiRequestForm(request.GET or None, tenants=[first, *(name for name in chains if name != first)])
    data: dict[str, Any] = form.cleaned_data if form.is_bound and form.is_valid() else {}
    tenant = data.get("tenant") or first
    page = requests_of_tenant(
        tenant,
        since=visible_since(actor, tenant),
        allowed=None if data.get("show") == "all" else False,
        actor=data.get("actor", ""),
        after=request.GET.get("after", ""),
    )
    everything = "?" + urlencode({"tenant": tenant, "show": "all"})
    context = {
        "form": form,
        "tenant": tenant,
        "rows": page.rows,
        "listed": "Requests",
        "all": "" if data.get("show") == "all" and not data.get("actor") else everything,
        "pager": pager(request, page.next),
    }
    return render(request, "pages/audit/requests.html", context)


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
    """What the page lists under the same filters, as CSV or JSON Lines with hashes; the export is an event itself."""
    actor = actor_of(request)
    chains = visible_chains(actor)
    _, chain, filters = _asked(request, actor, chains)
    return export_of(actor, filters, request.GET.get("format", "jsonl"), chain=chain, chains=chains)


def _asked(request: HttpRequest, actor: Actor, chains: list[str]) -> tuple[AuditForm, str, Filters]:
    """What the page's filters say: the form, the chain (empty: all that the actor sees) and the rest."""
    wanted = request.GET.get("chain", "")
    if wanted:
        require_chain(actor, wanted, chains)
    form = AuditForm(request.GET or None, chains=_choices(actor, chains), actions=[action.value for action in Action])
    data: dict[str, Any] = form.cleaned_data if form.is_bound and form.is_valid() else {}
    workspace = request.GET.get("workspace", "")
    filters = Filters(
        action=data.get("action", ""),
        outcome=data.get("outcome", ""),
        text=data.get("text", ""),
        workspace_id=selectors.workspace_visible_to(actor, workspace).pk if workspace else None,
        since=_midnight(data.get("since")),
        until=_midnight(data.get("until")),
    )
    if workspace:
        return form, "", filters
    # Who administers one tenant and asks for nothing in particular means that one.
    return form, data.get("chain") or (chains[0] if len(chains) == 1 and not actor.sees_all else ""), filters


def _choices(actor: Actor, chains: list[str]) -> list[tuple[str, str]]:
    first = "Everything" if actor.sees_all else (chains[0] if len(chains) == 1 else "What I did")
    return [("", first), *((name, name) for name in chains)]


def _midnight(day: Any) -> datetime | None:
    return datetime.combine(day, time(0), UTC) if day else None


def _chain_status(chain: str) -> dict[str, str]:
    key = f"portal:chain:{chain}"
    status: dict[str, str] | None = cache.get(key)
    if status is None:
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
        cache.set(key, status, _VERIFIED_FOR)
    return status
