"""No part begins on a database that is not its release's yet: the parts of the release before serve until it is (GW12)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.databases import OWNER, ROOT, migrated, url_of
from tests.deploy.rendering import Manifest, flat, rendered
from tests.story.product import eventually

PARTS = {"portal", "apiserver", "worker", "beat"}
REMEMBERED = "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, now())"


def parts() -> Iterator[tuple[str, Manifest]]:
    """What the chart keeps running of the product, whatever it brings along, and its Pods."""
    for each in flat(rendered({"bundled": {"postgresql": {"enabled": True}, "redis": {"enabled": True}}})):
        if each["kind"] in ("Deployment", "StatefulSet", "DaemonSet"):
            pod = each["spec"]["template"]["spec"]
            if "python" in pod["containers"][0].get("command", ()):
                yield each["metadata"]["labels"]["app.kubernetes.io/component"], pod


def command() -> list[str]:
    """What every part waits for."""
    (found,) = {tuple(pod["initContainers"][0]["command"]) for _, pod in parts()}
    assert found[0] == "python"
    return [sys.executable, *found[1:]]


def test_every_part_of_the_chart_begins_with_the_same_question() -> None:
    """In a container like its own: of the same image, that may as little, with the mounts by which it finds the database."""
    found = dict(parts())
    assert found.keys() == PARTS
    for pod in found.values():
        (first,), own = pod["initContainers"], pod["containers"][0]
        assert {
            name: first[name] for name in ("image", "imagePullPolicy", "securityContext", "envFrom", "resources")
        } == {name: own[name] for name in ("image", "imagePullPolicy", "securityContext", "envFrom", "resources")}
        assert all(mount in own["volumeMounts"] for mount in first["volumeMounts"])
        assert "/etc/tenantry/database" in {mount["mountPath"] for mount in first["volumeMounts"]}
    command()


@pytest.mark.parametrize("app", ["tenants", "store", "access", "audit"])
def test_a_part_waits_until_the_database_is_its_releases(app: str, tmp_path: Path) -> None:
    with (
        migrated("waiting") as url,
        psycopg.connect(url_of(url.partition("?")[0].rpartition("/")[2], OWNER), autocommit=True) as owner,
    ):
        (name,) = owner.execute("SELECT max(name) FROM django_migrations WHERE app = %s", [app]).fetchone() or ("",)
        owner.execute("DELETE FROM django_migrations WHERE app = %s AND name = %s", [app, name])
        log = tmp_path / "log"
        with log.open("wb") as lines:
            waits = subprocess.Popen(command(), cwd=ROOT, env={**os.environ, "DATABASE_URL": url}, stderr=lines)
        try:
            assert eventually(lambda: "migrations" in log.read_text() or waits.poll() is not None)
            assert waits.poll() is None
            owner.execute(REMEMBERED, [app, name])
            assert waits.wait() == 0
        finally:
            waits.kill()
        # Of a later release: whoever goes back by one begins.
        owner.execute(REMEMBERED, [app, "9999_of_the_next_release"])
        done = subprocess.run(
            command(), cwd=ROOT, env={**os.environ, "DATABASE_URL": url}, capture_output=True, check=True
        )
        assert done.stderr == b""


def test_a_part_waits_for_a_database_that_is_not_made_yet(tmp_path: Path) -> None:
    """As with a first installation: bootstrap makes the product's role as well."""
    with migrated("later") as url:
        base, _, query = url.partition("?")
        later = f"{base}_not_yet" + (f"?{query}" if query else "")
        log = tmp_path / "log"
        with log.open("wb") as lines:
            waits = subprocess.Popen(command(), cwd=ROOT, env={**os.environ, "DATABASE_URL": later}, stderr=lines)
        try:
            assert eventually(lambda: "waiting for the database" in log.read_text() or waits.poll() is not None)
            assert waits.poll() is None
        finally:
            waits.kill()
            waits.wait()
