"""What operators say to everybody, or to those whom it concerns, on top of every page."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tenants.models.clusters import Tier
from tenants.models.people import Tenant, User


class Severity(models.TextChoices):
    """How much it matters."""

    INFO = "info", _("Information")
    WARNING = "warning", _("Maintenance or warning")
    CRITICAL = "critical", _("Outage")


class Audience(models.TextChoices):
    """Whom it is meant for."""

    EVERYBODY = "everybody", _("Everybody")
    TENANTS = "tenants", _("Members of some tenants")
    TIERS = "tiers", _("Members of tenants with workspaces of some tiers")


class Announcement(models.Model):
    """Said from ``starts_at`` until ``ends_at``, or until somebody ends it; one line of plain text.

    ``tenants`` and ``tiers`` say whom it is for as far as ``audience`` asks: one whose tenants are all gone is for nobody.
    Who puts it away (``dismissed_by``) does not see it again.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    text = models.CharField(max_length=500)
    severity = models.CharField(max_length=8, choices=Severity.choices, default=Severity.INFO)
    audience = models.CharField(max_length=9, choices=Audience.choices, default=Audience.EVERYBODY)
    tenants: models.ManyToManyField[Tenant, models.Model] = models.ManyToManyField(
        Tenant, db_table="announcement_tenants", related_name="+", blank=True
    )
    tiers: models.ManyToManyField[Tier, models.Model] = models.ManyToManyField(
        Tier, db_table="announcement_tiers", related_name="+", blank=True
    )
    dismissible = models.BooleanField(default=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True, blank=True)
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    dismissed_by: models.ManyToManyField[User, models.Model] = models.ManyToManyField(
        User, db_table="announcement_dismissals", related_name="+", blank=True, editable=False
    )

    class Meta:
        db_table = "announcements"
        verbose_name = _("announcement")
        verbose_name_plural = _("announcements")
        constraints = [
            models.CheckConstraint(condition=models.Q(severity__in=Severity.values), name="announcement_severity"),
            models.CheckConstraint(condition=models.Q(audience__in=Audience.values), name="announcement_audience"),
        ]

    def __str__(self) -> str:
        return self.text[:80]
