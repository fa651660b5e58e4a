"""Recordings of sessions in pods: who was where, for how long, and what was shown there (GW21)."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from tenants.models.clusters import RecordingMode
from tenants.models.streams import PodConnection


class Recording(models.Model):
    """One session of ``exec`` or ``attach``, from before it was opened on.

    ``mode`` is what its tier asked for, ``caller`` the name that the request was authenticated as, ``credential`` what
    by, ``request_id`` its audit ID. Tenant and workspace are named by value: a recording outlives them. ``bytes`` are
    those that were shown. While it goes on ``ended_at`` is empty, and ``seen_at`` the last word of the process that
    keeps it. ``sha256`` is that of the whole file, as the audit's event of the end names it too.
    """

    id = models.UUIDField(primary_key=True, editable=False)
    mode = models.CharField(max_length=8, choices=RecordingMode.choices)
    tenant = models.CharField(max_length=63)
    workspace_id = models.UUIDField(_("workspace ID"))
    cluster = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63)
    pod = models.CharField(max_length=253)
    container = models.CharField(max_length=63, blank=True)
    way = models.CharField(max_length=11, choices=PodConnection.Way.choices)
    command = models.CharField(max_length=2048, blank=True)
    caller = models.CharField(max_length=512)
    credential = models.CharField(max_length=128, blank=True)
    request_id = models.CharField(_("request ID"), max_length=64, blank=True)
    begun_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    ended_why = models.CharField(max_length=512, blank=True)
    exit_code = models.IntegerField(_("exit status"), null=True)
    bytes = models.BigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True)

    class Meta:
        db_table = "recordings"
        verbose_name = _("recording")
        verbose_name_plural = _("recordings")
        indexes = [
            models.Index(fields=["-begun_at", "-id"], name="recording_time"),
            models.Index(fields=["tenant", "-begun_at", "-id"], name="recording_tenant_time"),
            models.Index(fields=["seen_at"], condition=models.Q(ended_at=None), name="recording_open"),
        ]

    def __str__(self) -> str:
        return f"{self.caller} in {self.namespace}/{self.pod}"


class RecordingChunk(models.Model):
    """A piece of a recording's file, sealed with the installation's keys; ``number`` counts from 0."""

    recording = models.ForeignKey(Recording, on_delete=models.CASCADE, related_name="chunks")
    number = models.PositiveIntegerField()
    sealed = models.BinaryField()

    class Meta:
        db_table = "recording_chunks"
        constraints = [models.UniqueConstraint(fields=["recording", "number"], name="recording_chunk_unique")]

    def __str__(self) -> str:
        return f"{self.recording_id}#{self.number}"
