"""What operators have put off in the inbox."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

CAUSE_MAX = 500


class Postponement(models.Model):
    """One row of the inbox that operators do not want to see before ``until``, while its ``cause`` stays what it was.

    ``kind`` and ``name`` are what the inbox knows the row by.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=16)
    name = models.CharField(max_length=320)
    cause = models.CharField(max_length=CAUSE_MAX, blank=True)
    reason = models.CharField(max_length=512)
    until = models.DateTimeField()
    postponed_by = models.CharField(max_length=254)
    postponed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "postponements"
        verbose_name = _("postponement")
        verbose_name_plural = _("postponements")
        constraints = [models.UniqueConstraint(fields=["kind", "name"], name="postponement_unique")]

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"
