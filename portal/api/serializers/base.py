"""What all serializers share. Responses never carry a stored secret."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class RequestSerializer(serializers.Serializer[Any]):
    """A request body: unknown members are an error, so that a typing mistake is not a silent default."""

    def to_internal_value(self, data: Any) -> Any:
        """The checked values. Raises ``ValidationError`` that names the first ten unknown members."""
        if isinstance(data, dict):
            unknown = sorted(set(data) - set(self.fields))
            if unknown:
                raise serializers.ValidationError({str(name)[:80]: "There is no such field." for name in unknown[:10]})
        return super().to_internal_value(data)


class SuspendRequest(RequestSerializer):
    """Why a workspace or a tenant is closed, until when, and whether its pods end too."""

    reason = serializers.CharField(max_length=512)
    stop = serializers.BooleanField(required=False, default=False)
    until = serializers.DateTimeField(
        required=False, allow_null=True, default=None, help_text="When it is resumed by itself; by hand without."
    )


class ChangeRequest(RequestSerializer):
    """What is to become another; of fields that may all be left out, one at least is named."""

    def validate(self, attrs: Any) -> Any:
        """Raises ``ValidationError`` for a change of nothing."""
        if not attrs:
            raise serializers.ValidationError(f"Nothing is to change: name {' or '.join(self.fields)}.")
        return attrs


class CreateRequest(RequestSerializer):
    """Something new, which a declaration may own."""

    managed_by = serializers.CharField(
        max_length=63,
        required=False,
        default="",
        allow_blank=True,
        help_text="The declaration that makes it, by a name of its own; never changed later.",
    )
