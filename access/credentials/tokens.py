"""Personal access tokens: ``tnt_``, 32 random characters, a CRC-32 of 6; kept as a SHA-256 digest.

The checksum lets a secret scanner, and this server, tell a token from noise without asking the database.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import zlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import F

from access.models import PersonalAccessToken
from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.requests.status import Cause, Forbidden, Invalid, NotFound
from tenants.models import Role, Tenant, User
from tenants.naming import check_text
from tenants.notices import note_account
from tenants.rights import person_locked, require_open, require_role, tenant_locked

PREFIX: Final = "tnt_"
LONGEST: Final = timedelta(days=366)
_ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_FORM: Final = re.compile(r"tnt_([0-9A-Za-z]{32})([0-9A-Za-z]{6})")
_TOUCH_EVERY: Final = timedelta(minutes=1)
_MOST: Final = 50


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """A new token: ``text`` is shown once and known to nobody afterwards."""

    token: PersonalAccessToken
    text: str = field(repr=False)


def token_create(
    *,
    actor: Actor,
    user: User,
    name: str,
    scope: PersonalAccessToken.Scope,
    expires_at: datetime,
    now: datetime,
    tenant: Tenant | None = None,
) -> CreatedToken:
    """A new token of ``user`` for the REST API, for all the user's tenants or only one.

    Users make their own, and are told by notice and e-mail: it may be somebody else who sits in their session.
    Raises ``Invalid`` for a bad name, an unknown scope, an expiry in the past or more than a year ahead, or a 51st token;
    ``Forbidden`` for another user's, for operator scope without being one, or for a tenant that is closed; ``NotFound`` for
    a tenant that is not the user's.
    """
    name = check_text(name, field="name", kind="Token", limit=64, required=True)
    if scope not in PersonalAccessToken.Scope.values:
        raise _invalid("scope", f'Unsupported value: "{str(scope)[:32]}"')
    if not now < expires_at <= now + LONGEST:
        raise _invalid("expires_at", "a token lives at most a year, and not in the past")
    if actor.user_id != user.id:
        raise Forbidden("Tokens are made by their own users.", kind="tokens")
    if scope == PersonalAccessToken.Scope.OPERATE and not user.is_staff:
        raise Forbidden("Only operators may have tokens for operator actions.", kind="tokens")
    body = "".join(secrets.choice(_ALPHABET) for _ in range(32))
    text = PREFIX + body + _checksum(body)
    with transaction.atomic():
        if tenant is not None:
            tenant = tenant_locked(tenant.name)
            require_role(actor, tenant.name, Role.VIEWER)
            require_open(actor, tenant)
        person_locked(user)
        if user.access_tokens.filter(revoked_at=None, expires_at__gt=now).count() >= _MOST:
            raise _invalid("name", f"at most {_MOST} tokens; revoke one first")
        token = PersonalAccessToken.objects.create(
            user=user,
            tenant=tenant,
            name=name,
            digest=_digest(text),
            prefix=text[:8],
            scope=scope,
            created_at=now,
            expires_at=expires_at,
        )
        detail = {"name": name, "scope": str(scope), "expires": expires_at, "prefix": token.prefix}
        chain = tenant.name if tenant else SYSTEM_CHAIN
        actor.record(Action.TOKEN_CREATED, chain=chain, target=f"tokens/{token.id}", detail=detail)
        words = f"The access token “{name}” ({scope}) opens your account until {expires_at:%Y-%m-%d}, or until you revoke it"
        note_account(actor, user, f"{words}: it was made")
    return CreatedToken(token, text)


def token_authenticate(text: str, *, now: datetime) -> PersonalAccessToken | None:
    """The living token that ``text`` is, with its ``user`` and ``tenant``, or ``None``; never raises for bad input.

    Dead are revoked and expired tokens, those of disabled users, and those for one tenant that are older than their
    user's membership there. ``last_used_at`` follows by the minute.
    """
    match = _FORM.fullmatch(text)
    if match is None or not hmac.compare_digest(_checksum(match[1]), match[2]):
        return None
    token = PersonalAccessToken.objects.select_related("user", "tenant").filter(digest=_digest(text)).first()
    if token is None or token.revoked_at is not None or token.expires_at <= now or not token.user.is_active:
        return None
    if (
        token.tenant is not None
        and not token.user.memberships.filter(tenant=token.tenant, created_at__lte=token.created_at).exists()
    ):
        return None
    if token.last_used_at is None or token.last_used_at < now - _TOUCH_EVERY:
        PersonalAccessToken.objects.filter(pk=token.pk).update(last_used_at=now)
        token.last_used_at = now
    return token


@transaction.atomic
def token_revoke(*, actor: Actor, token_id: UUID, now: datetime) -> None:
    """End a token at once; its own user and operators may. Twice is once. Raises ``NotFound``."""
    token = PersonalAccessToken.objects.select_for_update(no_key=True, of=("self",)).filter(pk=token_id).first()
    if token is None or not (actor.operator or actor.user_id == token.user_id):
        raise NotFound(f'tokens "{token_id}" not found', kind="tokens", name=str(token_id))
    if token.revoked_at is not None:
        return
    token.revoked_at = now
    token.save(update_fields=["revoked_at"])
    chain = token.tenant_id or SYSTEM_CHAIN
    actor.record(Action.TOKEN_REVOKED, chain=chain, target=f"tokens/{token.id}", detail={"name": token.name})


def token_of(user: User, pk: UUID) -> PersonalAccessToken:
    """One of the user's tokens. Raises ``NotFound``."""
    token = PersonalAccessToken.objects.filter(pk=pk, user=user).first()
    if token is None:
        raise NotFound("There is no such token.", kind="tokens")
    return token


def tokens_of(user: User) -> list[PersonalAccessToken]:
    """The user's tokens, living ones first, newest first; a hundred at most."""
    rows = PersonalAccessToken.objects.filter(user=user).select_related("tenant")
    return list(rows.order_by(F("revoked_at").asc(nulls_first=True), "-created_at")[:100])


def _digest(text: str) -> str:
    # The token carries 190 random bits: a plain hash cannot be searched, and a slow one would cost every request.
    return hashlib.sha256(text.encode()).hexdigest()


def _checksum(body: str) -> str:
    number, digits = zlib.crc32(body.encode()), ""
    for _ in range(6):
        number, rest = divmod(number, 62)
        digits = _ALPHABET[rest] + digits
    return digits


def _invalid(name: str, message: str) -> Invalid:
    return Invalid(
        f"Token is invalid: {name}: {message}", kind="Token", causes=[Cause("FieldValueInvalid", message, name)]
    )
