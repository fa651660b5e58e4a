"""Credentials as facts about them: who, when, from where, until when. Never a token (GW9)."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tenants.models import Cluster, CredentialKind, Tenant, Workspace


class Login(models.Model):
    """A machine on which a person has signed in for kubectl (D9), by a browser or by a device's code.

    ``user`` is whoever allowed it, or turned it away, in ``session`` of the portal, with which it ends: the database
    takes the session out of the row. ``expires_at`` is until when the wish counts, and from ``redeemed_at`` on the end of
    the session as it was known last. Codes and secrets are kept as digests: ``family_digest`` is of what all secrets of
    the login begin with, ``secret_digest`` of the one that opens it next, ``proven_digest`` of the one that was used last.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="logins")
    session = models.ForeignKey(
        "sessions.Session", on_delete=models.DO_NOTHING, db_constraint=False, null=True, related_name="+"
    )
    machine = models.CharField(max_length=64, blank=True)
    ip_address = models.GenericIPAddressField(_("IP address"), null=True)
    user_agent = models.CharField(max_length=256, blank=True)
    redirect_uri = models.CharField(max_length=64, blank=True)
    code_challenge = models.CharField(max_length=128, blank=True)
    code_digest = models.CharField(max_length=64, null=True, unique=True, editable=False)
    device_digest = models.CharField(max_length=64, null=True, unique=True, editable=False)
    user_code = models.CharField(max_length=9, null=True, unique=True, editable=False)
    family_digest = models.CharField(max_length=64, null=True, unique=True, editable=False)
    secret_digest = models.CharField(max_length=64, blank=True, editable=False)
    proven_digest = models.CharField(max_length=64, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()
    polled_at = models.DateTimeField(null=True)
    denied_at = models.DateTimeField(null=True)
    redeemed_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.CharField(max_length=254, blank=True)

    class Meta:
        db_table = "logins"
        verbose_name = _("login")
        verbose_name_plural = _("logins")
        indexes = [
            models.Index(fields=["user", "-last_used_at"], name="login_user_time"),
            models.Index(fields=["expires_at"], condition=models.Q(revoked_at__isnull=True), name="login_not_ended"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(redeemed_at__isnull=True) | models.Q(user__isnull=False, denied_at__isnull=True),
                name="login_is_opened_by_somebody",
            ),
        ]

    def __str__(self) -> str:
        return f"login on {self.machine or self.id}"

    @property
    def of_portal(self) -> bool:
        """Whether it is the portal's own, for its pages: no code and no secret opens it."""
        return self.code_digest is None and self.device_digest is None


class Credential(models.Model):
    """One issued credential (GW3). ``jti`` ties the audit of the API server (``credential-id``) to a person.

    ``kind`` says which of a cluster's credentials it is (``tenants.models.CredentialKind``). One without ``workspace``
    is for the tenant's whole space.

    A ``direct`` one is a service account's token of the cluster. The row is made, and committed, before the token is
    asked for; ``jti`` and ``expires_at`` follow. ``anchor`` is the Secret that the token is bound to, by its uid:
    deleting it revokes this one token. ``revocation_confirmed_at`` is set when the anchor, or the account behind it, was
    seen to be gone, after a revocation or after the expiry; one that cannot be confirmed is asked for again at
    ``confirm_after``, so that it holds up no other.

    The others are tokens of the portal, which the product's own API server knows by this row alone: there is no anchor,
    and ``anchor_uid`` is the workspace's service account, which is made anew when a suspension ends. ``login`` is what an
    ``exec`` one is renewed by; it ends with it.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=7, choices=CredentialKind.choices, default=CredentialKind.DIRECT)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="credentials")
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, null=True, related_name="credentials")
    login = models.ForeignKey(Login, on_delete=models.SET_NULL, null=True, related_name="credentials")
    issued_to = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="credentials")
    jti = models.CharField(_("credential ID"), max_length=64, null=True, unique=True)
    role = models.CharField(max_length=6)
    anchor = models.CharField(max_length=253, blank=True)
    anchor_uid = models.CharField(max_length=64, blank=True)
    ip_address = models.GenericIPAddressField(_("IP address"), null=True)
    user_agent = models.CharField(max_length=256, blank=True)
    issued_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True)
    failed_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.CharField(max_length=254, blank=True)
    revocation_confirmed_at = models.DateTimeField(null=True)
    confirm_attempts = models.PositiveIntegerField(default=0)
    confirm_after = models.DateTimeField(null=True)

    class Meta:
        db_table = "credentials"
        verbose_name = _("credential")
        verbose_name_plural = _("credentials")
        indexes = [
            models.Index(fields=["workspace", "-issued_at"], name="credential_workspace_time"),
            models.Index(fields=["-issued_at", "-id"], name="credential_time"),
            models.Index(
                fields=["issued_at"],
                condition=models.Q(revocation_confirmed_at__isnull=True, kind="direct"),
                name="credential_anchor_alive",
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(expires_at__isnull=True) | models.Q(expires_at__gt=models.F("issued_at")),
                name="credential_expires_after_issue",
            ),
            models.CheckConstraint(
                condition=~models.Q(kind="direct") | models.Q(workspace__isnull=False),
                name="credential_of_a_cluster_has_a_workspace",
            ),
            models.CheckConstraint(
                condition=models.Q(role__in=["owner", "admin", "editor", "viewer"]), name="credential_role_known"
            ),
        ]

    def __str__(self) -> str:
        return f"credential {self.jti or self.id}"


class PersonalAccessToken(models.Model):
    """A token for the REST API: ``tnt_`` and random text, stored as a digest, scoped and expiring."""

    class Scope(models.TextChoices):
        """What the token is good for."""

        READ = "read", _("Read")
        WRITE = "write", _("Read and write")
        OPERATE = "operate", _("Operator actions")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="access_tokens")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, null=True, blank=True)
    name = models.CharField(max_length=64)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    prefix = models.CharField(max_length=12, editable=False)
    scope = models.CharField(max_length=7, choices=Scope.choices, default=Scope.READ)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, editable=False)
    revoked_at = models.DateTimeField(null=True, editable=False)
    warned_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        db_table = "personal_access_tokens"
        verbose_name = _("personal access token")
        verbose_name_plural = _("personal access tokens")
        indexes = [
            models.Index(fields=["user", "-created_at"], name="access_token_user_time"),
            models.Index(
                fields=["expires_at"],
                condition=models.Q(revoked_at__isnull=True, warned_at__isnull=True),
                name="access_token_to_warn_of",
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(expires_at__gt=models.F("created_at")), name="access_token_expires_after_creation"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}… of {self.user_id}"


class WebhookCredential(models.Model):
    """What a registered cluster shows when it asks the product's webhooks (GW17): random text, stored as a digest.

    A rotation adds one and gives those before it an end, so that the cluster's files can be exchanged meanwhile.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="webhook_credentials")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "webhook_credentials"
        verbose_name = _("webhook credential")
        verbose_name_plural = _("webhook credentials")

    def __str__(self) -> str:
        return f"webhook credential of {self.cluster_id}"
