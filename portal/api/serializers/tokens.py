"""Personal access tokens."""

from __future__ import annotations

from rest_framework import serializers

from access.models import PersonalAccessToken
from portal.api.serializers.base import RequestSerializer


class TokenCreateRequest(RequestSerializer):
    """A new personal access token."""

    name = serializers.CharField(max_length=64)
    scope = serializers.ChoiceField(choices=PersonalAccessToken.Scope.choices, required=False, default="read")
    tenant = serializers.CharField(max_length=63, required=False, default="", allow_blank=True)
    expires_at = serializers.DateTimeField()


class TokenSerializer(serializers.ModelSerializer[PersonalAccessToken]):
    """A personal access token without its text."""

    tenant = serializers.CharField(source="tenant_id", allow_null=True)

    class Meta:
        model = PersonalAccessToken
        fields = (
            "id",
            "name",
            "prefix",
            "scope",
            "tenant",
            "created_at",
            "expires_at",
            "last_used_at",
            "revoked_at",
        )
        read_only_fields = fields


class CreatedTokenSerializer(TokenSerializer):
    """A new token with its text, shown once."""

    token = serializers.CharField()

    class Meta(TokenSerializer.Meta):
        fields = (*TokenSerializer.Meta.fields, "token")  # type: ignore[assignment]
        read_only_fields = fields  # type: ignore[assignment]
