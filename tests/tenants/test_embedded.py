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

from access.credentials import kubeconfig_issue
from access.models import Credential
from audit.selectors import chain_flaw
from kube.status import Conflict
from store import synchronous
from store.models import StoredObject
from store.types import Key
from tenants.deletion import tenants_end
from tenants.models import Membership, Operation, OperationState, Phase, Workspace
from tenants.services import tenant_delete, workspace_delete, workspace_init, workspace_resume, workspace_suspend
from tenants.worker import operations_run, workspace_reconcile
from tests.clusters import TestCluster
from tests.faultproxy import Fault
from tests.tenants.conftest import OPERATOR, actor_of, make_tenant, make_user
from tests.tenants.test_provisioning import STEPS
from tests.tenants.test_workers import POINTS, die_at

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("embedded")]


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
        return urllib.request.urlopen(request, context=context, timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code


def until(code: int, *arguments) -> None:
    end = time.monotonic() + 12
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
        issued = kubeconfig_issue(actor=actor_of(alice), workspace_id=workspace.id, now=timezone.now())
        return yaml.safe_load(issued.yaml)["users"][0]["user"]["token"]

    token = issue()
    inside, outside = f"/api/v1/namespaces/{ns}/configmaps", "/api/v1/namespaces/default/configmaps"
    assert status_of(embedded, token, inside) == 200
    assert status_of(embedded, token, outside) == 403
    assert Credential.objects.get().jti
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="mining")
    until(403, embedded, token, inside)
    with pytest.raises(Conflict):
        issue()
    workspace = embedded.settle(workspace, Phase.SUSPENDED)
    assert [layer["layer"] for layer in workspace.receipt] == ["lock", "bindings", "canary", "anchors", "service-accounts"]
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


def test_a_worker_killed_anywhere_loses_and_doubles_nothing(embedded, alice, settings):
    """PR-01, P7."""
    for point in POINTS:
        user = make_user(f"{point}@example.org")
        Membership.objects.create(tenant_id="acme", user=user, role="editor")
        workspace = workspace_init(actor=actor_of(user), user=user, tier="basic")
        embedded.proxy.heal()
        die_at(point, settings)
        if point != "finish.committed":
            assert operations_run() == 0, "the dead worker's lease still holds"
            Operation.objects.filter(state="running").update(lease_until=timezone.now(), not_before=timezone.now())
        workspace = embedded.settle(workspace, Phase.READY)
        written = [call for call in embedded.proxy.calls if call[0] == "POST" and call[2] == 201]
        assert len(written) == 9, point
        operation = workspace.operations.get()
        assert operation.state == OperationState.DONE
        assert [done["step"] for done in operation.steps_done] == STEPS, point
