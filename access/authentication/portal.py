"""People with a token of the portal: known to the API server as members of their tenant, as they are in the portal (D9).

What a credential is good for stands in the database alone, so that it ends there: with its revocation, the membership,
the account, the workspace, the tenant, the session of the portal.

1. A credential that this process does not know is asked for at once.
2. All that it knows are asked for again together, every half second and when ``tenantry_credentials`` is notified;
   where one has changed, open streams are looked at again.
3. What is known is as old as the question, not as the answer: after two seconds without an answer nothing is known.
   Whoever comes then waits while the database is asked again, and is told at last that nobody can tell: that the token
   is none would be a lie, and clients throw away what is refused.
4. A credential that has ended has ended for good, and is not asked for again.
5. A token has to be valid when it is shown; a stream that was opened with it ends with its credential, which of a machine
   that is signed in lasts longer: as long as the session. So it is followed for as long as a stream rests on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Final

from access.authentication.base import Credentials, Refused
from access.reloading import ReloadedFile
from kube.authentication.identity import AUTHENTICATED, MEMBERS, Principal
from kube.authentication.portaltokens import AUDIENCE, ISSUER, verify
from kube.authentication.serviceaccounttokens import InvalidToken, VerifyingKey, unverified_issuer
from store.postgresql.arrays import Texts
from store.postgresql.connections import AWAY, ask_patiently
from store.postgresql.dedicatedconnection import DedicatedConnection

logger = logging.getLogger(__name__)

NAME: Final = "portal"
CHANNEL: Final = "tenantry_credentials"
POLL_SECONDS: Final = 0.5
STALE_SECONDS: Final = 2.0

_BY_JTI: Final = "JTI="
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Of a credential: what is called otherwise is none, and is not asked for, nor remembered."""

_LOOKED_UP_SECONDS: Final = 60.0
"""How long a credential is followed that was asked for by its ID alone."""

_RANK: Final = ("viewer", "editor", "admin", "owner")
"""Roles of members and of credentials, the least first; operators are owners everywhere."""

# A resume makes accounts anew, and whatever was issued before it stays dead (GW5).
_QUESTION: Final = """
SELECT c.jti, c.issued_to_id, u.email, c.tenant_id, coalesce(w.k8s_namespace, ''), c.role,
  CASE WHEN u.is_staff THEN 'owner' WHEN m.raised_until > now() THEN m.raised_role ELSE m.role END,
  extract(epoch FROM c.expires_at)
FROM credentials c
JOIN users u ON u.id = c.issued_to_id AND u.status = 'active'
JOIN tenants t ON t.name = c.tenant_id AND t.state <> 'terminating'
LEFT JOIN workspaces w ON w.id = c.workspace_id
LEFT JOIN logins l ON l.id = c.login_id AND l.revoked_at IS NULL
LEFT JOIN django_session s ON s.session_key = l.session_id AND s.expire_date > now()
LEFT JOIN memberships m ON m.tenant_id = c.tenant_id AND m.user_id = c.issued_to_id
  AND coalesce(m.expires_at > now(), true)
WHERE c.jti = ANY (%s) AND c.kind <> 'direct' AND c.revoked_at IS NULL AND c.expires_at > now()
  AND (c.workspace_id IS NULL OR (w.status <> 'deleted' AND jsonb_path_exists(
    w.service_accounts, '$.* ? (@ == $uid)', jsonb_build_object('uid', c.anchor_uid))))
  AND (c.kind <> 'exec' OR s.session_key IS NOT NULL)
  AND (u.is_staff OR m.role IS NOT NULL)
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a credential is good for. ``namespace`` is empty for one of the whole tenant.

    ``ends_at`` is its end in Unix seconds, which is put off while a machine that is signed in asks for tokens.
    """

    user: str
    email: str
    tenant: str
    namespace: str
    role: str
    ends_at: float = field(compare=False)


@dataclass(slots=True)
class _Known:
    """What was found, ``None`` where the credential has ended, and when that was asked."""

    standing: Standing | None
    asked_at: float
    expires_at: float


class StandingCredentials:
    """The credentials in use in this process, as the database has them."""

    def __init__(self, database_url: str, in_use: Container[str] = ()) -> None:
        """``in_use`` are the credentials on which streams rest, as ``Principal.credential_id`` names them."""
        self._known: dict[str, _Known] = {}
        self._in_use = in_use
        self._told = asyncio.Event()
        self._turn = asyncio.Lock()
        self._wire = DedicatedConnection(
            database_url, "tenantry-credentials", channel=CHANNEL, heard=lambda _: self._told.set(), lost=self._told.set
        )

    async def standing(self, token_id: str, *, expires_at: float) -> Standing | None:
        """What the credential is good for, ``None`` when it has ended. Raises ``Unavailable`` when nobody can tell."""
        known = self._known.get(token_id)
        if known is None or (known.standing is not None and time.monotonic() - known.asked_at >= STALE_SECONDS):
            await ask_patiently(lambda: self._ask([(token_id, expires_at)]))
            known = self._known[token_id]
        known.expires_at = max(known.expires_at, expires_at)
        return known.standing

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Keep what is known right, until cancelled; ``on_change`` is called after some credential has changed."""
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._told.wait()
                # Cleared before the reading: what is told while it runs brings another one.
                self._told.clear()
                now = time.time()
                self._known = {
                    token_id: known
                    for token_id, known in self._known.items()
                    if known.expires_at > now or f"{_BY_JTI}{token_id}" in self._in_use
                }
                living = [(token_id, known.expires_at) for token_id, known in self._known.items() if known.standing]
                try:
                    changed = await self._ask(living)
                except AWAY as error:
                    logger.warning("the portal's credentials cannot be read: %s", type(error).__name__)
                    await asyncio.sleep(POLL_SECONDS)
                    continue
                if changed:
                    on_change()
        finally:
            self._wire.close()

    async def _ask(self, tokens: Sequence[tuple[str, float]]) -> bool:
        """Ask about these; whether one that was known is another now. Without any, only hear what is told."""
        async with asyncio.timeout(STALE_SECONDS), self._turn:
            # Of the moment before the question: the answer may be of any moment after it.
            asked_at = time.monotonic()
            result = await self._wire.ask(_QUESTION, [Texts([token_id for token_id, _ in tokens])])
        found = {}
        for row in range(result.ntuples):
            values = [(result.get_value(row, column) or b"").decode() for column in range(8)]
            token_id, user, email, tenant, namespace, given, member, ends = values
            role = min(given, member, key=_RANK.index)
            found[token_id] = Standing(user, email, tenant, namespace, role, float(ends))
        changed = False
        for token_id, expires_at in tokens:
            before, standing = self._known.get(token_id), found.get(token_id)
            if before is not None and (before.asked_at > asked_at or before.standing is None):
                continue
            changed |= before is not None and before.standing != standing
            self._known[token_id] = _Known(standing, asked_at, expires_at)
        return changed


class PortalAuthenticator:
    """Accepts the tokens that the portal issues to people."""

    name = NAME

    def __init__(self, key: ReloadedFile[tuple[VerifyingKey, ...]], credentials: StandingCredentials) -> None:
        self._key = key
        self._credentials = credentials

    async def authenticate(self, credentials: Credentials, *, now: float, audience: str = AUDIENCE) -> Principal | None:
        """The person, with the lesser of the credential's role and the membership's; ``None`` for other tokens.

        The token has to be for ``audience``, and valid when it is shown, the credential now.
        """
        token = credentials.bearer
        if token is None or unverified_issuer(token) != ISSUER:
            return None
        try:
            shown_at = min(now, credentials.shown_at)
            claims = verify(token, keys=self._key.value, now=shown_at, audience=audience)
        except InvalidToken as error:
            raise Refused(str(error)) from None
        principal = await self._holder(claims.token_id, now, follow_until=float(claims.expires_at))
        if principal.uid != claims.user:
            raise Refused("the credential has ended")
        return principal

    async def holder(self, credential_id: str, *, now: float) -> Principal:
        """The person behind a credential that somebody has accepted before, by its ID. Raises ``Refused``."""
        token_id = credential_id.removeprefix(_BY_JTI)
        if _ID.fullmatch(token_id) is None:
            raise Refused("the credential is none of the portal's")
        return await self._holder(token_id, now, follow_until=now + _LOOKED_UP_SECONDS)

    async def _holder(self, token_id: str, now: float, *, follow_until: float) -> Principal:
        standing = await self._credentials.standing(token_id, expires_at=follow_until)
        if standing is None or standing.ends_at <= now:
            raise Refused("the credential has ended")
        return Principal(
            name=standing.email,
            uid=standing.user,
            groups=(f"{MEMBERS}{standing.role}", AUTHENTICATED),
            tenant=standing.tenant,
            namespace=standing.namespace,
            authenticator=NAME,
            credential_id=f"{_BY_JTI}{token_id}",
            not_after=standing.ends_at,
        )

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Follow the credentials in use, and the key, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._credentials.follow(on_change))
            tasks.create_task(self._key.follow(on_change))
