"""Addresses in one spelling, and what strangers are told apart by."""

from __future__ import annotations

import ipaddress
from typing import Final

IPV6_PREFIX: Final = 64
"""What one customer of a provider has at least: counting single addresses would be counting nothing."""


def address_of(text: str | None) -> str | None:
    """The canonical text of an IP address, or ``None`` for anything else."""
    try:
        address = ipaddress.ip_address((text or "").split("%", 1)[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(address)


def network_of(text: str | None) -> str:
    """What attempts are counted by: an IPv4 address, or the network that an IPv6 address is of; empty for anything else."""
    address = address_of(text)
    if address is None or ":" not in address:
        return address or ""
    return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))
