"""The real kubectl against a tenant's space, validation on (TS6, TS15)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gateway.callers import Caller
from tests.gateway.conftest import Server

Kubectl = Callable[..., str]

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: nginx}]}
"""


@pytest.fixture(scope="module")
def kubectl(server: Server, alice: Caller, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    folder = tmp_path_factory.mktemp("kubectl")
    alice.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cli"}})
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority": str(alice.ca)}}],
        "users": [{"name": "u", "user": {"client-certificate": str(alice.certificate), "client-key": str(alice.key)}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "cli"}}],
        "current-context": "x",
    }
    (folder / "config").write_text(json.dumps(config))
    environment = {**os.environ, "KUBECONFIG": str(folder / "config"), "KUBECACHEDIR": str(folder / "cache")}

    def run(*words: str, given: str | None = None, fails: bool = False, **variables: str) -> str:
        done = subprocess.run(  # noqa: PLW1510  # noqa: PLW1510
            ["kubectl", *words],
            input=given,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            timeout=40,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_apply_diff_edit_and_replace(kubectl: Kubectl, tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(DEPLOYMENT)
    assert "created" in kubectl("apply", "-f", str(file))
    assert "unchanged" in kubectl("apply", "-f", str(file))
    file.write_text(DEPLOYMENT.replace("replicas: 1", "replicas: 2"))
    assert "+  replicas: 2" in kubectl("diff", "-f", str(file), fails=True)
    assert "configured" in kubectl("apply", "-f", str(file))
    assert "serverside-applied" in kubectl("apply", "--server-side", "--force-conflicts", "-f", str(file))
    assert "replaced" in kubectl("replace", "-f", str(file))
    assert "scaled" in kubectl("scale", "deployment/web", "--replicas=5")
    assert "edited" in kubectl("edit", "deployment/web", KUBE_EDITOR="sed -i 's/replicas: 5/replicas: 4/'")
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "4"
    assert "web    0/4" in kubectl("get", "deployments")
    assert "Replicas:               4 desired" in kubectl("describe", "deployment", "web")


def test_label_annotate_patch_wait_and_delete(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "notes", "--from-literal=a=1")
    assert "labeled" in kubectl("label", "configmap", "notes", "colour=red")
    assert "annotated" in kubectl("annotate", "configmap", "notes", "why=test")
    for kind, change in (("merge", '{"data":{"b":"2"}}'), ("json", '[{"op":"add","path":"/data/c","value":"3"}]')):
        assert "patched" in kubectl("patch", "configmap", "notes", f"--type={kind}", "-p", change)
    assert "notes" in kubectl("get", "configmaps", "-l", "colour=red", "--chunk-size=1")
    assert "condition met" in kubectl("wait", "configmap/notes", "--for=jsonpath={.data.c}=3", "--timeout=5s")
    assert "deleted" in kubectl("delete", "configmap", "notes", "--timeout=5s")
    assert "NotFound" in kubectl("get", "configmap", "notes", fails=True)


def test_everything_that_kubectl_can_generate_is_created(kubectl: Kubectl) -> None:
    for words in (
        "namespace cli-2",
        "configmap g --from-literal=a=b",
        "secret generic g --from-literal=a=b",
        "serviceaccount g",
        "role g --verb=get,list --resource=configmaps",
        "rolebinding g --role=g --serviceaccount=cli:g",
        "clusterrole g --verb=get --resource=pods --non-resource-url=/version",
        "clusterrolebinding g --clusterrole=g --group=devs",
        "quota g --hard=pods=50",
        "deployment g --image=nginx --replicas=2 --port=80",
        "job g --image=busybox",
        "service clusterip g --tcp=80:8080",
        "service nodeport h --tcp=80:http",
        "ingress g --rule=example.com/*=g:80",
        "poddisruptionbudget g --selector=app=g --min-available=50%",
    ):
        assert "created" in kubectl("create", *words.split())
    kubectl("create", "cronjob", "g", "--image=busybox", "--schedule=* * * * *")
    assert kubectl("get", "pdb", "g", "-o", "jsonpath={.spec.minAvailable}") == "50%"
    assert kubectl("get", "service", "h", "-o", "jsonpath={.spec.ports[0].targetPort}") == "http"
    assert kubectl("get", "secret", "g", "-o", "jsonpath={.data.a}") == "Yg=="
    assert len(kubectl("create", "token", "g", "--duration=2h").split(".")) == 3
    assert "created" in kubectl("run", "p", "--image=nginx")
    assert "g" in kubectl("get", "all")
    assert "deleted" in kubectl("delete", "namespace", "cli-2", "--timeout=15s")


def test_who_am_i_and_what_may_i(kubectl: Kubectl) -> None:
    assert "alice" in kubectl("auth", "whoami")
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    assert kubectl("auth", "can-i", "get", "nodes", fails=True).strip().startswith("Warning") or "no" in kubectl(
        "auth", "can-i", "get", "nodes", fails=True
    )
    assert "[*]" in kubectl("auth", "can-i", "--list")


def test_discovery_explain_and_events(kubectl: Kubectl) -> None:
    names = kubectl("api-resources", "-o", "name").split()
    assert "deployments.apps" in names
    assert "nodes" not in names
    assert "FIELD: replicas <integer>" in kubectl("explain", "deployment.spec.replicas")
    assert "apps/v1" in kubectl("api-versions").split()
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "cli"},
        "reason": "Tested",
        "message": "it works",
        "type": "Normal",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    kubectl("create", "-f", "-", given=json.dumps(event))
    assert "it works" in kubectl("events")
    assert "it works" in kubectl("get", "events")


def test_refusals_reach_the_user(kubectl: Kubectl) -> None:
    assert "cannot list resource" in kubectl("get", "nodes", fails=True) or "doesn't have" in kubectl(
        "get", "nodes", fails=True
    )
    bad = DEPLOYMENT.replace("replicas", "replicsa")
    assert 'unknown field "spec.replicsa"' in kubectl("apply", "-f", "-", given=bad, fails=True)
    logs = kubectl("logs", "p", fails=True)
    assert "runs no containers" in logs or "NotFound" in logs
