"""The audit log, and what was used, in the console: to read, and nothing else (GW13, AD7)."""

from __future__ import annotations

import yaml
from django.contrib import admin

from audit.models import AuditChain, AuditEntry
from portal.admin.translating import ServiceBackedAdmin, lines
from portal.pages import labels
from tenants.models import Announcement, Freeze, Offboarding, Postponement, UsageHour


@admin.register(AuditEntry)
class AuditEntryAdmin(ServiceBackedAdmin):
    """Security events, newest first. Words are searched on the portal's page, which has an index for them."""

    list_display = ("created_at", "event", "outcome", "actor", "target", "chain", "sequence", "ip_address")
    list_filter = ("outcome",)
    search_fields = ("actor__exact", "action__exact", "chain__exact")
    ordering = ("-created_at", "-id")
    exclude = ("words", "detail")
    readonly_fields = ("what_else",)

    @admin.display(description="Event", ordering="action")
    def event(self, entry: AuditEntry) -> str:
        """The name of the event in words."""
        return labels.action_name(entry.action)

    @admin.display(description="Detail")
    def what_else(self, entry: AuditEntry) -> str:
        """The details as YAML, which people read more easily than JSON."""
        return lines(yaml.safe_dump(entry.detail, sort_keys=False, allow_unicode=True) if entry.detail else "")


@admin.register(AuditChain)
class AuditChainAdmin(ServiceBackedAdmin):
    """The last entry of each audit chain, to read."""

    list_display = ("chain", "sequence", "hash")
    ordering = ("chain",)


@admin.register(Announcement)
class AnnouncementAdmin(ServiceBackedAdmin):
    """What is and was said on top of the pages, to read; it is said on the portal's own page."""

    list_display = ("text", "severity", "audience", "starts_at", "ends_at", "created_by")
    list_filter = ("severity",)
    ordering = ("-created_at", "-id")


@admin.register(Freeze)
class FreezeAdmin(ServiceBackedAdmin):
    """What is held still, to read; operators freeze and thaw on the pages of tenants and workspaces."""

    list_display = ("tenant", "namespace", "reason", "frozen_by", "frozen_at", "until")
    list_select_related = ("tenant",)
    search_fields = ("tenant__name__startswith",)
    ordering = ("-frozen_at", "id")


@admin.register(Offboarding)
class OffboardingAdmin(ServiceBackedAdmin):
    """Which tenants leave, to read; operators begin it and call it off on the tenants' pages."""

    list_display = ("tenant", "manner", "reason", "begun_by", "begun_at", "ends_at")
    list_select_related = ("tenant",)
    search_fields = ("tenant__name__startswith",)
    ordering = ("ends_at", "tenant")


@admin.register(Postponement)
class PostponementAdmin(ServiceBackedAdmin):
    """What is put off in the inbox, to read; operators bring it back on the inbox itself."""

    list_display = ("kind", "name", "reason", "postponed_by", "postponed_at", "until")
    ordering = ("until", "id")


@admin.register(UsageHour)
class UsageHourAdmin(ServiceBackedAdmin):
    """What tenants and workspaces used, hour by hour, the newest first."""

    list_display = (
        "hour",
        "tenant",
        "namespace",
        "requests",
        "refused",
        "credentials",
        "objects_stored",
        "objects_placed",
        "streams",
    )
    search_fields = ("tenant__exact", "namespace__exact")
    ordering = ("-id",)
