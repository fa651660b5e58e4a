"""IP addresses and networks, in kube-apiserver's words."""

from __future__ import annotations

import ipaddress
from typing import Final

from kube.requests.fielderrors import invalid
from kube.requests.status import Cause

_ADDRESS: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_NETWORK: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_SPECIAL: Final = (
    ("is_loopback", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
    ("is_link_local", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
)
_LOCAL_GROUPS: Final = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_address(text: str) -> Address | None:
    """The address, or ``None`` for what is none."""
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


def parse_network(text: str) -> Network | None:
    """The network that an address with a prefix length lies in, or ``None`` for what is none."""
    address, slash, length = text.partition("/")
    if not slash or not length.isascii() or not length.isdigit() or "%" in address:
        return None
    try:
        return ipaddress.ip_network((_without_padding(address), int(length)), strict=False)
    except ValueError:
        return None


def is_strictly_within(inner: Network, outer: Network) -> bool:
    """Whether a network is a part of another; an IPv4 network that is written as IPv6 lies in one that is not."""
    return inner.prefixlen > outer.prefixlen and _unmapped(inner).network_address in _unmapped(outer)


def _unmapped(network: Network) -> Network:
    first = network.network_address
    if isinstance(first, ipaddress.IPv4Address) or first.ipv4_mapped is None:
        return network
    return ipaddress.ip_network((first.ipv4_mapped, network.prefixlen - 96))


def is_address(text: str) -> bool:
    """Whether this is an IP address."""
    return parse_address(text) is not None


def _without_padding(text: str) -> str:
    """An IPv4 address without the leading zeros of its parts, which some read as octal."""
    parts = text.split(".")
    return ".".join(part.lstrip("0") or "0" if part.isdigit() else part for part in parts) if len(parts) == 4 else text


def _padded(text: str) -> bool:
    """Whether this would be an address but for leading zeros."""
    plain = _without_padding(text)
    return plain != text and is_address(plain)


def address_causes(text: str, path: str) -> list[Cause]:
    """What is wrong with an address."""
    found = parse_address(text)
    if found is None:
        return [invalid(path, text, "must not have leading 0s" if _padded(text) else _ADDRESS)]
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return [invalid(path, text, "must not be an IPv4-mapped IPv6 address")]
    return []


def canonical_causes(text: str, path: str) -> list[Cause]:
    """Why an IPv6 address is not written as it should be."""
    found = parse_address(text)
    if not isinstance(found, ipaddress.IPv6Address) or str(found) == text:
        return []
    return [invalid(path, text, f'must be in canonical form ("{found}")')]


def network_causes(text: str, path: str) -> list[Cause]:
    """What is wrong with a network, which is named by its first address and written without leading zeros."""
    found = parse_network(text)
    if found is None:
        return [invalid(path, text, _NETWORK)]
    address, _, length = text.partition("/")
    first = parse_address(address)
    if first is None or length != str(int(length)):
        return [invalid(path, text, "must not have leading 0s in IP or prefix length")]
    if isinstance(first, ipaddress.IPv6Address) and first.ipv4_mapped is not None:
        return [invalid(path, text, "must not have an IPv4-mapped IPv6 address")]
    if found.network_address != first:
        return [invalid(path, text, "must not have bits set beyond the prefix length")]
    return []


def special_causes(text: str, path: str) -> list[Cause]:
    """Why an address cannot be an endpoint's: it means another host everywhere."""
    found = parse_address(_without_padding(text))
    if found is None:
        return [invalid(path, text, "must be a valid IP address")]
    causes = [invalid(path, text, f"may not be unspecified ({text})")] if found.is_unspecified else []
    causes += [invalid(path, text, words) for test, words in _SPECIAL if getattr(found, test)]
    if any(found.version == group.version and found in group for group in _LOCAL_GROUPS):
        detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        causes.append(invalid(path, text, detail))
    return causes
