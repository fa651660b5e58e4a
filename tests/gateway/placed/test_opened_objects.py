"""What an operator opens of a cluster's own objects is in the spaces of the tenants there, to be read (GW20)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tenants.models import Role
from tenants.services import cluster_change
from tests.gateway.placed.conftest import Door, said
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
GROUP = "boats.example.org"


def storage_class(name: str, **labels: str) -> str:
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "labels": labels},
        "provisioner": "example.org/disks",
    }
    return yaml.safe_dump(body)


def definition(plural: str, kind: str, scope: str = "Namespaced") -> str:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"sails": {"type": "integer"}}}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": scope, "names": names, "versions": [version]},
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
