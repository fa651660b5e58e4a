"""Tokens that the portal issues to people for the API server: who, which credential, until when (D9).

They name a credential and give no right by themselves: what it is good for is looked up on every use. Issuer and
audiences are the same in every installation; what tells installations apart is the key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import jwt as pyjwt

from kube.authentication.serviceaccounttokens import (
    LIFETIME_MAX,
    InvalidToken,
    SigningKey,
    VerifyingKey,
    is_token,
)

ISSUER: Final = "https://tenantry.io/portal"
AUDIENCE: Final = "https://tenantry.io/apiserver"
"""Of tokens for the product's own API server; clusters that ask about them may take them as well."""
_REQUIRED: Final = ["iss", "aud", "sub", "jti", "iat", "exp"]


def cluster_audience(cluster: str) -> str:
    """Of tokens for one registered cluster, which asks about them: nobody else takes them, whoever shows them (GW17)."""
    return f"https://tenantry.io/clusters/{cluster}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalClaims:
    """What a verified token says. Times are Unix seconds; ``user`` is the person's ID, ``token_id`` the credential's."""

    token_id: str
    user: str
    issued_at: int
    expires_at: int
    audience: str = AUDIENCE

    def as_dict(self) -> dict[str, Any]:
        """The claim set."""
        return {
            "iss": ISSUER,
            "aud": self.audience,
            "sub": self.user,
            "jti": self.token_id,
            "iat": self.issued_at,
            "exp": self.expires_at,
        }


def sign(claims: PortalClaims, key: SigningKey) -> str:
    """The claims as a JWT, signed by the key."""
    return key.sign(claims.as_dict())


def verify(token: str, *, keys: Iterable[VerifyingKey], now: float, audience: str = AUDIENCE) -> PortalClaims:
    """The claims of a token for ``audience`` that one of the keys has signed. Raises ``InvalidToken``; there is no leeway."""
    if not is_token(token):
        raise InvalidToken("not a signed token")
    for key in keys:
        try:
            payload = pyjwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                audience=audience,
                issuer=ISSUER,
                options={"require": _REQUIRED, "strict_aud": True, "verify_exp": False, "verify_iat": False},
            )
        except pyjwt.InvalidSignatureError:
            continue
        except (pyjwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise InvalidToken("the claims cannot be read, or some are missing") from error
        issued_at, expires_at, token_id, user = (payload[name] for name in ("iat", "exp", "jti", "sub"))
        if type(issued_at) is not int or type(expires_at) is not int or not 0 < expires_at - issued_at <= LIFETIME_MAX:
            raise InvalidToken("the times do not agree")
        if not isinstance(token_id, str) or not isinstance(user, str):
            raise InvalidToken("the credential or the person is missing")
        if not now < expires_at:
            raise InvalidToken("the token is not valid now")
        return PortalClaims(token_id=token_id, user=user, issued_at=issued_at, expires_at=expires_at, audience=audience)
    raise InvalidToken("no key of ours has signed it")
