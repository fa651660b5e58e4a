"""The whole life of a workspace on the product's own API server (GW1, GW3, GW5)."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request

import orjson
import pytest
import yaml
from django.utils import timezone

from access.credentials import credential_revoke, credentials_expire, kubeconfig_issue
from access.models import Credential
from audit.verifying import chain_flaw
from kube.requests.status import Conflict, ServiceUnavailable
from store import synchronous
from store.models import StoredObject
from store.types import Key
from tenants.models import Phase, Workspace
from tenants.reconciler.deletion import tenants_end
from tenants.reconciler.loop import workspace_reconcile
from tenants.services import tenant_delete, workspace_delete, workspace_init, workspace_resume, workspace_suspend
from tests.clusters import TestCluster
from tests.faultproxy import Fault
from tests.tenants.conftest import OPERATOR, actor_of, make_tenant, make_user

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alice(embedded, tiers):
    user = make_user()
    make_tenant("acme", user)
    return user


def init(alice) -> Workspace:
    return workspace_init(actor=actor_of(alice), user=alice, tier="basic", name="web")


def objects(space: str, resource: str, namespace: str) -> dict[str, dict]:
    rows = StoredObject.objects.filter(space=space, resource=resource, namespace=namespace).values_list("name", "data")
    return {name: orjson.loads(bytes(data)) for name, data in rows}


def status_of(cluster: TestCluster, token: str, path: str) -> int:
    context = ssl.create_default_context(cadata=cluster.proxy.ca.cert_pem.bytes().decode())
    request = urllib.request.Request(f"{cluster.proxy.url}{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        return urllib.request.urlopen(request, context=context, timeout=300).status
    except urllib.error.HTTPError as error:
        return error.code


def until(code: int, *arguments) -> None:
    """What the cluster comes to say; 503 is what it says while it takes in that the tests emptied its database."""
    end = time.monotonic() + 300
    while (found := status_of(*arguments)) != code:
        assert time.monotonic() < end, found
        time.sleep(0.1)


def test_a_workspace_lives_from_its_wish_to_its_end(embedded, alice):
    workspace = embedded.settle(init(alice), Phase.READY)
    ns = workspace.k8s_namespace
    assert set(objects("root:acme", "rolebindings", ns)) == {"tenantry-admin", "tenantry-edit", "tenantry-view"}
    assert objects("root:acme", "resourcequotas", ns)["tenantry-quota"]["spec"]["hard"] == workspace.tier.quota
    assert all(workspace.service_accounts.values())

    def issue() -> str:
        issued = kubeconfig_issue(actor=actor_of(alice), workspace_id=workspace.id, kind="direct", now=timezone.now())
        return yaml.safe_load(issued.yaml)["users"][0]["user"]["token"]

    token = issue()
    inside, outside = f"/api/v1/namespaces/{ns}/configmaps", "/api/v1/namespaces/default/configmaps"
    until(200, embedded, token, inside)
    until(403, embedded, token, outside)
    assert Credential.objects.get().jti
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="mining")
    until(403, embedded, token, inside)
    with pytest.raises(Conflict):
        issue()
    workspace = embedded.settle(workspace, Phase.SUSPENDED)
    assert [layer["layer"] for layer in workspace.receipt] == [
        "lock",
        "bindings",
        "canary",
        "service-accounts",
        "anchors",
        "streams",
        "own-accounts",
    ]
    assert objects("root:acme", "rolebindings", ns) == {}
    assert workspace_reconcile(workspace.id) == []
    workspace_resume(actor=OPERATOR, workspace_id=workspace.id)
    workspace = embedded.settle(workspace, Phase.READY)
    until(200, embedded, issue(), inside)
    until(401, embedded, token, inside)
    assert workspace_reconcile(workspace.id) == []
    workspace_delete(actor=OPERATOR, workspace_id=workspace.id)
    embedded.settle(workspace, Phase.DELETED)
    assert synchronous.get(Key("root:acme", "", "namespaces", "", ns)) is None
    assert chain_flaw("acme") is None
    tenant_delete(actor=OPERATOR, name="acme")
    assert tenants_end() == 1
    assert not StoredObject.objects.filter(space="root:acme").exists()


@pytest.mark.parametrize("action", ["drop-before", "drop-after", "429", "500", "503", "truncated", "html"])
def test_faults_delay_and_double_nothing(embedded, alice, action):
    workspace = init(alice)
    embedded.proxy.faults += [Fault(action, "POST", path) for path in ("namespaces", "rolebindings", "serviceaccounts")]
    workspace = embedded.settle(workspace, Phase.READY)
    assert len(objects("root:acme", "rolebindings", workspace.k8s_namespace)) == 3


@pytest.mark.parametrize(("action", "path"), [("drop-after", "token"), ("drop-after", "secrets"), ("500", "token")])
def test_a_failed_issue_leaves_nothing_behind(embedded, alice, action, path):
    workspace = embedded.settle(init(alice), Phase.READY)
    embedded.proxy.faults.append(Fault(action, "POST", path))
    with pytest.raises(ServiceUnavailable):
        kubeconfig_issue(actor=actor_of(alice), workspace_id=workspace.id, kind="direct", now=timezone.now())
    embedded.proxy.heal()
    credentials_expire(now=timezone.now())
    credential = Credential.objects.get()
    assert credential.failed_at is not None
    assert credential.revocation_confirmed_at is not None
    assert objects("root:acme", "secrets", workspace.k8s_namespace) == {}


def test_a_revoked_credential_and_a_viewers_rights(embedded, alice):
    workspace = embedded.settle(init(alice), Phase.READY)
    now = timezone.now()
    base = f"/api/v1/namespaces/{workspace.k8s_namespace}"
    issued = kubeconfig_issue(actor=actor_of(alice), workspace_id=workspace.id, role="viewer", kind="direct", now=now)
    token = yaml.safe_load(issued.yaml)["users"][0]["user"]["token"]
    until(200, embedded, token, f"{base}/configmaps")
    until(403, embedded, token, f"{base}/secrets")
    revoked = credential_revoke(actor=actor_of(alice), jti=issued.credential.jti, now=now)
    assert revoked.revocation_confirmed_at is not None
    until(401, embedded, token, f"{base}/configmaps")
