"""Where the console and the portal's pages show the same thing: the way from each to the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.contrib.admin.templatetags.admin_urls import admin_urlname
from django.db.models import Model
from django.urls import reverse

from access.models import Credential, PersonalAccessToken
from audit.models import AuditChain, AuditEntry
from audit.recorder import Actor
from tenants.models import (
    Announcement,
    Cluster,
    Freeze,
    Lock,
    Membership,
    Offboarding,
    Operation,
    Postponement,
    Tenant,
    Tier,
    UsageHour,
    UsagePrice,
    User,
    Workspace,
)


def _query(name: str, parameter: str, value: object) -> str:
    return reverse(name, query={parameter: value})


_PAGES: Final[Mapping[type[Model], Callable[[Any], str]]] = {
    Credential: lambda _: reverse("credentials"),
    PersonalAccessToken: lambda row: reverse("user", args=[row.user_id]),
    AuditChain: lambda row: _query("audit", "chain", row.chain),
    AuditEntry: lambda row: reverse("audit-entry", args=[row.pk]),
    Announcement: lambda row: reverse("announcement", args=[row.pk]),
    Cluster: lambda row: reverse("cluster", args=[row.name]),
    Freeze: lambda row: reverse("tenant", args=[row.tenant_id]),
    Lock: lambda row: reverse("tenant", args=[row.space.removeprefix("root:").partition(":")[0]]),
    Membership: lambda row: reverse("members", args=[row.tenant_id]),
    Offboarding: lambda row: reverse("tenant", args=[row.tenant_id]),
    Operation: lambda row: reverse("workspace", args=[row.workspace_id]),
    Postponement: lambda _: reverse("inbox"),
    Tenant: lambda row: reverse("tenant", args=[row.name]),
    Tier: lambda row: reverse("tier", args=[row.name]),
    UsageHour: lambda row: reverse("tenant-usage", args=[row.tenant]),
    UsagePrice: lambda _: reverse("prices"),
    User: lambda row: reverse("user", args=[row.pk]),
    Workspace: lambda row: reverse("workspace", args=[row.pk]),
}


def page_of(row: Model) -> str:
    """The address of the portal's page about a row of the console, or of the list that it is in."""
    return _PAGES[type(row)](row)


def console_of(actor: Actor, row: Model) -> str:
    """The address of the console's page about what a page of the portal shows; empty for whom it is closed to."""
    if not actor.sees_all:
        return ""
    return reverse(admin_urlname(row._meta, "change"), args=[row.pk])  # type: ignore[arg-type]  # noqa: SLF001 - Django's public API
