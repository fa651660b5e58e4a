"""The identity inspector: who a pasted certificate, line or token would be on this server, and why."""

from __future__ import annotations

from collections.abc import Sequence

from access.authentication.build import oidc_issuers, usable
from access.authentication.options import AuthenticationOptions
from kube.authentication import inspection
from kube.authentication.authenticationconfig import JwtIssuer


class IdentityInspector:
    """Knows this server's rules. What is pasted is neither kept nor logged, and no one outside is asked.

    Making it reads the configured issuers, or raises ``UnusableOptions``.
    """

    def __init__(self, options: AuthenticationOptions, *, service_account_issuers: Sequence[str] = ()) -> None:
        with usable():
            self._issuers = tuple(JwtIssuer(issuer.rules, issuer.audiences, "") for issuer, _ in oidc_issuers(options))
        self._service_account_issuers = tuple(service_account_issuers)
        self._default_tenant = options.default_tenant

    def inspect(self, text: str, *, now: float) -> inspection.Inspection:
        """The identity, the rule that matched, and why the others did not, at ``now`` (Unix seconds)."""
        return inspection.inspect(
            text,
            now=now,
            issuers=self._issuers,
            service_account_issuers=self._service_account_issuers,
            default_tenant=self._default_tenant,
        )
