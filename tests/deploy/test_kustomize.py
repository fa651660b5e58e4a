"""An overlay of the Kustomize base goes from one release to the next by ``kubectl apply -k`` (GW12)."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.apiserver import KUBECTL, OwnApiserver
from tests.deploy.rendering import BASE, Manifest, flat, rendered
from tests.kubeapiserver import KubeApiserver

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is missing")

OVERLAY = BASE.parent / "overlay"
Apply = Callable[[Path], "subprocess.CompletedProcess[str]"]


def overlaid(folder: Path, release: str, *, label: str = "") -> Path:
    """The overlay for a release, as its owner changes it."""
    shutil.copytree(BASE, folder / "base", dirs_exist_ok=True)
    text = (OVERLAY / "kustomization.yaml").read_text()
    text = re.sub(r'(newTag: )"[^"]*"', rf'\1"{release}"', text)
    text = re.sub(r'(app\.kubernetes\.io/version: )"[^"]*"', rf'\1"{label or release}"', text)
    (folder / "overlay").mkdir(exist_ok=True)
    (folder / "overlay" / "kustomization.yaml").write_text(text)
    return folder / "overlay"


def built(folder: Path) -> list[Manifest]:
    done = subprocess.run([str(KUBECTL), "kustomize", str(folder)], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def job(objects: list[Manifest]) -> Manifest:
    (found,) = (each for each in objects if each["kind"] == "Job")
    return found


def test_the_overlay_names_one_release() -> None:
    stated = yaml.safe_load((OVERLAY / "kustomization.yaml").read_text())
    (image,), (label,) = stated["images"], stated["labels"]
    assert label["pairs"] == {"app.kubernetes.io/version": image["newTag"]}
    images = {
        container["image"]
        for each in built(OVERLAY)
        for container in each.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ())
    }
    assert images == {f"{image['newName']}:{image['newTag']}"}


def test_another_release_is_another_job(tmp_path: Path) -> None:
    """By the chart as by an overlay; the same release is the same one."""
    first, again, second = (job(built(overlaid(tmp_path, release))) for release in ("0.1.0", "0.1.0", "0.2.0"))
    assert first == again
    assert first["spec"]["template"] != second["spec"]["template"]
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert second["metadata"]["name"] == f"{job(flat(rendered()))['metadata']['name']}-0.2.0"
    one, other = (job(flat(rendered({"image": {"tag": tag}}))) for tag in ("0.1.0", "0.2.0"))
    assert one["metadata"]["name"] != other["metadata"]["name"]


def upgrades(apply: Apply, folder: Path) -> None:
    """From one release to the next and back, each applied twice; and a Job cannot be changed, as it is told."""
    for release in ("0.1.0", "0.1.0", "0.2.0", "0.1.0"):
        done = apply(overlaid(folder, release))
        assert done.returncode == 0, done.stderr
        assert re.search(rf"job.batch/tenantry-bootstrap-\w+-{release} ", done.stdout), done.stdout
    refused = apply(overlaid(folder, "0.3.0", label="0.2.0"))
    assert refused.returncode != 0
    assert "field is immutable" in refused.stderr
    done = apply(overlaid(folder, "0.3.0"))
    assert done.returncode == 0, done.stderr


def test_kubectl_applies_one_release_after_the_other(apiserver: OwnApiserver, tmp_path: Path) -> None:
    def kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(KUBECTL), "--kubeconfig", str(apiserver.kubeconfig), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    kubectl("create", "namespace", "tenantry")
    upgrades(lambda folder: kubectl("apply", "-k", str(folder)), tmp_path)


def test_a_real_cluster_takes_one_release_after_the_other(kube_apiserver: KubeApiserver, tmp_path: Path) -> None:
    kube_apiserver.kubectl("create", "namespace", "tenantry")
    upgrades(lambda folder: kube_apiserver.kubectl("apply", "-k", str(folder)), tmp_path)
