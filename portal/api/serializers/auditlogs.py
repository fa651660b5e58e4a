"""Audit logs."""

from __future__ import annotations

from rest_framework import serializers

from audit.models import AuditEntry


class AuditEntrySerializer(serializers.ModelSerializer[AuditEntry]):
    """An audit entry with everything that its hash needs."""

    user_id = serializers.UUIDField(allow_null=True)
    workspace_id = serializers.UUIDField(allow_null=True)
    detail = serializers.DictField()

    class Meta:
        model = AuditEntry
        fields = (
            "id",
            "chain",
            "sequence",
            "created_at",
            "action",
            "outcome",
            "actor",
            "user_id",
            "workspace_id",
            "target",
            "ip_address",
            "user_agent",
            "request_id",
            "detail",
            "previous_hash",
            "hash",
        )
        read_only_fields = fields
