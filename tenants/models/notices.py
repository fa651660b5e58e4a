"""What people and machines are told: what has happened, who hears of it, and how it was sent."""

from __future__ import annotations

import uuid
from urllib.parse import urlsplit

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tenants.models.people import Tenant, User
from tenants.models.requests import AccessRequest
from tenants.models.workspaces import Workspace


class NoticeKind(models.TextChoices):
    """What is told of. Webhooks get these names: they are never renamed."""

    REQUEST_OPENED = "request.opened", _("Somebody asks for what I decide")
    REQUEST_DECIDED = "request.decided", _("What I asked for is decided")
    REQUEST_COMMENTED = "request.commented", _("Somebody talks about a request of mine")
    WORKSPACE_SUSPENDED = "workspace.suspended", _("A workspace or a tenant is suspended")
    WORKSPACE_RESUMED = "workspace.resumed", _("A workspace or a tenant is open again")
    WORKSPACE_FAILED = "workspace.failed", _("Something fails for a workspace")
    CREDENTIAL_ISSUED = "credential.issued", _("Somebody else has a credential issued for me")
    MEMBERSHIP_CHANGED = "membership.changed", _("My role in a tenant changes")
    EXPIRY_AHEAD = "expiry.ahead", _("A workspace, a membership or an access token of mine ends soon")
    ACCOUNT_CHANGED = "account.changed", _("What opens my account changes")


class About(models.Model):
    """What a notice is about: the very rows, with which it goes."""

    kind = models.CharField(max_length=20, choices=NoticeKind.choices)
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.CASCADE, related_name="+")
    workspace = models.ForeignKey(Workspace, null=True, on_delete=models.CASCADE, related_name="+")
    request = models.ForeignKey(AccessRequest, null=True, on_delete=models.CASCADE, related_name="+")
    text = models.CharField(max_length=512)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.kind}: {self.text[:80]}"


class Notice(About):
    """Something that has happened, written with it; a worker tells whoever is to hear of it, and takes the row away.

    ``user`` is whom it is about, ``actor_id`` who did it and needs not be told.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="+")
    actor_id = models.UUIDField(null=True)

    class Meta:
        db_table = "notices"
        indexes = [models.Index(fields=["created_at"], name="notice_time")]


class Notification(About):
    """What a person is told in the portal."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="notifications")
    read_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "notifications"
        verbose_name = _("notification")
        verbose_name_plural = _("notifications")
        indexes = [
            models.Index(fields=["user", "-created_at", "-id"], name="notification_time"),
            models.Index(fields=["user"], condition=models.Q(read_at__isnull=True), name="notification_unread"),
        ]


class Webhook(models.Model):
    """An address outside that is told what happens in a tenant, or without one on the whole platform.

    ``sealed_secret`` is what its messages are signed with, shown once. Without ``kinds`` it is told everything.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.CASCADE, related_name="webhooks")
    url = models.CharField(max_length=512)
    sealed_secret = models.BinaryField(editable=False)
    kinds = models.JSONField(default=list, blank=True)
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "webhooks"
        verbose_name = _("webhook")
        verbose_name_plural = _("webhooks")
        constraints = [models.CheckConstraint(condition=models.Q(url__startswith="https://"), name="webhook_https")]

    def __str__(self) -> str:
        # The rest of the address is often the receiver's secret.
        return f"{self.pk} to {urlsplit(self.url).hostname} of {self.tenant_id or 'the platform'}"


class DeliveryState(models.TextChoices):
    """Where a message is."""

    WAITING = "waiting", _("Waiting")
    SENT = "sent", _("Sent")
    FAILED = "failed", _("Failed")


class Delivery(models.Model):
    """A message to a webhook, or of a notification by e-mail: the queue, and what became of it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    webhook = models.ForeignKey(Webhook, null=True, on_delete=models.CASCADE, related_name="deliveries")
    notification = models.ForeignKey(Notification, null=True, on_delete=models.CASCADE, related_name="deliveries")
    kind = models.CharField(max_length=20, choices=NoticeKind.choices)
    body = models.TextField(blank=True)
    state = models.CharField(max_length=7, choices=DeliveryState.choices, default=DeliveryState.WAITING)
    attempts = models.PositiveIntegerField(default=0)
    not_before = models.DateTimeField(default=timezone.now)
    answer = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "deliveries"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(webhook__isnull=True, notification__isnull=False)
                | models.Q(webhook__isnull=False, notification__isnull=True),
                name="delivery_to_one",
            )
        ]
        indexes = [
            models.Index(fields=["not_before"], condition=models.Q(state="waiting"), name="delivery_due"),
            models.Index(fields=["webhook", "-created_at"], name="delivery_log"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.state}"
