"""Pages of other hosts, and what a browser lets them send in its user's name (CT-07)."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from gateway.http.messages import Request
from kube.requests.status import Forbidden

_UNASKED: Final = frozenset({"x509", "basic-file"})
"""What browsers show to a host whoever's page sends them there."""


def require_own_page(request: Request) -> None:
    """Raise ``Forbidden`` for a page of another host whose browser shows its user's certificate, or password.

    For what such a page may do unasked: read and write to a WebSocket, and send what changes something, whose answer it
    cannot read. Behind a proxy on the way (``kubectl proxy``) the browser itself says that the page is of the same host.
    """
    origin = request.headers.get(b"origin", b"")
    if not origin or request.headers.get(b"sec-fetch-site") == b"same-origin":
        return
    if request.principal.authenticator in _UNASKED and _host_of(origin) != request.headers.get(b"host"):
        raise Forbidden(
            "what a page of another host asks for needs a token: a browser shows a certificate or password to whatever any page opens"
        )


def _host_of(origin: bytes) -> bytes:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return b""
