"""A process that hears of nothing learns of a revocation all the same, or refuses to decide."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.access.authorization.apiservers import Client, Server
from tests.access.authorization.databaseproxy import DatabaseProxy
from tests.access.authorization.test_revoking import PODS, RBAC, TEMP, binding, until

AHEAD = 7
"""By how many rounds one of two is first more often than the other, before anything is concluded."""


@pytest.fixture(scope="module")
def proxy(authorization_database: str) -> Iterator[DatabaseProxy]:
    proxy = DatabaseProxy(authorization_database)
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.fixture(scope="module")
def deaf(proxy: DatabaseProxy, servers: list[Server]) -> Iterator[Client]:
    """A third process, which reaches the database by the proxy."""
    server = Server(proxy.conninfo, servers[0].folder)
    try:
        server.wait()
        yield server.client()
    finally:
        server.stop()


def allows(client: Client) -> bool:
    return bool(client.review(TEMP, "root:acme", PODS)["allowed"])


def test_a_revocation_is_learned_without_notifications_and_sooner_with_them(
    world: Client, deaf: Client, servers: list[Server], proxy: DatabaseProxy
) -> None:
    """AZ2, AZ-32: the deaf process polls, and is the baseline of one that hears: that one is mostly first."""
    proxy.deaf, proxy.swallowed = True, 0
    hearing = servers[1].client()
    rounds = lead = 0
    while abs(lead) < AHEAD:
        rounds += 1
        world.ok("POST", f"{RBAC}/namespaces/team/rolebindings", binding(f"unheard-{rounds}"))
        until(lambda: allows(deaf), True)
        until(lambda: allows(hearing), True)
        world.ok("DELETE", f"{RBAC}/namespaces/team/rolebindings/unheard-{rounds}")
        while (late := allows(deaf)) and allows(hearing):
            pass
        lead += 1 if late else -1
        until(lambda: allows(deaf), False)
        until(lambda: allows(hearing), False)
    assert lead > 0, rounds
    assert proxy.swallowed >= 2 * rounds, "the notifications were really lost"
    proxy.deaf = False


def test_a_process_that_hears_nothing_of_the_database_refuses_tenants(
    world: Client, deaf: Client, proxy: DatabaseProxy
) -> None:
    """AZ2: what may have been revoked is refused, the operators' masters aside."""
    world.ok("POST", f"{RBAC}/namespaces/team/rolebindings", binding("silent"))
    until(lambda: allows(deaf), True)
    asks = "/clusters/root:acme/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": PODS},
    }
    proxy.cut = True
    try:
        while (status := deaf.request("POST", asks, review, who=TEMP)[0]) == 201:
            time.sleep(0.05)
        assert status == 503
    finally:
        proxy.cut = False
        world.ok("DELETE", f"{RBAC}/namespaces/team/rolebindings/silent")
    until(lambda: deaf.request("POST", asks, review, who=TEMP)[0] == 201, True)
    until(lambda: allows(deaf), False)
