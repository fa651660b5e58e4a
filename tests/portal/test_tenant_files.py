"""One file for everything that a tenant has, by page and REST: what is in it, and what is told of the rest (D9, GW3)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from access.credentials import tenantfiles
from store import synchronous
from store.types import Create, Key
from tenants import actionlimits
from tenants.models import Cluster, Phase, Status, Tenant, User, Workspace
from tests import factories
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import bearer, send

WAYS = ["gateway", "exec"]


@pytest.fixture
def own(acme: House) -> Cluster:
    """The product's own API server, which offers both ways, with the tenant's first workspace."""
    made = factories.cluster("own", kind=Cluster.Kind.EMBEDDED, credential_kinds=WAYS, ca_data="")
    Workspace.objects.filter(pk=acme.workspace.pk).update(cluster=made)
    return made


@pytest.fixture(autouse=True)
def _key(settings: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PORTAL_TOKEN_KEY_FILE = tmp_path / "key.pem"
    made = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    settings.PORTAL_TOKEN_KEY_FILE.write_bytes(made)


def workspaces(of: Tenant, owner: User, names: Iterable[str], **fields: Any) -> dict[str, str]:
    """Their namespaces by their names."""
    return {name: factories.workspace(of, owner, name, **fields).k8s_namespace for name in names}


def namespaces(of: Tenant, *names: str) -> None:
    """As ``kubectl create namespace`` leaves them in the tenant's space."""
    bodies = [(name, {"name": name, "uid": str(uuid.uuid4())}) for name in names]
    kept = [(name, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}) for name, metadata in bodies]
    synchronous.commit([Create(Key(of.cluster_path, "", "namespaces", "", name), body) for name, body in kept])


def issued(who: User, way: str = "gateway", **more: Any) -> dict[str, Any]:
    answer = send(bearer(who), "POST", "tenants/acme/kubeconfig", {"via": way, **more})
    assert answer.status_code == 201, answer.content
    told: dict[str, Any] = answer.json()
    return told


def contexts(told: dict[str, Any]) -> dict[str, str]:
    """The namespaces of the file's contexts by what these are called, without what they all have in common."""
    file = yaml.safe_load(told["kubeconfig"])
    return {entry["name"].partition("@")[0]: entry["context"]["namespace"] for entry in file["contexts"]}


@pytest.mark.parametrize("way", WAYS)
def test_everything_that_a_tenant_has_is_in_the_file(acme: House, own: Cluster, way: str) -> None:
    """More workspaces than anybody looks through, and what was made with kubectl: by one credential, each once."""
    made = workspaces(acme.tenant, acme.editor, [f"w{number:03}" for number in range(104)], cluster=own)
    namespaces(
        acme.tenant,
        "default",
        "kube-system",
        "kube-public",
        "own",
        "w000",
        *made.values(),
        acme.workspace.k8s_namespace,
    )
    namespaces(factories.tenant("globex"), "theirs")
    told = issued(acme.editor, way, role="viewer")
    assert contexts(told) == {
        f"acme.viewer.{way}": "default",
        f"acme.acme-web.viewer.{way}": acme.workspace.k8s_namespace,
        **{f"acme.{name}.viewer.{way}": namespace for name, namespace in made.items()},
        f"acme.namespaces.own.viewer.{way}": "own",
        f"acme.namespaces.w000.viewer.{way}": "w000",
    }
    assert told["missing"] == []
    file = yaml.safe_load(told["kubeconfig"])
    (opens,) = file["users"]
    assert {entry["context"]["user"] for entry in file["contexts"]} == {opens["name"]} == {file["current-context"]}
    assert len(told["credentials"]) == (way == "gateway")


def test_what_is_not_in_the_file_is_named_with_its_reason(acme: House, own: Cluster) -> None:
    now = timezone.now()
    workspaces(acme.tenant, acme.editor, ["new"], cluster=own, phase=Phase.PROVISIONING, ready_at=None)
    closed = {"status": Status.SUSPENDED, "suspended_at": now, "suspended_reason": "mining"}
    workspaces(acme.tenant, acme.editor, ["shut"], cluster=own, phase=Phase.SUSPENDED, **closed)
    workspaces(acme.tenant, acme.editor, ["going"], cluster=own, status=Status.DELETED, phase=Phase.DELETING)
    workspaces(acme.tenant, acme.editor, ["gone"], cluster=own, status=Status.DELETED, phase=Phase.DELETED)
    namespaces(acme.tenant, *Workspace.objects.values_list("k8s_namespace", flat=True).exclude(name="gone"))
    told = issued(acme.viewer)
    named = {"going": "The workspace is closed.", "new": "The workspace is not ready yet."}
    named["shut"] = "The workspace is suspended: mining"
    assert {entry["workspace"]: entry["reason"] for entry in told["missing"]} == named
    assert set(contexts(told)) == {"acme.viewer.gateway", "acme.acme-web.viewer.gateway"}
    page = signed_in(acme.viewer).post("/tenants/acme/kubeconfig/", {"kind": "exec"})
    shown = page.content.decode()
    for name, reason in named.items():
        assert f"{name}: {reason}" in shown
    assert "Not in the file" in shown


def test_what_is_beyond_a_bound_is_named(acme: House, own: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a space, which reaches them all the same, and of workspaces that share nothing."""
    monkeypatch.setattr(tenantfiles, "_NAMESPACES", 2)
    namespaces(acme.tenant, "a", "b", "c", "d", acme.workspace.k8s_namespace)
    told = issued(acme.owner, "exec")
    assert {"a", "b"} <= set(contexts(told).values())
    assert not {"c", "d"} & set(contexts(told).values())
    ((place, why),) = [(entry["workspace"], entry["reason"]) for entry in told["missing"]]
    assert place is None
    assert "from c on" in why

    own.credential_kinds = ["gateway"]
    own.save()
    elsewhere = factories.cluster("elsewhere", credential_kinds=["exec"])
    Workspace.objects.filter(pk=acme.workspace.pk).update(cluster=elsewhere)
    names = ["acme-web", *(f"x{number:03}" for number in range(100))]
    workspaces(acme.tenant, acme.editor, names[1:], cluster=elsewhere)
    told = issued(acme.owner, "exec")
    assert set(contexts(told)) == {f"acme.{name}.exec" for name in names[:100]}
    left = {entry["workspace"]: entry["reason"] for entry in told["missing"]}
    assert set(left) == {"x099", None}
    assert "by itself" in left["x099"]
    assert "as a, has no context" in left[None]


def test_nothing_is_asked_for_each_that_shares_the_credential(
    acme: House, own: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actionlimits, "take", lambda *_: None)
    client = bearer(acme.owner)

    def questions() -> int:
        with CaptureQueriesContext(connection) as asked:
            send(client, "POST", "tenants/acme/kubeconfig", {})
        return len(asked)

    questions()
    before = questions()
    workspaces(acme.tenant, acme.editor, [f"w{number}" for number in range(20)], cluster=own)
    namespaces(acme.tenant, *(f"n{number}" for number in range(20)))
    assert questions() == before
