"""Audit logs and recordings."""

from __future__ import annotations

from rest_framework import serializers

from audit.chain import FIELDS
from audit.models import AuditEntry
from tenants.models import Recording


class AuditEntrySerializer(serializers.ModelSerializer[AuditEntry]):
    """An audit entry with everything that its hash needs."""

    user_id = serializers.UUIDField(allow_null=True)
    workspace_id = serializers.UUIDField(allow_null=True)
    detail = serializers.DictField()

    class Meta:
        model = AuditEntry
        fields = (*FIELDS, "previous_hash", "hash")
        read_only_fields = fields


class RecordingSerializer(serializers.ModelSerializer[Recording]):
    """A session in a pod: who, by which credential and command, when, how it ended, and what is kept of it."""

    class Meta:
        model = Recording
        fields = (
            "id",
            "mode",
            "tenant",
            "workspace_id",
            "cluster",
            "namespace",
            "pod",
            "container",
            "way",
            "command",
            "caller",
            "credential",
            "request_id",
            "begun_at",
            "ended_at",
            "ended_why",
            "exit_code",
            "bytes",
            "sha256",
        )
        read_only_fields = fields
