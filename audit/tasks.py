"""What Celery wakes for the audit."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from audit.publishing import checkpoint_write
from audit.requestlog.partitions import partitions_prepare as prepare


@shared_task(name="audit.partitions_prepare", ignore_result=True)
def partitions_prepare() -> None:
    """Make the next months' partitions, drop those past their time."""
    prepare(now=timezone.now())


@shared_task(name="audit.checkpoints_write", ignore_result=True)
def checkpoints_write() -> None:
    """Sign where the chains end now."""
    checkpoint_write(now=timezone.now())
