"""What an operator opens of a cluster's own objects is in the spaces of the tenants there, to be read (GW20)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from tenants.models import Role
from tenants.services import cluster_change
from tests.gateway.placed.conftest import Door, said
from tests.hostilecluster import HostileCluster, hostile_cluster
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
GROUP = "boats.example.org"
METRICS = "v1beta1.metrics.k8s.io"
OPENED = (
    "priorityclasses.scheduling.k8s.io/opened",
    "runtimeclasses.node.k8s.io/opened",
    "gatewayclasses.gateway.networking.k8s.io",
)
PATHS = tuple(
    f"/apis/{group}/v1/{plural}" for plural, _, group in (line.partition("/")[0].partition(".") for line in OPENED)
)


def storage_class(name: str, **labels: str) -> str:
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "labels": labels},
        "provisioner": "example.org/disks",
    }
    return yaml.safe_dump(body)


def definition(plural: str, kind: str, scope: str = "Namespaced", group: str = GROUP) -> str:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"sails": {"type": "integer"}}}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [version]},
    }
    return yaml.safe_dump(body)


@pytest.fixture
def opened(door: Door) -> Callable[..., None]:
    """Opens lines of the cluster."""

    def change(*lines: str) -> None:
        cluster_change(actor=OPERATOR, name="kube-apiserver", opened="\n".join(lines))

    return change


def names_in(door: Door, path: str, role: Role = Role.VIEWER) -> list[str]:
    answer = door.person(role.value, role).get(path)
    return [item["metadata"]["name"] for item in answer.body.get("items", ())] if answer.status == 200 else []


def test_classes_are_opened_by_name_and_by_label(door: Door, opened: Callable[..., None]) -> None:
    """Seen by every member, changed by nobody, and gone with the opening."""
    owner = door.person("olga", Role.OWNER)
    for text in (storage_class("fast"), storage_class("slow", open="true"), storage_class("hidden")):
        door.cluster.kubectl("apply", "-f", "-", stdin=text)
    try:
        door.place(owner)
        opened("storageclasses.storage.k8s.io/fast", "storageclasses.storage.k8s.io?open=true")
        door.until(lambda: names_in(door, CLASSES) == ["fast", "slow"])
        shown = owner.get(f"{CLASSES}/fast").body
        assert (shown["provisioner"], shown["metadata"]["labels"]["tenantry.io/cluster"]) == (
            "example.org/disks",
            "kube-apiserver",
        )
        refused = owner.delete(f"{CLASSES}/fast")
        assert (refused.status, "opened to be read" in said(refused)) == (403, True)
        assert owner.patch(f"{CLASSES}/fast", {"metadata": {"labels": {"tenantry.io/cluster": None}}}).status == 403
        assert owner.get("/api/v1/nodes").status == 403
        opened("storageclasses.storage.k8s.io/slow")
        door.until(lambda: names_in(door, CLASSES) == ["slow"])
        opened()
        door.until(lambda: owner.get(CLASSES).body["items"] == [])
    finally:
        door.cluster.kubectl("delete", "storageclass", "fast", "slow", "hidden")


def test_classes_of_pods_and_gateways_are_opened_too(
    door: Door, opened: Callable[..., None], kubectl: Callable[..., str]
) -> None:
    """One kind that a cluster does not have keeps none of the others away; what is defined comes with its definition."""
    owner, viewer = door.person("olga", Role.OWNER), door.person("vi", Role.VIEWER)
    priority = {**the("scheduling.k8s.io", "PriorityClass"), "value": 7}
    runtime = {**the("node.k8s.io", "RuntimeClass"), "handler": "h"}
    gateways = yaml.safe_load(definition("gatewayclasses", "GatewayClass", "Cluster", "gateway.networking.k8s.io"))
    gateways["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, of a test"}
    gateway = {**the("gateway.networking.k8s.io", "GatewayClass"), "spec": {"sails": 1}}
    for body in (priority, runtime):
        door.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))
    try:
        door.place(owner)
        opened(*OPENED)
        door.until(lambda: [owner.get(path).status for path in PATHS] == [200, 200, 404])
        door.until(lambda: [names_in(door, path) for path in PATHS[:2]] == [["opened"], ["opened"]])
        assert owner.get(f"{PATHS[0]}/opened").body["value"] == 7
        assert "opened" in kubectl(viewer, "get", "priorityclasses,runtimeclasses")
        assert owner.post(PATHS[0], priority).status == 405
        assert owner.delete(f"{PATHS[1]}/opened").status == 405

        door.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(gateways))
        door.until(lambda: "created" in door.cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(gateway)))
        # Said anew, the openings are looked at at once.
        opened(*OPENED[:2])
        opened(*OPENED)
        door.until(lambda: names_in(door, PATHS[2]) == ["opened"])
        assert "sails" in kubectl(viewer, "explain", "gatewayclasses.spec")
        refused = owner.delete(f"{PATHS[2]}/opened")
        assert (refused.status, "opened to be read" in said(refused)) == (403, True)
        opened()
        door.until(lambda: [names_in(door, path) for path in PATHS] == [[], [], []])
    finally:
        door.cluster.kubectl("delete", "priorityclass,runtimeclass", "opened")
        door.cluster.kubectl("delete", "crd", "gatewayclasses.gateway.networking.k8s.io", "--ignore-not-found")


def test_what_pods_use_is_shown_where_the_cluster_measures_it(
    door: Door, opened: Callable[..., None], kubectl: Callable[..., str]
) -> None:
    """``kubectl top`` as on the cluster: by another server behind its aggregation layer, which may come and go."""
    owner = door.person("olga", Role.OWNER)
    with aggregated(door, "metrics.k8s.io", measured) as metrics:
        name = door.place(owner)
        door.cluster.kubectl("apply", "-f", "-", stdin=storage_class("seen"))
        try:
            assert "Metrics API not available" in kubectl(owner, "top", "pods", "-n", name, check=False)
            opened(f"apiservices.apiregistration.k8s.io/{METRICS}")
            door.until(lambda: owner.get("/apis/metrics.k8s.io/v1beta1").status == 200)
            for who in (owner, door.person("vi", Role.VIEWER)):
                assert kubectl(who, "top", "pods", "-n", name, "--no-headers").split() == ["web", "7m", "9Mi"]
                assert kubectl(who, "top", "pods", "-A", "--no-headers").split() == [name, "web", "7m", "9Mi"]
            assert "NotFound" in kubectl(owner, "top", "nodes", check=False)

            metrics.reply = lambda _method, _path: (503, {"kind": "Status", "status": "Failure", "code": 503})
            opened(f"apiservices.apiregistration.k8s.io/{METRICS}", "storageclasses.storage.k8s.io/seen")
            assert owner.get(f"/apis/metrics.k8s.io/v1beta1/namespaces/{name}/pods").status == 503
            # Who may list what is opened is the last that is written of a look.
            door.until(lambda: names_in(door, CLASSES) == ["seen"])
            assert owner.get("/apis/metrics.k8s.io/v1beta1").status == 200, "away is not gone"
            opened()
            door.until(lambda: owner.get("/apis/metrics.k8s.io/v1beta1").status == 404)
        finally:
            door.cluster.kubectl("delete", "storageclass/seen")


def test_no_cluster_gives_rights_to_what_is_a_spaces_own(door: Door, opened: Callable[..., None]) -> None:
    """It may say that it serves a kind that the tenant has defined: whoever could not read its objects still cannot."""
    owner, viewer = door.person("olga", Role.OWNER), door.person("vi", Role.VIEWER)
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert owner.post(crds, yaml.safe_load(definition("pods", "PodMetrics"))).status == 201
    own = f"/apis/{GROUP}/v1/pods"
    door.until(lambda: owner.get(own).status == 200)
    assert viewer.get(own).status == 403
    with aggregated(door, GROUP, lambda *asked: measured(*asked, group=GROUP)):
        door.cluster.kubectl("apply", "-f", "-", stdin=storage_class("seen"))
        try:
            door.place(owner)
            opened(f"apiservices.apiregistration.k8s.io/v1beta1.{GROUP}", "storageclasses.storage.k8s.io/seen")
            door.until(lambda: names_in(door, CLASSES) == ["seen"])
            assert viewer.get(f"/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.{GROUP}").status == 200
            assert viewer.get(own).status == 403
            opened()
            door.until(lambda: owner.get(CLASSES).body["items"] == [])
        finally:
            door.cluster.kubectl("delete", "storageclass/seen")


@contextmanager
def aggregated(door: Door, group: str, reply: Callable[..., Any]) -> Iterator[HostileCluster]:
    """A server that answers for a group behind the cluster's aggregation layer."""
    name = f"v1beta1.{group}"
    with hostile_cluster() as server:
        server.reply = reply
        port = int(server.url.rpartition(":")[2])
        service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        api = {
            "group": group,
            "version": "v1beta1",
            "service": {"name": "measuring", "namespace": "default", "port": port},
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        }
        try:
            for body in (
                {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "measuring"}, "spec": service},
                {**the("apiregistration.k8s.io", "APIService"), "metadata": {"name": name}, "spec": api},
            ):
                door.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))
            door.until(lambda: "True" in door.cluster.kubectl("get", "apiservice", name, "--no-headers"))
            yield server
        finally:
            door.cluster.kubectl("delete", "apiservice", name)
            door.cluster.kubectl("delete", "service/measuring")


def measured(_method: str, path: str, group: str = "metrics.k8s.io") -> tuple[int, Any]:
    """What metrics-server answers: its discovery, and one pod of each namespace."""
    if path.partition("?")[0] == f"/apis/{group}/v1beta1":
        pods = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
        nodes = {**pods, "name": "nodes", "namespaced": False, "kind": "NodeMetrics"}
        return 200, {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/v1beta1",
            "resources": [nodes, pods],
        }
    parts = path.partition("?")[0].split("/")
    if parts[:4] != ["", "apis", group, "v1beta1"] or len(parts) < 7:
        return 404, {"kind": "Status", "status": "Failure", "code": 404}
    pod = {
        "metadata": {"name": "web", "namespace": parts[5]},
        "timestamp": "2026-01-01T00:00:00Z",
        "window": "10s",
        "containers": [{"name": "c", "usage": {"cpu": "7m", "memory": "9Mi"}}],
    }
    return 200, {"kind": "PodMetricsList", "apiVersion": f"{group}/v1beta1", "metadata": {}, "items": [pod]}


def the(group: str, kind: str) -> dict[str, Any]:
    """The object of a kind that is opened."""
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "opened"}}


def test_an_opened_definition_is_an_api_of_the_space(
    new_door: Callable[[], Door], opened: Callable[..., None], door: Door, kubectl: Callable[..., str]
) -> None:
    """Discovery, explain and apply know it; its objects in a placed namespace are the cluster's. Who is not there has nothing."""
    owner, other = door.person("olga", Role.OWNER), new_door()
    door.cluster.kubectl("apply", "-f", "-", stdin=definition("yachts", "Yacht"))
    rules = {"apiGroups": [GROUP], "resources": ["yachts"], "verbs": ["*"]}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "yachts", "labels": {"tenantry.io/aggregate-to-edit": "true"}},
        "rules": [rules],
    }
    door.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(role))
    try:
        name = door.place(owner)
        opened(f"customresourcedefinitions.apiextensions.k8s.io/yachts.{GROUP}")
        door.until(lambda: owner.get(f"/apis/{GROUP}/v1").status == 200)
        assert "sails" in kubectl(owner, "explain", "yachts.spec")
        path = f"/apis/{GROUP}/v1/namespaces/{name}/yachts"
        yacht = {"apiVersion": f"{GROUP}/v1", "kind": "Yacht", "metadata": {"name": "y"}, "spec": {"sails": 2}}
        door.until(lambda: owner.post(path, yacht).status in (201, 409))
        assert "y" in door.cluster.kubectl("get", f"yachts.{GROUP}", "-n", name, "-o", "name")
        assert other.person("olga", Role.OWNER).get(f"/apis/{GROUP}/v1").status == 404
        opened()
        door.until(lambda: owner.get(f"/apis/{GROUP}/v1").status == 404)
    finally:
        door.cluster.kubectl("delete", "crd", f"yachts.{GROUP}")
        door.cluster.kubectl("delete", "clusterrole", "yachts")


def test_a_space_keeps_what_is_its_own_under_a_name(door: Door, opened: Callable[..., None]) -> None:
    owner = door.person("olga", Role.OWNER)
    own = {**yaml.safe_load(storage_class("fast")), "provisioner": "example.org/ours"}
    assert owner.post(CLASSES, own).status == 201
    forged = {**own, "metadata": {"name": "forged", "labels": {"tenantry.io/cluster": "kube-apiserver"}}}
    assert owner.post(CLASSES, forged).status == 403
    for name in ("fast", "slow"):
        door.cluster.kubectl("apply", "-f", "-", stdin=storage_class(name))
    try:
        door.place(owner)
        opened("storageclasses.storage.k8s.io")
        door.until(lambda: "slow" in names_in(door, CLASSES, Role.OWNER))
        assert owner.get(f"{CLASSES}/fast").body["provisioner"] == "example.org/ours"
    finally:
        door.cluster.kubectl("delete", "storageclass", "fast", "slow")


@pytest.mark.parametrize("line", ["nodes", "storageclasses", "secrets.", "storageclasses.storage.k8s.io/Fast", "x?y=z"])
def test_nothing_else_can_be_opened(door: Door, opened: Callable[..., None], line: str) -> None:
    from kube.requests.status import Invalid

    with pytest.raises(Invalid, match="opened"):
        opened(line)
