"""Two tenants' workspaces on a real cluster with the product's manifests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tenants.fences.bodies import House, made


@pytest.fixture(scope="package")
def houses(cluster_kube_apiserver) -> Iterator[tuple[House, House]]:
    server = cluster_kube_apiserver.real.admin
    found = made(server, "acme"), made(server, "globex", security="restricted")
    yield found
    for house in found:
        server.send("DELETE", f"/api/v1/namespaces/{house.name}")


OPENED: dict[str, list[str] | None] = {
    "node_names": ["node-1"],
    "node_labels": ["kubernetes.io/hostname=node-1", "node-role.kubernetes.io/gpu"],
    "affinity_namespaces": ["shared"],
    "tolerations": ["spot", "gpu=yes", "batch:NoSchedule", "old=1:NoExecute"],
}
"""Rules of a tier that open a part of what the fences are about."""


@pytest.fixture(scope="package")
def opened(cluster_kube_apiserver) -> Iterator[House]:
    """A workspace of such a tier."""
    server = cluster_kube_apiserver.real.admin
    found = made(server, "initech", **OPENED)
    yield found
    server.send("DELETE", f"/api/v1/namespaces/{found.name}")


@pytest.fixture(scope="package")
def boundless(cluster_kube_apiserver) -> Iterator[House]:
    """One of a tier that leaves all of it to its tenants."""
    server = cluster_kube_apiserver.real.admin
    found = made(server, "umbrella", **dict.fromkeys(OPENED))
    yield found
    server.send("DELETE", f"/api/v1/namespaces/{found.name}")


@pytest.fixture(scope="package")
def house(houses) -> House:
    return houses[0]
