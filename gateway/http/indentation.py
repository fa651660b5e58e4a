"""JSON for people: over several lines for ``?pretty``, for ``Accept: …;pretty=1``, and for curl, Wget and browsers.

As kube-apiserver does it: a parameter ``pretty`` with a value decides, then what the client calls itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import orjson

from gateway.http.messages import JSON, Response

_TRUE: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_BY_PEOPLE: Final = (b"curl", b"Wget", b"Mozilla/5.0")
_ALWAYS: Final = ("/", "/version")
_NEVER: Final = ("/openapi/", "/.well-known/")


def is_wanted(path: str, query: Mapping[str, str], headers: Mapping[bytes, bytes]) -> bool:
    """Whether the answer to this request is to be read by people."""
    if path in _ALWAYS:
        return True
    if not query and b"accept" not in headers:
        # Most say nothing about it.
        return headers.get(b"user-agent", b"").startswith(_BY_PEOPLE) and not path.startswith(_NEVER)
    if path.startswith(_NEVER):
        return False
    asked = query.get("pretty")
    if b"pretty=1" in headers.get(b"accept", b""):
        return True
    return asked in _TRUE if asked else headers.get(b"user-agent", b"").startswith(_BY_PEOPLE)


def indented(response: Response) -> Response:
    """The response with its JSON over several lines; what is compressed already stays as it is."""
    packed = any(name == b"content-encoding" for name, _ in response.headers)
    if packed or not response.body or not response.media.startswith(JSON):
        return response
    return replace(response, body=orjson.dumps(orjson.loads(response.body), option=orjson.OPT_INDENT_2))
