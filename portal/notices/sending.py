"""Sends the messages that are due, each once for every attempt (GW25).

A webhook's message is signed: ``Tenantry-Signature: t=<seconds>,v1=<HMAC-SHA256 of "<seconds>.<body>">`` in hexadecimal,
by the secret that was shown when it was made.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import smtplib
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from asgiref.sync import async_to_sync
from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import QuerySet
from django.urls import reverse

from access.httpclient import HttpClient, verifying
from access.outsideaddresses import NotPublic, PublicResolver, require_allowed
from access.outsidebudget import Unreachable
from tenants.clusters.encryption import DecryptionError, decrypt
from tenants.models import Delivery, NoticeKind, Notification, User
from tenants.notices import one_line
from tenants.requests.selectors import requests_visible_to
from tenants.rights import as_actor
from tenants.selectors import tenants_visible_to, workspaces_visible_to
from tenants.services.notices import delivery_end, mail_claim, mails_due, notices_tell, posts_claim
from tenants.services.sweeping import apart

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 20
_SECONDS: Final = 10.0
_MAILING: Final = threading.Lock()
"""One thread of a process sends e-mail, however slowly the mail server answers: the others have other work."""


def notices_send(*, now: datetime) -> int:
    """Tell what has happened, then send what is due; how many messages were tried (a worker's sweep)."""
    begun = time.monotonic()

    def clock() -> datetime:
        """The time of the sweep, which goes on while it waits for others."""
        return now + timedelta(seconds=time.monotonic() - begun)

    tried = 0
    with apart("telling of notices"):
        notices_tell(now=now)
    with apart("sending to webhooks"):
        tried += _posts_send(clock)
    with apart("sending e-mail"):
        tried += _mails_send(clock)
    return tried


def _posts_send(clock: Callable[[], datetime]) -> int:
    due = posts_claim(now=clock(), limit=_AT_ONCE)
    outcomes = async_to_sync(_post_all)([_signed(each, clock()) for each in due])
    for each, (sent, answer) in zip(due, outcomes, strict=True):
        delivery_end(each, sent=sent, answer=answer, now=clock())
    return len(due)


def _mails_send(clock: Callable[[], datetime]) -> int:
    """One after the other, each claimed when its turn comes: what waits for a slow server is anybody's."""
    if not _MAILING.acquire(blocking=False):
        return 0
    tried = 0
    try:
        for mail in mails_due(now=clock(), limit=_AT_ONCE):
            if (due := mail_claim(mail, now=clock())) is not None and due.notification is not None:
                tried += 1
                with apart(f"sending e-mail {mail}"):
                    sent, answer = _mail(due.notification)
                    delivery_end(due, sent=sent, answer=answer, now=clock())
    finally:
        _MAILING.release()
    return tried


def addresses_of(user: User, notifications: Sequence[Notification]) -> list[str]:
    """The page that each of a person's notifications leads to; empty where what it is about is not theirs to see now."""
    actor = as_actor(user)
    rows: dict[str, QuerySet[Any]] = {
        "request": requests_visible_to(actor),
        "workspace": workspaces_visible_to(actor),
        "tenant": tenants_visible_to(actor),
    }
    about = [{page: getattr(each, f"{page}_id") for page in rows} for each in notifications]
    seen = {
        page: set(visible.filter(pk__in={each[page] for each in about} - {None}).values_list("pk", flat=True))
        for page, visible in rows.items()
    }
    return [_address(each.kind, keys, seen) for each, keys in zip(notifications, about, strict=True)]


def _address(kind: str, about: Mapping[str, Any], seen: Mapping[str, set[Any]]) -> str:
    for page, key in about.items():
        if key in seen[page]:
            return reverse(page, args=[key])
    if any(about.values()):
        return ""
    places: dict[str, str] = {NoticeKind.ACCOUNT_CHANGED: "profile", NoticeKind.EXPIRY_AHEAD: "tokens"}
    return reverse(places.get(kind, "notifications"))


def _signed(delivery: Delivery, now: datetime) -> tuple[str, bytes, dict[str, str]]:
    """Address, body and headers; without a signature nothing is sent."""
    body, moment = delivery.body.encode(), int(now.timestamp())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Tenantry",
        "Tenantry-Event": delivery.kind,
        "Tenantry-Delivery": str(delivery.pk),
    }
    assert delivery.webhook is not None  # noqa: S101 - what is claimed as a post has one
    try:
        secret = decrypt(delivery.webhook.sealed_secret)
    except DecryptionError:
        return delivery.webhook.url, b"", {}
    digest = hmac.new(secret.encode(), b"%d.%s" % (moment, body), hashlib.sha256).hexdigest()
    return delivery.webhook.url, body, {**headers, "Tenantry-Signature": f"t={moment},v1={digest}"}


async def _post_all(messages: list[tuple[str, bytes, dict[str, str]]]) -> list[tuple[bool, str]]:
    if not messages:
        return []
    tls = verifying(settings.WEBHOOK_CA_FILE)
    return await asyncio.gather(*(_post(tls, *message) for message in messages))


async def _post(tls: ssl.SSLContext, url: str, body: bytes, headers: dict[str, str]) -> tuple[bool, str]:
    """Whether it was taken (2xx), and what was said; nothing of an answer's body is kept."""
    if not headers:
        return False, "the secret cannot be opened with the configured sealing keys"
    networks = settings.WEBHOOK_ALLOWED_NETWORKS
    client = HttpClient(tls=tls, timeout=_SECONDS, resolver=PublicResolver(networks))
    try:
        require_allowed(url, networks)
        answer = await client.request("POST", url, body=body, headers=headers)
    except NotPublic as error:
        return False, str(error)
    except Unreachable as error:
        return False, str(error)
    finally:
        await client.close()
    return 200 <= answer.status < 300, f"status {answer.status}"


def _mail(notification: Notification) -> tuple[bool, str]:
    [address] = addresses_of(notification.user, [notification])
    url = f"{settings.PORTAL_URL}{address or reverse('notifications')}"
    label = notification.get_kind_display()
    choices = f"{settings.PORTAL_URL}{reverse('notification-choices')}"
    message = EmailMessage(
        subject=f"[Tenantry] {one_line(notification.text)[:150]}",
        body=f"{notification.text}\n\n{url}\n\n{label}. What you are told: {choices}\n",
        to=[notification.user.email],
    )
    if not notification.user.is_active:
        return True, "the account is disabled"
    try:
        message.send()
    except (OSError, smtplib.SMTPException, ValueError) as error:
        logger.warning("an e-mail was not sent: %s", type(error).__name__)
        return False, type(error).__name__
    return True, "sent"
