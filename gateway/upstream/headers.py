"""Which headers pass between a client and a cluster, in either direction (GW4).

Whatever says who somebody is, or belongs to one connection alone, ends here: a cluster hears of no credential but the
token that the request carries for it, and says nothing to browsers about the host that Tenantry is served from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gateway.http.messages import Headers

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

_HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

_NOT_SENT: Final = _HOP_BY_HOP | {
    b"audit-id",
    b"authorization",
    b"baggage",
    b"content-length",
    b"cookie",
    b"expect",
    b"forwarded",
    b"host",
    b"http2-settings",
    b"traceparent",
    b"tracestate",
    b"via",
    b"x-real-ip",
}
_IDENTITY: Final = (b"impersonate-", b"x-remote-", b"x-forwarded-")

_PASSED_ON: Final = frozenset(
    {
        b"allow",
        b"content-encoding",
        b"content-type",
        b"etag",
        b"last-modified",
        b"retry-after",
        b"sec-websocket-accept",
        b"sec-websocket-extensions",
        b"sec-websocket-protocol",
        b"sec-websocket-version",
        b"vary",
        b"warning",
        b"x-stream-protocol-version",
    }
)
"""What API servers tell clients. The others are nobody's list to keep: browsers, caches and the proxies in front of
Tenantry obey ever more of them, on behalf of the whole host."""

_OF_KUBERNETES: Final = b"x-kubernetes-"

_PROTOCOLS: Final = b"sec-websocket-protocol"
_BEARER: Final = b"base64url.bearer.authorization.k8s.io."
"""Kubernetes takes a bearer token from a WebSocket's subprotocols as well."""


class UnfitHeader(ValueError):
    """A header, or the target, holds bytes that another reader could take for the end of it."""


def outgoing(
    headers: Iterable[tuple[bytes, bytes]], *, host: bytes, token: str, audit_id: str, traceparent: str = ""
) -> Headers:
    """What a cluster is sent for a client's ``headers`` (names in lower case): the token, where there is one, and the audit ID are ours.

    So is the trace, where there is one: a tenant could have clusters keep whatever it likes.
    ``Content-Length`` and ``Upgrade`` are for whoever frames the message. Raises ``UnfitHeader``.
    """
    sent: list[tuple[bytes, bytes]] = [(b"host", host), (b"audit-id", audit_id.encode())]
    if token:
        sent.append((b"authorization", b"Bearer " + token.encode()))
    if traceparent:
        sent.append((b"traceparent", traceparent.encode()))
    pairs = tuple(headers)
    named = _named_by_connection(pairs)
    for name, value in pairs:
        # An underscore is a hyphen to some readers: X_Remote_User is nobody's business either.
        if name in _NOT_SENT or name in named or b"_" in name or name.startswith(_IDENTITY):
            continue
        if name != _PROTOCOLS:
            sent.append((name, value))
        elif kept := _without_bearer(value):
            sent.append((name, kept))
    require_fit(part for pair in sent for part in pair)
    return tuple(sent)


def incoming(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """What a client is shown of a cluster's ``headers`` (names in lower case); how long the body is, is told apart."""
    pairs = tuple(headers)
    named = _named_by_connection(pairs)
    return tuple(
        (name, value)
        for name, value in pairs
        if (name in _PASSED_ON or name.startswith(_OF_KUBERNETES)) and name not in named
    )


def require_fit(parts: Iterable[bytes]) -> None:
    """Raise ``UnfitHeader`` for control characters."""
    if _CONTROL.search(b"".join(parts)):
        raise UnfitHeader("a header or the target holds a control character")


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    """The headers that ``Connection`` says are for this connection alone (RFC 9110, 7.6.1)."""
    return frozenset(
        option.strip().lower() for name, value in headers if name == b"connection" for option in value.split(b",")
    )


def _without_bearer(protocols: bytes) -> bytes:
    offered = (protocol.strip() for protocol in protocols.split(b","))
    return b", ".join(protocol for protocol in offered if not protocol.lower().startswith(_BEARER))
