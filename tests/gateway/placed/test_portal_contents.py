"""The portal's pages of a workspace whose objects live on a real cluster: the same as of a stored one (GW27, GW18)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from tenants.models import Cluster, Role, User, Workspace
from tenants.services import tenant_policies_change
from tests import factories
from tests.clusters import TestCluster
from tests.faultproxy import Fault
from tests.gateway.placed.conftest import Door
from tests.gateway.placed.holdingkubelet import NODE, pod_there
from tests.gateway.placed.test_policies import deployment
from tests.hostilecluster import HostileCluster, hostile_cluster
from tests.portal.inhabited import HOSTILE, RIGHT_TO_LEFT
from tests.portal.test_api import bearer
from tests.portal.test_contents import seen, text_of
from tests.story.product import eventually
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def door_kubeconfig(cluster_kube_apiserver: TestCluster) -> Iterator[str]:
    """Through the proxy, which can take the cluster away."""
    cluster_kube_apiserver.proxy.heal()
    yield cluster_kube_apiserver.gateway_kubeconfig
    cluster_kube_apiserver.proxy.heal()


@pytest.fixture
def kubelet(cluster_kube_apiserver: TestCluster) -> Iterator[HostileCluster]:
    """A node whose containers say what a test lets them say."""
    with hostile_cluster() as made:
        port = int(made.url.rpartition(":")[2])
        address = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"addresses": address, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "status": status}
        cluster_kube_apiserver.kubectl("create", "-f", "-", stdin=json.dumps(node))
        yield made
        cluster_kube_apiserver.kubectl("delete", "node", NODE)


@pytest.fixture
def own_apiserver(door: Door, settings: Any) -> None:
    """The portal knows the API server, and has its key for tokens."""
    settings.PORTAL_TOKEN_KEY_FILE = door.server.folder / "pki" / "portal-tokens.key"
    authority = (door.server.folder / "pki" / "ca.crt").read_text()
    factories.cluster("own", kind=Cluster.Kind.EMBEDDED, server=door.server.url, ca_data=authority, is_default=False)


def browser_of(email: str) -> Client:
    browser = Client()
    browser.force_login(User.objects.get(email=email))
    return browser


@pytest.mark.usefixtures("own_apiserver")
def test_a_placed_workspace_is_looked_into_like_a_stored_one(
    door: Door, cluster_kube_apiserver: TestCluster, kubelet: HostileCluster
) -> None:
    editor = door.person("ed", Role.EDITOR)
    door.person("vi", Role.VIEWER)
    namespace = door.place(door.person("olga", Role.OWNER))
    workspace = Workspace.objects.get(k8s_namespace=namespace)
    at = f"/workspaces/{workspace.pk}/contents/"
    made = editor.post(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment("web", "nginx"))
    assert made.status == 201, made.body
    browser, viewer = browser_of(f"ed@{door.name}.test"), browser_of(f"vi@{door.name}.test")

    assert "1 Deployments" in seen(browser, at)
    assert "web" in seen(browser, f"{at}deployments.apps/")
    shown = browser.get(f"{at}deployments.apps/web/").content.decode()
    assert "managedFields:" not in shown
    assert f"{at}deployments.apps/web/scale/" in shown
    looked = viewer.get(f"{at}deployments.apps/web/").content.decode()
    assert f"{at}deployments.apps/web/scale/" not in looked
    assert "forbidden" in seen(viewer, f"{at}secrets/", 403)
    uid = editor.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/web").body["metadata"]["uid"]
    other = browser.post(f"{at}deployments.apps/web/scale/", {"uid": workspace.pk, "replicas": "0"})
    assert "Precondition failed" in text_of(other)
    assert "forbidden" in text_of(viewer.post(f"{at}deployments.apps/web/scale/", {"uid": uid, "replicas": "0"}))
    assert browser.post(f"{at}deployments.apps/web/scale/", {"uid": uid, "replicas": "0"}).status_code == 302
    assert browser.post(f"{at}deployments.apps/web/restart/", {"uid": uid}).status_code == 302
    found = editor.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/web").body
    assert found["spec"]["replicas"] == 0
    assert "kubectl.kubernetes.io/restartedAt" in found["spec"]["template"]["metadata"]["annotations"]

    pod_there(cluster_kube_apiserver, namespace, "told")
    kubelet.reply = lambda _method, path: (200, f"of {path}\n{HOSTILE}\n".encode())
    log = browser.get(f"{at}pods/told/logs/?lines=100")
    assert log.status_code == 200, text_of(log)
    assert f"/containerLogs/{namespace}/told/c" in text_of(log)
    assert "tailLines=100" in text_of(log)
    assert not [letter for letter in (RIGHT_TO_LEFT, "\x1b") if letter in log.content.decode()]
    cluster_kube_apiserver.kubectl("delete", "pod", "told", "-n", namespace, "--force", "--grace-period=0")

    assert browser.post(f"{at}deployments.apps/web/delete/", {"uid": uid, "name": "web"}).status_code == 302
    gone = lambda: editor.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/web").status == 404  # noqa: E731
    assert eventually(gone)

    cluster_kube_apiserver.proxy.faults.append(Fault("drop-before", times=1000))
    away = browser.get(f"{at}configmaps/")
    assert away.status_code in {502, 503}, text_of(away)
    assert "kube-apiserver" in text_of(away), "which cluster it is"
    assert "operator sees" in text_of(away)


@pytest.mark.usefixtures("own_apiserver")
def test_a_change_of_what_a_cluster_has_is_explained_by_a_dry_run_at_the_door(door: Door) -> None:
    """AZ11: the tenant's policy, and the cluster itself; asked by whoever may read and write it, and nothing is kept."""
    owner, email = door.person("olga", Role.OWNER), f"olga@{door.name}.test"
    namespace = door.place(owner)
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    made = owner.post(path.removesuffix("/web"), deployment("web", "registry.example.org/web:1"))
    assert made.status == 201, made.body
    tenant_policies_change(actor=OPERATOR, name=door.name, policies={"registries": ["registry.example.org"]})
    operator = factories.user("root@platform.test", is_staff=True)

    def explained(client: Client, body: Any, method: str = "PATCH", *, at: str = path, **more: Any) -> tuple[str, str]:
        """The decision, and what its last step has said."""
        asked = {"user": {"name": email, "tenant": door.name}, "method": method, "path": at, "manifest": body}
        answer = client.post("/api/v1/access/explain", {**asked, **more}, content_type="application/json")
        assert answer.status_code == 200, answer.content
        step = answer.json()["trace"][-1]
        assert step["step"].partition("/")[0] == "admission"
        assert answer.json()["decision"] == ("deny" if step["decision"] == "deny" else "allow")
        return step["decision"], step["reason"]

    before, browser = owner.get(path).body, browser_of(email)
    elsewhere = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "elsewhere.example/x"}]}}}}
    place = "/spec/template/spec/containers/0/image"
    for client in (browser, browser_of(operator.email)):
        assert eventually(lambda client=client: explained(client, elsewhere)[0] == "deny")
        assert "by the policy of the tenant" in explained(client, elsewhere)[1]
        replaced = [{"op": "replace", "path": place, "value": "elsewhere.example/x"}]
        assert "by the policy of the tenant" in explained(client, replaced, patchType="json")[1]
        assert explained(client, {"metadata": {"labels": {"a": "b"}}}) == (
            "allow",
            "its cluster takes it, in a dry run as you would send it",
        )
        assert "must be greater than or equal to 0" in explained(client, {"spec": {"replicas": -1}})[1]
        assert explained(client, {**before, "metadata": {"name": "web", "labels": {"a": "b"}}}, "PUT")[0] == "allow"
        refused, why = explained(
            client, {"spec": {"selector": {"matchLabels": {"b": "c"}}}}, "PATCH", patchType="merge"
        )
        assert (refused, "field is immutable" in why) == ("deny", True)
        assert explained(client, {}, at=f"{path}2") == ("deny", 'deployments.apps "web2" not found')
    page = {"method": "PATCH", "path": path, "user": email, "tenant": door.name, "manifest": json.dumps(elsewhere)}
    link = f"/explain/?{urlencode(page)}"
    assert "by the policy of the tenant" in text_of(browser.get(link, headers={"Sec-Fetch-Site": "same-origin"}))
    assert "ask by the form" in text_of(browser.get(link)), "nothing is sent for a link that somebody was given"
    assert owner.get(path).body["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]

    program = bearer(User.objects.get(email=email))
    assert explained(program, elsewhere)[0] == "no opinion", "a token of the portal's API opens no other"
    auditor = browser_of(factories.user("auditor@platform.test", is_auditor=True).email)
    assert explained(auditor, elsewhere) == (
        "no opinion",
        "its cluster judges what is sent, and you may not send it yourself",
    )
    door.cluster.proxy.faults.append(Fault("drop-before", times=1000))
    assert explained(browser, elsewhere)[0] == "no opinion"
