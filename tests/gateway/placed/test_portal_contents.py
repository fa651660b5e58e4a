"""The portal's pages of a workspace whose objects live on a real cluster: the same as of a stored one (GW27, GW18)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from tenants.models import Cluster, Role, User, Workspace
from tests import factories
from tests.clusters import TestCluster
from tests.faultproxy import Fault
from tests.gateway.placed.conftest import Door
from tests.gateway.placed.holdingkubelet import NODE, pod_there
from tests.gateway.placed.test_policies import deployment
from tests.hostilecluster import HostileCluster, hostile_cluster
from tests.portal.inhabited import HOSTILE, RIGHT_TO_LEFT
from tests.portal.test_contents import seen, text_of
from tests.story.product import eventually

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


def browser_of(email: str) -> Client:
    browser = Client()
    browser.force_login(User.objects.get(email=email))
    return browser


def test_a_placed_workspace_is_looked_into_like_a_stored_one(
    door: Door, cluster_kube_apiserver: TestCluster, kubelet: HostileCluster, settings: Any
) -> None:
    settings.PORTAL_TOKEN_KEY_FILE = door.server.folder / "pki" / "portal-tokens.key"
    authority = (door.server.folder / "pki" / "ca.crt").read_text()
    factories.cluster("own", kind=Cluster.Kind.EMBEDDED, server=door.server.url, ca_data=authority, is_default=False)
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
