"""What Celery wakes: no token and no id is ever in a message (GW9)."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from access.credentials import credentials_expire as expire
from access.credentials.logins import logins_sweep
from access.credentials.warnings import credentials_announce
from access.retention import ended_rows_forget
from tenants.usagesampling import usage_forget
from tenants.usagesampling import usage_sample as sample


@shared_task(name="access.credentials_expire", ignore_result=True)
def credentials_expire() -> None:
    """Delete the anchors of credentials that have ended, and what is over of the logins; warn of those that end soon."""
    expire(now=timezone.now())
    logins_sweep(now=timezone.now())
    credentials_announce(now=timezone.now())


@shared_task(name="access.usage_sample", ignore_result=True)
def usage_sample() -> None:
    """Count the hours that are over, and let go of those of more than a year ago, and of what ended long ago."""
    sample(now=timezone.now())
    usage_forget(now=timezone.now())
    ended_rows_forget(now=timezone.now())
