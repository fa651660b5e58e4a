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


@pytest.fixture(scope="package")
def house(houses) -> House:
    return houses[0]
