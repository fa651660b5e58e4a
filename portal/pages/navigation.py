"""What every page is drawn with: theme, layout, and the ways to go, as far as they are this person's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from audit.recorder import Actor
from portal.http.actors import actor_of
from portal.pages.inbox import inbox_counted
from tenants.models import Notification, Role
from tenants.rights import lasting_role_of, role_at_least
from tenants.selectors import may_manage
from tenants.services.operating.announcements import SHOWN_MAX, announcements_for

THEMES: Final = ("auto", "light", "dark")
DENSITIES: Final = ("compact", "comfortable")
_MODULES: Final = ("js/theme.js", "js/copy.js", "js/dialog.js", "js/toast.js", "js/palette.js")


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to go."""

    text: str
    url: str
    icon: str
    current: bool
    count: Any = 0
    """How much waits there; asked for only where it is drawn."""


@dataclass(frozen=True, slots=True)
class TenantTabs:
    """Which of a tenant's pages are open to somebody beside those of every member."""

    read_all: bool
    webhooks: bool


def tenant_tabs(actor: Actor, tenant: str) -> TenantTabs:
    """Its admins', by break-glass too, and those of admins for good (GW25). Raises ``NotFound`` for no member."""
    lasting = lasting_role_of(actor, tenant)
    return TenantTabs(
        read_all=actor.sees_all or may_manage(actor, tenant),
        webhooks=actor.sees_all or (lasting is not None and role_at_least(lasting, Role.ADMIN)),
    )


@dataclass(frozen=True, slots=True)
class Section:
    """A group of ways under a title; the first has none."""

    title: str
    entries: tuple[Entry, ...]


_SECTIONS: Final = (
    (
        "",
        False,
        (
            ("Overview", "overview", "layers"),
            ("Inbox", "inbox", "inbox"),
            ("Workspaces", "workspaces", "boxes"),
            ("Tenants", "tenants", "building-2"),
            ("My requests", "my-requests", "send"),
        ),
    ),
    (
        "Access",
        False,
        (
            ("Credentials", "credentials", "key-round"),
            ("In pods now", "pod-connections", "terminal"),
            ("Recordings", "recordings", "play"),
            ("Access tokens", "tokens", "key"),
            ("Explain", "explain", "route"),
            ("Identity", "identity", "key-round"),
            ("Audit log", "audit", "scroll-text"),
        ),
    ),
    (
        "Operations",
        True,
        (
            ("Tiers", "tiers", "gauge"),
            ("Charges", "charges", "activity"),
            ("Reports", "reports", "chart-column"),
            ("Clusters", "clusters", "server"),
            ("Operations", "operations", "history"),
            ("Users", "users", "users"),
            ("Announcements", "announcements", "megaphone"),
            ("Webhooks", "webhooks", "globe"),
            ("Admin", "admin:index", "wrench"),
        ),
    ),
    ("Help", False, (("REST API", "api-docs", "book-open"),)),
)


def page(request: HttpRequest) -> dict[str, Any]:
    """The context of every template."""
    htmx = getattr(request, "htmx", None)
    context: dict[str, Any] = {
        "layout": "dialog.html" if htmx and htmx.target == "dialog" else "base.html",
        "theme": _chosen(request, "theme", THEMES),
        "density": _chosen(request, "density", DENSITIES),
        "modules": _MODULES,
        "portal_name": settings.PORTAL_NAME,
    }
    user: Any = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        context["banners"] = SimpleLazyObject(lambda: list(announcements_for(user, now=timezone.now())[:SHOWN_MAX]))
        context["viewing"] = getattr(request, "viewing", None)
        context["closed"] = getattr(request, "closed", "")
        context["unread"] = SimpleLazyObject(lambda: Notification.objects.filter(user=user, read_at=None).count())
        waiting = SimpleLazyObject(lambda: inbox_counted(actor_of(request), now=timezone.now()))
        overseer = user.is_staff or user.is_auditor
        context["navigation"] = _sections(request.path, overseer=overseer, counts={"inbox": waiting})
    return context


def _sections(path: str, *, overseer: bool, counts: Mapping[str, Any]) -> list[Section]:
    sections = []
    for title, overseers_only, entries in _SECTIONS:
        if overseers_only and not overseer:
            continue
        made = [(text, reverse(name), icon, counts.get(name, 0)) for text, name, icon in entries]
        sections.append(
            Section(
                title, tuple(Entry(text, url, icon, _is_current(path, url), count) for text, url, icon, count in made)
            )
        )
    return sections


def _is_current(path: str, url: str) -> bool:
    return path == url if url == "/" else path.startswith(url)


def _chosen(request: HttpRequest, name: str, values: tuple[str, ...]) -> str:
    value = request.COOKIES.get(name, "")
    return value if value in values else values[0]
