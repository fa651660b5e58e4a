"""Keystone asked and its answers remembered: who a token is of, and which roles it has in a scope (AN7, AN10).

Nobody but the token itself asks: the product holds no Keystone account that could be stolen. Tokens are kept in memory
alone, and no longer than their validation and one request last.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from access.authentication.digests import Digests
from access.httpclient import Breaker, HttpClient
from access.outsidebudget import BUDGET_SECONDS, Unreachable
from access.ttlcache import CAPACITY, TTLCache
from kube.authentication.keystone import Scope, Token, token_of
from kube.authentication.userinfo import tenant_reasons
from kube.requests.names import SYSTEM_TENANT

logger = logging.getLogger(__name__)

TTL_SECONDS: Final = 30.0
"""A token revoked at Keystone, or a role taken away there, stops counting after at most this long (KEY-04)."""

TOKEN_MAX: Final = 8 * 1024
_SHOWN_SECONDS: Final = 60.0
"""A request may take this long from its authentication to its authorization."""

_DOMAINS_MAX: Final = 100_000
_UNKNOWN: Final = (400, 401, 403, 404)


class Keystone:
    """One Keystone at ``url`` (with or without ``/v3``); ``ttl`` in seconds bounds the age of every answer."""

    def __init__(
        self,
        url: str,
        transport: HttpClient,
        *,
        ttl: float = TTL_SECONDS,
        capacity: int = CAPACITY,
        budget: float = BUDGET_SECONDS,
        digests: Digests | None = None,
    ) -> None:
        self._tokens_url = f"{url.rstrip('/').removesuffix('/v3')}/v3/auth/tokens?nocatalog"
        self._transport = transport
        self._breaker = Breaker("Keystone", budget=budget)
        self._digests = digests or Digests()
        self._capacity = capacity
        self._validations: TTLCache[Token] = TTLCache(success=ttl, failure=min(ttl, 10.0), capacity=capacity)
        self._assignments: TTLCache[tuple[str, ...]] = TTLCache(success=ttl, failure=ttl, capacity=capacity)
        self.ttl = ttl
        self._shown: OrderedDict[str, tuple[str, Token, float]] = OrderedDict()

    async def validate(self, token: str, now: float) -> Token | None:
        """What Keystone says about the token; ``None`` for one that it does not know. Raises ``Unreachable``."""
        if not 0 < len(token) <= TOKEN_MAX or not all("!" <= character <= "~" for character in token):
            return None
        said = await self._validations.ask(self._digests.of(token.encode()), now, lambda: self._validate(token))
        if said is None or said.expires <= now:
            return None
        self._shown[said.audit_id] = (token, said, now)
        self._shown.move_to_end(said.audit_id)
        self._forget_old(now)
        return said

    async def roles(self, audit_id: str, user_id: str, scope: Scope, now: float) -> tuple[str, ...]:
        """The roles in ``scope`` of the user who has shown the token of ``audit_id``; raises ``Unreachable``.

        Empty for anybody else, so that no answer ever serves another user, and for a delegated token outside the
        scope that it was given for.
        """
        token, said, _ = self._shown.get(audit_id, ("", None, 0.0))
        if said is None or said.user_id != user_id or said.expires <= now:
            return ()
        if said.scope == scope:
            return said.roles
        if said.delegated:
            return ()
        key = self._digests.of(token.encode(), user_id.encode(), scope.domain.encode(), scope.project.encode())
        return await self._assignments.ask(key, now, lambda: self._roles(token, said, scope)) or ()

    async def close(self) -> None:
        """Give the connections back and forget every token."""
        self._shown.clear()
        self._validations.forget()
        self._assignments.forget()
        await self._transport.close()

    def _forget_old(self, now: float) -> None:
        """Every request shows its token anew, so one that was not shown for a while is needed by nobody."""
        keep = self.ttl + _SHOWN_SECONDS
        while self._shown:
            audit_id, (_, _, shown) = next(iter(self._shown.items()))
            if len(self._shown) <= self._capacity and now - shown < keep:
                return
            del self._shown[audit_id]

    async def _validate(self, token: str) -> Token | None:
        return await self._ask("GET", headers={"X-Auth-Token": token, "X-Subject-Token": token})

    async def _roles(self, token: str, said: Token, scope: Scope) -> tuple[str, ...] | None:
        identity = {"methods": ["token"], "token": {"id": token}}
        scoped = await self._ask("POST", json={"auth": {"identity": identity, "scope": scope.as_dict()}})
        # Keystone's answer must be about what was asked, whatever stands between.
        if scoped is None or scoped.user_id != said.user_id or scoped.scope != scope:
            return None
        return scoped.roles

    async def _ask(self, method: str, *, json: Any = None, headers: Mapping[str, str] | None = None) -> Token | None:
        answer = await self._breaker.ask(
            lambda: self._transport.request(method, self._tokens_url, json=json, headers=headers)
        )
        if answer.status in _UNKNOWN:
            return None
        if answer.status not in (200, 201):
            raise Unreachable(f"Keystone answered with {answer.status}")
        try:
            return token_of(answer.json())
        except ValueError as error:
            raise Unreachable(f"Keystone's answer is not usable: {error}") from None


class Pin(NamedTuple):
    """The tenant that a domain is, by its name and its uid."""

    tenant: str
    uid: str


class Domains:
    """Which tenant a Keystone domain is: the mapping's, or the domain's own name at first sight (KEY-01, KEY-02).

    A tenant follows the domain's id. The first domain of a name takes the tenant of that name, and this is kept in
    ``pins`` across restarts: whoever renames a domain keeps the tenant, and a new domain of an old name gets none until
    an operator maps it. A domain whose tenant has ended has none any more, whoever is given the tenant's name; whose
    domain has the name then may take it. ``system`` and the domain ``default`` need the mapping. ``tenant_uid`` gives
    the uid of a tenant, empty for none; a domain with no tenant has no users here.
    """

    def __init__(
        self,
        mapping: Mapping[str, str],
        *,
        pins: Path | None = None,
        tenant_uid: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        for tenant in mapping.values():
            if reasons := tenant_reasons(tenant):
                raise ValueError(f"the tenant of a Keystone domain {reasons[0]}")
        if len(set(mapping.values())) != len(mapping):
            raise ValueError("two Keystone domains are mapped to one tenant, so that their users could be confused")
        self._mapping = dict(mapping)
        self._file = pins
        self._tenant_uid = tenant_uid
        self._pins: dict[str, Pin] = {}

    async def tenant_of(self, domain_id: str, domain: str) -> str | None:
        """The tenant of a domain by id and name; ``None`` when it has none."""
        mapped = self._mapping.get(domain_id)
        if mapped is not None:
            return mapped if await self._uid(mapped) is not None else None
        pin = self._pins.get(domain_id)
        if pin is None:
            if tenant_reasons(domain) or domain == SYSTEM_TENANT or "default" in (domain_id, domain.lower()):
                return None
            uid = await self._uid(domain)
            if uid is None:
                return None
            pin = self._pin(domain_id, Pin(domain, uid))
        return pin.tenant if pin is not None and await self._uid(pin.tenant) == pin.uid else None

    def domain_of(self, tenant: str) -> str:
        """The id of a tenant's domain; empty when none is known."""
        # The last that took the name: those before it are of tenants that have ended.
        pinned = {domain_id: pin.tenant for domain_id, pin in reversed(self._pins.items())}
        known = {**self._mapping, **{k: v for k, v in pinned.items() if k not in self._mapping}}
        return next((domain_id for domain_id, of in known.items() if of == tenant), "")

    async def _uid(self, tenant: str) -> str | None:
        """The uid of a tenant, empty where none is kept; ``None`` for a tenant that is not there."""
        if tenant == SYSTEM_TENANT or self._tenant_uid is None:
            return ""
        return await self._tenant_uid(tenant) or None

    def _pin(self, domain_id: str, pin: Pin) -> Pin | None:
        if self._file is None:
            return self._take(domain_id, pin)
        # Every process of the host asks the same file, one at a time.
        with self._file.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._pins = _read(self._file)
            taken = self._take(domain_id, pin)
            if taken is not None:
                _write(self._file, self._pins)
            return taken

    def _take(self, domain_id: str, pin: Pin) -> Pin | None:
        if domain_id in self._pins:
            return self._pins[domain_id]
        if pin in self._pins.values() or pin.tenant in self._mapping.values() or len(self._pins) >= _DOMAINS_MAX:
            logger.warning(
                "the Keystone domain %s is called %r as the tenant of another domain; map it to a tenant by its id",
                domain_id,
                pin.tenant,
            )
            return None
        self._pins[domain_id] = pin
        logger.info("the Keystone domain %s is the tenant %r from now on", domain_id, pin.tenant)
        return pin


def _read(path: Path) -> dict[str, Pin]:
    try:
        pins = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    try:
        return {domain_id: Pin(str(pin["tenant"]), str(pin["uid"])) for domain_id, pin in pins.items()}
    except (AttributeError, KeyError, TypeError):
        raise ValueError(f"{path} does not hold the tenants of Keystone domains") from None


def _write(path: Path, pins: Mapping[str, Pin]) -> None:
    new = path.with_suffix(".new")
    with new.open("w") as file:
        json.dump({domain_id: pin._asdict() for domain_id, pin in pins.items()}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
