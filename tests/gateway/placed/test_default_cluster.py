"""Where a tenant's namespaces go that name no cluster (GW18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenants.models import Role, Tier, Workspace
from tenants.services import cluster_register, tiers_create_defaults
from tests.gateway.callers import config_map, eventually
from tests.gateway.conftest import Server
from tests.gateway.placed.conftest import STANDING_IN, Door, namespace, new_tenant, phase_of, said
from tests.hostilecluster import hostile_cluster
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_namespace_goes_where_its_tenant_has_them_unless_it_says_otherwise(
    new_standing_door: Callable[..., Door],
) -> None:
    """An order without a word of clusters, in the tenant's tier; an empty label is a stored one; another tenant's are stored."""
    door, others = new_standing_door(), new_standing_door()
    Tier.objects.update(workspaces_per_user=9)
    owner, name = door.person("olga", Role.OWNER), f"{door.name}-web"
    annotations = {"tenantry.io/default-cluster": STANDING_IN, "tenantry.io/default-tier": "standard"}
    tenant = f"/api/v1/tenants/{door.name}"
    # It is operators' to say.
    assert owner.patch(tenant, {"metadata": {"annotations": annotations}}).status == 403
    assert door.server.admin.patch(tenant, {"metadata": {"annotations": annotations}}).status == 200
    plain = {"metadata": {"name": name}}
    rehearsed = owner.post("/api/v1/namespaces", plain, dryRun="All")
    assert rehearsed.body["metadata"]["labels"]["tenantry.io/cluster"] == STANDING_IN
    assert owner.post("/api/v1/namespaces", plain).status == 201
    door.until(lambda: phase_of(owner, name) == "Active")
    workspace = Workspace.objects.get(k8s_namespace=name)
    assert (workspace.cluster.name, workspace.tier_id) == (STANDING_IN, "standard")
    assert owner.post(f"/api/v1/namespaces/{name}/configmaps", config_map("a")).status == 201
    assert "must begin with" in said(owner.post("/api/v1/namespaces", {"metadata": {"name": "web"}}))
    stored = namespace("stored", "")
    assert owner.post("/api/v1/namespaces", stored).status == 201
    assert phase_of(owner, "stored") == "Active"
    stranger = others.person("olga", Role.OWNER)
    assert stranger.post("/api/v1/namespaces", {"metadata": {"name": "plain"}}).status == 201
    assert Workspace.objects.count() == 1
    # A default that is no cluster any more is said, and nothing is kept elsewhere in its place.
    gone = {"metadata": {"annotations": {"tenantry.io/default-cluster": "gone"}}}
    assert door.server.admin.patch(tenant, gone).status == 200

    def refused() -> bool:
        answer = owner.post("/api/v1/namespaces", {"metadata": {"name": f"{door.name}-b"}})
        return (answer.status, "no cluster of this name" in said(answer)) == (422, True)

    assert eventually(refused)


def test_a_name_that_a_cluster_has_is_generated_anew(
    transactional_db: None, settings: Any, door_server: tuple[Server, str]
) -> None:
    """As the name of a stored one; whoever chose the name is told instead."""
    server, key = door_server
    settings.SEALING_KEYS = [key]
    tiers_create_defaults()
    asked: list[str] = []

    def reply(_method: str, path: str) -> tuple[int, Any]:
        name = path.partition("?")[0].rpartition("/")[2]
        if name.startswith(door.name) and name not in asked:
            asked.append(name)
        there = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": "theirs"}}
        return (200, there) if name in asked[:2] else (404, {"apiVersion": "v1", "kind": "Status"})

    with hostile_cluster() as crowded:
        cluster_register(actor=OPERATOR, name="crowded", kubeconfig=crowded.kubeconfig)
        door = new_tenant(server, None)
        crowded.reply = reply
        owner = door.person("olga", Role.OWNER)
        metadata = {"generateName": f"{door.name}-", "labels": {"tenantry.io/cluster": "crowded"}}
        made = owner.post("/api/v1/namespaces", {"metadata": metadata})
        assert made.status == 201, made.body
        assert made.body["metadata"]["name"] == asked[2]
        assert Workspace.objects.get().k8s_namespace == asked[2]
        chosen = {**metadata, "name": asked[0]}
        assert owner.post("/api/v1/namespaces", {"metadata": chosen}).reason == "AlreadyExists"
