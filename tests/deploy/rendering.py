"""The chart's manifests as Helm renders them, and the Kustomize base that they are: ``python -m tests.deploy.rendering``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import helm_python
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart"
BASE = ROOT / "deploy" / "kustomize" / "base"
SHIPPED = ROOT / "tenants" / "manifests"
MONITORING = ROOT / "deploy" / "monitoring"
FILES = CHART / "files"
WATCHED = CHART / "monitoring"
NAME = "tenantry"

Manifest = dict[str, Any]


def rendered(
    values: dict[str, Any] | None = None, *, name: str = NAME, namespace: str = NAME
) -> dict[str, list[Manifest]]:
    """Every template's objects with these values over the chart's own, by Helm itself. Raises its errors."""
    with helm_python.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values or {})
        texts = chart.render(values or {}, name=name, namespace=namespace)
    files = {Path(path).stem: [each for each in yaml.safe_load_all(text) if each] for path, text in texts.items()}
    return {name: objects for name, objects in sorted(files.items()) if objects}


def values_of(file: str) -> dict[str, Any]:
    """One of the chart's values files."""
    values: dict[str, Any] = yaml.safe_load((CHART / file).read_text())
    return values


def flat(files: dict[str, list[Manifest]]) -> list[Manifest]:
    """The objects of all templates."""
    return [each for objects in files.values() for each in objects]


def base() -> dict[str, str]:
    """The files of the Kustomize base."""
    files = {
        f"{name}.yaml": yaml.safe_dump_all(objects, sort_keys=False, width=140) for name, objects in rendered().items()
    }
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(files),
    }
    files["kustomization.yaml"] = yaml.safe_dump(kustomization, sort_keys=False)
    words = "# The chart in deploy/chart with its own values; make manifests writes it.\n"
    return {name: words + text for name, text in files.items()}


def shipped() -> dict[str, str]:
    """What the chart has of the gateway's rights: the files that everybody applies."""
    names = ("fences", "gateway-role", "mutations", "tenant-roles")
    return {f"{name}.yaml": (SHIPPED / f"{name}.yaml").read_text() for name in names}


def watched() -> dict[str, str]:
    """What the chart has of monitoring: the files that are taken as they are elsewhere."""
    return {file.name: file.read_text() for file in sorted(MONITORING.iterdir())}


def write() -> None:
    """Write what is made of something else."""
    for folder, files in ((FILES, shipped), (WATCHED, watched), (BASE, base)):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in files().items():
            (folder / name).write_text(text)


if __name__ == "__main__":
    write()
