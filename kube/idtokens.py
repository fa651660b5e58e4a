"""JSON Web Tokens before and beside their signature (RFC 7515, RFC 7519): what they say, and whether it is time.

Nothing here is trusted: a signature is checked by whoever knows the issuer's keys.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

TOKEN_MAX: Final = 32 * 1024
"""Characters of a token: more than any issuer makes."""

KEY_ID_MAX: Final = 256
TIME_MAX: Final = 2**53
"""Seconds: what JSON can carry exactly."""

_SHAPE: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Unverified:
    """What a token says about itself."""

    header: Mapping[str, Any] = field(repr=False)
    claims: Mapping[str, Any] = field(repr=False)

    @property
    def issuer(self) -> str | None:
        """``iss``, when it is text."""
        issuer = self.claims.get("iss")
        return issuer if isinstance(issuer, str) else None


def look(token: str) -> Unverified | None:
    """What the token says, or ``None`` when it is no signed JWT in compact form. Takes time in its length alone."""
    if len(token) > TOKEN_MAX or not _SHAPE.fullmatch(token):
        return None
    header, claims, _ = (_object(part) for part in token.split("."))
    if header is None or claims is None:
        return None
    return Unverified(header, claims)


def time_reason(claims: Mapping[str, Any], *, now: float, leeway: float) -> str | None:
    """Why the token is not valid at ``now`` (Unix seconds), or ``None``. ``exp`` is required; all are integers."""
    times: dict[str, int] = {}
    for name in ("exp", "nbf", "iat"):
        value = claims.get(name)
        if value is None and name != "exp":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < TIME_MAX:
            return f"{name} is not a time in whole seconds"
        times[name] = value
    if now >= times["exp"] + leeway:
        return "the token has expired"
    if now < times.get("nbf", 0) - leeway:
        return "the token is not valid yet"
    if now < times.get("iat", 0) - leeway:
        return "the token was issued in the future"
    return None


def audiences(claims: Mapping[str, Any]) -> frozenset[str]:
    """``aud`` as a set; empty when it is missing or not text."""
    value = claims.get("aud")
    if isinstance(value, str):
        return frozenset({value})
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return frozenset(value)
    return frozenset()


def _object(part: str) -> dict[str, Any] | None:
    try:
        value = orjson.loads(base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, orjson.JSONDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
