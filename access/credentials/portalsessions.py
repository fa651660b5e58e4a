"""The portal's own way to the API server, as the person who is signed in to it (GW27).

A session of the portal is a login like that of a machine, but one that no secret opens: it is listed among the person's
machines, ends with the session, and can be ended before. It has a credential for each tenant that is looked into,
recorded once; each answer of the portal makes a token of its own, which lives a minute, or, for a terminal, as long as
the session, and is kept nowhere.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.utils.crypto import salted_hmac
from django.views.decorators.debug import sensitive_variables

from access.credentials.intents import intend_for_tenant
from access.credentials.logins import login_end, login_lives
from access.credentials.portaltokens import own_apiserver, portal_token
from access.models import Credential, Login
from audit.actions import Action
from audit.addresses import address_of
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.requests.status import Forbidden, Unauthorized
from tenants.models import CredentialKind, Role, User
from tenants.rights import require_role

PORTAL: Final = "this portal"
"""What the login is called among machines."""

_TOUCH_EVERY: Final = timedelta(minutes=1)


@sensitive_variables("session_key")
def session_login(*, actor: Actor, user: User, session_key: str, now: datetime) -> Login:
    """The login of a session of the portal, made when it is first needed; callers see all rows.

    Raises ``Conflict`` where the API server is not registered, ``Forbidden`` for one that the person has ended,
    ``Unauthorized`` where the session has ended.
    """
    own_apiserver()
    with transaction.atomic():
        login, made = Login.objects.get_or_create(
            pk=_identifier(session_key, user),
            defaults={
                "user": user,
                "session_id": session_key,
                "machine": PORTAL,
                "ip_address": address_of(actor.ip),
                "user_agent": actor.user_agent[:256],
                "created_at": now,
                "redeemed_at": now,
                "last_used_at": now,
                "expires_at": now,
            },
        )
        if made:
            detail = {"way": "portal", "machine": login.machine, "address": login.ip_address}
            actor.record(Action.LOGIN_ALLOWED, chain=SYSTEM_CHAIN, target=f"logins/{login.id}", detail=detail)
    if login.revoked_at is not None:
        raise Forbidden("You have signed the portal itself out of the API server. Sign out here and in again.")
    if not login_lives(login, now=now):
        raise Unauthorized("The session has ended, sign in again.")
    if login.last_used_at is None or now - login.last_used_at > _TOUCH_EVERY:
        Login.objects.filter(pk=login.pk).update(last_used_at=now, expires_at=login_end(login))
    return login


@sensitive_variables()
def session_token(*, actor: Actor, login: Login, tenant: str, now: datetime, expires_at: datetime) -> tuple[str, str]:
    """A token for a tenant's space with all rights that the membership gives there, and the ID of its credential.

    Whatever ways a cluster offers to people: this one is not given away. Raises ``NotFound`` for who is no member,
    ``Conflict`` where the tenant is closed, ``Forbidden`` for a credential that was revoked.
    """
    role = require_role(actor, tenant, Role.VIEWER)
    known = Credential.objects.filter(login=login, tenant_id=tenant, workspace=None, role=role.value)
    # Whether it still counts is asked by the API server, each time.
    credential = known.filter(revoked_at=None, expires_at__gt=now).first()
    credential = credential or intend_for_tenant(actor, tenant, "", CredentialKind.EXEC, now, login=login)
    assert credential is not None  # noqa: S101 - a login always gets one
    return portal_token(credential, now=now, expires_at=expires_at), str(credential.jti)


def _identifier(session_key: str, user: User) -> UUID:
    """The same for a session and person, so that two requests at once make one login; it gives away neither."""
    digest = salted_hmac("tenantry.portal-session", f"{session_key} {user.pk}", algorithm="sha256").digest()
    return UUID(bytes=hashlib.sha256(digest).digest()[:16], version=4)
