"""What a cluster says of a write that is no such object: the tenant is told that it was the cluster (P9, D8)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from access.admission.tenancy.tenantpolicies import PolicyInForce
from gateway.handlers.placednamespaces import forwarding
from gateway.http.messages import Request
from gateway.upstream.admission import PlacedPolicies
from gateway.upstream.answers import HeldAnswers
from gateway.upstream.client import BadGateway
from gateway.upstream.placed.quota import PlacedQuota
from gateway.upstream.placements import Placement
from kube.authentication.identity import Principal
from kube.policies.policy import Policy
from kube.quota.quantities import Quantity
from kube.quota.tenantquotas import TenantQuota, UsageRule
from kube.requests.requestinfo import parse, resolve
from kube.requests.status import StatusError
from tests.gateway.upstream.asking import upstream_of
from tests.gateway.upstream.rawcluster import Visit, ok

WEB = Placement("w", "prod", "root:acme", "acme-web", "Active")
NAMES = ("pods", "requests.cpu", "services.nodeports", "requests.storage", "gpus", "count/ingresses.networking.k8s.io")
RULES = tuple(
    UsageRule(name="gpus", group="", plural=plural, path=("spec", "gpus"))
    for plural in ("pods", "services", "persistentvolumeclaims")
)
QUOTA = TenantQuota(tenant="acme", hard=dict.fromkeys(NAMES, Quantity(10**12)), rules=RULES)
POLICY = Policy(registries=("r.test",), hosts=("*.acme.test",), tolerations=("t",), required_labels=("team",))

PLACES = {
    "pods": "/api/v1/namespaces/acme-web/pods",
    "services": "/api/v1/namespaces/acme-web/services",
    "persistentvolumeclaims": "/api/v1/namespaces/acme-web/persistentvolumeclaims",
    "ingresses": "/apis/networking.k8s.io/v1/namespaces/acme-web/ingresses",
}
WHOLE: dict[str, dict[str, Any]] = {
    "pods": {
        "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}, "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "containers": [{"name": "c", "image": "r.test/i", "resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [{"name": "i", "restartPolicy": "Always"}],
            "overhead": {"cpu": "1"},
            "resources": {"requests": {"cpu": "1"}},
            "tolerations": [{"key": "t"}],
            "gpus": ["1"],
        },
        "status": {"phase": "Running", "containerStatuses": [{"allocatedResources": {"cpu": "1"}}]},
    },
    "services": {"metadata": {}, "spec": {"type": "NodePort", "ports": [{"port": 80}], "externalIPs": ["1.1.1.1"]}},
    "persistentvolumeclaims": {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "s"},
        "status": {"capacity": {"storage": "1Gi"}, "allocatedResources": {"storage": "1Gi"}},
    },
    "ingresses": {"metadata": {}, "spec": {"rules": [{"host": "a.acme.test"}], "tls": [{"hosts": ["a"]}]}},
}
GARBAGE: tuple[Any, ...] = (7, "x", True, [7], {"x": 7}, [[]], [None])


def garbled(whole: Any) -> list[Any]:
    """The object with garbage in place of each of its parts, one after the other."""
    if isinstance(whole, dict):
        parts = [{**whole, name: other} for name, part in whole.items() for other in garbled(part)]
    elif isinstance(whole, list):
        parts = [
            [*whole[:number], other, *whole[number + 1 :]]
            for number, part in enumerate(whole)
            for other in garbled(part)
        ]
    else:
        parts = []
    return [*parts, *GARBAGE]


class Liar:
    """A cluster that says whatever it likes to any write, and how writes are passed on to it."""

    def __init__(self) -> None:
        self.said: Any = None
        self.upstream: Any = None

    async def behave(self, visit: Visit) -> None:
        while True:
            await visit.request()
            await visit.say(ok(orjson.dumps(self.said)))

    async def written(self, method: str, plural: str, body: bytes) -> None:
        path = PLACES[plural] + ("/one" if method == "PATCH" else "")
        media = b"application/merge-patch+json" if method == "PATCH" else b"application/json"
        request = Request(
            principal=Principal(name="anna", tenant="acme", groups=(), authenticator="test"),
            info=resolve(parse(method, path.encode()), "acme"),
            query={},
            headers={b"content-type": media},
            raw_headers=((b"content-type", media),),
            body=body,
            now=time.time(),
        )
        runtime: Any = SimpleNamespace(
            clusters=SimpleNamespace(upstream=lambda _: self.upstream),
            workspace_tokens=SimpleNamespace(get=token),
            placed_admission=(PlacedPolicies(POLICIES), PlacedQuota(QUOTAS)),
            held_answers=HeldAnswers(),
        )
        answer: Any = await forwarding._write(runtime, request, WEB, "editor", nothing)
        answer.close()


async def token(*_: Any) -> str:
    return "workspace"


async def nothing(*_: Any) -> None:
    """Nobody has anything against it."""


async def policy(*_: Any) -> PolicyInForce:
    return PolicyInForce(POLICY, ())


async def quota(_: str) -> TenantQuota:
    return QUOTA


async def reserve(_place: Any, _request: str, demand: Any, *_: Any, **__: Any) -> bool:
    demand(QUOTA)
    return False


POLICIES: Any = SimpleNamespace(of=policy)
QUOTAS: Any = SimpleNamespace(quota=quota, reserve=reserve)


@pytest.fixture
async def liar() -> AsyncIterator[Liar]:
    liar = Liar()
    async with upstream_of(liar.behave) as (_, liar.upstream):
        yield liar


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_what_is_no_object_is_the_clusters_failure(liar: Liar, method: str) -> None:
    liar.said = {"metadata": {"name": "one", "resourceVersion": "1"}, "spec": 7}
    with pytest.raises(BadGateway, match='"prod" answers with something that is no pods'):
        await liar.written(method, "pods", b'{"metadata":{"name":"one","labels":{"team":"x"}}}')


@pytest.mark.parametrize("plural", PLACES)
@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_garbage_in_any_part_is_no_defect_of_ours(liar: Liar, method: str, plural: str) -> None:
    """Whatever it is: refused as the cluster's, or passed on to the cluster, whose object it is."""
    tried = 0
    for other in garbled(WHOLE[plural]):
        if isinstance(other, dict) and isinstance(other.get("metadata"), dict):
            metadata = {**other["metadata"], "name": "one", "resourceVersion": "1", "labels": {"team": "x"}}
            liar.said = {**other, "metadata": metadata}
            tried += 1
            with suppress(StatusError):
                await liar.written(method, plural, b'{"metadata":{"name":"one","labels":{"team":"x"}}}')
    assert tried > 20
