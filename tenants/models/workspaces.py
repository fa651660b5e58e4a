"""Workspaces, the operations that bring them about, and the locks that close them."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models.functions import Concat
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from audit.tracing import traceparent
from tenants.models.clusters import Cluster, Tier
from tenants.models.people import Tenant


class Status(models.TextChoices):
    """What an operator has decided about a workspace."""

    ACTIVE = "active", _("Active")
    SUSPENDED = "suspended", _("Suspended")
    DELETED = "deleted", _("Deleted")


class Phase(models.TextChoices):
    """How far the cluster is with it; shown only after reading back."""

    PROVISIONING = "provisioning", _("Provisioning")
    READY = "ready", _("Ready")
    SUSPENDING = "suspending", _("Suspending")
    SUSPENDED = "suspended", _("Suspended")
    RESUMING = "resuming", _("Resuming")
    DELETING = "deleting", _("Deleting")
    DELETED = "deleted", _("Deleted")


class Workspace(models.Model):
    """What a user asks for (GW1, GW8).

    ``generation`` grows with every wish (suspend, resume, tier, delete) and fences late workers.
    ``service_accounts`` maps the names of the ServiceAccounts that tokens are asked for to their uids: new ones after
    each resume. ``saved_bindings`` keeps the RoleBindings that a suspension took away, ``receipt`` its measured layers.
    ``suspended_with_tenant`` marks a suspension that ends with the tenant's, ``stopped`` one that ends the pods too.
    ``accounts_spent`` says that tokens from before a suspension may be about: no right is given before the accounts
    were made anew; ``accounts_gone_at`` is when the last ones were seen to be gone, in database time.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="workspaces")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="workspaces")
    name = models.CharField(max_length=63)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="workspaces")
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, related_name="workspaces", db_column="tier")
    k8s_namespace = models.CharField(_("namespace"), max_length=63)
    k8s_sa_name = models.CharField(_("service account"), max_length=63, default="sa-tenant-admin")
    status = models.CharField(max_length=9, choices=Status.choices, default=Status.ACTIVE)
    phase = models.CharField(max_length=12, choices=Phase.choices, default=Phase.PROVISIONING)
    generation = models.PositiveBigIntegerField(default=1)
    observed_generation = models.PositiveBigIntegerField(default=0)
    namespace_uid = models.CharField(_("namespace UID"), max_length=64, blank=True)
    service_accounts = models.JSONField(default=dict, blank=True)
    idempotency_key = models.CharField(max_length=128, blank=True, editable=False)
    suspended_reason = models.CharField(_("reason of the suspension"), max_length=512, blank=True)
    suspended_at = models.DateTimeField(null=True, blank=True)
    suspended_by = models.CharField(max_length=254, blank=True)
    suspended_until = models.DateTimeField(null=True, blank=True)
    """When a worker resumes it; a suspension without is ended by hand."""
    suspended_with_tenant = models.BooleanField(default=False)
    stopped = models.BooleanField(default=False)
    accounts_spent = models.BooleanField(default=False, editable=False)
    accounts_gone_at = models.DateTimeField(null=True, editable=False)
    saved_bindings = models.JSONField(default=list, blank=True)
    saved_accounts = models.JSONField(default=list, editable=False)
    renewed_accounts = models.JSONField(default=list, editable=False)
    receipt = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    """When it is suspended, and kept, unless somebody renews it (GW25)."""
    warned_days = models.PositiveSmallIntegerField(null=True, editable=False)
    """How many days before its end its people were warned last."""
    ready_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    checked_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        db_table = "workspaces"
        verbose_name = _("workspace")
        verbose_name_plural = _("workspaces")
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"],
                condition=~models.Q(status="deleted"),
                name="workspace_name_unique_in_tenant",
            ),
            models.UniqueConstraint(
                fields=["user", "idempotency_key"],
                condition=~models.Q(idempotency_key=""),
                name="workspace_idempotency_key_unique",
            ),
            models.CheckConstraint(
                condition=~models.Q(status="suspended") | models.Q(suspended_at__isnull=False),
                name="workspace_suspension_has_time",
            ),
            models.CheckConstraint(
                condition=models.Q(name__regex=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), name="workspace_name_dns_label"
            ),
            models.CheckConstraint(
                condition=models.Q(k8s_namespace__regex=r"^(?!kube-)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
                & (
                    models.Q(k8s_namespace__regex=r"^tenant-[0-9a-f]{8,32}$")
                    | models.Q(k8s_namespace__startswith=Concat(models.F("tenant_id"), models.Value("-")))
                ),
                name="workspace_namespace_form",
            ),
            # A name may serve again once nothing is left of it on any cluster.
            models.UniqueConstraint(
                fields=["k8s_namespace"], condition=~models.Q(phase="deleted"), name="workspace_namespace_unique"
            ),
            models.CheckConstraint(
                condition=models.Q(observed_generation__lte=models.F("generation")),
                name="workspace_observed_not_ahead",
            ),
        ]
        indexes = [
            models.Index(fields=["user", "status"], name="workspace_user_status"),
            models.Index(fields=["tenant", "-created_at", "-id"], name="workspace_tenant_time"),
            models.Index(fields=["-created_at", "-id"], name="workspace_time"),
            models.Index(fields=["checked_at"], name="workspace_checked"),
            models.Index(fields=["expires_at"], condition=models.Q(expires_at__isnull=False), name="workspace_end"),
            models.Index(
                fields=["suspended_until"], condition=models.Q(suspended_until__isnull=False), name="workspace_until"
            ),
            models.Index(
                fields=["status"],
                condition=~models.Q(phase="deleted") & ~models.Q(phase="ready"),
                name="workspace_not_ready",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id}/{self.name}"


class Desired(models.TextChoices):
    """What an operation wants the workspace to be."""

    READY = "ready", _("Ready")
    SUSPENDED = "suspended", _("Suspended")
    DELETED = "deleted", _("Deleted")


class OperationState(models.TextChoices):
    """Where an operation is."""

    PENDING = "pending", _("Pending")
    RUNNING = "running", _("Running")
    DONE = "done", _("Done")
    FAILED = "failed", _("Failed")
    SUPERSEDED = "superseded", _("Superseded")


class Operation(models.Model):
    """A wish on its way: the queue of record for workers (GW15).

    ``traceparent`` is the span in which it was asked for, where that process is traced: its work belongs to that trace.
    A worker claims a due row with a lease in database time and a fencing number (``fence``); every step it finishes
    is committed here only while ``fence`` and the workspace's ``generation`` are still its own. A FAILED row waits for
    its cause to go: it is tried again, rarely.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="operations")
    desired = models.CharField(max_length=9, choices=Desired.choices)
    generation = models.PositiveBigIntegerField()
    state = models.CharField(max_length=10, choices=OperationState.choices, default=OperationState.PENDING)
    step = models.CharField(max_length=32, blank=True)
    steps_done = models.JSONField(default=list, help_text=_("finished steps with their times"))
    attempts = models.PositiveIntegerField(default=0)
    not_before = models.DateTimeField(default=timezone.now)
    lease_until = models.DateTimeField(null=True)
    fence = models.PositiveBigIntegerField(default=0)
    error = models.CharField(max_length=1024, blank=True)
    requested_by = models.CharField(max_length=254, blank=True)
    traceparent = models.CharField(max_length=55, blank=True, default=traceparent, db_default="", editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "operations"
        verbose_name = _("operation")
        verbose_name_plural = _("operations")
        constraints = [
            models.UniqueConstraint(fields=["workspace", "generation"], name="operation_generation_unique"),
        ]
        indexes = [
            models.Index(
                fields=["not_before"],
                condition=models.Q(state__in=["pending", "running", "failed"]),
                name="operation_due",
            ),
            models.Index(fields=["-created_at", "-id"], name="operation_time"),
        ]

    def __str__(self) -> str:
        return f"{self.desired} {self.workspace_id} generation {self.generation}"


class Lock(models.Model):
    """A closed door: no request enters this logical cluster, or this namespace of it, whatever its RBAC says (GW5).

    API servers hold all locks in memory and learn of changes by notification, with a poll behind it. An empty
    ``namespace`` closes the whole logical cluster.
    """

    space = models.CharField(max_length=512)
    namespace = models.CharField(max_length=63, blank=True)
    reason = models.CharField(max_length=512)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "locks"
        constraints = [models.UniqueConstraint(fields=["space", "namespace"], name="lock_unique")]

    def __str__(self) -> str:
        return f"{self.space} {self.namespace}".strip()
