"""Audit rows. Users, tenants and workspaces are named by value, not by foreign key: a row outlives them."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils.translation import gettext_lazy as _


class Outcome(models.TextChoices):
    """How an event ended."""

    INTENT = "intent", _("Intent")
    SUCCESS = "success", _("Success")
    DENIED = "denied", _("Denied")
    FAILURE = "failure", _("Failure")


class AuditEntry(models.Model):
    """One security event (GATEWAY, ``audit_logs``; GW8, GW13).

    ``hash`` is SHA-256 over the canonical JSON of the row and ``previous_hash``; ``sequence`` counts from 1 in
    each ``chain`` (a tenant's name, or ``system``). A trigger forbids UPDATE, DELETE and TRUNCATE.
    ``detail`` never holds a secret: ``audit.redaction`` has seen it.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    chain = models.CharField(max_length=63)
    sequence = models.BigIntegerField()
    created_at = models.DateTimeField()
    action = models.CharField(max_length=64)
    outcome = models.CharField(max_length=8, choices=Outcome.choices)
    actor = models.CharField(max_length=253, blank=True)
    user_id = models.UUIDField(null=True)
    workspace_id = models.UUIDField(null=True)
    target = models.CharField(max_length=512, blank=True)
    ip_address = models.GenericIPAddressField(null=True)
    user_agent = models.CharField(max_length=256, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    detail = models.JSONField(default=dict)
    previous_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        db_table = "audit_logs"
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit entries")
        constraints = [
            models.UniqueConstraint(fields=["chain", "sequence"], name="audit_chain_sequence_unique"),
            models.CheckConstraint(condition=models.Q(sequence__gt=0), name="audit_sequence_positive"),
        ]
        indexes = [
            models.Index(fields=["chain", "-created_at", "-id"], name="audit_chain_time"),
            models.Index(fields=["-created_at", "-id"], name="audit_time"),
            models.Index(fields=["workspace_id", "-created_at", "-id"], name="audit_workspace_time"),
            models.Index(fields=["user_id", "-created_at", "-id"], name="audit_user_time"),
        ]

    def __str__(self) -> str:
        return f"{self.chain}#{self.sequence} {self.action} {self.outcome}"
