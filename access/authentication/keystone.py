"""Bearer tokens of OpenStack Keystone (AN7): the user's domain is the tenant."""

from __future__ import annotations

from collections.abc import Callable

from access.authentication.base import Credentials, Refused
from access.authentication.keystoneclient import Domains, Keystone
from access.outsidebudget import Unreachable
from access.ttlcache import notify_while_cached
from kube.authentication.identity import AUTHENTICATED, Principal
from kube.authentication.serviceaccounttokens import may_be_of
from kube.authentication.userinfo import outside_name_reasons

CREDENTIAL_PREFIX = "KEYSTONE="
"""What a credential id begins with; the token's audit id follows, which Keystone's own log names too."""


class KeystoneAuthenticator:
    """Asks Keystone about the token, once in its client's TTL.

    The identity has no roles: they depend on what a request is about, and ``access.authorization.modes.keystone`` asks for
    them then (AN10). A domain that is no tenant's is refused. Tokens that ``own_issuers`` may have issued are
    never sent out (KEY-08).
    """

    name = "keystone"

    def __init__(self, keystone: Keystone, domains: Domains, *, own_issuers: frozenset[str] = frozenset()) -> None:
        self._keystone = keystone
        self._domains = domains
        self._own_issuers = own_issuers

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal | None:
        """The user of the token; ``None`` for tokens that Keystone does not know; ``Refused`` without a tenant."""
        token = credentials.bearer
        if token is None or may_be_of(token, self._own_issuers):
            return None
        try:
            known = await self._keystone.validate(token, now)
        except Unreachable as error:
            raise Refused(str(error)) from None
        if known is None:
            return None
        if reasons := outside_name_reasons(known.user):
            raise Refused(f"the user name {reasons[0]}")
        tenant = await self._domains.tenant_of(known.domain_id, known.domain)
        if tenant is None:
            raise Refused("the user's domain has no tenant")
        return Principal(
            name=known.user,
            uid=known.user_id,
            groups=(AUTHENTICATED,),
            extra=known.extra(),
            tenant=tenant,
            authenticator=self.name,
            credential_id=CREDENTIAL_PREFIX + known.audit_id,
            issued_at=known.issued,
            not_after=known.expires,
        )

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Let open watches ask again, so that they end soon after a token is revoked or a role taken away."""
        await notify_while_cached(self._keystone.ttl, on_change)

    async def close(self) -> None:
        """Give the connections back."""
        await self._keystone.close()
