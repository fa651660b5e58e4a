"""What people ask others for, and what was said to it."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tenants.models.clusters import Approval, Tier
from tenants.models.people import Role, Tenant, User
from tenants.models.workspaces import Workspace


class RequestKind(models.TextChoices):
    """What can be asked for."""

    TENANT = "tenant", _("A tenant")
    TIER = "tier", _("Another tier for a workspace")
    QUOTA = "quota", _("More quota for a tenant")
    ROLE = "role", _("A role in a tenant")
    BREAK_GLASS = "break-glass", _("Break-glass: a role for some hours")
    LEAVE = "leave", _("The end of a tenant")


class RequestState(models.TextChoices):
    """What has become of it."""

    OPEN = "open", _("Open")
    APPROVED = "approved", _("Approved")
    DENIED = "denied", _("Denied")
    WITHDRAWN = "withdrawn", _("Withdrawn")
    EXPIRED = "expired", _("Expired")


class AccessRequest(models.Model):
    """Somebody's wish that somebody else has to decide (GW25).

    ``tenant`` and ``workspace`` are the very ones it was asked about: it ends with them, and a later one of the same
    name has none of it. ``name`` is that of a tenant to be made, or of one that was asked about and is not there.
    ``approvers`` says who decides, as it was when it was asked. ``approved_first`` is the first of two.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=11, choices=RequestKind.choices)
    state = models.CharField(max_length=9, choices=RequestState.choices, default=RequestState.OPEN)
    approvers = models.CharField(max_length=8, choices=Approval.choices)
    asked_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="requests_made")
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.CASCADE, related_name="requests")
    workspace = models.ForeignKey(Workspace, null=True, on_delete=models.CASCADE, related_name="requests")
    name = models.CharField(max_length=63, blank=True)
    display_name = models.CharField(max_length=128, blank=True)
    tier = models.ForeignKey(Tier, null=True, on_delete=models.SET_NULL, related_name="requests")
    role = models.CharField(max_length=6, choices=Role.choices, blank=True)
    hard = models.JSONField(default=dict, blank=True)
    minutes = models.PositiveIntegerField(default=0)
    reason = models.CharField(max_length=1024)
    approved_first = models.ForeignKey(
        User, null=True, on_delete=models.SET_NULL, related_name="requests_approved_first"
    )
    decided_by = models.CharField(max_length=254, blank=True)
    decided_at = models.DateTimeField(null=True)
    answer = models.CharField(max_length=512, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()

    class Meta:
        db_table = "access_requests"
        verbose_name = _("request")
        verbose_name_plural = _("requests")
        constraints = [
            models.UniqueConstraint(
                "asked_by",
                "kind",
                Coalesce("tenant_id", models.Value("")),
                "name",
                condition=models.Q(state="open", workspace__isnull=True),
                name="request_open_once",
            ),
            models.UniqueConstraint(
                fields=["asked_by", "workspace"],
                condition=models.Q(state="open", workspace__isnull=False),
                name="request_open_once_workspace",
            ),
            models.CheckConstraint(
                condition=models.Q(state="open", decided_at__isnull=True)
                | (~models.Q(state="open") & models.Q(decided_at__isnull=False)),
                name="request_decided_has_time",
            ),
            models.CheckConstraint(condition=~models.Q(state="denied", answer=""), name="request_denied_has_reason"),
            models.CheckConstraint(condition=models.Q(reason__gt=""), name="request_has_reason"),
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="request_time"),
            models.Index(fields=["expires_at"], condition=models.Q(state="open"), name="request_open_end"),
        ]

    def __str__(self) -> str:
        tenant = self.tenant_id or self.name
        role = self.get_role_display().lower()
        texts: dict[str, str] = {
            RequestKind.TENANT: f"a tenant {tenant}",
            RequestKind.TIER: f"the tier {self.tier or 'that is gone'} for {self.workspace}",
            RequestKind.QUOTA: f"more quota for {tenant}",
            RequestKind.ROLE: f"the role {role} in {tenant}",
            RequestKind.BREAK_GLASS: f"break-glass as {role} in {tenant} for {self.minutes} minutes",
            RequestKind.LEAVE: f"the end of the tenant {tenant}",
        }
        # While a later release runs beside this one, it may ask for what this one has no words for.
        return texts.get(self.kind, f"{self.kind} for {tenant}")


class RequestComment(models.Model):
    """What was said about a request, by whom."""

    request = models.ForeignKey(AccessRequest, on_delete=models.CASCADE, related_name="comments")
    author = models.CharField(max_length=254)
    text = models.CharField(max_length=2048)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "request_comments"

    def __str__(self) -> str:
        return f"{self.author}: {self.text[:40]}"
