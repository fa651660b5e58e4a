"""What Celery wakes for the portal."""

from __future__ import annotations

from celery import shared_task

from portal.signin import refusals


@shared_task(name="portal.refusals_record", ignore_result=True)
def refusals_record() -> None:
    """Record how many refusals had no event of their own."""
    refusals.counts_record()
