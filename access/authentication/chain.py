"""The authenticators in order: the first that succeeds decides (AN9)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from access.authentication.base import Authenticator, Credentials, Refused
from kube.authentication.identity import AUTHENTICATED, Principal, without_virtual_groups
from kube.requests.status import TooManyRequests, Unauthorized
from store.types import Unavailable

logger = logging.getLogger(__name__)


class AuthenticationChain:
    """Tries each authenticator; one that fails, or breaks, never stops the next."""

    def __init__(
        self,
        authenticators: Sequence[Authenticator],
        *,
        not_before: Callable[[str], float] = lambda _tenant: 0.0,
        default_tenant: str = "",
    ) -> None:
        """``not_before`` says from which moment on (Unix seconds) credentials of a tenant count.

        ``default_tenant`` is the tenant of users whom no authenticator gives one (TS7); empty: they belong to none.
        """
        self._authenticators = tuple(authenticators)
        self._not_before = not_before
        self._default_tenant = default_tenant or None

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal:
        """Who asks. ``authenticator`` in the result names who knew.

        Raises ``Unauthorized`` (401) when nobody knows, ``Unavailable`` when somebody who might know could not ask the
        database: clients throw away what is refused, and ``TooManyRequests`` (429) when nobody is asked for now.
        """
        refusals: list[str] = []
        silent: Unavailable | TooManyRequests | None = None
        for authenticator in self._authenticators:
            try:
                principal = await authenticator.authenticate(credentials, now=now)
            except Refused as refusal:
                refusals.append(f"{authenticator.name}: {refusal}")
            except (Unavailable, TooManyRequests) as error:
                silent = error
            except Exception:
                logger.exception("authenticator %s failed", authenticator.name)
                refusals.append(f"{authenticator.name}: failed")
            else:
                if principal is None:
                    continue
                principal = self._completed(principal)
                if self.counts(principal):
                    return principal
                refusals.append(
                    f"{authenticator.name}: the credential is from before its tenant was opened or got its name"
                )
        if silent is not None:
            raise silent
        if refusals:
            logger.info("unable to authenticate the request: %s", "; ".join(refusals))
        raise Unauthorized

    def _completed(self, principal: Principal) -> Principal:
        """Without groups that no authenticator gives, whatever one says, and no user without a tenant where there is a default.

        Strangers, and clusters that ask the webhooks, are no users: they are not in the group of all who are.
        """
        groups, tenant = without_virtual_groups(principal.groups), principal.tenant
        if tenant is None and AUTHENTICATED in groups:
            tenant = self._default_tenant
        if groups is principal.groups and tenant is principal.tenant:
            return principal
        return replace(principal, groups=groups, tenant=tenant)

    def counts(self, principal: Principal) -> bool:
        """Whether the credential was made out since the tenant was last opened, or given its name (TS1, P5).

        Those that do not say when they were made out count: their ends are in the hands of who keeps the list.
        """
        if principal.issued_at is None or principal.tenant is None or principal.is_system:
            return True
        return principal.issued_at >= self._not_before(principal.tenant)
