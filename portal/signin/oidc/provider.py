"""The configured provider: where it is, what it says, and which of its tokens are good (OpenID Connect Core)."""

from __future__ import annotations

import asyncio
import base64
import hmac
import threading
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote_plus, urlencode

from django.conf import settings
from django.urls import reverse

from access.authentication.base import Refused
from access.authentication.oidc import FRESH_SECONDS, OidcAuthenticator, OidcIssuer, discover, endpoint
from access.httpclient import HttpClient, verifying
from access.outsidebudget import Unreachable
from kube.authentication import idtokens
from kube.authentication.oidcclaims import ClaimRules

T = TypeVar("T")

LEEWAY_SECONDS: Final = 10.0
"""How far the provider's clock may be from ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """``OIDC_*`` of the settings that say who the provider is and who we are there."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    algorithms: tuple[str, ...]
    groups_claim: str
    ca_file: str


class Provider:
    """One provider, asked from any thread: its connections live in a loop of their own.

    Raises ``ValueError`` or ``OSError`` for a configuration that cannot be used.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.rules = ClaimRules(issuer=configuration.issuer, groups_claim=configuration.groups_claim)
        if len(configuration.issuer) > 255:
            raise ValueError("the issuer's URL is too long")
        issuer = OidcIssuer(
            rules=self.rules,
            audiences=(configuration.client_id,),
            algorithms=frozenset(configuration.algorithms),
            leeway=LEEWAY_SECONDS,
        )
        self._transport = HttpClient(tls=verifying(Path(configuration.ca_file) if configuration.ca_file else None))
        self._verifier = OidcAuthenticator(issuer, self._transport)
        self._description: tuple[float, Mapping[str, Any]] | None = None

    @property
    def issuer(self) -> str:
        """The URL of the provider, as its tokens say it."""
        return self._configuration.issuer

    def authorization_endpoint(self) -> str:
        """Where people sign in. Raises ``Unreachable``."""
        address = endpoint(self._describe(), "authorization_endpoint")
        if "?" in address:
            raise Unreachable("the authorization endpoint has a query")
        return address

    def end_session_endpoint(self) -> str:
        """Where people sign out (OpenID Connect RP-Initiated Logout); empty where there is none or it is away."""
        try:
            return endpoint(self._describe(), "end_session_endpoint")
        except Unreachable:
            return ""

    def tokens(self, fields: Mapping[str, str]) -> tuple[str, str]:
        """The ID token and the access token for an authorization code (RFC 6749, section 4.1.3).

        Raises ``Refused`` when the provider does not take the code, ``Unreachable`` without an answer.
        """
        description = self._describe()
        sent = {name: value for name, value in fields.items() if name != "client_secret"}
        headers: dict[str, str] = {}
        secret = self._configuration.client_secret
        if secret and "client_secret_basic" in description.get(
            "token_endpoint_auth_methods_supported", ["client_secret_basic"]
        ):
            pair = f"{quote_plus(self._configuration.client_id)}:{quote_plus(secret)}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        elif secret:
            sent["client_secret"] = secret
        address = endpoint(description, "token_endpoint")
        answer = _run(self._transport.request("POST", address, form=sent, headers=headers))
        if 400 <= answer.status < 500:
            raise Refused(f"the provider did not take the code ({answer.status})")
        if answer.status != 200:
            raise Unreachable(f"the provider answered with {answer.status}")
        body = answer.json()
        id_token, access_token = body.get("id_token"), body.get("access_token")
        if not isinstance(id_token, str):
            raise Refused("the provider gave no ID token")
        if not isinstance(access_token, str) or not access_token.isascii() or not access_token.isprintable():
            return id_token, ""
        return id_token, access_token

    def verify(self, token: str) -> Mapping[str, Any]:
        """The claims of a token for us. Raises ``Refused``."""
        claims = _run(self._verifier.verify(token, now=time.time()))
        if len(idtokens.audiences(claims)) > 1 and claims.get("azp") is None:
            raise Refused("a token for several audiences does not say to whom it was issued")
        return claims

    def verify_nonce(self, token: str, nonce: str) -> Mapping[str, Any]:
        """As ``verify``, for the token of the sign-in that was begun with ``nonce``."""
        claims = self.verify(token)
        said = claims.get("nonce")
        if not isinstance(said, str) or not hmac.compare_digest(said.encode(), nonce.encode()):
            raise Refused("the token is not of this sign-in")
        if reason := idtokens.issue_reason(claims, now=time.time(), leeway=0.0):
            raise Refused(reason)
        return claims

    def complete(self, claims: Mapping[str, Any], access_token: str) -> Mapping[str, Any]:
        """The claims, with what only the UserInfo endpoint says; the ID token's own always win.

        Raises ``Unreachable``, and ``Refused`` for an answer about somebody else (OpenID Connect Core, 5.3.2).
        """
        wanted = {"email", "email_verified", self._configuration.groups_claim}
        description = self._describe()
        if wanted <= set(claims) or not access_token or "userinfo_endpoint" not in description:
            return claims
        address = endpoint(description, "userinfo_endpoint")
        headers = {"Authorization": f"Bearer {access_token}"}
        answer = _run(self._transport.request("GET", address, headers=headers))
        if answer.status != 200:
            raise Unreachable(f"the provider answered with {answer.status}")
        told = answer.json()
        if told.get("sub") != claims.get("sub"):
            raise Refused("the provider told about somebody else")
        # An address and whether it is verified belong together: never one from here and one from there.
        if "email" in claims:
            told = {name: value for name, value in told.items() if name not in ("email", "email_verified")}
        return {**told, **claims}

    def close(self) -> None:
        """Close the connections to the provider."""
        _run(self._verifier.close())

    def _describe(self) -> Mapping[str, Any]:
        now = time.monotonic()
        if self._description is None or now - self._description[0] >= FRESH_SECONDS:
            self._description = now, _run(discover(self.issuer, self._transport))
        return self._description[1]


def provider_name() -> str:
    """What the provider is called on pages."""
    return settings.OIDC_PROVIDER_NAME or "single sign-on"


def way_in(target: str) -> dict[str, str] | None:
    """The provider's name, and the address that leads there and back to ``target``; ``None`` where none is configured."""
    if configured() is None:
        return None
    return {
        "name": provider_name(),
        "url": reverse("oidc_authentication_init") + "?" + urlencode({"next": target}),
    }


def configured() -> Provider | None:
    """The provider of the settings, the same one every time; ``None`` where none is configured."""
    if not settings.OIDC_OP_ISSUER:
        return None
    return _provider(
        Configuration(
            issuer=settings.OIDC_OP_ISSUER,
            client_id=settings.OIDC_RP_CLIENT_ID,
            client_secret=settings.OIDC_RP_CLIENT_SECRET,
            algorithms=tuple(settings.OIDC_RP_SIGN_ALGO.split(",")),
            groups_claim=settings.OIDC_GROUPS_CLAIM,
            ca_file=settings.OIDC_OP_CA_FILE,
        )
    )


@cache
def _provider(configuration: Configuration) -> Provider:
    return Provider(configuration)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="oidc", daemon=True).start()
    return loop


def _run(question: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(question, _loop()).result()
