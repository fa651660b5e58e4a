"""A process that hears of nothing learns of a revocation all the same, or refuses to decide."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from store.engine import Options
from store.follower import HEALTHY_SECONDS
from tests.access.authorization.apiservers import Client, Server
from tests.access.authorization.databaseproxy import DatabaseProxy
from tests.access.authorization.test_revoking import PODS, RBAC, TEMP, binding, until

ROUNDS = 3
POLL_SECONDS = Options().poll_seconds


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


def test_a_lost_notification_delays_a_revocation_no_longer_than_the_poll(
    world: Client, deaf: Client, proxy: DatabaseProxy
) -> None:
    """AZ2, AZ-32: the configured bound is ``poll_seconds``; the rest is the reading of the log."""
    proxy.deaf, proxy.swallowed = True, 0
    for number in range(ROUNDS):
        world.ok("POST", f"{RBAC}/namespaces/team/rolebindings", binding(f"unheard-{number}"))
        until(lambda: allows(deaf), True, POLL_SECONDS + 1)
        world.ok("DELETE", f"{RBAC}/namespaces/team/rolebindings/unheard-{number}")
        assert until(lambda: allows(deaf), False, POLL_SECONDS + 1) < POLL_SECONDS + 0.5
    assert proxy.swallowed >= 2 * ROUNDS, "the notifications were really lost"
    proxy.deaf = False


def test_a_process_that_hears_nothing_of_the_database_refuses_tenants(
    world: Client, deaf: Client, proxy: DatabaseProxy
) -> None:
    """AZ2: what may have been revoked is refused, the operators' masters aside."""
    world.ok("POST", f"{RBAC}/namespaces/team/rolebindings", binding("silent"))
    until(lambda: allows(deaf), True, 2)
    asks = "/clusters/root:acme/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": PODS},
    }
    proxy.cut = True
    begun = time.monotonic()
    try:
        while (status := deaf.request("POST", asks, review, who=TEMP)[0]) == 201:
            assert time.monotonic() - begun < HEALTHY_SECONDS + 1
            time.sleep(0.05)
        assert status == 503
    finally:
        proxy.cut = False
        world.ok("DELETE", f"{RBAC}/namespaces/team/rolebindings/silent")
    until(lambda: deaf.request("POST", asks, review, who=TEMP)[0] == 201, True, 10)
    until(lambda: allows(deaf), False, 2)
