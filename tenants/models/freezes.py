"""What is held still: read by its people, and changed by none of them."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tenants.models.people import Tenant
from tenants.models.workspaces import Workspace


class Freeze(models.Model):
    """A tenant's space, or one workspace, in which nobody but operators writes (GW28).

    API servers hold all of them in memory beside the locks, and learn of changes as of those: ``space`` and ``namespace``
    are a lock's; an empty namespace is the whole logical cluster.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="freezes")
    workspace = models.ForeignKey(Workspace, null=True, on_delete=models.CASCADE, related_name="freezes")
    space = models.CharField(max_length=512)
    namespace = models.CharField(max_length=63, blank=True)
    reason = models.CharField(max_length=512)
    frozen_by = models.CharField(max_length=254)
    frozen_at = models.DateTimeField(default=timezone.now)
    until = models.DateTimeField(null=True, blank=True)
    """When a worker ends it; one without is ended by hand."""

    class Meta:
        db_table = "freezes"
        verbose_name = _("freeze")
        verbose_name_plural = _("freezes")
        constraints = [models.UniqueConstraint(fields=["space", "namespace"], name="freeze_unique")]
        indexes = [models.Index(fields=["until"], condition=models.Q(until__isnull=False), name="freeze_end")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.namespace}".strip()
