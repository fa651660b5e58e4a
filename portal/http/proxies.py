"""Where a request comes from: what the socket says, or what a trusted proxy says (HDR-11).

Anybody can send the headers of proxies. They count only where the connection comes from an address in
``TRUSTED_PROXIES``, and only up to the first address from the right that is no trusted proxy itself: what stands
left of it was written by its client.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.http import HttpRequest

from audit.addresses import address_of

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_SAYING: Final = ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_X_REAL_IP", "HTTP_VIA")
SCHEME: Final = "HTTP_X_FORWARDED_PROTO"
"""Django's ``SECURE_PROXY_SSL_HEADER``: gone where it is not believed."""


def parse(texts: Sequence[str]) -> tuple[Network, ...]:
    """The networks of ``TRUSTED_PROXIES``; raises ``ValueError`` for what is neither address nor network."""
    networks = tuple(ipaddress.ip_network(text.strip()) for text in texts if text.strip())
    if any(network.prefixlen == 0 for network in networks):
        raise ValueError("a network of all addresses trusts everybody")
    return networks


def believe(request: HttpRequest, trusted: Sequence[Network]) -> None:
    """Set ``REMOTE_ADDR`` and the scheme to the sender's, as far as they are known for sure."""
    meta = request.META
    # A proxy speaks for strangers, also one that does not say so.
    by_proxy = _is_in(meta.get("REMOTE_ADDR"), trusted)
    request.came_directly = not by_proxy and not any(name in meta for name in _SAYING)  # type: ignore[attr-defined]
    if not by_proxy:
        meta.pop(SCHEME, None)
        return
    meta["REMOTE_ADDR"] = sender_of(meta, trusted)
    # The last word is the proxy's own.
    if SCHEME in meta:
        meta[SCHEME] = meta[SCHEME].rpartition(",")[2].strip()


def sender_of(meta: Mapping[str, Any], trusted: Sequence[Network]) -> str:
    """The address of whoever sends what came with this, as far as it is known for sure."""
    found = str(meta.get("REMOTE_ADDR", ""))
    if not _is_in(found, trusted):
        return found
    for hop in reversed(meta.get("HTTP_X_FORWARDED_FOR", "").split(",")):
        address = address_of(hop.strip())
        if address is None:
            break
        found = address
        if not _is_in(address, trusted):
            break
    return found


def _is_in(text: str | None, networks: Sequence[Network]) -> bool:
    canonical = address_of(text)
    if canonical is None:
        return False
    address = ipaddress.ip_address(canonical)
    return any(address.version == network.version and address in network for network in networks)
