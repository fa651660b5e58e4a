"""The network of a cluster of one node: its own, with what kube-proxy and the cluster's name server do in any other.

Nothing of the machine's network is touched: whoever enters ``own_network`` has another one, and so has all that it starts.
NetworkPolicies bind nobody here, for these plugins of the network know of none.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.kubeapiserver import KubeApiserver
from tests.speaking import speaker_of

NODE = "10.231.76.1"
"""The node's own address, by which Pods reach its API server behind the Service ``kubernetes``."""

API_SERVER = "10.0.0.1"
RESOLVER = "10.0.0.10"
"""Of the addresses of Services (``tests.kubeapiserver``): the first is the API server's, one is the name server's."""

DOMAIN = "cluster.local"
_NEW_NETWORK = 0x40000000
_EVERY_SECONDS = 0.3
_TABLE = """
table ip services {
  map there { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service; }
  set itself { type ipv4_addr . ipv4_addr; }
  chain begin { type nat hook prerouting priority -100; dnat to ip daddr . meta l4proto . th dport map @there; }
  chain end { type nat hook postrouting priority 100; ip saddr . ip daddr @itself masquerade; }
}
"""
_A, _INTERNET, _ANSWERED, _NO_SUCH_NAME = 1, 1, 0x8580, 3


@contextmanager
def own_network() -> Iterator[None]:
    """A network of this thread and of whatever it starts meanwhile, with the addresses of a node and of its name server."""
    system = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    assert system.unshare(_NEW_NETWORK) == 0, os.strerror(ctypes.get_errno())
    try:
        for command in ("link set lo up", f"address add {NODE}/32 dev lo", f"address add {RESOLVER}/32 dev lo"):
            subprocess.run(["ip", *command.split()], check=True)
        yield
    finally:
        assert system.setns(before, _NEW_NETWORK) == 0, os.strerror(ctypes.get_errno())
        os.close(before)


class Services:
    """Leads the addresses of a server's Services to where they are served, and says their names.

    Of several Pods behind a Service the first that is ready is meant.
    """

    def __init__(self, server: KubeApiserver) -> None:
        self._api = speaker_of((server.folder / "admin.kubeconfig").read_text())
        self._names: dict[str, list[str]] = {}
        self._rules = ""
        self._over = threading.Event()
        self._asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._threads = [threading.Thread(target=each) for each in (self._lead, self._answer)]

    def __enter__(self) -> Services:
        _nft(_TABLE)
        self._asked.bind((RESOLVER, 53))
        self._asked.settimeout(_EVERY_SECONDS)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        ended = [thread.name for thread in self._threads if not thread.is_alive()]
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._asked.close()
        self._api.close()
        assert not ended, ended

    def _lead(self) -> None:
        while not self._over.wait(_EVERY_SECONDS):
            with suppress(OSError):
                self._look()

    def _look(self) -> None:
        slices = self._items("/apis/discovery.k8s.io/v1/endpointslices")
        names: dict[str, list[str]] = {}
        leading: dict[str, str] = {}
        for service in self._items("/api/v1/services"):
            metadata, spec = service["metadata"], service["spec"]
            address = spec["clusterIP"]
            served = [each for each in slices if _belongs(each, metadata)]
            ready = [ip for each in served for ip in _ready(each)]
            names[f"{metadata['name']}.{metadata['namespace']}.svc.{DOMAIN}"] = (
                ready if address == "None" else [address]
            )
            for port in spec.get("ports", ()) if address != "None" else ():
                for each in served:
                    behind = [
                        given["port"]
                        for given in each.get("ports") or ()
                        if given.get("name", "") == port.get("name", "")
                    ]
                    for there in _ready(each)[:1] if behind else ():
                        key = f"{address} . {port['protocol'].lower()} . {port['port']}"
                        leading.setdefault(key, f"{there} . {behind[0]}")
        self._names = names
        itself = {there.partition(" ")[0] for there in leading.values()}
        rules = "flush map ip services there\nflush set ip services itself\n"
        if leading:
            rules += f"add element ip services there {{ {', '.join(f'{a} : {b}' for a, b in leading.items())} }}\n"
            rules += f"add element ip services itself {{ {', '.join(f'{ip} . {ip}' for ip in sorted(itself))} }}\n"
        if rules != self._rules:
            _nft(rules)
            self._rules = rules

    def _items(self, path: str) -> list[dict[str, Any]]:
        answer = self._api.send("GET", path)
        return list(answer["items"]) if answer.status == 200 else []

    def _answer(self) -> None:
        while not self._over.is_set():
            with suppress(TimeoutError):
                query, sender = self._asked.recvfrom(512)
                self._asked.sendto(said_of(query, self._names), sender)


def said_of(query: bytes, names: dict[str, list[str]]) -> bytes:
    """The answer (RFC 1035) to a query for one name: its IPv4 addresses, and for what else is asked nothing."""
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("ascii"))
        at += 1 + length
    question = query[12 : at + 5]
    (kind,) = struct.unpack("!H", question[-4:-2])
    known = names.get(".".join(labels).lower())
    found = known or [] if kind == _A else []
    flags = _ANSWERED if known is not None else _ANSWERED | _NO_SUCH_NAME
    # 0xC00C: the name is the question's.
    records = [struct.pack("!HHHIH", 0xC00C, _A, _INTERNET, 1, 4) + socket.inet_aton(address) for address in found]
    return query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0) + question + b"".join(records)


def _belongs(slice_: dict[str, Any], service: dict[str, Any]) -> bool:
    metadata = slice_["metadata"]
    labelled = metadata.get("labels", {}).get("kubernetes.io/service-name")
    return (metadata["namespace"], labelled) == (service["namespace"], service["name"])


def _ready(slice_: dict[str, Any]) -> list[str]:
    endpoints = slice_.get("endpoints") or ()
    return [each["addresses"][0] for each in endpoints if each.get("conditions", {}).get("ready", True)]


def _nft(rules: str) -> None:
    done = subprocess.run(["nft", "-f", "-"], input=rules, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{rules}"


def namespaces_possible() -> bool:
    """Whether this machine lets us make networks, with addresses and rules in them."""
    tried = ["unshare", "--net", "sh", "-c", "ip link set lo up && exec nft -f -"]
    with suppress(OSError):
        return subprocess.run(tried, input=_TABLE, text=True, capture_output=True, check=False).returncode == 0
    return False
