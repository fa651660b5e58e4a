"""What a cluster asks about holds the loop no longer than what anybody sends, and its tenant pays for it (DOS-03, AD6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import orjson
import pytest

from access.requestlimits import TenantThrottle
from gateway.filters.authorization import throttle
from gateway.http.messages import Response
from gateway.process.fairexecutor import WAITING_MAX
from gateway.process.runtime import Runtime
from kube.authentication.identity import TENANT_EXTRA, Principal
from kube.quota.tenantquotas import NAME, TENANT_QUOTAS
from kube.requests.ratelimits import Limits
from kube.requests.requestinfo import parse, resolve
from kube.requests.tokenbuckets import TokenBucket
from kube.validation.listlimits import BOUNDS
from store.types import Create, Delete, Event, EventType, Key, PreconditionFailed
from tenants.clusters.objects import CLUSTER_LABEL, WORKSPACE_LABEL
from tests.gateway.loopturns import LoopTurns
from tests.gateway.overloading import JSON, REVIEW, Expensive, ask, corpus, pod, runtime
from tests.gateway.test_overload import STEPS
from tests.gateway.webhooks.test_admit import write

__all__ = ["runtime"]

CLUSTER: Final = "heavy-1"
ASKING: Final = Principal(
    name=f"tenantry:cluster:{CLUSTER}", uid=str(uuid4()), tenant=None, authenticator="cluster-webhooks"
)
HARD: Final = {"pods": "1M", "count/configmaps": "1M"}


@pytest.fixture
async def namespaces(runtime: Runtime) -> AsyncIterator[tuple[str, str]]:
    """Those of two tenants on one cluster."""
    made = []
    for tenant in (f"heavy-{uuid4().hex[:8]}" for _ in range(2)):
        labels = {CLUSTER_LABEL: CLUSTER, WORKSPACE_LABEL: str(uuid4())}
        namespace = {"metadata": {"name": tenant, "uid": tenant, "labels": labels}, "status": {"phase": "Active"}}
        quota = {
            "metadata": {"name": NAME},
            "spec": {"hard": HARD},
            "status": {"hard": HARD, "used": dict.fromkeys(HARD, "0")},
        }
        await runtime.store.commit(
            Create(Key("root", "", "tenants", "", tenant), {"metadata": {"name": tenant, "uid": tenant}}),
            Create(Key(f"root:{tenant}", "", "namespaces", "", tenant), namespace),
            Create(Key(f"root:{tenant}", *TENANT_QUOTAS, "", NAME), quota),
        )
        made.append(tenant)
    yield made[0], made[1]
    for tenant in made:
        space = f"root:{tenant}"
        for key in (
            Key(space, "", "namespaces", "", tenant),
            Key(space, *TENANT_QUOTAS, "", NAME),
            Key("root", "", "tenants", "", tenant),
        ):
            await gone(runtime, key)


async def gone(runtime: Runtime, key: Key) -> None:
    """Take it away, whoever else writes to it meanwhile."""
    while (stored := await runtime.store.get(key)) is not None:
        with suppress(PreconditionFailed):
            await runtime.store.commit(Delete(key, stored.revision, orjson.loads(stored.data)))


async def review(runtime: Runtime, namespace: str, body: dict[str, Any], **more: Any) -> Response:
    sent = orjson.dumps(write(namespace, body, **more))
    return await ask(
        runtime, Expensive("review", "POST", f"/webhooks/{CLUSTER}/admit?timeout=400s", JSON, sent), ASKING
    )


def said(answer: Response) -> dict[str, Any]:
    assert answer.status == 200, answer.body[:300]
    found: dict[str, Any] = orjson.loads(answer.body)["response"]
    return found


async def test_no_review_holds_the_loop(runtime: Runtime, namespaces: tuple[str, str]) -> None:
    """However expensive what somebody writes on a cluster, its review takes no more steps of a turn than small requests do."""
    small = said(await review(runtime, namespaces[0], pod("small")))
    assert small["allowed"], small
    turns, held = LoopTurns(), {}
    for asked in corpus(4_000):
        if asked.method != "POST" or asked.media != JSON or not asked.name.endswith(f"as {JSON}"):
            continue
        body = orjson.loads(asked.body)
        body["metadata"]["uid"] = str(uuid4())
        for old in (None, body):
            with turns.counting():
                answer = await review(runtime, namespaces[0], body, old=old)
            assert answer.status == 200, (asked.name, answer.body[:300])
            if turns.most > STEPS:
                held[asked.name] = turns.most
    assert not held
    assert runtime.heavy
    assert runtime.heavy.done


def _wide(containers: int) -> dict[str, Any]:
    return pod("wide", containers=[{"name": f"c{number}", "image": "i"} for number in range(containers)])


async def test_what_is_too_long_at_the_door_is_too_long_on_the_cluster(
    runtime: Runtime, namespaces: tuple[str, str]
) -> None:
    """What is there already may change, and go."""
    most = BOUNDS["containers"]
    fits, long = _wide(most), _wide(most + 1)
    assert said(await review(runtime, namespaces[0], fits))["allowed"]
    refused = said(await review(runtime, namespaces[0], long))
    assert (refused["allowed"], refused["status"]["code"], refused["status"]["reason"]) == (False, 422, "Invalid")
    assert "spec.containers" in refused["status"]["message"]
    assert said(await review(runtime, namespaces[0], long, old=long))["allowed"]
    assert said(await review(runtime, namespaces[0], long, operation="DELETE"))["allowed"]


async def test_a_heavy_review_is_its_tenants_work(runtime: Runtime, namespaces: tuple[str, str]) -> None:
    """AD6: whoever floods a cluster with what is heavy owes for it; nobody else does, and small reviews are free."""
    runtime.throttle = TenantThrottle(Limits(write=TokenBucket(0.001, 10), person_share=100), lambda *_: 0)
    own, neighbours = namespaces
    assert said(await review(runtime, own, _wide(450)))["allowed"]
    owed = await review(runtime, own, _wide(450))
    assert owed.status == 429, owed.body
    assert dict(owed.headers)[b"retry-after"]
    assert said(await review(runtime, own, pod("small")))["allowed"]
    assert said(await review(runtime, neighbours, _wide(450)))["allowed"]


def _owner_of(tenant: str) -> Principal:
    groups = ("tenantry:owner", "system:authenticated")
    return Principal(name="olga", groups=groups, tenant=tenant, authenticator="test")


async def test_no_cluster_has_a_tenant_wait_elsewhere(runtime: Runtime, namespaces: tuple[str, str]) -> None:
    """AD6, GW17: a cluster may ask about the tenant without end; what the tenant writes at the door is not refused for it."""
    runtime.throttle = TenantThrottle(Limits(write=TokenBucket(0.001, 10), person_share=100), lambda *_: 0)
    own, _ = namespaces
    assert said(await review(runtime, own, _wide(450)))["allowed"]
    assert (await review(runtime, own, _wide(450))).status == 429
    olga = _owner_of(own)
    for _ in range(10):
        info = resolve(parse("POST", b"/api/v1/namespaces/default/configmaps", b""), own)
        await throttle(runtime, olga, info)


async def test_reviews_that_wait_take_no_place_of_the_tenants(runtime: Runtime, namespaces: tuple[str, str]) -> None:
    """DOS-03, GW17: nor does the tenant's heavy request stand behind all that a cluster asks."""
    own, _ = namespaces
    waiting = [asyncio.create_task(review(runtime, own, _wide(450))) for _ in range(WAITING_MAX + 8)]
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert {each.result().status for each in done} == {429}, "as many wait as may"
        answer = await ask(runtime, Expensive("own", "POST", REVIEW, JSON, orjson.dumps([{}] * 4_000)), _owner_of(own))
        # What the process says of it.
        assert answer.status == 400, answer.body[:300]
        assert not all(each.done() for each in waiting)
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_question_takes_no_longer_the_more_namespaces_a_cluster_has(
    runtime: Runtime, namespaces: tuple[str, str]
) -> None:
    """DOS-03, GW17: whoever asks about a tenant that has nothing there, too."""
    spec = {
        "user": "tenantry:vera",
        "extra": {TENANT_EXTRA: ["nobody"]},
        "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "kube-system"},
    }
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    sent = Expensive("authorize", "POST", f"/webhooks/{CLUSTER}/authorize", JSON, orjson.dumps(body))
    turns, most = LoopTurns(), []
    for many in (1, 3_000):
        runtime.cluster_namespaces.on_events([_placed(f"n-{number}") for number in range(many)])
        await ask(runtime, sent, ASKING)
        with turns.counting():
            answer = await ask(runtime, sent, ASKING)
        assert answer.status == 200, answer.body[:300]
        assert orjson.loads(answer.body)["status"]["denied"]
        most.append(turns.most)
    assert most[1] < most[0] + 100


def _placed(name: str) -> Event:
    labels = {CLUSTER_LABEL: CLUSTER, WORKSPACE_LABEL: name}
    body = {"metadata": {"name": name, "uid": name, "labels": labels}, "status": {"phase": "Active"}}
    return Event(EventType.ADDED, Key(f"root:{name}", "", "namespaces", "", name), 1, orjson.dumps(body))
