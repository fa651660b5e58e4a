"""JSON Web Tokens before and beside their signature (RFC 7515, RFC 7519): what they say, and whether it is time.

Nothing here is trusted: a signature is checked by whoever knows the issuer's keys.
"""

from __future__ import annotations

import base64
import binascii
import json
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

_CLAIMS: Final = frozenset(
    {"iss", "sub", "aud", "exp", "iat", "nbf", "nonce", "at_hash", "_claim_names", "_claim_sources"}
)
"""What Kubernetes' verifier reads whatever the case of its letters."""

_SHAPE: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Unverified:
    """What a token says about itself."""

    header: Mapping[str, Any] = field(repr=False)
    claims: Mapping[str, Any] = field(repr=False)
    ambiguous: bool = False
    """Whether readers may differ: a header twice, a claim that another one is but for the case of its letters, or a header
    that some cannot read."""

    @property
    def issuer(self) -> str | None:
        """``iss``, when it is text."""
        issuer = self.claims.get("iss")
        return issuer if isinstance(issuer, str) else None


def parse_unverified(token: str) -> Unverified | None:
    """What the token says, or ``None`` when it is no signed JWT in compact form. Takes time in its length alone."""
    if len(token) > TOKEN_MAX or not _SHAPE.fullmatch(token):
        return None
    first, second, _ = token.split(".")
    header, claims = _object(first), _object(second)
    if header is None or claims is None:
        return None
    return Unverified(header, claims, ambiguous=_repeats(first) or _imitates(claims))


def time_reason(claims: Mapping[str, Any], *, now: float, leeway: float) -> str | None:
    """Why the token is not valid at ``now`` (Unix seconds), or ``None``. ``exp`` is required; all are integers.

    When a token was issued decides nothing, as for kube-apiserver; ``issue_reason`` is for fresh ones.
    """
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
    return None


def issue_reason(claims: Mapping[str, Any], *, now: float, leeway: float) -> str | None:
    """Why a token in time cannot have been issued just now, or ``None``."""
    return "the token was issued in the future" if now < (claims.get("iat") or 0) - leeway else None


def audiences(claims: Mapping[str, Any]) -> frozenset[str]:
    """``aud`` as a set; empty when it is missing or not text."""
    value = claims.get("aud")
    if isinstance(value, str):
        return frozenset({value})
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return frozenset(value)
    return frozenset()


def _imitates(claims: Mapping[str, Any]) -> bool:
    return any(name not in _CLAIMS and name.casefold() in _CLAIMS for name in claims)


def _repeats(part: str) -> bool:
    repeated = False

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        found = dict(members)
        repeated |= len(found) < len(members)
        return found

    try:
        json.loads(_decoded(part), object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        # What one reader takes and another one does not: nested too deeply, a number of too many digits.
        return True
    return repeated


def _decoded(part: str) -> bytes:
    return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)


def _object(part: str) -> dict[str, Any] | None:
    try:
        value = orjson.loads(_decoded(part))
    except (binascii.Error, orjson.JSONDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
