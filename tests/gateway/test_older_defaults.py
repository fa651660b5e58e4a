"""Objects that were kept before a default existed: a write finds them with it, as kube-apiserver reads them (TS15)."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import orjson
import pytest

from kube.objects.defaults import fill_defaults
from store.engine import Engine
from store.types import Key, Update
from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server

Body = dict[str, Any]

_LABELS = {"a": "b"}
_CONTAINER = {
    "name": "c",
    "image": "i",
    "ports": [{"containerPort": 80}],
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    "livenessProbe": {"httpGet": {"port": 80}},
    "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
}
_POD: Body = {"containers": [_CONTAINER], "volumes": [{"name": "s", "secret": {"secretName": "s"}}]}
_TEMPLATE = {"metadata": {"labels": _LABELS}, "spec": _POD}
_ONCE = {"metadata": {"labels": _LABELS}, "spec": {**_POD, "restartPolicy": "Never"}}
_SELECTED = {"selector": {"matchLabels": _LABELS}, "template": _TEMPLATE}

KINDS: dict[str, tuple[str, str, Body]] = {
    "pods": ("v1", "Pod", _POD),
    "replicationcontrollers": ("v1", "ReplicationController", {"template": _TEMPLATE}),
    "services": ("v1", "Service", {"selector": _LABELS, "ports": [{"port": 80}]}),
    "persistentvolumeclaims": (
        "v1",
        "PersistentVolumeClaim",
        {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    ),
    "deployments": ("apps/v1", "Deployment", _SELECTED),
    "replicasets": ("apps/v1", "ReplicaSet", _SELECTED),
    "statefulsets": ("apps/v1", "StatefulSet", {**_SELECTED, "serviceName": "s"}),
    "jobs": ("batch/v1", "Job", {"template": _ONCE}),
    "cronjobs": ("batch/v1", "CronJob", {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": _ONCE}}}),
    "networkpolicies": ("networking.k8s.io/v1", "NetworkPolicy", {"podSelector": {}, "egress": [{}]}),
    "horizontalpodautoscalers": (
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}},
    ),
}


def without(kept: Any, sent: Any, defaulted: Any) -> Any:
    """What is kept, without whatever nobody sent and a default has made: as of a time that did not know any of them."""
    if isinstance(kept, dict) and isinstance(defaulted, dict):
        said = sent if isinstance(sent, dict) else {}
        return {
            name: without(value, said.get(name), defaulted.get(name))
            for name, value in kept.items()
            if name in said or name not in defaulted
        }
    if isinstance(kept, list) and isinstance(defaulted, list) and isinstance(sent, list) and len(kept) == len(sent):
        return [without(*each) for each in zip(kept, sent, defaulted, strict=True)]
    return kept


def told(body: Body) -> Body:
    """What an object says, but for who has written it when."""
    aside = {"resourceVersion", "managedFields", "labels"}
    return {**body, "metadata": {name: value for name, value in body["metadata"].items() if name not in aside}}


async def _age(server: Server, key: Key, sent: Body) -> Body:
    defaulted = deepcopy(sent)
    fill_defaults(defaulted)
    async with Engine(server.database) as store:
        stored = await store.get(key)
        assert stored is not None
        kept = orjson.loads(stored.data)
        older = {**kept, "spec": without(kept["spec"], sent["spec"], defaulted["spec"])}
        assert older != kept
        await store.commit(Update(key, stored.revision, older))
        return dict(older)


@pytest.fixture
def aged(server: Server, alice: Caller, acme: str, namespace: str, request: pytest.FixtureRequest) -> tuple[str, Body]:
    """The path of an object that was kept without any default, and what it would say with them."""
    plural = request.param
    version, kind, spec = KINDS[plural]
    group = version.rpartition("/")[0]
    path = f"/{'apis' if group else 'api'}/{version}/namespaces/{namespace}/{plural}"
    sent: Body = {"apiVersion": version, "kind": kind, "metadata": {"name": "old"}, "spec": spec}
    made = alice.post(path, sent)
    assert made.status == 201, made.body
    older = asyncio.run(_age(server, Key(f"root:{acme}", group, plural, namespace, "old"), sent))
    assert eventually(lambda: alice.get(f"{path}/old").body.get("spec") == older["spec"])
    return f"{path}/old", made.body


@pytest.mark.parametrize("aged", KINDS, indirect=True)
def test_a_change_of_something_else_is_none_of_the_defaults(alice: Caller, aged: tuple[str, Body]) -> None:
    """Nothing is immutable for it, nothing has another generation, and what is kept then has the defaults."""
    path, made = aged
    changed = alice.patch(path, {"metadata": {"labels": {"team": "x"}}})
    assert changed.status == 200, changed.body
    assert told(changed.body) == told(made)


@pytest.mark.parametrize("aged", KINDS, indirect=True)
def test_a_change_of_nothing_keeps_it_with_the_defaults_once(alice: Caller, aged: tuple[str, Body]) -> None:
    """As there: whoever writes everything again, for a new version of the product, has it in the newest form."""
    path, made = aged
    before = alice.get(path).body["metadata"]["resourceVersion"]
    first, second = (alice.patch(path, {"metadata": {"annotations": {}}}).body for _ in range(2))
    assert told(first) == told(made)
    assert before != first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]


@pytest.mark.parametrize("aged", ["pods"], indirect=True)
def test_an_amount_in_another_form_is_the_same_amount(alice: Caller, aged: tuple[str, Body]) -> None:
    path, made = aged
    same = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}}}]}}
    answer = alice.patch(path, same, "strategic-merge")
    assert (answer.status, answer.body.get("spec")) == (200, made["spec"]), answer.body
    more = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1001m"}}}]}}
    assert alice.patch(path, more, "strategic-merge").status == 422
