"""Service accounts' tokens: signed by us, and checked against what they name on every use (AN6)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from access.authentication.base import Credentials, Refused
from access.authentication.keyfiles import KeyFiles
from kube.authentication.identity import AUTHENTICATED, SERVICE_ACCOUNT_PREFIX, Principal
from kube.authentication.serviceaccounttokens import (
    InvalidToken,
    Reference,
    ServiceAccountClaims,
    unverified_issuer,
    verify,
)
from store.interface import Store
from store.types import Key, Stored

_REMEMBERED: Final = 8192
"""Verified signatures in memory. What a token names is looked up every time, so that deletion revokes at once."""

POD_NAME: Final = "authentication.kubernetes.io/pod-name"
POD_UID: Final = "authentication.kubernetes.io/pod-uid"
NODE_NAME: Final = "authentication.kubernetes.io/node-name"
NODE_UID: Final = "authentication.kubernetes.io/node-uid"


@dataclass(slots=True)
class _Verified:
    """A token whose signature has been verified, and the objects that it names."""

    claims: ServiceAccountClaims
    principal: Principal
    named: Sequence[tuple[Key, Reference]]
    judged: dict[Key, tuple[Stored | None, str]] = field(default_factory=dict)
    """What of the objects was looked at last, and what was wrong with it."""


class ServiceAccountAuthenticator:
    """Accepts the bearer tokens of service accounts of any logical cluster."""

    name = "serviceaccount"

    def __init__(self, store: Store, *, keys: KeyFiles, issuers: Sequence[str], audiences: Sequence[str]) -> None:
        self._store = store
        self._keys = keys
        self._issuers = tuple(issuers)
        self._audiences = tuple(audiences)
        self._asked = _written(audiences)
        self._verified: dict[bytes, _Verified] = {}

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal | None:
        """The account that the token was made for; ``None`` for other tokens; raises ``Refused``."""
        token = credentials.bearer
        if token is None:
            return None
        digest = _digest(token, self._asked)
        if digest not in self._verified and unverified_issuer(token) not in self._issuers:
            return None
        verified = self._verify(token, digest, self._audiences, now)
        if not self._is_good(verified):
            await self._require_all(verified)
        return verified.principal

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Read the keys again when they change, until cancelled: signatures of one that is gone verify no longer."""

        def changed() -> None:
            self._verified.clear()
            on_change()

        await self._keys.follow(changed)

    async def principal(self, token: str, *, audiences: Sequence[str], now: float) -> Principal:
        """The account behind a token that is good for one of ``audiences``. Raises ``Refused``."""
        verified = self._verify(token, _digest(token, _written(audiences)), audiences, now)
        await self._require_all(verified)
        return verified.principal

    async def require_account(self, account: Principal) -> None:
        """Raise ``Refused`` where the account that somebody was accepted as before, by its UID, has ended since."""
        namespace, _, name = account.name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
        key = Key(str(account.cluster), "", "serviceaccounts", namespace, name)
        flaw = _flaw(await self._store.get(key, cached=True), Reference(name, account.uid))
        if flaw:
            raise Refused(f"the service account {flaw}")

    def _is_good(self, verified: _Verified) -> bool:
        """Whether all that the token names is, as far as can be said at once, what it was when it was last looked up."""
        for key, _ in verified.named:
            stored, judged = self._store.peek(key), verified.judged.get(key)
            if judged is None or judged[0] is not stored or judged[1]:
                return False
        return True

    async def _require_all(self, verified: _Verified) -> None:
        for key, reference in verified.named:
            await self._require(verified, key, reference)

    def _verify(self, token: str, digest: bytes, audiences: Sequence[str], now: float) -> _Verified:
        verified = self._verified.get(digest)
        if verified is not None and verified.claims.not_before <= now < verified.claims.expires_at:
            return verified
        try:
            claims = verify(token, keys=self._keys.keys, issuers=self._issuers, audiences=audiences, now=now)
        except InvalidToken as error:
            raise Refused(str(error)) from None
        if len(self._verified) >= _REMEMBERED:
            self._verified.clear()
        verified = self._verified[digest] = _Verified(claims, self._principal(claims), _named(claims))
        return verified

    def _principal(self, claims: ServiceAccountClaims) -> Principal:
        extra: dict[str, tuple[str, ...]] = {}
        for keys, reference in (((POD_NAME, POD_UID), claims.pod), ((NODE_NAME, NODE_UID), claims.node)):
            if reference is not None:
                said = zip(keys, (reference.name, reference.uid), strict=True)
                extra |= {key: (value,) for key, value in said if value}
        return Principal(
            name=claims.user,
            uid=claims.account.uid,
            groups=(*claims.groups, AUTHENTICATED),
            extra=extra,
            tenant=claims.tenant,
            authenticator=self.name,
            cluster=claims.cluster,
            credential_id=f"JTI={claims.token_id}",
            issued_at=float(claims.issued_at),
            not_after=float(claims.expires_at),
        )

    async def _require(self, verified: _Verified, key: Key, reference: Reference) -> None:
        """What the token names still is what it was; looked up on every use, read again only when it has changed."""
        stored = self._store.peek(key) or await self._store.get(key, cached=True)
        judged = verified.judged.get(key)
        if judged is None or judged[0] is not stored:
            flaw = _flaw(stored, reference)
            if flaw and judged is None:
                # Another process may have made it just now, and this one not have seen that yet. Only then is it looked at
                # again: what this process has seen once does not come back after its end, for no UID does.
                stored = await self._store.get(key)
                flaw = _flaw(stored, reference)
            judged = verified.judged[key] = stored, flaw
        if judged[1]:
            raise Refused(f"what the token is bound to ({key.resource}) {judged[1]}")


def _flaw(stored: Stored | None, reference: Reference) -> str:
    if stored is None:
        return "is gone"
    metadata = orjson.loads(stored.data)["metadata"]
    if metadata.get("uid") != reference.uid:
        return "has been made anew"
    return "is being deleted" if "deletionTimestamp" in metadata else ""


def _named(claims: ServiceAccountClaims) -> Sequence[tuple[Key, Reference]]:
    """The objects that a token rests on."""
    namespace = claims.namespace
    named = (
        ("serviceaccounts", namespace, claims.account),
        ("secrets", namespace, claims.secret),
        ("pods", namespace, claims.pod),
        ("nodes", "", claims.node if claims.pod is None else None),
    )
    return [
        (Key(claims.cluster, "", resource, within, reference.name), reference)
        for resource, within, reference in named
        if reference is not None
    ]


def _written(audiences: Sequence[str]) -> str:
    """Audiences as they go into a digest. They end where their tuple does: reviews may ask about any, whatever is in them."""
    return repr(tuple(audiences))


def _digest(token: str, asked: str) -> bytes:
    """Of every request's token: processors have instructions of their own for this one."""
    return hashlib.sha256(f"{asked}{token}".encode("utf-8", "surrogatepass")).digest()
