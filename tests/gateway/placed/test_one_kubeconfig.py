"""Two tenants, two clusters, a node: whatever runs wherever, each tenant works with one file (GW4, TS15).

``KUBECTLS`` names other versions of kubectl that it is to work with.

Each tenant has one stored namespace and four on clusters: two on one without a node, two on one with real containers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.test import Client

from audit.models import AuditEntry
from tenants.models import Recording, RecordingMode, User, Workspace
from tenants.services import tier_change
from tests import node
from tests.gateway.callers import eventually
from tests.gateway.placed.conftest import House
from tests.kubeapiserver import KUBECTLS
from tests.ports import free_port
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 240.0
"""Where a test gives up on containers, whatever the machine."""


def deployment(*command: str) -> str:
    labels = {"app": "web"}
    container = {"name": "c", "image": node.IMAGE, "imagePullPolicy": "Never", "command": list(command)}
    pod = {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0, "containers": [container]}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})


@contextlib.contextmanager
def lines_of(process: subprocess.Popen[str]) -> Iterator[list[str]]:
    """What it says, as it comes; ended afterwards."""
    said: list[str] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: said.extend(iter(process.stdout.readline, "")), daemon=True)  # type: ignore[union-attr]
    reader.start()
    try:
        yield said
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("program", KUBECTLS, ids=[Path(program).name for program in KUBECTLS])
def test_kubectl_serves_a_tenant_with_one_file(
    new_house: Callable[[], House], with_node: None, program: str, record_property: Callable[[str, object], None]
) -> None:
    ours, theirs = new_house(), new_house()
    ours.program = theirs.program = program
    shown, namespace = ours.kubectl, ours.running
    version = json.loads(shown("version", "--client", "-o", "json"))["clientVersion"]["gitVersion"]
    record_property("kubectl", version)
    print(f"played with kubectl {version}")
    for house in (ours, theirs):
        listed = house.kubectl("get", "ns", "-o", "name").split()
        # Every space has those that Kubernetes has.
        assert [name for name in listed if not name.startswith(("namespace/default", "namespace/kube-"))] == sorted(
            f"namespace/{name}" for name in house.names
        )
    at = ("-n", namespace)
    with lines_of(ours.start("get", "pods", "-A", "-w", "--no-headers")) as watched:
        counting = "for i in $(seq 1000000); do echo line $i; sleep 1; done"
        assert "created" in shown(*at, "apply", "-f", "-", stdin=deployment("sh", "-c", counting))
        # The cluster without a node takes it as well, and runs nothing.
        assert "created" in shown("-n", ours.names[1], "apply", "-f", "-", stdin=deployment("sleep", "9"))
        assert "successfully rolled out" in shown(*at, "rollout", "status", "deployment/web", "--timeout=240s")
        shown(*at, "wait", "--for=condition=Available", "deployment/web", "--timeout=240s")
        pod = shown(*at, "get", "pods", "-o", "jsonpath={.items[0].metadata.name}")
        assert eventually(lambda: any(line.split()[:4] == [namespace, pod, "1/1", "Running"] for line in watched))
    listed = {
        line.split()[0]: line.split()[3]
        for line in shown("get", "deploy,pods", "-A", "--no-headers").splitlines()
        if "pod/" in line
    }
    assert listed == {namespace: "Running"}
    assert shown("get", "deploy", "-A", "--no-headers", "-o", "custom-columns=N:.metadata.namespace").split() == [
        ours.names[1],
        namespace,
    ]
    with lines_of(ours.start(*at, "logs", "-f", pod)) as log:
        assert eventually(lambda: len(log) > 2)
        assert log[:2] == ["line 1\n", "line 2\n"]
    recorded(ours, lambda: terminal(ours, *at, "exec", "-it", pod, "--", "sh"))
    content = os.urandom(300_000)
    (ours.file.parent / "there").write_bytes(content)
    shown(*at, "cp", "there", f"{pod}:/tmp/file")
    shown(*at, "cp", f"{pod}:/tmp/file", "back")
    assert (ours.file.parent / "back").read_bytes() == content
    forwarded(ours, at, pod)
    shown(
        *at,
        "debug",
        pod,
        "-q",
        f"--image={node.IMAGE}",
        "--image-pull-policy=Never",
        "--container=look",
        # Since 1.36 kubectl would ask for a capability that the namespace's Pod Security Standard refuses.
        "--profile=baseline",
        "--",
        "echo",
        "seen",
    )
    # Until it has begun there is no log of it.
    assert eventually(lambda: ours.start(*at, "logs", pod, "-c", "look").communicate("")[0] == "seen\n", PATIENCE)
    rights = shown(*at, "auth", "can-i", "--list")
    assert {line.split()[0] for line in rights.splitlines() if line} >= {"deployments.apps", "pods/exec"}, rights
    assert "no" in shown(*at, "auth", "can-i", "delete", "nodes", fails=True)
    assert {"pods", "deployments", "configmaps"} <= {
        line.split()[0] for line in shown("api-resources", "--no-headers").splitlines()
    }
    assert "command" in shown("explain", "pod.spec.containers")
    # The neighbour, on the same node and the same clusters, knows of no such namespace.
    for words in ((*at, "get", "pods"), ("get", "deploy,pods", "-A")):
        assert "No resources found" in theirs.kubectl(*words)
    for words in (("logs", pod), ("exec", pod, "--", "sh"), ("port-forward", f"pod/{pod}", "1"), ("get", "pod", pod)):
        assert "not found" in theirs.kubectl(*at, *words, fails=True)


def terminal(house: House, *arguments: str) -> None:
    """A shell with a terminal of its own."""
    mine, its = pty.openpty()
    process = house.start(*arguments, stdin=its, stdout=its)
    os.close(its)
    os.write(mine, b"test -t 0 && echo answer $((6 * 7))\nexit 5\n")
    assert process.wait(PATIENCE) == 5
    # The kernel hands over what was written in pieces, and fails once there is no more.
    shown = b""
    while b"answer 42" not in shown:
        shown += os.read(mine, 65536)
    os.close(mine)


def recorded(house: House, session: Callable[[], None]) -> None:
    """What the session shows is kept, and the portal's player gets it: asciicast v2, as the audit names it."""
    tier = Workspace.objects.get(k8s_namespace=house.running).tier_id
    tier_change(actor=OPERATOR, name=tier, recording=RecordingMode.OUTPUT)
    session()
    tier_change(actor=OPERATOR, name=tier, recording=RecordingMode.OFF)
    ended_there = Recording.objects.exclude(ended_at=None).filter(namespace=house.running)
    assert eventually(ended_there.exists)
    found = ended_there.get()
    owner = User.objects.get(email=f"olga@{house.door.name}.test")
    assert (found.caller, found.way, found.command, found.exit_code) == (owner.email, "exec", "sh", 5)
    browser = Client()
    browser.force_login(owner)
    assert "data-recording" in browser.get(f"/recordings/{found.pk}/").content.decode()
    file = browser.get(f"/recordings/{found.pk}/cast/").content
    head, *events = [json.loads(line) for line in file.splitlines()]
    assert head["version"] == 2
    assert "answer 42" in "".join(text for _, kind, text in events if kind == "o")
    assert {kind for _, kind, _ in events} <= {"o", "r", "m"}, "there is no input"
    told = AuditEntry.objects.get(action="recording.end", detail__recording=str(found.pk))
    assert hashlib.sha256(file).hexdigest() == found.sha256 == told.detail["sha256"]


def forwarded(house: House, at: tuple[str, ...], pod: str) -> None:
    """A page of the pod, through a port of this machine."""
    outside = free_port()
    house.kubectl(*at, "exec", pod, "--", "sh", "-c", "echo found > /tmp/page; busybox httpd -p 8080 -h /tmp")
    with lines_of(house.start(*at, "port-forward", f"pod/{pod}", f"{outside}:8080")) as said:
        assert eventually(lambda: any("Forwarding from" in line for line in said))

        def page() -> bytes:
            with socket.create_connection(("127.0.0.1", outside)) as line:
                line.sendall(b"GET /page HTTP/1.0\r\n\r\n")
                return b"".join(iter(lambda: line.recv(65536), b""))

        assert page().endswith(b"\r\n\r\nfound\n")
