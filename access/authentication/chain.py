"""The authenticators in order: the first that succeeds decides (AN9)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from access.authentication.base import Authenticator, Credentials, Refused
from kube.authentication.identity import Principal, without_virtual_groups
from kube.requests.status import Unauthorized

logger = logging.getLogger(__name__)


class AuthenticationChain:
    """Tries each authenticator; one that fails, or breaks, never stops the next."""

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        self._authenticators = tuple(authenticators)

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal:
        """Who asks. Raises ``Unauthorized`` (401) when nobody knows; ``authenticator`` in the result names who knew."""
        refusals: list[str] = []
        for authenticator in self._authenticators:
            try:
                principal = await authenticator.authenticate(credentials, now=now)
            except Refused as refusal:
                refusals.append(f"{authenticator.name}: {refusal}")
            except Exception:
                logger.exception("authenticator %s failed", authenticator.name)
                refusals.append(f"{authenticator.name}: failed")
            else:
                if principal is not None:
                    return _as_brought(principal)
        if refusals:
            logger.info("unable to authenticate the request: %s", "; ".join(refusals))
        raise Unauthorized


def _as_brought(principal: Principal) -> Principal:
    """The principal without groups that no authenticator gives, whatever a file, a webhook or a certificate says."""
    groups = without_virtual_groups(principal.groups)
    return principal if groups is principal.groups else replace(principal, groups=groups)
