"""What is applied at the door is answered, and kept, as on the cluster itself: the same twice changes nothing (GW4, AD5)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from kube.objects.managedfields import LAST_APPLIED
from tenants.models import Role
from tenants.services import tenant_policies_change
from tests.gateway.callers import Caller
from tests.gateway.placed.conftest import STANDING_IN, Door
from tests.gateway.placed.test_policies import deployment
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

POD = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "c",
            "image": "ghcr.io/a/b",
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "20m", "memory": "32Mi"}},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}
LABELLED = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
ONCE = {"spec": {**POD, "restartPolicy": "Never"}}
KINDS: dict[str, dict[str, Any]] = {
    "Deployment": {
        "apiVersion": "apps/v1",
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": LABELLED},
    },
    "Pod": {"apiVersion": "v1", "spec": POD},
    "Job": {"apiVersion": "batch/v1", "spec": {"suspend": True, "template": ONCE}},
    "CronJob": {
        "apiVersion": "batch/v1",
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": ONCE}}},
    },
}


def restricted(door: Door) -> tuple[Caller, str]:
    """An owner, and a namespace with a policy on images."""
    owner = door.person("olga", Role.OWNER)
    namespace = door.place(owner, on=STANDING_IN if door.real is None else "kube-apiserver")
    tenant_policies_change(actor=OPERATOR, name=door.name, policies={"registries": ["ghcr.io"]})
    return owner, namespace


def named(kind: str, name: str, **labels: str) -> dict[str, Any]:
    return {**KINDS[kind], "kind": kind, "metadata": {"name": name, "labels": {"app": name, **labels}}}


def owners(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Whose the annotation is."""
    return [
        (entry["manager"], entry["operation"])
        for entry in body["metadata"]["managedFields"]
        if f"f:{LAST_APPLIED}" in entry["fieldsV1"].get("f:metadata", {}).get("f:annotations", {})
    ]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_kubectl_goes_over_to_server_side_apply_as_straight_at_the_cluster(
    door: Door, kubectl: Callable[..., str], kind: str
) -> None:
    """Whose the fields are, what the annotation says and what ``kubectl diff`` finds are the same both ways."""
    owner, namespace = restricted(door)
    admin = door.cluster.kubectl

    def through(*arguments: str, stdin: str = "") -> str:
        return kubectl(owner, *arguments, stdin=stdin)

    plural = kind.lower() + "s"
    found: list[list[Any]] = []
    for called, run in (("door", through), ("real", admin)):
        text = orjson.dumps(named(kind, "web")).decode()
        changed = orjson.dumps(named(kind, "web", more="x")).decode()
        assert "created" in run("apply", "-n", namespace, "-f", "-", stdin=text), called
        states = []
        for applied in (text, text, text, changed, changed):
            assert "serverside-applied" in run("apply", "-n", namespace, "--server-side", "-f", "-", stdin=applied)
            get = ("get", plural, "web", "-n", namespace, "-o", "json", "--show-managed-fields")
            states.append(orjson.loads(door.cluster.kubectl(*get)))
        versions = [state["metadata"]["resourceVersion"] for state in states]
        assert versions[0] == versions[1] == versions[2] != versions[3] == versions[4], (called, versions)
        annotations = [state["metadata"]["annotations"][LAST_APPLIED] for state in states]
        assert run("diff", "-n", namespace, "--server-side", "-f", "-", stdin=changed) == "", called
        managers = [
            sorted(
                (entry["manager"], entry["operation"], orjson.dumps(entry["fieldsV1"], option=orjson.OPT_SORT_KEYS))
                for entry in state["metadata"]["managedFields"]
                if not entry.get("subresource")
            )
            for state in states
        ]
        found.append([annotations, managers, [owners(state) for state in states]])
        door.cluster.kubectl("delete", plural, "web", "-n", namespace, "--force", "--grace-period=0", "--wait")
    assert found[0] == found[1]
    assert not any("resourceVersion" in text or "uid" in text for text in found[0][0])


def test_what_is_applied_twice_changes_nothing_and_no_condition_is_kept(new_standing_door: Callable[[], Door]) -> None:
    """Whoever owns the annotation: an earlier client-side apply, or kubectl's own manager."""
    owner, namespace = restricted(new_standing_door())
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    for manager, operation in (("kubectl-client-side-apply", "Update"), ("kubectl-last-applied", "Apply")):
        body = deployment(f"by-{operation.lower()}", "ghcr.io/a/b")
        one = f"{path}/{body['metadata']['name']}"
        noted = {**body, "metadata": {**body["metadata"], "annotations": {LAST_APPLIED: "{}\n"}}}
        if operation == "Update":
            assert owner.post(path, noted, fieldManager=manager).status == 201
        else:
            assert owner.post(path, body, fieldManager="x").status == 201
            only = {name: noted[name] for name in ("apiVersion", "kind", "metadata")}
            assert owner.patch(one, only, "apply", fieldManager=manager).status == 200
        for replicas in (2, 3):
            metadata = {**body["metadata"], "namespace": namespace}
            wanted = {**body, "metadata": metadata, "spec": {**body["spec"], "replicas": replicas}}
            answers = [owner.patch(one, wanted, "apply", fieldManager="kubectl", force="true") for _ in range(3)]
            assert [answer.status for answer in answers] == [200] * 3, answers[0].body
            states = [answer.body["metadata"] for answer in answers]
            assert len({state["resourceVersion"] for state in states}) == 1, states
            assert len({state["generation"] for state in states}) == 1, states
            for answer in answers:
                assert orjson.loads(answer.body["metadata"]["annotations"][LAST_APPLIED]) == wanted
                assert answer.body["spec"]["replicas"] == replicas
                assert owners(answer.body) == [(manager, operation)]
            assert owner.get(one).body == answers[-1].body
            foreseen = owner.patch(one, wanted, "apply", fieldManager="kubectl", force="true", dryRun="All")
            assert foreseen.body == answers[-1].body


def test_patches_are_done_however_often_somebody_writes_the_status(door: Door) -> None:
    owner, namespace = restricted(door)
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    body = deployment("hot", "ghcr.io/a/b")
    assert owner.post(path, body).status == 201
    one, over, written = f"{path}/hot", threading.Event(), []
    labels = "/spec/template/metadata/labels"
    copied = [{"op": "copy", "from": f"{labels}/a", "path": f"{labels}/c"}]

    def write_statuses() -> None:
        while not over.wait(0.005):
            status = {"status": {"observedGeneration": len(written)}}
            written.append(
                door.cluster.real.admin.send("PATCH", f"{one}/status", status, "application/merge-patch+json").status
            )

    writer = threading.Thread(target=write_statuses)
    writer.start()
    try:
        answers = []
        for number in range(5):
            change = {"spec": {"replicas": number}}
            operation = [{"op": "replace", "path": "/spec/replicas", "value": number}]
            answers += [
                owner.patch(one, change),
                owner.patch(one, change, "strategic-merge"),
                owner.patch(one, operation, "json"),
                owner.patch(one, copied, "json"),
                owner.patch(
                    one, {**body, "spec": {**body["spec"], **change["spec"]}}, "apply", fieldManager="me", force="true"
                ),
                owner.put(one, body),
            ]
    finally:
        over.set()
        writer.join()
    assert set(written) == {200}
    assert [answer.status for answer in answers] == [200] * 30, [answer.body for answer in answers]
