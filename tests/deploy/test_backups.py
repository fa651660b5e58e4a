"""Backups in a cluster: the chart's CronJob makes them, and a Job of its other one restores them (GW12, P12)."""

from __future__ import annotations

import copy
import os
import re
import shlex
import stat
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
import yaml

from tests.apiserver import KUBECTL, OwnApiserver
from tests.databases import OWNER, migrated, url_of
from tests.deploy.pods import UID, Node, possible
from tests.deploy.rendering import ROOT, Manifest, flat, rendered, values_of
from tests.deploy.test_chart import encoded, keys, pods

ENABLED: dict[str, Any] = {"backup": {"enabled": True, "keep": 2}}
DOCUMENT = (ROOT / "docs" / "operators" / "installation.md").read_text()


def named(objects: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def test_backups_are_made_in_production_and_not_where_it_is_tried() -> None:
    for file, wanted in (("values-kind.yaml", False), ("values.yaml", False), ("values-production.yaml", True)):
        objects = flat(rendered(values_of(file)))
        assert ("tenantry-backup" in named(objects, "CronJob")) is wanted
        assert ("tenantry-backups" in named(objects, "PersistentVolumeClaim")) is wanted


def test_only_backups_run_by_themselves() -> None:
    jobs = named(flat(rendered(ENABLED)), "CronJob")
    assert not jobs["tenantry-backup"]["spec"].get("suspend")
    assert jobs["tenantry-restore"]["spec"]["suspend"] is True


def test_a_claim_that_is_there_is_taken() -> None:
    objects = flat(rendered({"backup": {"enabled": True, "claim": "nightly"}}))
    assert not named(objects, "PersistentVolumeClaim")
    for _, template in pods(list(named(objects, "CronJob").values())):
        claims = [
            each["persistentVolumeClaim"] for each in template["spec"]["volumes"] if "persistentVolumeClaim" in each
        ]
        assert [each["claimName"] for each in claims] == ["nightly"]


def test_both_reach_the_databases() -> None:
    policies = named(flat(rendered(ENABLED)), "NetworkPolicy")
    (chosen,) = policies["tenantry-databases"]["spec"]["podSelector"]["matchExpressions"]
    assert {"backup", "restore"} <= set(chosen["values"])


def documented(beginning: str) -> str:
    """A command of the document."""
    block = DOCUMENT.partition("\n### Backups\n")[2].partition("\n#")[0].replace(" \\\n", " ")
    (found,) = (line for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE) if line.startswith(beginning))
    return str(found)


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is missing")
def test_the_documented_command_makes_a_job_that_restores_one_backup(apiserver: OwnApiserver, tmp_path: Path) -> None:
    jobs = [named(flat(rendered(ENABLED)), "CronJob")["tenantry-restore"]]
    environment = {**os.environ, "KUBECONFIG": str(apiserver.kubeconfig), "HOME": str(tmp_path)}

    def kubectl(command: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    kubectl("kubectl create namespace tenantry || true; kubectl apply -f -", yaml.safe_dump_all(jobs))
    command = documented("kubectl -n tenantry create job restore")
    (backup,) = re.findall(r"BACKUP=(\S+)", command)
    kubectl(command)
    made = yaml.safe_load(
        kubectl("kubectl -n tenantry get job restore -o yaml; kubectl -n tenantry delete job restore >&2")
    )
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["command"][-1] == "/backups/$(BACKUP)"
    assert {"name": "BACKUP", "value": backup} in container["env"]
    assert re.fullmatch(r"tenantry-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ\.backup", backup)


@pytest.mark.skipif(not possible(), reason="this user cannot make namespaces, which a read-only root takes")
def test_a_pod_backs_up_and_another_one_restores(tmp_path: Path) -> None:
    """From the manifests' own commands, environment and volumes; the root read-only, the user nobody's."""
    if urlsplit(os.environ["DATABASE_URL"]).hostname:
        pytest.skip("the given database is on a network that Pods of this test have no way to")
    with migrated("backups") as database:
        name, owner = urlsplit(database).path, urlsplit(os.environ[OWNER]).username
        at = f"127.0.0.1:5432{name}"
        objects = [*flat(rendered(ENABLED)), *keys()]
        database_urls = {
            "url": f"postgresql://tenantry_product@{at}",
            "migration-url": f"postgresql://{owner}@{at}",
        }
        objects += [
            encoded("tenantry-database", database_urls),
            encoded("tenantry-redis", {"url": "redis://127.0.0.1:6379/0"}),
        ]
        ports = {5432: Path(parse_qs(urlsplit(database).query)["host"][0]) / ".s.PGSQL.5432"}
        templates = {part.removeprefix("tenantry-").split("-")[0]: template for part, template in pods(objects)}
        people = "SELECT name FROM users ORDER BY name"
        with Node(tmp_path, objects, ports) as node, psycopg.connect(url_of(name[1:], OWNER), autocommit=True) as known:
            assert node.start("bootstrap", templates["bootstrap"]).wait(300) == 0, node.log("bootstrap")
            before = known.execute(people).fetchall()
            for number in range(3):
                assert node.start(f"backup-{number}", templates["backup"]).wait(300) == 0, node.log(f"backup-{number}")
            folder = node.claim("tenantry-backups")
            files = sorted(path.name for path in folder.iterdir())
            assert len(files) == 2
            for file in files:
                status = (folder / file).stat()
                assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (UID, 0o600)
            known.execute("UPDATE users SET name = 'Somebody else'")
            assert node.start("unnamed", templates["restore"]).wait(300) != 0
            assert "none-is-named" in node.log("unnamed")
            assert known.execute(people).fetchall() != before
            restoring = node.start("restore", changed(templates["restore"], BACKUP=files[-1]))
            assert restoring.wait(300) == 0, node.log("restore")
            assert known.execute(people).fetchall() == before
            assert "Restored as of" in node.log("restore")
            opening = changed(
                templates["portal"], command=shlex.split(documented("kubectl -n tenantry exec").partition(" -- ")[2])
            )
            assert node.start("open", opening).wait(300) == 0, node.log("open")
            assert "Open:" in node.log("open")


def changed(template: Manifest, *, command: list[str] | None = None, **environment: str) -> Manifest:
    """A Pod with other environment, or another command."""
    other = copy.deepcopy(template)
    (container,) = other["spec"]["containers"]
    container["command"] = command or container["command"]
    given = [each for each in container["env"] if each["name"] not in environment]
    container["env"] = [*({"name": name, "value": value} for name, value in environment.items()), *given]
    return other
