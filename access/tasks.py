"""What Celery wakes: no token and no id is ever in a message (GW9)."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from access.credentials import credentials_expire as expire
from access.credentials.logins import logins_sweep


@shared_task(name="access.credentials_expire", ignore_result=True)
def credentials_expire() -> None:
    """Delete the anchors of credentials that have ended, and what is over of the logins."""
    expire(now=timezone.now())
    logins_sweep(now=timezone.now())
