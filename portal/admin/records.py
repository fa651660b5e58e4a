"""The audit log in the console: to read, and nothing else (GW13)."""

from __future__ import annotations

from django.contrib import admin

from audit.models import AuditChain, AuditEntry
from portal.admin.translating import Translator


@admin.register(AuditEntry)
class AuditEntryAdmin(Translator):
    """Security events, newest first. Words are searched on the portal's page, which has an index for them."""

    list_display = ("created_at", "action", "outcome", "actor", "target", "chain", "sequence", "ip_address")
    list_filter = ("outcome",)
    search_fields = ("actor__exact", "action__exact", "chain__exact")
    ordering = ("-created_at", "-id")
    exclude = ("words",)


@admin.register(AuditChain)
class AuditChainAdmin(Translator):
    """The end of each chain."""

    list_display = ("chain", "sequence", "hash")
    ordering = ("chain",)
