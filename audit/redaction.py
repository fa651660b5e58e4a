"""The one place that keeps secrets out of records (GW9): by key, and by the shape of the text.

What comes out is also what JSON in PostgreSQL gives back unchanged (no floats, no NUL, no lone surrogates), so that
hashes over it hold for ever; and it is bounded in size, depth and count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from kube.requests.visibletexts import visible

REDACTED: Final = "[redacted]"

_SECRET_KEY: Final = re.compile(
    r"(?i)(?:^|[-_.])(?:token|secret|password|passwd|passphrase|credentials?|authorization|cookie|api-?key|private-?key"
    r"|client-?key-?data|kubeconfig|session-?id|digest)s?$"
)
_SECRET_KEY_CAMEL: Final = re.compile(r"(?:Token|Secret|Password|Authorization|Cookie|ApiKey|PrivateKey|KeyData)s?$")

# JWTs, our own tokens, bearer and basic headers, PEM private keys, passwords in URLs. A JWT is looked for once in a run of
# its letters, and only where a dot follows: strangers choose the text, and the time that a search takes.
_SECRET_TEXT: Final = re.compile(
    r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]++\.[A-Za-z0-9_-]{8})"
    r"[A-Za-z0-9_-]*?ey[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"
    r"|tnt_[A-Za-z0-9]{16,}"
    r"|(?i:\b(?:bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
    r"|(?<=://)[^/\s:@]{1,256}:[^/\s@]{1,256}(?=@)"
    r"|(?<=/join/)[\w-]{20,256}|(?<=/reset/)[\w-]{20,256}"
    r"|(?i:(?<=[?&])(?:access_token|id_token|token|code|client_secret|password)=)[^&\s#]{1,4096}"
)

_LINK: Final = re.compile(r"(?<=/join/)[^/\s?]+|(?<=/reset/)[^/\s?]+")
"""The secrets of links whose address is the secret: an invitation, a new password."""

_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_LINES: Final = "\n\t"
"""What texts of several lines keep: a manifest, an explanation."""

MAX_TEXT: Final = 2048
MAX_DEPTH: Final = 6
MAX_ITEMS: Final = 64


def without_links(text: str) -> str:
    """A line of a log without the secrets of links."""
    return _LINK.sub(REDACTED, text)


def clean_text(text: str, limit: int = MAX_TEXT) -> str:
    """One line: ``text`` with token-shaped parts replaced and what is invisible written out, ``limit`` characters at most."""
    return _cleaned(text, limit)


def _cleaned(text: str, limit: int, keep: str = "") -> str:
    # Cut first, generously: what follows is linear, but the input need not be small.
    text = text[: limit + 8192]
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    # Secrets first: written out, what stands around them would be letters.
    return visible(_SECRET_TEXT.sub(REDACTED, text), keep)[:limit]


def clean(value: Any, *, depth: int = 0) -> Any:
    """A JSON value without secrets: strings, integers, booleans, null, lists and objects with string keys only."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)[:64]
    if isinstance(value, str):
        return _cleaned(value, MAX_TEXT, _LINES)
    if isinstance(value, float | UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if depth >= MAX_DEPTH:
        return "[too deep]"
    if isinstance(value, Mapping):
        cleaned = {}
        for key, item in list(value.items())[:MAX_ITEMS]:
            name = clean_text(str(key), 128)
            cleaned[name] = REDACTED if is_secret_key(name) and item not in (None, "") else clean(item, depth=depth + 1)
        return cleaned
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value) if isinstance(value, set | frozenset) else list(value)
        return [clean(item, depth=depth + 1) for item in items[:MAX_ITEMS]]
    return clean_text(str(value))


def clean_object(value: Any) -> Any:
    """An API object, or a change of one, whole but without secrets; JSON, of whatever size.

    Beside keys and the shape of texts, names of variables and paths of patches tell what a value is. What was applied
    last repeats the object as a text, and is left out.
    """
    if isinstance(value, str):
        return _SECRET_TEXT.sub(REDACTED, value)
    if isinstance(value, list):
        return [clean_object(item) for item in value]
    if not isinstance(value, dict):
        return value
    called = value.get("name") or value.get("path")
    secret = isinstance(called, str) and is_secret_key(called.rpartition("/")[2])
    return {
        key: REDACTED
        if isinstance(item, str) and item and (key == _APPLIED or is_secret_key(key) or (secret and key == "value"))
        else clean_object(item)
        for key, item in value.items()
    }


def is_secret_key(name: str) -> bool:
    """Whether a value under this key is a secret by its name (``token``, ``client-key-data``, ``accessToken``)."""
    return bool(_SECRET_KEY.search(name) or _SECRET_KEY_CAMEL.search(name))
