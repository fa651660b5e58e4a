"""Bearer tokens that an outside service judges by TokenReview (AN7; authentication.k8s.io)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from access.authentication.base import Credentials, Refused
from access.authentication.digests import Digests, header_bytes
from access.httpclient import Webhook
from access.outsidebudget import Unreachable
from access.ttlcache import CAPACITY, TTLCache, notify_while_cached
from kube.authentication.identity import AUTHENTICATED, TENANT_EXTRA, Principal
from kube.authentication.serviceaccounttokens import may_be_of
from kube.authentication.userinfo import (
    groups_reasons,
    is_strings,
    name_reasons,
    outside_extra,
    outside_name_reasons,
    tenant_reasons,
)
from kube.requests.names import SYSTEM_TENANT

logger = logging.getLogger(__name__)

PAUSES: Final = (0.2, 0.3, 0.45, 0.675)
"""Seconds between as many attempts as kube-apiserver makes, within the webhook's budget."""

FAILURE_SECONDS: Final = 10.0
"""How long a no is remembered: shorter than a yes, for a token may become valid."""


class WebhookAuthenticator:
    """Asks the webhook once per token and remembers the answer for ``success_ttl`` seconds.

    The user's tenant is ``extra["multi-tenancy.k8s.io/tenant"]``; without it the user belongs to none. ``system`` users
    and groups, and users of the tenant ``system``, are taken only where ``trusted`` says that the webhook is one of
    the operators' own. Tokens that ``own_issuers`` may have issued are never sent out (KEY-08).
    """

    name = "webhook"

    def __init__(
        self,
        webhook: Webhook,
        *,
        audiences: Sequence[str] = (),
        version: str = "v1",
        success_ttl: float = 120.0,
        failure_ttl: float = FAILURE_SECONDS,
        capacity: int = CAPACITY,
        own_issuers: frozenset[str] = frozenset(),
        trusted: bool = False,
        pauses: tuple[float, ...] = PAUSES,
        digests: Digests | None = None,
    ) -> None:
        self._webhook = webhook
        self._audiences = tuple(audiences)
        self._version = version
        self._own_issuers = own_issuers
        self._trusted = trusted
        self._pauses = pauses
        self._digests = digests or Digests()
        self._success_ttl = success_ttl
        self._answers: TTLCache[Principal] = TTLCache(success=success_ttl, failure=failure_ttl, capacity=capacity)

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal | None:
        """The user behind the bearer token; ``None`` where the webhook does not know it; ``Refused`` without answer."""
        token = credentials.bearer
        data = header_bytes(token) if token is not None else None
        if token is None or data is None or may_be_of(token, self._own_issuers):
            return None
        key = self._digests.of(data, *(audience.encode() for audience in self._audiences))
        try:
            return await self._answers.ask(key, now, lambda: self._ask(token))
        except Unreachable as error:
            raise Refused(str(error)) from None

    async def close(self) -> None:
        """Give the connections back."""
        await self._webhook.close()

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Let open watches ask again, so that they end soon after a token is revoked."""
        await notify_while_cached(self._success_ttl, on_change)

    async def _ask(self, token: str) -> Principal | None:
        spec: dict[str, Any] = {"token": token}
        if self._audiences:
            spec["audiences"] = list(self._audiences)
        version = f"authentication.k8s.io/{self._version}"
        status = await self._webhook.review(version, "TokenReview", spec, pauses=self._pauses)
        # Only the JSON value true is a yes.
        if status.get("authenticated") is not True or not self._is_for_us(status):
            return None
        user = status.get("user")
        try:
            return principal_of_user(user if isinstance(user, dict) else {}, self.name, trusted=self._trusted)
        except ValueError as error:
            logger.warning("the webhook's user is not acceptable: %s", error)
            return None

    def _is_for_us(self, status: Mapping[str, Any]) -> bool:
        """Whether the token is for one of our audiences; a webhook that names none does not know of audiences."""
        named = status.get("audiences")
        if not self._audiences or named in (None, []):
            return True
        return is_strings(named) and not set(self._audiences).isdisjoint(named)


def principal_of_user(user: Mapping[str, Any], authenticator: str, *, trusted: bool) -> Principal:
    """The identity in a ``UserInfo`` from outside; raises ``ValueError`` for what no outside party may say."""
    name, uid, groups, extra = (user.get(key) for key in ("username", "uid", "groups", "extra"))
    if not isinstance(name, str) or not isinstance(uid, str | None):
        raise ValueError("username and uid must be text")  # noqa: TRY004
    groups = [] if groups is None else groups
    extra = {} if extra is None else extra
    if not is_strings(groups) or not isinstance(extra, dict):
        raise ValueError("groups must be a list of strings and extra an object")
    # Real webhooks repeat the group that every authenticated user has.
    groups = [group for group in groups if group != AUTHENTICATED]
    reasons = name_reasons(name) if trusted else outside_name_reasons(name)
    reasons += groups_reasons(groups, outside=not trusted)
    reasons += name_reasons(uid) if uid else []
    if reasons:
        raise ValueError(reasons[0])
    return Principal(
        name=name,
        uid=uid or "",
        groups=(*groups, AUTHENTICATED),
        extra=outside_extra(extra),
        tenant=_tenant(extra, trusted=trusted),
        authenticator=authenticator,
    )


def _tenant(extra: Mapping[str, Any], *, trusted: bool) -> str | None:
    values = extra.get(TENANT_EXTRA)
    if values is None:
        return None
    if not is_strings(values) or len(values) != 1:
        raise ValueError("the tenant must be one name")
    tenant = str(values[0])
    if reasons := tenant_reasons(tenant):
        raise ValueError(f"the tenant {reasons[0]}")
    if tenant == SYSTEM_TENANT and not trusted:
        raise ValueError("the tenant is the operators'")
    return tenant
