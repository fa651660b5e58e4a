"""Telling people and machines what has happened: in the portal, by e-mail, by webhooks (GW25).

1. Services note it in their own transaction (``tenants.notices``); a worker makes of each notice what is to be told to
   whom, in one transaction with the end of the notice: once, however often the worker is killed.
2. E-mail and webhooks are rows of a queue: claimed for longer than an attempt takes, tried again after twice the time,
   given up after a day.
3. What a person is told is bounded, and so is what is kept of a webhook's messages: the oldest go.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

import orjson
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber

from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.requests.status import Cause, Conflict, Invalid, NotFound
from tenants.clusters.encryption import encrypt
from tenants.models import (
    AccessRequest,
    Approval,
    Delivery,
    DeliveryState,
    Membership,
    Notice,
    NoticeKind,
    Notification,
    Role,
    User,
    Webhook,
)
from tenants.notices import ALWAYS
from tenants.requests.selectors import user_may_decide
from tenants.rights import as_actor, require_lasting_role, require_open, require_operator, role_of, tenant_locked
from tenants.services.sweeping import apart

PORTAL: Final = "portal"
MAIL: Final = "mail"
WAYS: Final = (PORTAL, MAIL)

KEPT_OF_PERSON: Final = 200
"""And as many of what a person is told always."""
KEPT_OF_WEBHOOK: Final = 100
WEBHOOKS_MAX: Final = 10
_TOLD_MAX: Final = 100
"""People who are told of one thing."""
_BATCH: Final = 200
_LEASE: Final = timedelta(seconds=60)
"""More than the messages to webhooks take that are claimed together: they are sent side by side."""
_LEASE_OF_MAIL: Final = timedelta(minutes=5)
"""More than one e-mail takes: the mail server has ``EMAIL_TIMEOUT`` for each of some fifteen answers."""
_FIRST_PAUSE: Final = timedelta(seconds=10)
_GIVEN_UP: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class CreatedWebhook:
    """A new webhook: ``secret`` is shown once, and known to nobody but the one who gets it afterwards."""

    webhook: Webhook
    secret: str = field(repr=False)


def notices_tell(*, now: datetime) -> int:
    """Make of each notice what is told to whom; how many there were (a worker's sweep)."""
    told = 0
    rows = Notice.objects.select_for_update(no_key=True, skip_locked=True, of=("self",))
    for pk in list(Notice.objects.order_by("created_at", "id").values_list("pk", flat=True)[:_BATCH]):
        with apart(f"telling of notice {pk}"), transaction.atomic():
            found = rows.select_related("request", "workspace").filter(pk=pk).first()
            if found is not None:
                _tell(found, now)
                found.delete()
                told += 1
    return told


def posts_claim(*, now: datetime, limit: int) -> list[Delivery]:
    """Messages to webhooks that are due, the caller's for a minute; the next attempt is due later whatever becomes of this one.

    Tenants take turns: whose addresses never answer holds up nobody else's messages.
    """
    return _claim(_in_turns(Q(notification=None), F("webhook__tenant_id"), now, limit), now, _LEASE)


def mails_due(*, now: datetime, limit: int) -> list[UUID]:
    """The e-mails that are due next, nobody's yet (``mail_claim``); people take turns, as tenants do."""
    return _in_turns(Q(webhook=None), F("notification__user_id"), now, limit)


def mail_claim(mail_id: UUID, *, now: datetime) -> Delivery | None:
    """An e-mail that is due, the caller's for five minutes; none where another worker has it."""
    return next(iter(_claim([mail_id], now, _LEASE_OF_MAIL)), None)


def _in_turns(way: Q, whose: F, now: datetime, limit: int) -> list[UUID]:
    waiting = Delivery.objects.filter(way, state=DeliveryState.WAITING, not_before__lte=now)
    turn = Window(RowNumber(), partition_by=whose, order_by=[F("not_before"), F("created_at"), F("pk")])
    return list(
        waiting.annotate(turn=turn).order_by("turn", "not_before", "created_at").values_list("pk", flat=True)[:limit]
    )


@transaction.atomic
def _claim(ids: Sequence[UUID], now: datetime, lease: timedelta) -> list[Delivery]:
    waiting = Delivery.objects.filter(pk__in=ids, state=DeliveryState.WAITING, not_before__lte=now)
    rows = waiting.select_for_update(no_key=True, skip_locked=True, of=("self",))
    # With all that is sent: it may be deleted while the message is under way.
    due = list(rows.select_related("webhook", "notification__user").order_by("not_before", "created_at"))
    for each in due:
        each.attempts += 1
        each.not_before = now + max(lease, _FIRST_PAUSE * 2 ** min(each.attempts, 12))
        each.save(update_fields=["attempts", "not_before"])
    return due


def delivery_end(delivery: Delivery, *, sent: bool, answer: str, now: datetime) -> None:
    """Note how an attempt ended. One that failed is tried again, for a day.

    Of a message that was deleted while it was under way, with its webhook or its notification, nothing is noted.
    """
    came: dict[str, Any] = {"answer": answer[:200]}
    if sent or now - delivery.created_at >= _GIVEN_UP:
        came |= {"state": DeliveryState.SENT if sent else DeliveryState.FAILED, "finished_at": now}
    else:
        came["not_before"] = now + _FIRST_PAUSE * 2 ** min(delivery.attempts - 1, 12)
    Delivery.objects.filter(pk=delivery.pk, state=DeliveryState.WAITING).update(**came)


def notifications_read(*, user: User, now: datetime, notification_id: UUID | None = None, tenant: str = "") -> int:
    """Mark one as read, or all of a person's, or of those about one ``tenant``; how many were not."""
    rows = Notification.objects.filter(user=user, read_at=None)
    if tenant:
        rows = rows.filter(tenant_id=tenant)
    if notification_id is not None:
        rows = rows.filter(pk=notification_id)
    return rows.update(read_at=now)


@transaction.atomic
def notices_choose(*, actor: Actor, user: User, wanted: Iterable[str]) -> None:
    """Be told what is in ``wanted``, each as ``kind/way``, and of the rest what everybody is told (``ALWAYS``)."""
    known = {f"{kind}/{way}" for kind in NoticeKind.values if kind not in ALWAYS for way in WAYS}
    user.notices_off = sorted(known - set(wanted))
    user.save(update_fields=["notices_off"])
    actor.record(
        Action.USER_CHANGED, chain=SYSTEM_CHAIN, target=f"users/{user.pk}", detail={"notices_off": user.notices_off}
    )


@transaction.atomic
def webhook_create(*, actor: Actor, tenant: str, url: str, kinds: Sequence[str], now: datetime) -> CreatedWebhook:
    """Tell an address outside what happens in a tenant (its admins and operators), or everywhere (operators).

    Whether the address may be spoken to is looked at with every message. Raises ``NotFound``, ``Forbidden``, ``Invalid``,
    ``Conflict`` for too many.
    """
    found = tenant_locked(tenant) if tenant else None
    require_webhooks(actor, tenant)
    if found is not None:
        require_open(actor, found)
    _check_url(url)
    if unknown := sorted(set(kinds) - set(NoticeKind.values)):
        raise _invalid("kinds", f'Unsupported value: "{unknown[0][:40]}"')
    if Webhook.objects.filter(tenant_id=tenant or None).count() >= WEBHOOKS_MAX:
        raise Conflict(f"At most {WEBHOOKS_MAX} webhooks; delete one first.", kind="webhooks")
    secret = secrets.token_urlsafe(32)
    made = Webhook.objects.create(
        tenant_id=tenant or None,
        url=url,
        sealed_secret=encrypt(secret),
        kinds=sorted(set(kinds)),
        created_by=actor.name[:254],
        created_at=now,
    )
    actor.record(
        Action.WEBHOOK_CREATED,
        chain=tenant or SYSTEM_CHAIN,
        target=f"webhooks/{made.pk}",
        detail={"host": urlsplit(url).hostname or "", "kinds": made.kinds},
    )
    return CreatedWebhook(made, secret)


@transaction.atomic
def webhook_delete(*, actor: Actor, webhook_id: UUID) -> None:
    """Tell an address nothing more, and forget what it was told. Raises ``NotFound``, ``Forbidden``."""
    found = webhook_visible_to(actor, webhook_id)
    require_webhooks(actor, found.tenant_id or "")
    found.delete()
    actor.record(
        Action.WEBHOOK_DELETED,
        chain=found.tenant_id or SYSTEM_CHAIN,
        target=f"webhooks/{webhook_id}",
        detail={"host": urlsplit(found.url).hostname or ""},
    )


def webhooks_of(actor: Actor, tenant: str) -> list[Webhook]:
    """Those of a tenant, or of the platform, oldest first; auditors see them. Raises ``NotFound``, ``Forbidden``."""
    if not actor.auditor:
        require_webhooks(actor, tenant)
    return list(Webhook.objects.filter(tenant_id=tenant or None).order_by("created_at", "id")[:WEBHOOKS_MAX])


def webhook_visible_to(actor: Actor, webhook_id: UUID) -> Webhook:
    """One that the actor may manage, or see as an auditor. Raises ``NotFound``, ``Forbidden``."""
    found = Webhook.objects.filter(pk=webhook_id).first()
    if found is None:
        raise NotFound("There is no such webhook.", kind="webhooks", name=str(webhook_id))
    if not actor.auditor:
        require_webhooks(actor, found.tenant_id or "")
    return found


def require_webhooks(actor: Actor, tenant: str) -> None:
    """``Forbidden`` for whoever manages no webhooks of a tenant, or of the platform; ``NotFound`` for no member."""
    if tenant:
        require_lasting_role(actor, tenant, Role.ADMIN)
    else:
        require_operator(actor)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _invalid("url", "This is no URL.") from None
    plain = url.isascii() and url.isprintable() and " " not in url and "\\" not in url and len(url) <= 512
    if parts.scheme != "https" or not host or not plain or port == 0:
        raise _invalid("url", "An address that begins with https:// is needed.")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise _invalid("url", "Without user, password or fragment: messages are signed.")


def _invalid(name: str, words: str) -> Invalid:
    causes = [Cause("FieldValueInvalid", words, name)]
    return Invalid(f"Webhook is invalid: {name}: {words}", kind="Webhook", causes=causes)


def _tell(found: Notice, now: datetime) -> None:
    for user in _people(found):
        _tell_person(found, user, now)
    hooks = (
        Webhook.objects.filter(Q(tenant=None) | Q(tenant=found.tenant_id))
        if found.tenant_id
        else (Webhook.objects.filter(tenant=None))
    )
    body = orjson.dumps(_message(found)).decode()
    for webhook in hooks[: 2 * WEBHOOKS_MAX]:
        if not webhook.kinds or found.kind in webhook.kinds:
            Delivery.objects.create(
                webhook=webhook, kind=found.kind, body=body, not_before=now, created_at=found.created_at
            )
            _keep(Delivery.objects.filter(webhook=webhook), KEPT_OF_WEBHOOK)


def _tell_person(found: Notice, user: User, now: datetime) -> None:
    off = set() if found.kind in ALWAYS else set(user.notices_off)
    by_mail = f"{found.kind}/{MAIL}" not in off and settings.EMAIL_IS_SET
    if f"{found.kind}/{PORTAL}" in off and not by_mail:
        return
    made = Notification.objects.create(
        user=user,
        kind=found.kind,
        # Whoever asks for a role somewhere does not learn from the answer whether there is such a tenant.
        tenant_id=found.tenant_id if found.request is None or _is_known(found.tenant_id, user) else None,
        workspace_id=found.workspace_id,
        request_id=found.request_id,
        text=found.text,
        created_at=found.created_at,
        # Whoever wants e-mail alone has nothing to read here.
        read_at=now if f"{found.kind}/{PORTAL}" in off else None,
    )
    if by_mail:
        Delivery.objects.create(notification=made, kind=found.kind, not_before=now, created_at=found.created_at)
    told = Notification.objects.filter(user=user)
    # Others cause what they like: what is always told is not pushed out by that, nor are the e-mails that wait.
    _keep(told.filter(kind__in=ALWAYS) if found.kind in ALWAYS else told.exclude(kind__in=ALWAYS), KEPT_OF_PERSON)


def _is_known(tenant: str | None, user: User) -> bool:
    return tenant is not None and role_of(as_actor(user), tenant) is not None


def _keep(rows: Any, number: int) -> None:
    """Let go of all but the newest."""
    old = list(rows.order_by("-created_at", "-id").values_list("pk", flat=True)[number : number + _BATCH])
    if old:
        rows.filter(pk__in=old).delete()


def _people(found: Notice) -> list[User]:
    """Whoever is to hear of it and may know of it, but who did it, unless it is told always."""
    if found.kind == NoticeKind.REQUEST_OPENED and found.request is not None:
        people = _deciders(found.request)
    elif found.kind == NoticeKind.REQUEST_COMMENTED and found.request is not None:
        asked = found.request.asked_by
        people = _deciders(found.request) if found.actor_id == asked.pk else [asked]
    elif found.user is not None:
        people = [found.user]
    else:
        people = _owners(found.tenant_id) + _user_of(found)
    told = found.kind in ALWAYS
    unique = {person.pk: person for person in people if person.is_active and (told or person.pk != found.actor_id)}
    return list(unique.values())[:_TOLD_MAX]


def _user_of(found: Notice) -> list[User]:
    """The workspace's user, who may have left its tenant since."""
    workspace = found.workspace
    if workspace is None:
        return []
    still = Membership.objects.filter(tenant=workspace.tenant_id, user=workspace.user_id).exists()
    return [workspace.user] if still or workspace.user.is_staff else []


def _owners(tenant: str | None) -> list[User]:
    rows = Membership.objects.filter(tenant=tenant, role=Role.OWNER).select_related("user").order_by("created_at")
    return [row.user for row in rows[:_TOLD_MAX]]


def _deciders(request: AccessRequest) -> list[User]:
    owners = [user for user in _owners(request.tenant_id) if user_may_decide(user, request)]
    if owners and request.approvers != Approval.TWO:
        return owners
    operators = User.objects.filter(is_staff=True, status=User.Status.ACTIVE).order_by("created_at")[:_TOLD_MAX]
    return owners + [user for user in operators if user.pk != request.asked_by_id]


def _message(found: Notice) -> dict[str, Any]:
    return {
        "id": str(found.pk),
        "kind": found.kind,
        "tenant": found.tenant_id,
        "workspace": str(found.workspace_id) if found.workspace_id else None,
        "request": str(found.request_id) if found.request_id else None,
        "text": found.text,
        "created_at": found.created_at.isoformat(),
    }
