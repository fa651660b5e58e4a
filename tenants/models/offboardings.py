"""Tenants that leave: what is kept of them for some time, and when it is deleted."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tenants.models.people import Tenant


class Offboarding(models.Model):
    """A tenant's way out (GW28): closed in a ``manner``, to be exported, and deleted at ``ends_at``.

    ``was_closed`` says that it was frozen or suspended before, so that calling it off leaves it so.
    """

    class Manner(models.TextChoices):
        """How a tenant is closed while it leaves."""

        FREEZE = "freeze", _("Frozen: its people read on and write nothing")
        SUSPEND = "suspend", _("Suspended: its space is closed")

    tenant = models.OneToOneField(Tenant, primary_key=True, on_delete=models.CASCADE, related_name="offboarding")
    manner = models.CharField(max_length=7, choices=Manner.choices, default=Manner.FREEZE)
    was_closed = models.BooleanField(default=False)
    reason = models.CharField(max_length=400)
    begun_by = models.CharField(max_length=254)
    begun_at = models.DateTimeField(default=timezone.now)
    ends_at = models.DateTimeField()
    warned_days = models.PositiveSmallIntegerField(null=True, editable=False)
    """Before how many days its owners were warned last."""

    class Meta:
        db_table = "offboardings"
        verbose_name = _("offboarding")
        verbose_name_plural = _("offboardings")
        indexes = [models.Index(fields=["ends_at"], name="offboarding_end")]

    def __str__(self) -> str:
        return f"{self.tenant_id} until {self.ends_at:%d %b %Y %H:%M} UTC"
