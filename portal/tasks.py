"""What Celery wakes for the portal."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from portal.notices import sending
from portal.signin import refusals


@shared_task(name="portal.refusals_record", ignore_result=True)
def refusals_record() -> None:
    """Record how many refusals had no event of their own."""
    refusals.counts_record()


@shared_task(name="portal.notices_send", ignore_result=True)
def notices_send() -> None:
    """Tell people and machines what has happened."""
    sending.notices_send(now=timezone.now())
