"""``manage.py doctor`` in each Pod of the chart: what a healthy one has not is no fault of it (GW12)."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import call_command

from tests.databases import OWNER, ROOT, migrated, url_of
from tests.deploy.rendering import Manifest, flat, rendered

PROXIED = {"trustedProxies": ["10.0.0.0/8"]}
VALUES: dict[str, dict[str, Any]] = {
    "own": {"portal": PROXIED},
    "certManager": {"portal": PROXIED, "apiserver": {"tls": {"from": "certManager", "secret": "tenantry-tls"}}},
}
PARTS = ("portal", "apiserver", "worker", "beat")
AWAY = {"workers", "beat"}
"""No worker and no beat runs beside this test; each Pod says so."""

Secrets = dict[str, dict[str, bytes]]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("doctored") as url:
        yield url


@pytest.fixture(scope="module")
def secrets(database: str) -> Secrets:
    """What an operator makes before the chart is installed."""
    said = io.StringIO()
    call_command("keys", "--url", "https://api.example.org:6443", stdout=said)
    made = {
        each["metadata"]["name"]: {name: base64.b64decode(value) for name, value in each["data"].items()}
        for each in yaml.safe_load_all(said.getvalue())
    }
    authority, keys = made["tenantry-authority"], made["tenantry-keys"]
    served = {"tls.crt": keys["server.crt"], "tls.key": keys["server.key"], "ca.crt": authority["tls.crt"]}
    name = database.partition("?")[0].rpartition("/")[2]
    urls = {"url": database.encode(), "migration-url": url_of(name, OWNER).encode()}
    return {
        **made,
        "tenantry-database": urls,
        "tenantry-redis": {"url": settings.REDIS_URL.encode()},
        "tenantry-tls": served,
    }


class Pod:
    """A part's container as a process of this machine: what is mounted there is in a folder, and nothing else is."""

    def __init__(self, folder: Path, objects: list[Manifest], part: str, secrets: Secrets) -> None:
        (settings_map,) = (
            each for each in objects if each["kind"] == "ConfigMap" and "-settings" in each["metadata"]["name"]
        )
        (found,) = (
            each["spec"]["template"]["spec"]
            for each in objects
            if each["kind"] in ("Deployment", "StatefulSet", "Job")
            and each["metadata"]["labels"].get("app.kubernetes.io/component") == part
        )
        (container,) = found["containers"]
        given = {
            **settings_map["data"],
            **{each["name"]: each.get("value", "127.0.0.1") for each in container.get("env", ())},
        }
        volumes = {each["name"]: each for each in found["volumes"]}
        for mount in container["volumeMounts"]:
            place = folder / mount["mountPath"].lstrip("/")
            place.mkdir(parents=True)
            secret = volumes.get(mount["name"], {}).get("secret")
            for item in secret["items"] if secret else ():
                (place / item["path"]).write_bytes(secrets[secret["secretName"]][item["key"]])
                (place / item["path"]).chmod(secret["defaultMode"])
        here = {
            name: f"{folder}{value}" if value.startswith(("/etc/tenantry", "/tmp", "/srv")) else value
            for name, value in given.items()
        }
        # The image's own.
        here["TENANTRY_DATA_DIR"] = f"{folder}/srv/data"
        elsewhere = {name: value for name, value in os.environ.items() if not _is_ours(name)}
        self.environment = {**elsewhere, **here}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False
        )

    def doctor(self) -> dict[str, list[dict[str, str]]]:
        """Everything that it says, by state."""
        told = json.loads(self.run("manage.py", "doctor", "--output", "json").stdout)
        states: dict[str, list[dict[str, str]]] = {}
        for each in told["findings"]:
            states.setdefault(each["state"], []).append(each)
            assert each["about"]
        return states


def _is_ours(name: str) -> bool:
    """What says where this test's own parts are."""
    return "DATABASE" in name or name.startswith(("TENANTRY_", "REDIS_", "APISERVER_", "PORTAL_", "SECRET_KEY"))


@pytest.mark.parametrize("values", VALUES)
def test_every_pod_of_a_healthy_installation_is_well(
    values: str, database: str, secrets: Secrets, tmp_path: Path
) -> None:
    objects = flat(rendered(VALUES[values]))
    bootstrap = Pod(tmp_path / "bootstrap", objects, "bootstrap", secrets)
    done = bootstrap.run("manage.py", "bootstrap")
    assert done.returncode == 0, done.stderr
    seen: set[str] = set()
    for part in PARTS:
        pod = Pod(tmp_path / part, objects, part, secrets)
        if part == "worker":
            sign = "import django; django.setup()\nfrom audit.tasks import checkpoints_write; checkpoints_write()"
            pod.environment["DJANGO_SETTINGS_MODULE"] = "portal.settings"
            assert pod.run("-c", sign).returncode == 0
        states = pod.doctor()
        wrong = {each["name"] for state in ("failed", "unproved", "warning") for each in states.get(state, ())}
        assert wrong == AWAY, (part, states)
        for each in states.get("elsewhere", ()):
            assert "not here, because" in each["found"]
            assert "Ask where" in each["remedy"]
        seen |= {each["name"] for each in states["ok"]}
    # What is not in one Pod is in another one: together they have looked at everything.
    assert {"secret-key", "key-files", "certificates", "checkpoints", "sealing-keys", "settings"} <= seen


def test_a_pod_without_any_key_is_not_well(secrets: Secrets, database: str, tmp_path: Path) -> None:
    """And neither is one whose keys everybody may read."""
    objects = flat(rendered())
    pod = Pod(tmp_path / "open", objects, "portal", secrets)
    (tmp_path / "open/etc/tenantry/keys/portal-tokens.key").chmod(0o444)
    failures = {each["name"]: each for each in pod.doctor()["failed"]}
    assert "defaultMode 0440" in failures["key-files"]["remedy"]
    bare = Pod(tmp_path / "bare", objects, "portal", secrets)
    for file in (tmp_path / "bare/etc/tenantry/keys").iterdir():
        file.unlink()
    failures = {each["name"]: each for each in bare.doctor()["failed"]}
    assert {"key-files", "sealing-keys"} <= set(failures)
