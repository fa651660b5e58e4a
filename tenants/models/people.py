"""People, the tenants that they belong to, and as what."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models
from django.db.models.functions import Greatest, Lower, Now, Upper
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tenants.models.mailaddresses import SameAddress

models.EmailField.register_lookup(SameAddress)

_BEGINNING: Final = datetime(2020, 1, 1, tzinfo=UTC)


def next_epoch(now: datetime) -> Greatest:
    """What ``session_epoch`` becomes in the database when all access ends: never what it was."""
    return Greatest(models.F("session_epoch") + 1, int((now - _BEGINNING).total_seconds()))


class UserManager(BaseUserManager["User"]):
    """Makes users by e-mail."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """A user who signs in by ``email``; without a password only by OpenID Connect."""
        user = self.model(email=self.normalize_email(email), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def get_by_natural_key(self, username: str | None) -> User:
        """Who signs in by this address, in whatever case it is typed."""
        return self.get(email__same=username or "")

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        """An operator with every right in the admin."""
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)


class User(AbstractBaseUser, PermissionsMixin):
    """A person (GW8). ``is_staff`` makes an operator: a user of the system tenant."""

    class Status(models.TextChoices):
        """Whether the person may sign in."""

        ACTIVE = "active", _("Active")
        DISABLED = "disabled", _("Disabled")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    email = models.EmailField(_("e-mail address"), max_length=254, unique=True)
    name = models.CharField(_("name"), max_length=128, blank=True)
    password = models.CharField(_("password"), max_length=256, db_column="password_hash")
    status = models.CharField(max_length=8, choices=Status.choices, default=Status.ACTIVE)
    password_given = models.BooleanField(_("the password was given"), default=False)
    """Somebody else chose the password: it opens nothing but the choice of another one."""
    address_unproven = models.BooleanField(default=False, db_default=False, editable=False)
    """Made by the link of an invitation, which a tenant's admin has: nobody else has said whose the address is."""
    is_staff = models.BooleanField(_("operator"), default=False)
    is_auditor = models.BooleanField(_("auditor"), default=False)
    """Sees what operators see, and changes nothing; an operator is none."""
    issuer = models.CharField(_("OpenID issuer"), max_length=255, blank=True)
    subject = models.CharField(_("OpenID subject"), max_length=255, blank=True)
    session_epoch = models.PositiveIntegerField(default=0, editable=False)
    """When all access of the person was last ended, in seconds since the beginning of 2020; 0 for never."""
    notices_off = models.JSONField(default=list, blank=True, editable=False)
    """What the person does not want to be told, each as ``kind/way`` (``tenants.services.notices``)."""
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects = UserManager()

    class Meta:
        db_table = "users"
        verbose_name = _("user")
        verbose_name_plural = _("users")
        constraints = [
            models.UniqueConstraint(Lower("email"), name="user_email_unique_ci"),
            models.UniqueConstraint(
                fields=["issuer", "subject"],
                condition=~models.Q(subject=""),
                name="user_issuer_subject_unique",
            ),
            models.CheckConstraint(
                condition=~models.Q(is_staff=True, is_auditor=True), name="user_operator_or_auditor"
            ),
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="user_time"),
            # What releases before compare by that run beside this one; the next may drop it.
            models.Index(Upper("email"), name="user_email_upper"),
            models.Index(fields=["email"], condition=models.Q(is_staff=True), name="user_operator"),
        ]

    def __str__(self) -> str:
        return self.email

    def get_session_auth_hash(self) -> str:
        """What a session has to carry: it changes with the password, and when all sessions are ended.

        Where operators need a second factor, so it does when somebody becomes one: who came without it signs in anew.
        """
        return f"{super().get_session_auth_hash()}{self._session_epoch()}"

    def get_session_auth_fallback_hash(self) -> Iterator[str]:
        """The same by the secret keys of before."""
        for known in super().get_session_auth_fallback_hash():
            yield f"{known}{self._session_epoch()}"

    def _session_epoch(self) -> str:
        needed = "f" if self.is_staff and settings.SECOND_FACTOR_FOR_OPERATORS else ""
        return f"{self.session_epoch or ''}{needed}"

    def has_ended_since(self, moment: float) -> bool:
        """Whether all access of the person was ended then (Unix seconds) or later."""
        return bool(self.session_epoch) and moment <= _BEGINNING.timestamp() + self.session_epoch

    @property
    def is_active(self) -> bool:  # type: ignore[override]
        """Whether the person may sign in; Django's backends ask this."""
        return self.status == self.Status.ACTIVE


class TenantState(models.TextChoices):
    """The life of a tenant."""

    ACTIVE = "active", _("Active")
    SUSPENDED = "suspended", _("Suspended")
    TERMINATING = "terminating", _("Terminating")


class Tenant(models.Model):
    """An organisation or a single person who rents room; its space is the logical cluster ``root:<name>`` (TS1)."""

    name = models.CharField(max_length=63, primary_key=True)
    display_name = models.CharField(_("display name"), max_length=128, blank=True)
    state = models.CharField(max_length=12, choices=TenantState.choices, default=TenantState.ACTIVE)
    suspended_reason = models.CharField(_("reason of the suspension"), max_length=512, blank=True)
    suspended_at = models.DateTimeField(null=True, blank=True)
    suspended_by = models.CharField(max_length=254, blank=True)
    suspended_until = models.DateTimeField(null=True, blank=True)
    """When a worker resumes it; a suspension without is ended by hand."""
    credentials_not_before = models.DateTimeField(null=True, editable=False)
    """From when on what is made out to the tenant's name counts: it was resumed, or given a name that another had."""
    policies = models.JSONField(default=dict, blank=True)
    """Rules in place of those of its tiers (``kube.policies.policy``)."""
    managed_by = models.CharField(max_length=63, blank=True, editable=False)
    """The declaration that made it, and may take it away again; empty for what people made."""
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    members: models.ManyToManyField[User, Membership] = models.ManyToManyField(
        User, through="tenants.Membership", related_name="tenants"
    )

    class Meta:
        db_table = "tenants"
        verbose_name = _("tenant")
        verbose_name_plural = _("tenants")
        indexes = [
            # Asked for by every API server all the time.
            models.Index(
                fields=["name"],
                condition=models.Q(credentials_not_before__isnull=False),
                name="tenant_spent_credentials",
            ),
            models.Index(fields=["managed_by"], condition=~models.Q(managed_by=""), name="tenant_managed_by"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(name__regex=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$") & ~models.Q(name="all"),
                name="tenant_name_dns_label",
            ),
            models.CheckConstraint(
                condition=~models.Q(state="suspended") | models.Q(suspended_at__isnull=False),
                name="tenant_suspension_has_time",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def cluster_path(self) -> str:
        """The logical cluster of the tenant's space."""
        return "root" if self.name == "system" else f"root:{self.name}"


class Role(models.TextChoices):
    """What a member is, from most to least."""

    OWNER = "owner", _("Owner")
    ADMIN = "admin", _("Admin")
    EDITOR = "editor", _("Editor")
    VIEWER = "viewer", _("Viewer")


class LivingMemberships(models.Manager["Membership"]):
    """Those that have not ended: what is over gives nothing any more, whether a worker has seen it or not."""

    def get_queryset(self) -> models.QuerySet[Membership]:
        """By the database's clock, which every process shares."""
        return super().get_queryset().filter(models.Q(expires_at=None) | models.Q(expires_at__gt=Now()))


class Membership(models.Model):
    """A user's part in a tenant; ``objects`` are those that count, ``stored`` all of them.

    It ends at ``expires_at``. Until ``raised_until`` it gives ``raised_role``, which is more than ``role``: what
    break-glass gives a member. ``break_glass`` marks what it gives to whoever is none, which ends as a whole (GW25).
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=6, choices=Role.choices)
    managed_by = models.CharField(max_length=63, blank=True, editable=False)
    """As of a tenant: the declaration that made it."""
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    warned_days = models.PositiveSmallIntegerField(null=True, editable=False)
    """How many days before its end the person was warned last."""
    break_glass = models.BooleanField(default=False, editable=False)
    raised_role = models.CharField(max_length=6, choices=Role.choices, blank=True, editable=False)
    raised_until = models.DateTimeField(null=True, editable=False)

    objects = LivingMemberships()
    stored = models.Manager["Membership"]()

    class Meta:
        db_table = "memberships"
        verbose_name = _("membership")
        verbose_name_plural = _("memberships")
        indexes = [
            models.Index(fields=["managed_by"], condition=~models.Q(managed_by=""), name="membership_managed_by"),
            models.Index(fields=["expires_at"], condition=models.Q(expires_at__isnull=False), name="membership_end"),
            models.Index(
                fields=["raised_until"], condition=models.Q(raised_until__isnull=False), name="membership_raise"
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user"], name="membership_unique"),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="membership_role_known"),
            models.CheckConstraint(
                condition=models.Q(raised_role="", raised_until__isnull=True)
                | (~models.Q(raised_role="") & models.Q(raised_until__isnull=False)),
                name="membership_raise_ends",
            ),
            models.CheckConstraint(
                condition=models.Q(break_glass=False) | models.Q(expires_at__isnull=False),
                name="membership_break_glass_ends",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.tenant} as {self.role}"

    @property
    def present_role(self) -> str:
        """What it gives now."""
        raised = self.raised_until is not None and self.raised_until > timezone.now()
        return self.raised_role if raised else self.role

    @classmethod
    def as_one_of(cls, roles: Iterable[Role]) -> models.Q:
        """Those that give one of these roles now, where with each of them every greater one is meant."""
        roles = list(roles)
        return models.Q(role__in=roles) | models.Q(raised_role__in=roles, raised_until__gt=Now())


class Invitation(models.Model):
    """A link by which whoever has the address ``email`` may join a tenant as ``role``, once and for some days.

    The link's secret is kept as ``digest`` alone. ``invited_by`` must still be able to give the role when it is used.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField(_("e-mail address"), max_length=254)
    role = models.CharField(max_length=6, choices=Role.choices)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    invited_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="invitations_made")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, editable=False)
    revoked_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        db_table = "invitations"
        verbose_name = _("invitation")
        verbose_name_plural = _("invitations")
        constraints = [
            models.UniqueConstraint(
                "tenant",
                Lower("email"),
                condition=models.Q(accepted_at__isnull=True, revoked_at__isnull=True),
                name="invitation_waiting_unique",
            ),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="invitation_role_known"),
            models.CheckConstraint(
                condition=models.Q(accepted_at__isnull=True) | models.Q(revoked_at__isnull=True),
                name="invitation_ends_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.email} to {self.tenant_id} as {self.role}"
