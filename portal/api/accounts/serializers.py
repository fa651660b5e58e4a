"""Accounts and sessions as the REST API shows them: never a hash, a key of a session, or a secret but the one just made."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from portal.api.serializers.base import RequestSerializer
from portal.api.serializers.operations import MembershipOfMe
from portal.signin import factors
from portal.signin.accounts import MAX_PASSWORD
from tenants.models import PortalSession, User


class UserSerializer(serializers.ModelSerializer[User]):
    """A person's account, and what it is on the platform."""

    operator = serializers.BooleanField(source="is_staff")
    auditor = serializers.BooleanField(source="is_auditor")
    superuser = serializers.BooleanField(source="is_superuser")
    last_sign_in_at = serializers.DateTimeField(source="last_login", allow_null=True)

    class Meta:
        model = User
        fields = (
            "id",
            "email",
            "name",
            "status",
            "operator",
            "auditor",
            "superuser",
            "password_given",
            "created_at",
            "last_sign_in_at",
        )
        read_only_fields = fields


class SessionSerializer(serializers.ModelSerializer[PortalSession]):
    """A browser in which somebody is signed in."""

    expires_at = serializers.DateTimeField(source="session.expire_date")
    current = serializers.SerializerMethodField(help_text="Whether this is the session of the request.")

    class Meta:
        model = PortalSession
        fields = ("id", "ip_address", "user_agent", "created_at", "last_used_at", "expires_at", "current")
        read_only_fields = fields

    def get_current(self, row: PortalSession) -> bool:
        """Of the key that the browser has sent."""
        return row.session_id == self.context.get("key")


class UserDetailSerializer(UserSerializer):
    """An account with its memberships and its second factor."""

    memberships = MembershipOfMe(many=True)
    second_factor = serializers.SerializerMethodField(help_text="Whether a code is asked for after the password.")

    class Meta(UserSerializer.Meta):
        fields = (*UserSerializer.Meta.fields, "memberships", "second_factor")  # type: ignore[assignment]
        read_only_fields = fields  # type: ignore[assignment]

    def get_second_factor(self, user: User) -> bool:
        """Of an app that was confirmed, or a passkey."""
        return factors.is_asked(user)


class UserCreateRequest(RequestSerializer):
    """A new account; without a password single sign-on opens it, or a link for a new one."""

    email = serializers.EmailField(max_length=254)
    name = serializers.CharField(max_length=128, required=False, default="", allow_blank=True)
    password = serializers.CharField(
        max_length=MAX_PASSWORD,
        required=False,
        default="",
        allow_blank=True,
        write_only=True,
        trim_whitespace=False,
        help_text="At least 12 characters; the person has to change it at the first sign-in.",
    )
    operator = serializers.BooleanField(required=False, default=False)
    auditor = serializers.BooleanField(required=False, default=False)


class UserChangeRequest(RequestSerializer):
    """What may change of an account. Disabling ends all access, as `end-access`."""

    name = serializers.CharField(max_length=128, required=False, allow_blank=True)
    status = serializers.ChoiceField(choices=User.Status.choices, required=False)
    operator = serializers.BooleanField(required=False)
    auditor = serializers.BooleanField(required=False)


class ResetRequest(RequestSerializer):
    """How the person gets a new password."""

    way = serializers.ChoiceField(
        choices=[("link", "A link"), ("password", "A given password")],
        required=False,
        default="link",
        help_text="`link`: they choose it, once and within a day. `password`: one is made up, to be changed at once.",
    )
    keep_factors = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Passkeys, second factor and access tokens go with the password that is replaced, unless this is true.",
    )


class CreatedResetSerializer(serializers.Serializer[Any]):
    """A link or a password, shown this once."""

    link = serializers.CharField(allow_blank=True)
    password = serializers.CharField(allow_blank=True)
    expires_at = serializers.DateTimeField(allow_null=True)


class EndedSerializer(serializers.Serializer[Any]):
    """What ended: how many of each."""

    sessions = serializers.IntegerField()
    machines = serializers.IntegerField()
    tokens = serializers.IntegerField()
    credentials = serializers.IntegerField(help_text="Those straight at a cluster end there within seconds.")
    links = serializers.IntegerField()
    audit_entry = serializers.UUIDField()


class EndedSessionsSerializer(serializers.Serializer[Any]):
    """How many sessions ended."""

    ended = serializers.IntegerField()
