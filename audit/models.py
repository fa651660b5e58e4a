"""Audit rows. Users, tenants and workspaces are named by value, not by foreign key: a row outlives them."""

from __future__ import annotations

import base64
import uuid
from datetime import datetime
from typing import Any

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVector, SearchVectorField
from django.db import models
from django.utils.translation import gettext_lazy as _


def key_of(created_at: datetime, identifier: uuid.UUID) -> str:
    """A row's place in time as a word for URLs: where a page goes on, and what a partitioned row is found by."""
    return base64.urlsafe_b64encode(f"{created_at.isoformat()} {identifier}".encode()).decode().rstrip("=")


class Outcome(models.TextChoices):
    """How an event ended."""

    INTENT = "intent", _("Intent")
    SUCCESS = "success", _("Success")
    DENIED = "denied", _("Denied")
    FAILURE = "failure", _("Failure")


class Unread(models.GeneratedField):
    """A generated column that an insertion does not read back: who may add a row need not be one who sees it."""

    db_returning = False  # type: ignore[assignment] # the stubs know it as a constant

    def deconstruct(self) -> Any:
        """As the field that it is to the database."""
        name, _, arguments, keywords = super().deconstruct()
        return name, "django.db.models.GeneratedField", arguments, keywords


class AuditEntry(models.Model):
    """One security event (GW8, GW13).

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
    user_id = models.UUIDField(_("user ID"), null=True)
    workspace_id = models.UUIDField(_("workspace ID"), null=True)
    target = models.CharField(max_length=512, blank=True)
    ip_address = models.GenericIPAddressField(_("IP address"), null=True)
    user_agent = models.CharField(max_length=256, blank=True)
    request_id = models.CharField(_("request ID"), max_length=64, blank=True)
    detail = models.JSONField(default=dict)
    previous_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)
    words = Unread(
        expression=SearchVector("action", "actor", "target", config="simple"),
        output_field=SearchVectorField(),
        db_persist=True,
    )

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
            models.Index(fields=["action", "-created_at", "-id"], name="audit_action_time"),
            GinIndex(fields=["words"], name="audit_words"),
        ]

    def __str__(self) -> str:
        return f"{self.chain}#{self.sequence} {self.action} {self.outcome}"


class AuditChain(models.Model):
    """The end of one chain: its last sequence and hash, so that a cut-off tail shows (GW13).

    Its row is the lock under which entries are appended, and moves with each (a trigger of ``audit_logs``). Triggers let
    ``sequence`` only grow and forbid DELETE.
    """

    chain = models.CharField(max_length=63, primary_key=True)
    sequence = models.BigIntegerField(default=0)
    hash = models.CharField(max_length=64)

    class Meta:
        db_table = "audit_chains"
        verbose_name = _("audit chain")
        verbose_name_plural = _("audit chains")

    def __str__(self) -> str:
        return f"{self.chain}#{self.sequence}"


class ApiRequest(models.Model):
    """One request to the API server, or ``count`` equal ones that were refused in a row (AD7, AZ11).

    The table is partitioned by month and written by COPY (``audit.requestlog.records``); it is no chain. ``code`` is the HTTP
    status, ``authenticator`` who knew the user (of whoever acts as another, AN9), ``step`` the authorizer that decided,
    ``latency`` microseconds, 2^31 - 1 at most. ``trace`` is there for what was refused by the
    authorizers: what each of them that was asked has said, in order (``step``, ``decision``, ``reason``, ``rule``).
    """

    pk = models.CompositePrimaryKey("created_at", "id")
    id = models.UUIDField(default=uuid.uuid4, editable=False)
    created_at = models.DateTimeField()
    tenant = models.CharField(max_length=63, blank=True)
    space = models.CharField(max_length=512, blank=True)
    actor = models.CharField(max_length=253, blank=True)
    authenticator = models.CharField(max_length=32, blank=True, default="", db_default="")
    credential = models.CharField(max_length=128, blank=True)
    verb = models.CharField(max_length=32)
    path = models.CharField(max_length=1024)
    code = models.PositiveSmallIntegerField()
    allowed = models.BooleanField()
    step = models.CharField(max_length=63, blank=True)
    reason = models.CharField(max_length=512, blank=True)
    latency = models.PositiveIntegerField(default=0)
    count = models.PositiveIntegerField(default=1)
    ip_address = models.GenericIPAddressField(null=True)
    user_agent = models.CharField(max_length=256, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    trace = models.JSONField(null=True)

    class Meta:
        db_table = "api_requests"
        verbose_name = _("API request")
        verbose_name_plural = _("API requests")
        indexes = [
            models.Index(fields=["tenant", "-created_at", "-id"], name="api_request_tenant_time"),
            models.Index(fields=["-created_at", "-id"], name="api_request_time"),
            # What people come with is the ID of what was refused; an index of all would cost every request.
            models.Index(fields=["request_id"], condition=models.Q(code__gte=400), name="api_request_refused_id"),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.path} {self.code}"

    @property
    def key(self) -> str:
        """What the row is found by."""
        return key_of(self.created_at, self.id)
