"""Which addresses the product speaks to when somebody else names them: public ones, and those that an operator allows.

A name is looked up once, every address of the answer is judged, and the connection goes to what was judged: a name that
means something else a moment later leads nowhere else (GW25).
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

_NAT64: Final = ip_network("64:ff9b::/96")
_TUNNELS: Final = (ip_network("2002::/16"), ip_network("2001::/32"), ip_network("::/96"), ip_network("64:ff9b:1::/48"))
"""Addresses that carry another one in them; nobody serves anything there."""


class NotPublic(OSError):
    """The address is one of ours, or of nobody."""


def is_allowed(text: str, networks: Sequence[IPv4Network | IPv6Network] = ()) -> bool:
    """Whether an address may be spoken to: a public one, or one in ``networks``; what is no address may not."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    address = _carried(address)
    if any(address.version == network.version and address in network for network in networks):
        return True
    if any(address.version == network.version and address in network for network in _TUNNELS):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved and not address.is_unspecified


def _carried(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address in one that stands for it."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


class PublicResolver(AbstractResolver):
    """Looks names up, and refuses all of an answer in which one address is not allowed."""

    def __init__(self, networks: Sequence[IPv4Network | IPv6Network] = ()) -> None:
        self._networks = networks
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a name. Raises ``NotPublic``."""
        found = await self._resolver.resolve(host, port, family)
        if not found or not all(is_allowed(each["host"], self._networks) for each in found):
            raise NotPublic("the address is not public")
        return found

    async def close(self) -> None:
        """Give up what it holds."""
        await self._resolver.close()


def require_allowed(url: str, networks: Sequence[IPv4Network | IPv6Network] = ()) -> None:
    """``NotPublic`` for a URL whose host is an address, which no resolver sees, and one that is not allowed.

    And for one whose host is none: what one takes for a URL another cannot read.
    """
    try:
        host = URL(url, encoded=True).host or ""
    except ValueError:
        raise NotPublic("this is no address") from None
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return
    if not is_allowed(host, networks):
        raise NotPublic("the address is not public")
