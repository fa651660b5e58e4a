"""Service accounts' tokens: signed by us, and checked against what they name on every use (AN6)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import orjson

from access.authentication.base import Credentials, Refused
from kube.identity import AUTHENTICATED, Principal
from kube.jwt import InvalidToken, Reference, ServiceAccountClaims, VerifyingKey, unverified_issuer, verify
from store.port import Store
from store.types import Key

_REMEMBERED: Final = 8192
"""Verified signatures in memory. What a token names is looked up every time, so that deletion revokes at once."""

POD_NAME: Final = "authentication.kubernetes.io/pod-name"
POD_UID: Final = "authentication.kubernetes.io/pod-uid"


class ServiceAccountAuthenticator:
    """Accepts the bearer tokens of service accounts of any logical cluster."""

    name = "serviceaccount"

    def __init__(self, store: Store, *, keys: Sequence[VerifyingKey], issuer: str, audiences: Sequence[str]) -> None:
        self._store = store
        self._keys = tuple(keys)
        self._issuer = issuer
        self._audiences = tuple(audiences)
        self._verified: dict[bytes, ServiceAccountClaims] = {}

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal | None:
        """The account that the token was made for; ``None`` for other tokens; raises ``Refused``."""
        token = credentials.bearer
        if token is None or unverified_issuer(token) != self._issuer:
            return None
        return await self.principal(token, audiences=self._audiences, now=now)

    async def principal(self, token: str, *, audiences: Sequence[str], now: float) -> Principal:
        """The account behind a token that is good for one of ``audiences``. Raises ``Refused``."""
        claims = self._claims(token, tuple(audiences), now)
        await self._check(claims)
        extra = {}
        if claims.pod is not None:
            extra = {POD_NAME: (claims.pod.name,), POD_UID: (claims.pod.uid,)}
        return Principal(
            name=claims.user,
            uid=claims.account.uid,
            groups=(*claims.groups, AUTHENTICATED),
            extra=extra,
            tenant=claims.tenant,
            authenticator=self.name,
            cluster=claims.cluster,
            credential_id=f"JTI={claims.token_id}",
            not_after=float(claims.expires_at),
        )

    def _claims(self, token: str, audiences: tuple[str, ...], now: float) -> ServiceAccountClaims:
        digest = hashlib.sha256("\n".join((token, *audiences)).encode()).digest()
        claims = self._verified.get(digest)
        if claims is not None and claims.not_before <= now < claims.expires_at:
            return claims
        try:
            claims = verify(token, keys=self._keys, issuers=(self._issuer,), audiences=audiences, now=now)
        except InvalidToken as error:
            raise Refused(str(error)) from None
        if len(self._verified) >= _REMEMBERED:
            self._verified.clear()
        self._verified[digest] = claims
        return claims

    async def _check(self, claims: ServiceAccountClaims) -> None:
        """The account, and what the token is bound to, still are what they were."""
        await self._require(claims, "serviceaccounts", claims.account)
        if claims.secret is not None:
            await self._require(claims, "secrets", claims.secret)
        if claims.pod is not None:
            await self._require(claims, "pods", claims.pod)

    async def _require(self, claims: ServiceAccountClaims, resource: str, reference: Reference) -> None:
        key = Key(claims.cluster, "", resource, claims.namespace, reference.name)
        stored = await self._store.get(key, cached=True)
        if stored is None:
            raise Refused(f"what the token is bound to ({resource}) is gone")
        metadata = orjson.loads(stored.data)["metadata"]
        if metadata.get("uid") != reference.uid:
            raise Refused(f"what the token is bound to ({resource}) has been made anew")
        if "deletionTimestamp" in metadata:
            raise Refused(f"what the token is bound to ({resource}) is being deleted")
