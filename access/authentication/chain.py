"""The authenticators in order: the first that succeeds decides (AN9)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from access.authentication.base import Authenticator, Credentials, Refused
from kube.authentication.identity import Principal, without_virtual_groups
from kube.requests.status import Unauthorized
from store.types import Unavailable

logger = logging.getLogger(__name__)


class AuthenticationChain:
    """Tries each authenticator; one that fails, or breaks, never stops the next."""

    def __init__(
        self, authenticators: Sequence[Authenticator], *, not_before: Callable[[str], float] = lambda _tenant: 0.0
    ) -> None:
        """``not_before`` says from which moment on (Unix seconds) credentials of a tenant count."""
        self._authenticators = tuple(authenticators)
        self._not_before = not_before

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal:
        """Who asks. ``authenticator`` in the result names who knew.

        Raises ``Unauthorized`` (401) when nobody knows, and ``Unavailable`` when somebody who might know could not ask the
        database: clients throw away what is refused.
        """
        refusals: list[str] = []
        silent: Unavailable | None = None
        for authenticator in self._authenticators:
            try:
                principal = await authenticator.authenticate(credentials, now=now)
            except Refused as refusal:
                refusals.append(f"{authenticator.name}: {refusal}")
            except Unavailable as error:
                silent = error
            except Exception:
                logger.exception("authenticator %s failed", authenticator.name)
                refusals.append(f"{authenticator.name}: failed")
            else:
                if principal is not None and self.counts(principal):
                    # Without groups that no authenticator gives, whatever a file, a webhook or a certificate says.
                    groups = without_virtual_groups(principal.groups)
                    return principal if groups is principal.groups else replace(principal, groups=groups)
                if principal is not None:
                    refusals.append(
                        f"{authenticator.name}: the credential is from before its tenant was opened or got its name"
                    )
        if silent is not None:
            raise silent
        if refusals:
            logger.info("unable to authenticate the request: %s", "; ".join(refusals))
        raise Unauthorized

    def counts(self, principal: Principal) -> bool:
        """Whether the credential was made out since the tenant was last opened, or given its name (TS1, P5).

        Those that do not say when they were made out count: their ends are in the hands of who keeps the list.
        """
        if principal.issued_at is None or principal.tenant is None or principal.is_system:
            return True
        return principal.issued_at >= self._not_before(principal.tenant)
