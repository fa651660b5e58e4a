"""Addresses in one spelling."""

from __future__ import annotations

import ipaddress


def address_of(text: str | None) -> str | None:
    """The canonical text of an IP address, or ``None`` for anything else."""
    try:
        address = ipaddress.ip_address((text or "").split("%", 1)[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(address)
