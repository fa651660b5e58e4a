"""What opens an account beside its password, and where it is open: sessions, second factors, links for a new password."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tenants.models.people import User


class PortalSession(models.Model):
    """A browser in which a person is signed in: what a session of Django's does not say.

    It ends with the session: the database itself deletes the row. Its own ``id`` is what pages and the REST API know it
    by, for the session's key opens the session.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.OneToOneField(
        "sessions.Session", on_delete=models.DO_NOTHING, db_constraint=False, related_name="+", editable=False
    )
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="portal_sessions")
    ip_address = models.GenericIPAddressField(_("IP address"), null=True)
    user_agent = models.CharField(max_length=256, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    last_used_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "portal_sessions"
        verbose_name = _("portal session")
        verbose_name_plural = _("portal sessions")
        indexes = [models.Index(fields=["user", "-last_used_at"], name="portal_session_user_time")]

    def __str__(self) -> str:
        return f"session of {self.user_id}"


class SecondFactor(models.Model):
    """A person's authenticator app (TOTP, RFC 6238), confirmed by a code of its; asked for after the password.

    ``last_step`` is the time step of the code that was used last: it and those before it open nothing any more.
    """

    user = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True, related_name="second_factor")
    sealed_secret = models.BinaryField(editable=False)
    last_step = models.BigIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    last_used_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        db_table = "second_factors"
        verbose_name = _("second factor")
        verbose_name_plural = _("second factors")

    def __str__(self) -> str:
        return f"second factor of {self.user_id}"


class RecoveryCode(models.Model):
    """A code that stands in for the authenticator app, once; kept as a digest."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="recovery_codes")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    used_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        db_table = "recovery_codes"
        verbose_name = _("recovery code")
        verbose_name_plural = _("recovery codes")

    def __str__(self) -> str:
        return f"recovery code of {self.user_id}"


class Passkey(models.Model):
    """A key of a device by which a person signs in (WebAuthn): its public half, and how often it has signed.

    ``public_data`` is what the device attested: the credential's ID, and the key in COSE.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="passkeys")
    name = models.CharField(max_length=64)
    credential_id = models.BinaryField(max_length=1023, unique=True, editable=False)
    public_data = models.BinaryField(editable=False)
    counter = models.BigIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    last_used_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        db_table = "passkeys"
        verbose_name = _("passkey")
        verbose_name_plural = _("passkeys")

    def __str__(self) -> str:
        return f"passkey of {self.user_id}"


class PasswordReset(models.Model):
    """A link by which a person sets a new password, once and for a short time; its secret is kept as ``digest`` alone.

    ``made_by`` is the operator who made it; nobody for one that somebody asked for by e-mail. ``removes_factors`` says
    whether passkeys, second factor and access tokens go with the password that it replaces.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="password_resets")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    made_by = models.CharField(max_length=254, blank=True, editable=False)
    removes_factors = models.BooleanField(default=False, db_default=False, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, editable=False)
    """When it was used, or an operator's took its place, or all links of the person were ended."""

    class Meta:
        db_table = "password_resets"
        verbose_name = _("password reset")
        verbose_name_plural = _("password resets")

    def __str__(self) -> str:
        return f"password reset of {self.user_id}"
