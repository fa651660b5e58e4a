"""Tenants' own tools on tenants' own kinds: kubectl, and a small operator written with kopf (TS10, TS15)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kopf
import pytest

from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server
from tests.gateway.definitions import CRDS, collection, custom, definition, install, remove

Kubectl = Callable[..., str]
AGAIN_SECONDS = 1.0
"""After so long what an operator has overlooked is changed once more."""

GREENHOUSE = definition(
    "Greenhouse",
    {
        "type": "object",
        "description": "What is grown, and how much of it.",
        "required": ["crop"],
        "properties": {
            "crop": {"type": "string", "description": "The plant."},
            "replicas": {"type": "integer", "default": 1, "minimum": 0},
        },
    },
    subresources={
        "status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
    },
    additionalPrinterColumns=[
        {"name": "Crop", "type": "string", "jsonPath": ".spec.crop"},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
    ],
)
GREENHOUSE["spec"]["names"] |= {"shortNames": ["gh"], "categories": ["plants"]}


def kubeconfig(server: Server, caller: Caller, folder: Path) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority": str(caller.ca)}}],
        "users": [
            {"name": "u", "user": {"client-certificate": str(caller.certificate), "client-key": str(caller.key)}}
        ],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
        "current-context": "x",
    }
    path = folder / "config"
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def kubectl(server: Server, gina: Caller, tmp_path: Path) -> Kubectl:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig(server, gina, tmp_path)),
        "KUBECACHEDIR": str(tmp_path / "cache"),
    }

    def run(*words: str, given: Any = None, fails: bool = False) -> str:
        text = json.dumps(given) if given is not None else None
        done = subprocess.run(
            ["kubectl", *words], input=text, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_kubectl_uses_a_kind_as_soon_as_it_is_established(kubectl: Kubectl, gina: Caller) -> None:
    kubectl("apply", "-f", "-", given=GREENHOUSE)
    name = "crd/greenhouses.example.com"
    assert "condition met" in kubectl("wait", "--for=condition=Established", name, "--timeout=240s")
    body = custom("Greenhouse", "north", {"crop": "tomato"})
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", given=body)
    assert "unchanged" in kubectl("apply", "-f", "-", given=GREENHOUSE)
    wrong = custom("Greenhouse", "south", {"crop": "tomato", "repliccas": 1})
    assert 'unknown field "spec.repliccas"' in kubectl("apply", "-f", "-", given=wrong, fails=True)
    assert "spec.crop: Required value" in kubectl(
        "apply", "--validate=false", "-f", "-", given=custom("Greenhouse", "south", {}), fails=True
    )
    lines = kubectl("get", "gh").splitlines()
    assert lines[0].split() == ["NAME", "CROP"]
    assert lines[1].split() == ["north", "tomato"]
    assert kubectl("get", "plants", "-o", "wide").splitlines()[1].split() == ["north", "tomato", "1"]
    assert "scaled" in kubectl("scale", "greenhouse/north", "--replicas=3")
    assert kubectl("get", "gh/north", "-o", "jsonpath={.spec.replicas}") == "3"
    assert "The plant." in kubectl("explain", "greenhouse.spec.crop")
    assert "What is grown" in kubectl("explain", "gh.spec")
    assert "greenhouses" in kubectl("api-resources", "--api-group=example.com")
    assert "patched" in kubectl("patch", "gh", "north", "--type=merge", "-p", '{"spec":{"crop":"bean"}}')
    assert "deleted" in kubectl("delete", name, "--timeout=240s")
    assert "NotFound" in kubectl("get", "greenhouses.v1.example.com", fails=True)


@pytest.fixture
def operator(server: Server, gina: Caller, tmp_path: Path) -> Iterator[None]:
    """Grows a ConfigMap for each greenhouse, owned by it, and reports in its status."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(
            server=server.url,
            ca_path=str(gina.ca),
            certificate_path=str(gina.certificate),
            private_key_path=str(gina.key),
        )

    @kopf.on.create("example.com", "v1", "greenhouses", registry=registry)
    @kopf.on.update("example.com", "v1", "greenhouses", registry=registry)
    def grow(spec: Any, name: str, body: Any, patch: Any, **_: Any) -> None:
        owner = {"apiVersion": "example.com/v1", "kind": "Greenhouse", "name": name, "uid": body["metadata"]["uid"]}
        crop = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "ownerReferences": [owner]},
            "data": {"crop": spec["crop"]},
        }
        path = f"/api/v1/namespaces/default/configmaps/{name}"
        answer = gina.patch(path, crop, "apply", fieldManager="grower", force="true")
        assert answer.status in (200, 201), answer.body
        patch.status["replicas"] = spec["replicas"]

    @kopf.on.delete("example.com", "v1", "greenhouses", registry=registry)
    def harvest(**_: Any) -> None:
        return

    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = False
    stop, ready = threading.Event(), threading.Event()
    thread = threading.Thread(
        target=lambda: asyncio.run(
            kopf.operator(
                registry=registry,
                settings=settings,
                namespaces=["default"],
                standalone=True,
                stop_flag=stop,
                ready_flag=ready,
            )
        ),
        daemon=True,
    )
    thread.start()
    assert ready.wait(300)
    yield
    stop.set()
    thread.join(300)
    assert not thread.is_alive()


def test_an_operator_runs_in_a_tenants_space_on_a_kind_of_that_tenant(gina: Caller, operator: None) -> None:
    """The kind comes after the operator, which learns of it from its watch of CRDs."""
    install(gina, GREENHOUSE)
    path, crop = f"{collection('greenhouses')}/east", "/api/v1/namespaces/default/configmaps/east"
    assert gina.post(collection("greenhouses"), custom("Greenhouse", "east", {"crop": "pea"})).status == 201

    def noticed() -> bool:
        # kopf overlooks what appears between its first look and its watch, but not what changes afterwards.
        gina.patch(f"{CRDS}/greenhouses.example.com", {"metadata": {"labels": {"seen": str(time.monotonic())}}})
        time.sleep(AGAIN_SECONDS)
        return bool(gina.get(path).body.get("status", {}).get("replicas") == 1)

    assert eventually(noticed)
    assert gina.get(crop).body["data"] == {"crop": "pea"}
    assert any("kopf" in finalizer for finalizer in gina.get(path).body["metadata"]["finalizers"])
    gina.patch(path, {"spec": {"crop": "leek", "replicas": 5}})
    assert eventually(lambda: gina.get(path).body["status"]["replicas"] == 5)
    assert gina.get(crop).body["data"] == {"crop": "leek"}
    gina.delete(path)
    assert eventually(lambda: gina.get(path).status == 404)
    # The owner's kind is a custom one of this space; its dependents follow it.
    assert eventually(lambda: gina.get(crop).status == 404)
    remove(gina, "greenhouses.example.com")
