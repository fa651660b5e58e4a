"""Passkeys (WebAuthn): keys on phones, in browsers and on sticks, which sign for this site alone and leave nowhere (GW16).

A passkey stands in for password and second factor together, for its device asks who holds it (user verification is
always required), or for the second factor after the password. What it has to sign is kept in the session, for five
minutes and for one answer. Only public keys are stored.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from fido2.server import Fido2Server
from fido2.webauthn import (
    AttestedCredentialData,
    AuthenticationResponse,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialUserEntity,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.requests.status import Cause, Conflict, Invalid, NotFound
from portal.signin import factors
from tenants.models import Passkey, User
from tenants.notices import note_account
from tenants.rights import person_locked

logger = logging.getLogger(__name__)

MOST: Final = 20
"""Of one person."""

SECONDS: Final = 300
_STATE: Final = "passkey"
_ANSWER_MAX: Final = 32 * 1024
_VERIFIED: Final = UserVerificationRequirement.REQUIRED
_REFUSED: Final = "This was not the passkey's answer to this page, or it came too late. Try again."


def host_of(request: HttpRequest) -> str:
    """What passkeys here belong to: the host by which the browser knows the portal; empty where it has an address alone."""
    host = request.get_host().rsplit(":", 1)[0] if not request.get_host().endswith("]") else request.get_host()
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host
    return ""


def passkeys_of(user: User) -> list[Passkey]:
    """The person's, oldest first."""
    return list(user.passkeys.order_by("created_at", "id"))


def offer_new(request: HttpRequest, user: User) -> str:
    """What a browser is to make a passkey of, as JSON; none that the person has on the same device already."""
    options, state = _site(request).register_begin(
        PublicKeyCredentialUserEntity(id=user.pk.bytes, name=user.email, display_name=user.name or user.email),
        credentials=[AttestedCredentialData(bytes(row.public_data)) for row in passkeys_of(user)],
        resident_key_requirement=ResidentKeyRequirement.REQUIRED,
        user_verification=_VERIFIED,
    )
    return _offered(request, "new", dict(options), state)


def offer_use(request: HttpRequest, user: User | None = None) -> str:
    """What a passkey is to sign, as JSON: one of ``user``'s, or whichever the person chooses."""
    known = [AttestedCredentialData(bytes(row.public_data)) for row in passkeys_of(user)] if user else None
    options, state = _site(request).authenticate_begin(known, user_verification=_VERIFIED)
    return _offered(request, "use", dict(options), state)


@transaction.atomic
def passkey_add(*, actor: Actor, request: HttpRequest, user: User, name: str, answer: str, now: datetime) -> Passkey:
    """Let the passkey that was just made open the account. Raises ``Invalid`` for what is no answer, ``Conflict``."""
    state = _taken(request, "new")
    try:
        made = _site(request).register_complete(state, _read(answer)) if state else None
    except Exception as error:  # noqa: BLE001 - whatever the library stumbles over, it is no passkey
        logger.info("a passkey was not taken: %s", type(error).__name__)
        made = None
    if made is None or made.credential_data is None:
        raise Invalid(_REFUSED, kind="User")
    name = " ".join(name.split())[:64]
    if not name:
        words = "A name is needed, by which you know the device."
        raise Invalid(words, kind="User", causes=[Cause("FieldValueInvalid", words, "name")])
    person_locked(user)
    if user.passkeys.count() >= MOST:
        raise Conflict(f"At most {MOST} passkeys; remove one first.", kind="users")
    try:
        with transaction.atomic():
            row = Passkey.objects.create(
                user=user,
                name=name,
                credential_id=made.credential_data.credential_id,
                public_data=bytes(made.credential_data),
                counter=made.counter,
                created_at=now,
            )
    except IntegrityError:
        raise Conflict("This passkey opens an account already.", kind="users") from None
    _record(actor, Action.PASSKEY_ADDED, row)
    note_account(actor, user, f"The passkey “{row.name}” opens your account now: it was added")
    return row


@transaction.atomic
def passkey_use(*, request: HttpRequest, answer: str, now: datetime, user: User | None = None) -> User | None:
    """Whom the passkey's answer to this session's offer belongs to; nobody for any other answer.

    One whose counter has gone back is a copy, and opens nothing.
    """
    state = _taken(request, "use")
    if state is None:
        return None
    try:
        said = AuthenticationResponse.from_dict(_read(answer))
        rows = Passkey.objects.select_for_update(no_key=True, of=("self",)).select_related("user")
        row = rows.filter(credential_id=said.raw_id).first()
        if row is None or (user is not None and row.user_id != user.pk):
            return None
        if said.response.user_handle not in (None, b"", row.user_id.bytes):
            return None
        _site(request).authenticate_complete(state, [AttestedCredentialData(bytes(row.public_data))], said)
        counter = said.response.authenticator_data.counter
    except Exception as error:  # noqa: BLE001 - whatever the library stumbles over, it opens nothing
        logger.info("a passkey's answer was refused: %s", type(error).__name__)
        return None
    if (counter or row.counter) and counter <= row.counter:
        logger.warning("the passkey %s of user %s counts backwards: it may have been copied", row.pk, row.user_id)
        return None
    row.counter, row.last_used_at = counter, now
    row.save(update_fields=["counter", "last_used_at"])
    return row.user


def opens_alone(user: User) -> bool:
    """Whether a passkey lets the person in without the password.

    Not while a given one waits: it was given because somebody else may have had the account, and a passkey with it.
    """
    return user.is_active and user.has_usable_password() and not user.password_given


def passkey_of(user: User, passkey_id: UUID) -> Passkey:
    """One of the person's own. Raises ``NotFound``."""
    found = user.passkeys.filter(pk=passkey_id).first()
    if found is None:
        raise NotFound("There is no such passkey.", kind="passkeys")
    return found


@transaction.atomic
def passkey_remove(*, actor: Actor, user: User, passkey_id: UUID) -> None:
    """Let one of the person's own open nothing any more.

    Raises ``NotFound``, ``Conflict`` for the last second factor of an operator who needs one.
    """
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    found = passkey_of(user, passkey_id)
    if factors.needs_factor(user) and factors.factor_of(user) is None and user.passkeys.count() == 1:
        raise Conflict("Operators need a second factor here. Set up another one first.", kind="users")
    found.delete()
    _record(actor, Action.PASSKEY_REMOVED, found)
    note_account(actor, user, f"The passkey “{found.name}” was removed from your account")


def _site(request: HttpRequest) -> Fido2Server:
    host = host_of(request)
    if not host:
        raise Conflict("Passkeys need a name: open the portal by its host name, not by an IP address.", kind="users")
    origin = f"{request.scheme}://{request.get_host()}"
    entity = PublicKeyCredentialRpEntity(id=host, name=settings.SECOND_FACTOR_ISSUER)
    return Fido2Server(entity, verify_origin=lambda said: said == origin)


def _offered(request: HttpRequest, what: str, options: dict[str, Any], state: Mapping[str, Any]) -> str:
    request.session[_STATE] = {"what": what, "at": time.time(), **state}
    return json.dumps(options["publicKey"])


def _taken(request: HttpRequest, what: str) -> Mapping[str, Any] | None:
    """What was offered to this browser, this once."""
    state: Any = request.session.pop(_STATE, None)
    if not isinstance(state, dict) or state["what"] != what or not 0 <= time.time() - state["at"] <= SECONDS:
        return None
    return state


def _read(answer: str) -> dict[str, Any]:
    if len(answer) > _ANSWER_MAX:
        raise ValueError("too long")
    read = json.loads(answer)
    if not isinstance(read, dict):
        raise TypeError("no object")
    return read


def _record(actor: Actor, action: Action, row: Passkey) -> None:
    detail = {"user": row.user.email, "passkey": row.name}
    actor.record(action, chain=SYSTEM_CHAIN, target=f"users/{row.user_id}", detail=detail)
