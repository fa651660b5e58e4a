"""Whom the product speaks to when a tenant names the address: public addresses, whatever form they have (GW25)."""

from __future__ import annotations

import asyncio
import contextlib
from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from access.httpclient import HttpClient
from access.outsideaddresses import NotPublic, PublicResolver, is_allowed, require_allowed
from access.outsidebudget import Unreachable

OURS = [
    "127.0.0.1",
    "10.0.0.1",
    "172.16.9.9",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "192.0.2.1",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12:3456::1",
    "ff02::1",
    "2001:db8::1",
]
"""Of this host, of networks of somebody's own, of nobody."""


@pytest.mark.parametrize("address", OURS)
def test_what_is_not_public_is_spoken_to_by_nobody(address: str) -> None:
    assert not is_allowed(address)


@given(
    st.sampled_from([each for each in OURS if ":" not in each]), st.sampled_from(["::ffff:", "64:ff9b::", "::", "2002"])
)
def test_an_address_inside_of_another_is_looked_at(inner: str, outer: str) -> None:
    number = int(IPv4Address(inner))
    forms = {
        "2002": IPv6Address((0x2002 << 112) | (number << 80) | 1),
        "::": IPv6Address(number),
    }
    assert not is_allowed(str(forms.get(outer) or IPv6Address(f"{outer}{inner}")))


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_what_is_public_is_spoken_to(address: str) -> None:
    assert is_allowed(address)


@given(st.text(max_size=40))
def test_whatever_is_no_address_is_refused_without_breaking(text: str) -> None:
    assert is_allowed(text) in (True, False)


def test_an_operator_allows_a_network() -> None:
    networks = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert is_allowed("10.1.2.3", networks)
    assert is_allowed("::ffff:10.1.2.3", networks)
    assert is_allowed("fd00::1", networks)
    assert not is_allowed("127.0.0.1", networks)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]"])
def test_an_address_in_the_url_is_judged_too(host: str) -> None:
    with pytest.raises(NotPublic):
        require_allowed(f"https://{host}:8443/hook")
    require_allowed("https://hooks.example.org/x")


@given(st.one_of(st.text(max_size=40), st.from_regex(r"xn--[a-z0-9.-]{0,20}", fullmatch=True)))
@example("xn--a-.example")
@example("[::1]x")
def test_a_host_that_nobody_can_read_is_refused_without_breaking(host: str) -> None:
    with contextlib.suppress(NotPublic):
        require_allowed(f"https://{host}/")


@pytest.mark.parametrize("host", ["localhost", "127.1", "0x7f.1", "2130706433", "017700000001", "localhost."])
async def test_whatever_a_name_means_is_judged_where_the_connection_is_made(host: str) -> None:
    """Nothing is asked twice, so that no answer changes between the look and the connection."""
    served = []
    server = await asyncio.start_server(lambda *_: served.append(1), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(timeout=5, resolver=PublicResolver())
    try:
        with pytest.raises(Unreachable):
            await client.request("POST", f"https://{host}:{port}/", body=b"x")
    finally:
        await client.close()
        server.close()
    assert served == []
