"""Open streams, as each process of the API servers reports its own: how many, and who is in which pod.

A row that has not been reported for ``LIVING`` is of a process that has gone, and counts for nothing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.db import models
from django.utils.translation import gettext_lazy as _

LIVING: Final = timedelta(seconds=10)


class StreamCount(models.Model):
    """How many streams a process has open in a tenant's namespace; ``namespace`` is empty for what is across namespaces."""

    process = models.UUIDField()
    tenant = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63, blank=True)
    open = models.PositiveIntegerField()
    seen_at = models.DateTimeField()

    class Meta:
        db_table = "stream_counts"
        constraints = [
            models.UniqueConstraint(fields=["process", "tenant", "namespace"], name="stream_count_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.open} in {self.tenant}/{self.namespace}"


class PodConnection(models.Model):
    """Somebody's connection into a pod: a shell, an attached terminal, forwarded ports.

    ``caller`` is the name that the request was authenticated as, ``credential`` what by. ``ended_by`` is who wants it
    ended; the process that has it open ends it, and takes the row away.
    """

    class Way(models.TextChoices):
        """The subresource of the pod."""

        EXEC = "exec", _("Command or shell")
        ATTACH = "attach", _("Attached")
        PORT_FORWARD = "portforward", _("Forwarded ports")

    id = models.UUIDField(primary_key=True, editable=False)
    process = models.UUIDField()
    tenant = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63)
    pod = models.CharField(max_length=253)
    way = models.CharField(max_length=11, choices=Way.choices)
    caller = models.CharField(max_length=512)
    credential = models.CharField(max_length=128, blank=True)
    opened_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    ended_by = models.CharField(max_length=254, blank=True)

    class Meta:
        db_table = "pod_connections"
        verbose_name = _("connection into a pod")
        verbose_name_plural = _("connections into pods")

    def __str__(self) -> str:
        return f"{self.caller} in {self.namespace}/{self.pod}"
