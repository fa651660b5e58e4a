"""The real kubectl, in every version that is at hand, against a tenant's space, validation on (TS6, TS15)."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any
from uuid import uuid4

import pytest
import yaml

from tests.gateway.callers import Caller
from tests.gateway.conftest import Server

FOLDER = Path(__file__).parent
STORIES: dict[str, list[dict[str, Any]]] = yaml.safe_load((FOLDER / "test_kubectl.yaml").read_text())


def binaries() -> Iterator[str]:
    """What is on the path, and what ``KUBEBUILDER_ASSETS`` has: the current kubectl and older ones."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    found = [*sorted(Path(assets).glob("kubectl*"))] if assets else []
    here = shutil.which("kubectl")
    if here is not None:
        found.append(Path(here))
    yield from dict.fromkeys(str(path.resolve()) for path in found)


BINARIES = list(binaries())


@dataclass
class Kubectl:
    """kubectl of one version, as one user in one namespace."""

    binary: str
    config: Path
    namespace: str
    manifests: Path

    def told(self, step: dict[str, Any]) -> None:
        """Type a line of a story and look at what comes back."""
        names = {"namespace": self.namespace, "here": str(self.manifests)}

        def filled(text: str) -> str:
            return Template(text).safe_substitute(names)

        given = step.get("given", "")
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.config),
            "KUBECACHEDIR": str(self.config.parent / "cache"),
            "KUBE_EDITOR": step.get("editor", "false"),
            "KUBECTL_APPLYSET": step.get("applyset", "false"),
        }
        done = subprocess.run(
            [self.binary, *shlex.split(filled(step["run"]))],
            input=filled(given if isinstance(given, str) else json.dumps(given)),
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        heard = done.stdout + done.stderr
        if step.get("may") != "fail":
            assert (done.returncode != 0) is step.get("fails", False), f"{step['run']}: {heard}"
        wanted = step.get("says", [])
        for text in [wanted] if isinstance(wanted, str) else wanted:
            assert filled(text) in heard, f"{step['run']}: {heard}"


@pytest.fixture
def kubectl(server: Server, alice: Caller, tmp_path: Path, request: pytest.FixtureRequest) -> Kubectl:
    """A namespace, and manifests that name it."""
    namespace = f"cli-{uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    assert alice.post("/api/v1/namespaces", body).status == 201
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority": str(alice.ca)}}],
        "users": [{"name": "u", "user": {"client-certificate": str(alice.certificate), "client-key": str(alice.key)}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    manifests = tmp_path / "manifests"
    shutil.copytree(FOLDER / "manifests", manifests)
    for file in manifests.rglob("*.yaml"):
        file.write_text(Template(file.read_text()).safe_substitute(namespace=namespace))
    return Kubectl(request.param, tmp_path / "config", namespace, manifests)


def test_some_kubectl_is_at_hand() -> None:
    assert BINARIES, "put kubectl (Debian: kubernetes-client) on the path or into KUBEBUILDER_ASSETS"


@pytest.mark.parametrize("kubectl", BINARIES, indirect=True, ids=lambda path: Path(path).name)
@pytest.mark.parametrize("story", STORIES)
def test_kubectl_works_in_a_tenants_space_as_anywhere(kubectl: Kubectl, story: str) -> None:
    """TS6, TS15."""
    for step in STORIES[story]:
        kubectl.told(step)
