"""A workspace on the product's own API server, with objects in it and a person of each role."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from django.test import Client

from store import synchronous
from store.types import Create, Key
from tenants.models import Phase, Role, Tenant, Tier, User, Workspace
from tenants.services import tenant_create, tiers_create_defaults, workspace_init
from tests import factories
from tests.clusters import TestCluster
from tests.tenants.conftest import OPERATOR, actor_of

RIGHT_TO_LEFT = "\u202e"
HOSTILE = f"<b data-forged onclick=a()>{RIGHT_TO_LEFT}\x1b[31mred\x1b[0m\x07{'x' * 9000}"
"""What a stranger writes where any text may stand."""


@dataclass
class Inhabited:
    """A tenant, its people by role, and its workspace."""

    tenant: Tenant
    people: dict[str, User]
    workspace: Workspace

    @property
    def space(self) -> str:
        return f"root:{self.tenant.name}"

    def browser(self, role: str = Role.EDITOR, **options: Any) -> Client:
        """Of the person of this role, signed in."""
        client = Client(**options)
        client.force_login(self.people[role])
        return client

    def url(self, path: str = "") -> str:
        return f"/workspaces/{self.workspace.pk}/contents/{path}"

    def put(self, *objects: tuple[str, str, dict[str, Any]]) -> None:
        """Objects of a group and resource as a controller would leave them, in one commit."""
        namespace = self.workspace.k8s_namespace
        commits = []
        for group, resource, body in objects:
            metadata = {
                "namespace": namespace,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": "2026-11-01T09:30:00Z",
                **body["metadata"],
            }
            key = Key(self.space, group, resource, namespace, metadata["name"])
            commits.append(Create(key, {**body, "metadata": metadata}))
        synchronous.commit(commits)


def inhabited(cluster: TestCluster, name: str) -> Inhabited:
    """A tenant with a workspace that is ready."""
    if not Tier.objects.exists():
        tiers_create_defaults()
    tenant = tenant_create(actor=OPERATOR, name=name)
    people = {role: factories.member(tenant, role, factories.user(f"{role}@{name}.test")) for role in Role.values}
    editor = people[Role.EDITOR]
    made = workspace_init(actor=actor_of(editor), user=editor, tier="basic", tenant=name, name="web")
    return Inhabited(tenant, people, cluster.settle(made, Phase.READY))


def pod(name: str, **metadata: Any) -> tuple[str, str, dict[str, Any]]:
    """A pod that runs, as a kubelet reports it."""
    return (
        "",
        "pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "web"}, **metadata},
            "spec": {"containers": [{"name": "app", "image": "registry.example/app:1"}], "nodeName": "node-1"},
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    {"name": "app", "ready": True, "restartCount": 3, "state": {"running": {}}, "image": "x"}
                ],
                "conditions": [{"type": "Ready", "status": "True", "message": metadata.get("told", "")}],
            },
        },
    )


def deployment(name: str, **annotations: str) -> tuple[str, str, dict[str, Any]]:
    """A deployment of two."""
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": "registry.example/app:1"}]},
    }
    return (
        "apps",
        "deployments",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "annotations": annotations, "managedFields": [{"manager": "kubectl"}]},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
            "status": {"replicas": 2, "readyReplicas": 1},
        },
    )


def secret(name: str, **data: str) -> tuple[str, str, dict[str, Any]]:
    """A Secret, with the annotation that kubectl apply leaves."""
    applied = {"kubectl.kubernetes.io/last-applied-configuration": f'{{"data":{data}}}'}
    body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data}
    return "", "secrets", {**body, "metadata": {"name": name, "annotations": applied}}
