"""Bearer tokens of OpenID Connect providers (AN8; OpenID Connect Core and Discovery, RFC 7517)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.exceptions import PyJWTError

from access.authentication.base import Credentials, Refused
from access.httpclient import HttpClient
from access.outsidebudget import BUDGET_SECONDS, Unreachable, within_budget
from kube.authentication import idtokens
from kube.authentication.identity import AUTHENTICATED, Principal
from kube.authentication.oidcclaims import ClaimError, ClaimRules, identify
from kube.authentication.webhookfiles import WebhookFileError, checked_url

logger = logging.getLogger(__name__)

ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"})
"""What a provider may sign with: asymmetric, so that knowing how to verify is not knowing how to sign."""

FRESH_SECONDS: Final = 300.0
"""Keys are asked for again after this long, so that a withdrawn key ends."""

STALE_SECONDS: Final = 3600.0
"""Keys of a provider that does not answer stay good for this long."""

REFETCH_SECONDS: Final = 60.0
"""A token that no key fits makes the keys be asked for at most this often (JWT-04)."""

RETRY_SECONDS: Final = 10.0
"""A provider that did not answer is asked again after this long."""

_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_KEYS_MAX: Final = 64
_RSA_BITS_MIN: Final = 2048
_NUMBER_MAX: Final = 1366
"""Characters of a number of a key: 8,192 bits, as in Go's TLS. How long a comparison holds other requests depends on it."""
_RSA_EXPONENT_MAX: Final = 2**31
"""As in Go: with a large one a comparison takes a hundred times as long."""
_JWS: Final = jwt.PyJWS()


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcIssuer:
    """One provider. ``audiences`` are the client ids that tokens may be for; ``leeway`` is in seconds.

    ``rules.issuer`` is its URL, and must be, letter for letter, what tokens and the discovery document say.
    """

    rules: ClaimRules
    audiences: tuple[str, ...]
    algorithms: frozenset[str] = ALGORITHMS
    leeway: float = 0.0

    def __post_init__(self) -> None:
        if not self.rules.issuer.startswith("https://"):
            raise ValueError("the URL of an OpenID Connect issuer must start with https://")
        if not self.audiences:
            raise ValueError("an OpenID Connect issuer needs the client id that tokens are for")
        if not self.algorithms <= ALGORITHMS:
            raise ValueError(f"algorithms must be among {', '.join(sorted(ALGORITHMS))}")


@dataclass(frozen=True, slots=True)
class _Key:
    key_id: str | None
    algorithms: frozenset[str]
    key: Any


class OidcAuthenticator:
    """Verifies the tokens of one provider; several providers are several of these.

    The provider is asked for its keys when the first token comes; while it is away, keys already known stay good for
    an hour.
    """

    name = "oidc"

    def __init__(self, issuer: OidcIssuer, transport: HttpClient) -> None:
        self._issuer = issuer
        self._keys = ProviderKeys(issuer.rules.issuer, transport)

    @property
    def issuer(self) -> str:
        """The URL of the provider."""
        return self._issuer.rules.issuer

    @property
    def gives_tenants(self) -> bool:
        """Whether its users belong to tenants at all."""
        return bool(self._issuer.rules.tenant_claim or self._issuer.rules.tenant)

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal | None:
        """The user behind the token; ``None`` for a token of another issuer; ``Refused`` for one that is not valid."""
        token = credentials.bearer
        said = idtokens.parse_unverified(token) if token is not None else None
        if token is None or said is None or said.issuer != self.issuer:
            return None
        claims = await self.verify(token, now=now)
        try:
            identity = identify(claims, self._issuer.rules)
        except ClaimError as error:
            raise Refused(str(error)) from None
        token_id = claims.get("jti")
        return Principal(
            name=identity.name,
            uid=identity.uid,
            groups=(*identity.groups, AUTHENTICATED),
            tenant=identity.tenant,
            authenticator=self.name,
            credential_id=f"JTI={token_id}" if isinstance(token_id, str) and 0 < len(token_id) <= 256 else "",
            # One that does not say when is as old as can be.
            issued_at=float(claims.get("iat") or 0),
            not_after=float(claims["exp"]) + self._issuer.leeway,
        )

    async def verify(self, token: str, *, now: float) -> Mapping[str, Any]:
        """The claims of a token of this issuer, once audience, party, times and signature are right.

        Raises ``Refused``; whatever is cheap to refuse is refused first.
        """
        # 1. To this step all is unverified: it only decides which rules apply. Nothing is fetched for a foreign token.
        said = idtokens.parse_unverified(token)
        if said is None or said.issuer != self.issuer:
            raise Refused("the token is of another issuer")
        if said.ambiguous:
            raise Refused("the token says one thing twice")
        # 2. The algorithm is ours to accept, and asymmetric: no ``none``, no HMAC with a public key as the secret.
        algorithm = said.header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._issuer.algorithms:
            raise Refused("the token's algorithm is not accepted")
        if "crit" in said.header or "b64" in said.header or "zip" in said.header:
            raise Refused("the token's header asks for an extension")
        key_id = said.header.get("kid")
        if key_id is not None and (not isinstance(key_id, str) or len(key_id) > idtokens.KEY_ID_MAX):
            raise Refused("the token's key id is malformed")
        # 3. Times and audience before the signature: refusing is cheap, and a token that is refused now would be refused
        #    after verification too. That an attacker learns which check failed tells only what it wrote itself.
        if reason := idtokens.time_reason(said.claims, now=now, leeway=self._issuer.leeway):
            raise Refused(reason)
        if idtokens.audiences(said.claims).isdisjoint(self._issuer.audiences):
            raise Refused("the token is for another audience")
        party = said.claims.get("azp")
        if party is not None and party not in self._issuer.audiences:
            raise Refused("the token was issued to another party")
        # 4. The signature. A key that is not known may be new: ask again once, at most every REFETCH_SECONDS, so that
        #    forged key ids are no way to make this server flood the provider.
        try:
            signed = await _is_signed(token, algorithm, await self._keys.matching(key_id, algorithm, now))
            if not signed and await self._keys.renew(now):
                signed = await _is_signed(token, algorithm, await self._keys.matching(key_id, algorithm, now))
        except Unreachable as error:
            raise Refused(f"the provider's keys cannot be had: {error}") from None
        if not signed:
            raise Refused("the token's signature is not valid")
        return said.claims

    async def close(self) -> None:
        """Give the connections back."""
        await self._keys.close()


async def _is_signed(token: str, algorithm: str, keys: Sequence[Any]) -> bool:
    for number, key in enumerate(keys):
        if number:
            # A provider may have many keys: requests are answered between one and the next.
            await asyncio.sleep(0)
        try:
            # Only the signature: times and names have been checked, by our clock.
            _JWS.decode(token, key, algorithms=[algorithm])
        except (PyJWTError, ValueError, TypeError):
            continue
        return True
    return False


class ProviderKeys:
    """A provider's public keys, found by discovery and kept fresh; one question at a time, and not too often."""

    def __init__(self, issuer: str, transport: HttpClient) -> None:
        self._issuer = issuer
        self._transport = transport
        self._keys: Sequence[_Key] = ()
        self._fetched = float("-inf")
        self._tried = float("-inf")
        self._lock = asyncio.Lock()

    async def matching(self, key_id: str | None, algorithm: str, now: float) -> list[Any]:
        """The keys that can have signed: that of ``key_id``, or without one every key for ``algorithm``.

        Raises ``Unreachable`` when no keys are known.
        """
        if not 0 <= now - self._fetched < FRESH_SECONDS:
            await self._refresh(now, self._fetched, RETRY_SECONDS)
            self._usable(now)
        return [
            key.key
            for key in self._keys
            if algorithm in key.algorithms and (key_id is None or key.key_id in (None, key_id))
        ]

    async def renew(self, now: float) -> bool:
        """Ask again because no key fitted, at most once a minute; whether there are new keys to try."""
        known = self._fetched
        await self._refresh(now, known, REFETCH_SECONDS)
        self._usable(now)
        return self._fetched != known

    async def close(self) -> None:
        """Give the connections back."""
        await self._transport.close()

    async def _refresh(self, now: float, known: float, pause: float) -> None:
        """Ask again unless somebody did since ``known``, or within the last ``pause`` seconds.

        Whoever has no more time to wait goes on with what is known; the question goes on for the others.
        """
        with contextlib.suppress(Unreachable):
            await within_budget(asyncio.shield(asyncio.ensure_future(self._ask(now, known, pause))))

    async def _ask(self, now: float, known: float, pause: float) -> None:
        # Under the lock, and looked at again there: of many that wait one asks, the others find ``_fetched`` moved. A
        # failure counts as a try, so that a provider that is away is not asked by every token; until STALE_SECONDS the
        # old keys hold, then none do. A clock that went backwards (negative ages) counts as too old, never as fresh.
        async with self._lock:
            if self._fetched != known or 0 <= now - self._tried < pause:
                return
            self._tried = now
            try:
                async with asyncio.timeout(BUDGET_SECONDS):
                    self._keys = await self._fetch()
            except (Unreachable, TimeoutError) as error:
                logger.warning("the keys of an OpenID Connect provider could not be read: %s", error)
            else:
                self._fetched = now

    def _usable(self, now: float) -> None:
        if not 0 <= now - self._fetched < STALE_SECONDS:
            self._keys = ()
            raise Unreachable("the provider does not answer")

    async def _fetch(self) -> Sequence[_Key]:
        document = await discover(self._issuer, self._transport)
        listed = (await _json(self._transport, endpoint(document, "jwks_uri"))).get("keys")
        if not isinstance(listed, list) or len(listed) > _KEYS_MAX:
            raise Unreachable("the key set is not a list of keys")
        return [key for entry in listed if isinstance(entry, dict) and (key := _usable_key(entry)) is not None]


async def discover(issuer: str, transport: HttpClient) -> Mapping[str, Any]:
    """The provider's own description (OpenID Connect Discovery); raises ``Unreachable``, also for another issuer's."""
    document = await _json(transport, f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    if document.get("issuer") != issuer:
        raise Unreachable("the discovery document is of another issuer")
    return document


def endpoint(document: Mapping[str, Any], name: str) -> str:
    """An address of the provider, which must be an https one; raises ``Unreachable``."""
    url = document.get(name)
    try:
        address = checked_url(url) if isinstance(url, str) else ""
    except WebhookFileError:
        address = ""
    if not address.startswith("https://"):
        raise Unreachable(f"the discovery document has no https {name}")
    return address


async def _json(transport: HttpClient, url: str) -> dict[str, Any]:
    answer = await transport.request("GET", url)
    if answer.status != 200:
        raise Unreachable(f"the provider answered with {answer.status}")
    return answer.json()


def _usable_key(entry: Mapping[str, Any]) -> _Key | None:
    """A key for signatures of our algorithms; ``None`` for any other. Each key verifies what its kind allows alone."""
    kind, curve, only, key_id = (entry.get(name) for name in ("kty", "crv", "alg", "kid"))
    if entry.get("use", "sig") != "sig" or not isinstance(key_id, str | None):
        return None
    if kind == "RSA":
        fitting = frozenset(name for name in ALGORITHMS if name[:2] in ("RS", "PS"))
    elif kind == "EC" and isinstance(curve, str) and curve in _CURVES:
        fitting = frozenset({_CURVES[curve]})
    else:
        return None
    if only is not None:
        fitting &= {only} if isinstance(only, str) else frozenset()
    public = {name: value for name, value in entry.items() if name in ("kty", "n", "e", "crv", "x", "y")}
    if any(len(value) > _NUMBER_MAX for value in public.values() if isinstance(value, str)):
        return None
    try:
        key = jwt.PyJWK(public, algorithm=min(fitting)).key if fitting else None
    except (PyJWTError, ValueError, TypeError):
        return None
    if key is None or (kind == "RSA" and not _is_usable(key)):
        return None
    return _Key(key_id, fitting, key)


def _is_usable(key: RSAPublicKey) -> bool:
    return key.key_size >= _RSA_BITS_MIN and key.public_numbers().e < _RSA_EXPONENT_MAX
