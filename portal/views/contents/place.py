"""What the pages of a workspace's contents have in common: the door, the ways to go, refusals, and living parts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, Concatenate, Final
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.encoding import escape_uri_path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from kube.display.kinds import sections_of
from kube.requests.status import StatusError
from portal.contents import door, reading
from portal.http.actors import actor_of
from tenants import selectors
from tenants.models import Status, TenantState, Workspace

LIVE: Final = "live"
"""The part of a page that asks for itself."""

_REMEDIES: Final = {
    401: "Sign out and in again.",
    403: "Your role in the tenant, or what its bindings give you, does not reach this. Ask an owner or an admin of the"
    " tenant; the page Explain says what is missing.",
    404: "It is gone, or was never there. The list shows what there is.",
    410: "What the list looked like has been forgotten meanwhile. Begin again at its first page.",
    429: "The tenant asks more than its share at this moment. The page tries again by itself.",
    502: "The cluster answers, but not as Kubernetes does. An operator sees more on the page of the cluster.",
    503: "Nothing is lost. The page tries again by itself; if it stays, an operator sees the reason on the page of the"
    " cluster.",
    504: "Nothing is lost. The cluster is slow or away; an operator sees more on the page of the cluster.",
}
_TITLES: Final = {
    401: "The API server does not know you",
    403: "You may not see this",
    404: "There is nothing here",
    410: "The list has changed",
    429: "Too many requests",
    502: "The cluster answers with something else",
    503: "Not to be reached",
    504: "No answer in time",
}


@dataclass
class Place:
    """A workspace and its person's way into it."""

    request: HttpRequest
    workspace: Workspace
    closed: str = field(default="")

    @cached_property
    def door(self) -> door.Door:
        """Opened once for an answer. Raises ``StatusError``."""
        return door.door_of(self.request, self.workspace)

    @property
    def is_live(self) -> bool:
        """Whether the page asks for its living part alone."""
        htmx = getattr(self.request, "htmx", None)
        return bool(htmx and htmx.target == LIVE)

    def url(self, name: str, *parts: str) -> str:
        """A page about this workspace."""
        return reverse(name, args=[self.workspace.pk, *parts])

    def context(self, current: str = "") -> dict[str, Any]:
        """What every page is drawn with; the ways to go where the API server tells them."""
        sections = []
        if not self.closed:
            for section in sections_of(reading.kinds_of(self.door)):
                entries = [
                    {"text": kind.title, "url": self.url("workspace-kind", kind.name), "current": kind.name == current}
                    for kind in section.kinds
                ]
                is_open = section.title != "Others" or any(entry["current"] for entry in entries)
                sections.append({"title": section.title, "entries": entries, "open": is_open})
        return {"workspace": self.workspace, "sections": sections, "home": self.url("workspace-contents")}


def through_the_door(view: Callable[Concatenate[HttpRequest, Place, ...], HttpResponse]) -> Callable[..., HttpResponse]:
    """A page for whoever may know of the workspace; what the API server refuses is shown as it says it."""

    @never_cache
    @require_safe
    @login_required
    @wraps(view)
    def page(request: HttpRequest, pk: UUID, **parts: str) -> HttpResponse:
        place = place_of(request, pk)
        if place.closed:
            return refused(place, StatusError(place.closed, code=409))
        try:
            return view(request, place, **parts)
        except StatusError as error:
            return refused(place, error)

    return page


def place_of(request: HttpRequest, pk: UUID) -> Place:
    """The workspace. Raises ``NotFound`` for whoever may not know of it."""
    found = selectors.workspace_visible_to(actor_of(request), pk)
    return Place(request, found, _closed(found))


def refused(place: Place, error: StatusError) -> HttpResponse:
    """Why nothing can be shown, and what to do; a living part goes on to ask."""
    context = {
        "title": "Closed" if place.closed else _TITLES.get(error.code, "Refused"),
        "text": error.message,
        "remedy": "" if place.closed else _REMEDIES.get(error.code, ""),
        "closed": bool(place.closed),
        "code": error.code,
        "first_page": escape_uri_path(place.request.path)
        if error.code in {400, 410} and place.request.GET.get("after")
        else "",
    }
    if place.is_live:
        return _fragment(place, "pages/contents/refusal.html", context, seconds=15)
    htmx = getattr(place.request, "htmx", None)
    if htmx and htmx.target != "dialog":
        return render(place.request, "pages/contents/refusal.html", context)
    context |= {"workspace": place.workspace}
    # htmx draws only what succeeded.
    status = 200 if htmx else error.code
    response = render(place.request, "pages/contents/refused.html", context, status=status)
    if error.retry_after is not None:
        response["Retry-After"] = str(error.retry_after)
    return response


def living(
    place: Place, page: str, part: str, context: dict[str, Any], *, seconds: int, current: str = ""
) -> HttpResponse:
    """A page with a part that asks for itself every so many seconds, and is sent when it has become another."""
    if place.is_live:
        return _fragment(place, part, context, seconds=seconds)
    context = {**place.context(current), **context}
    context["live"] = _live(place, part, context, seconds)[0]
    return render(place.request, page, context)


def _fragment(place: Place, part: str, context: dict[str, Any], *, seconds: int) -> HttpResponse:
    text, digest = _live(place, part, context, seconds)
    if place.request.GET.get("seen") == digest:
        return HttpResponse(status=204)
    return HttpResponse(text)


def _live(place: Place, part: str, context: dict[str, Any], seconds: int) -> tuple[str, str]:
    body = render_to_string(part, {**context, "workspace": place.workspace}, place.request)
    digest = hashlib.sha256(body.encode()).hexdigest()[:16]
    query = place.request.GET.copy()
    query["seen"] = digest
    shell = {
        "body": body,
        "url": f"{escape_uri_path(place.request.path)}?{query.urlencode()}",
        "seconds": seconds,
    }
    return render_to_string("pages/contents/live.html", shell), digest


def _closed(found: Workspace) -> str:
    """Why nobody may look into it; empty where one may."""
    if found.tenant.state != TenantState.ACTIVE:
        reason = f": {found.tenant.suspended_reason}" if found.tenant.suspended_reason else ""
        return f"The tenant {found.tenant_id} is {found.tenant.get_state_display().lower()}{reason}."
    if found.status == Status.SUSPENDED:
        return f"The workspace is suspended: {found.suspended_reason}"
    if found.status != Status.ACTIVE:
        return "The workspace is being deleted."
    return "" if found.ready_at is not None else "The workspace is not ready yet. It takes a few seconds."
