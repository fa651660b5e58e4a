"""The store's periodic work; beat calls it every few minutes."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from store.log.compaction import log_compact
from store.log.leaserevocation import leases_sweep


@shared_task(name="store.compact")
def compact() -> None:
    """Let go of old entries of the change log and of forgotten leases, and make room for the next revisions."""
    log_compact(now=timezone.now())
    leases_sweep()
