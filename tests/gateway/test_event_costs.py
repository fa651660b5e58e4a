"""What follows of a write in the turns of everybody else does not grow with what its author has written before (DOS-03).

Every process applies every event where it answers requests: a copy of all that is there is seen by no count of calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import orjson
import pytest

from gateway.process.runtime import Runtime
from tests.effort import piece
from tests.gateway.definitions import definition
from tests.gateway.overloading import JSON, NAMESPACED, Expensive, ask, pod, runtime

__all__ = ["runtime"]

MANY: Final = 12
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
ANYBODY: Final = [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "g"}]
RULE: Final = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}


def _body(api: str, kind: str, number: int, **more: Any) -> dict[str, Any]:
    metadata = {"name": f"n{number}", **more.pop("metadata", {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **more}


def _binding(kind: str, number: int, subjects: list[dict[str, str]]) -> dict[str, Any]:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    return _body("rbac.authorization.k8s.io/v1", kind, number, roleRef=reference, subjects=subjects)


def _role(kind: str, number: int, rules: int, labels: int) -> dict[str, Any]:
    named = [{**RULE, "resourceNames": [f"{number}-{each}"]} for each in range(rules)]
    metadata = {"labels": {f"k{each}": "x" for each in range(labels)}}
    return _body("rbac.authorization.k8s.io/v1", kind, number, rules=named, metadata=metadata)


def _schema(number: int) -> dict[str, Any]:
    fields = {f"f{each}": {"type": "string", "maxLength": 9} for each in range(200)}
    return definition(f"Cost{number}", {"type": "object", "properties": fields})


WRITES: Final[dict[str, tuple[str, Callable[[int], dict[str, Any]]]]] = {
    "one subject again and again": (
        f"{RBAC}/namespaces/default/rolebindings",
        lambda n: _binding("RoleBinding", n, ANYBODY * 4_000),
    ),
    "many subjects": (
        f"{RBAC}/namespaces/default/rolebindings",
        lambda n: _binding("RoleBinding", n, [{**ANYBODY[0], "name": f"g{each}"} for each in range(4_000)]),
    ),
    "everywhere": (f"{RBAC}/clusterrolebindings", lambda n: _binding("ClusterRoleBinding", n, ANYBODY * 300)),
    "rules": (f"{RBAC}/namespaces/default/roles", lambda n: _role("Role", n, 1_500, 0)),
    "labels": (f"{RBAC}/clusterroles", lambda n: _role("ClusterRole", n, 1, 900)),
    "quotas": (
        f"{NAMESPACED}/resourcequotas",
        lambda n: _body("v1", "ResourceQuota", n, spec={"hard": {f"count/a{each}.b": "1" for each in range(200)}}),
    ),
    "limits": (
        f"{NAMESPACED}/limitranges",
        lambda n: _body(
            "v1",
            "LimitRange",
            n,
            spec={"limits": [{"type": "Container", "max": {f"a.b/{each}": "1" for each in range(200)}}]},
        ),
    ),
    "maps": (
        f"{NAMESPACED}/configmaps",
        lambda n: _body("v1", "ConfigMap", n, data={f"k{each}": "words" for each in range(5_000)}),
    ),
    "definitions": ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _schema),
    "namespaces": ("/api/v1/namespaces", lambda n: _body("v1", "Namespace", n)),
    "services": (
        f"{NAMESPACED}/services",
        lambda n: _body("v1", "Service", n, spec={"ports": [{"name": f"p{p}", "port": p} for p in range(1, 400)]}),
    ),
    "pods": (
        f"{NAMESPACED}/pods",
        lambda n: pod(f"n{n}", readinessGates=[{"conditionType": f"k{each}"} for each in range(300)]),
    ),
}


class _Turns:
    """The longest of the loop's turns, in seconds of its own thread."""

    def __init__(self) -> None:
        self.longest = 0.0

    @contextmanager
    def measuring(self) -> Iterator[None]:
        self.longest = 0.0
        plain = asyncio.events.Handle._run

        def run(handle: asyncio.Handle) -> None:
            begun = time.thread_time()
            plain(handle)
            self.longest = max(self.longest, time.thread_time() - begun)

        asyncio.events.Handle._run = run  # type: ignore[method-assign]
        try:
            yield
        finally:
            asyncio.events.Handle._run = plain  # type: ignore[method-assign]


@pytest.mark.parametrize("written", WRITES)
async def test_the_last_of_many_costs_what_the_first_did(runtime: Runtime, written: str) -> None:
    path, made = WRITES[written]
    small = Expensive("small", "GET", f"{NAMESPACED}/pods/none", JSON, b"")
    turns, spent = _Turns(), list[float]()
    # Names are nobody else's here.
    begins = 100 * list(WRITES).index(written)
    names = list[str]()
    try:
        for number in range(begins, begins + MANY):
            asked = Expensive(written, "POST", path, JSON, orjson.dumps(made(number)))
            with turns.measuring():
                answer = await ask(runtime, asked)
                assert answer.status == 201, answer.body[:1000]
                # Whoever asks next finds nothing of what was worked out before.
                assert (await ask(runtime, small)).status == 404
            names.append(orjson.loads(answer.body)["metadata"]["name"])
            spent.append(turns.longest)
    finally:
        # Others have the space as well.
        for name in names:
            gone = await ask(runtime, Expensive("gone", "DELETE", f"{path}/{name}", JSON, b""))
            assert gone.status in (200, 202), gone.body[:1000]
    first, last = min(spent[:3]), min(spent[-3:])
    assert last < 3 * first + piece(), spent
