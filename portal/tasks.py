"""What Celery wakes for the portal."""

from __future__ import annotations

import threading
from typing import Any, Final

from celery import shared_task
from django.utils import timezone

from portal import heartbeat as heartbeats
from portal.notices import sending
from portal.signin import refusals, resets, sessions
from tenants.operationqueue import database_now

_LINKING: Final = threading.Lock()
"""One thread of a process sends links: whoever asks for many must not hold the others with a mail server that is slow."""


@shared_task(name="portal.refusals_record", ignore_result=True)
def refusals_record() -> None:
    """Record how many refusals had no event of their own."""
    refusals.counts_record()


@shared_task(name="portal.sessions_forget", ignore_result=True)
def sessions_forget() -> None:
    """Let go of sessions whose time is over."""
    sessions.sessions_forget(now=timezone.now())


@shared_task(bind=True, name="portal.password_link_ask", ignore_result=True, max_retries=None)
def password_link_ask(self: Any, email: str) -> None:
    """Send a link for a new password to whoever has this address here, if anybody has; later, while another is sent."""
    if not _LINKING.acquire(blocking=False):
        raise self.retry(countdown=2)
    try:
        resets.password_link_ask(email=email, now=timezone.now())
    finally:
        _LINKING.release()


@shared_task(name="portal.notices_send", ignore_result=True)
def notices_send() -> None:
    """Tell people and machines what has happened; what is due is so by the clock that all workers share."""
    sending.notices_send(now=database_now())


@shared_task(name="portal.heartbeat", ignore_result=True)
def heartbeat() -> None:
    """Say that beat wakes workers, and that they come to it."""
    heartbeats.heartbeat_record()
