"""``manage.py doctor`` names what is broken, and in one sentence what mends it (GW12)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import redis
import time_machine
from cryptography.fernet import Fernet
from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from audit.actions import Action
from audit.checkpoints import private_keys
from audit.publishing import checkpoint_write
from audit.recorder import Actor
from gateway.http.certificates import prepare
from gateway.options import Options
from kube.authentication import pki
from portal.scheduling import Lease
from portal.tasks import heartbeat
from tenants.clusters import encryption
from tenants.models import Cluster, Operation, OperationState, Phase, Workspace
from tenants.services.notices import webhook_create
from tenants.suspensions import lock_set
from tests import factories
from tests.databases import OWNER, ROOT, owning, url_of
from tests.ports import free_port

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def installation(settings: Any, tmp_path: Path) -> Iterator[Path]:
    """A data folder as ``bootstrap`` makes it, and a beat that holds the lease."""
    prepare(Options(database_url="", data_folder=tmp_path))
    settings.DATA_DIR = tmp_path
    settings.PKI_DIR = tmp_path / "pki"
    settings.PORTAL_TOKEN_KEY_FILE = tmp_path / "pki" / "portal-tokens.key"
    settings.AUDIT_CHECKPOINTS_KEY_FILE = tmp_path / "pki" / "audit-checkpoints.key"
    settings.AUDIT_CHECKPOINTS_FILE = tmp_path / "audit-checkpoints.jsonl"
    settings.SECRET_KEY = "k" * 60
    settings.SECRET_KEY_IS_SET = True
    settings.SECRET_FILES = []
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]
    private_keys(settings.AUDIT_CHECKPOINTS_KEY_FILE)
    lease = Lease(url_of(connection.settings_dict["NAME"]))
    assert lease.hold()
    yield tmp_path
    lease.release()


def asked(*checks: str) -> dict[str, list[dict[str, str]]]:
    """What the doctor says, by the name of what was looked at."""
    said = StringIO()
    try:
        call_command("doctor", *checks, "--output", "json", stdout=said)
        code = 0
    except SystemExit as end:
        code = int(str(end.code))
    told = json.loads(said.getvalue())
    assert code == (0 if told["healthy"] else 1)
    found: dict[str, list[dict[str, str]]] = {}
    for each in told["findings"]:
        assert bool(each["remedy"]) == (each["state"] != "ok"), each
        assert each["remedy"].count(". ") == 0
        found.setdefault(each["name"], []).append(each)
    return found


def named(name: str, state: str, *words: str) -> dict[str, str]:
    """The finding of this name, which is so and says so."""
    all_found = asked({"beat": "workers", "cluster fra-1": "clusters"}.get(name, name))[name]
    found = [each for each in all_found if each["state"] == state]
    assert found, all_found
    assert any(all(word in each["found"] for word in words) for each in found), found
    return found[0]


def test_nothing_is_wrong_with_what_nobody_has_broken() -> None:
    found = asked()
    # No worker runs beside this test: it is found as the one thing that is missing.
    wrong = {name for name, each in found.items() if any(one["state"] != "ok" for one in each)}
    assert wrong == {"workers"}


def test_keys_that_are_open_missing_or_damaged(installation: Path, settings: Any) -> None:
    pki_folder = installation / "pki"
    (pki_folder / "service-account.key").chmod(0o644)
    assert "chmod o=" in named("key-files", "failed", "service-account.key", "everybody")["remedy"]
    (pki_folder / "client-ca.key").write_text("nothing")
    named("key-files", "failed", "client-ca.key", "no key")
    old = pki.make_authority("old", now=datetime.now(UTC) - timedelta(days=500))
    (pki_folder / "ca.crt").write_bytes(old.certificate)
    (pki_folder / "ca.key").write_bytes(old.key)
    named("key-files", "warning", "/ca.key", "older")
    (pki_folder / "portal-tokens.key").unlink()
    named("key-files", "failed", "portal-tokens.key", "missing")
    settings.SECRET_KEY = "short"
    named("secret-key", "warning", "short")
    settings.SECRET_KEY_IS_SET = False
    named("secret-key", "failed")


def test_certificates_that_have_ended_or_will(installation: Path) -> None:
    past = datetime.now(UTC) - timedelta(days=400)
    (installation / "pki" / "client-ca.crt").write_bytes(
        pki.make_authority("ended", now=past, lifetime=timedelta(days=390)).certificate
    )
    soon = pki.make_authority("soon", now=past, lifetime=timedelta(days=410)).certificate
    (installation / "pki" / "ca.crt").write_bytes(soon)
    named("certificates", "failed", "client-ca.crt", "ended")
    named("certificates", "warning", "/ca.crt", "ends")
    (installation / "pki" / "server.crt").write_text("nothing")
    named("certificates", "failed", "server.crt", "no certificate")


def test_each_kind_of_certificate_is_renewed_by_its_own_command(installation: Path) -> None:
    """A client's, as Prometheus' and the gateway's; the server's; an authority's."""
    soon, lived = datetime.now(UTC) - timedelta(days=80), timedelta(days=90)
    authority = pki.make_authority("soon", now=soon, lifetime=lived)
    made = {
        "tenantry-monitoring.crt": pki.make_client_certificate(authority, "monitoring", now=soon, lifetime=lived),
        "server.crt": pki.make_server_certificate(authority, ["localhost"], now=soon, lifetime=lived),
        "client-ca.crt": authority,
    }
    for name, pair in made.items():
        (installation / "pki" / name).write_bytes(pair.certificate)
    remedies = {Path(each["found"].split()[0]).name: each["remedy"] for each in asked("certificates")["certificates"]}
    assert {name: remedies[name] for name in made} == {
        "tenantry-monitoring.crt": "Run manage.py rotate client-certificates.",
        "server.crt": "Run manage.py rotate server-certificate, or start the server that generated it again.",
        "client-ca.crt": "Rotate the authority: manage.py rotate says how.",
    }


def test_the_credential_of_the_embedded_cluster_is_renewed_by_its_own_command() -> None:
    soon = timezone.now() + timedelta(days=3)
    cluster(kind=Cluster.Kind.EMBEDDED, credential_expires_at=soon)
    assert "rotate client-certificates" in named("cluster fra-1", "warning", "ends on")["remedy"]
    Cluster.objects.update(kind=Cluster.Kind.EXTERNAL)
    assert "cluster's page" in named("cluster fra-1", "warning", "ends on")["remedy"]


def cluster(**fields: Any) -> Cluster:
    return factories.cluster(sealed_credential=encryption.encrypt("kubeconfig"), **fields)


def workspace(**fields: Any) -> Workspace:
    """One that is being made."""
    tenant = factories.tenant()
    return factories.workspace(tenant, factories.member(tenant), phase=Phase.PROVISIONING, cluster=cluster(), **fields)


def test_sealing_keys_that_open_nothing_or_only_just(settings: Any) -> None:
    cluster()
    old = settings.SEALING_KEYS
    settings.SEALING_KEYS = [Fernet.generate_key().decode(), *old]
    assert "rotate sealing-keys" in named("sealing-keys", "warning", "fra-1", "older")["remedy"]
    settings.SEALING_KEYS = settings.SEALING_KEYS[:1]
    named("sealing-keys", "failed", "fra-1", "none of them")
    settings.SEALING_KEYS = ["no key"]
    named("sealing-keys", "failed", "no Fernet key")
    settings.SEALING_KEYS = []
    named("sealing-keys", "failed", "there is none")


def test_an_address_that_opens_a_door_is_said_by_its_host_alone(settings: Any) -> None:
    """Of chats' webhooks the path is all that one needs to speak there."""
    factories.tenant("acme")
    operator, url = Actor(name="system:test", operator=True), "https://hooks.example.org/T0/s3cret?k=s3cret"
    names = []
    for tenant, of in (("acme", "acme"), ("", "the platform")):
        made = webhook_create(actor=operator, tenant=tenant, url=url, kinds=[], now=timezone.now()).webhook
        names.append(f"webhook {made.pk} to hooks.example.org of {of}")
        assert "s3cret" not in repr(made)
    settings.SEALING_KEYS = [Fernet.generate_key().decode(), *settings.SEALING_KEYS]
    for state in ("warning", "failed"):
        assert "s3cret" not in str(named("sealing-keys", state, *names))
        settings.SEALING_KEYS = settings.SEALING_KEYS[:1]


def test_a_clock_that_went_elsewhere() -> None:
    with time_machine.travel(datetime.now(UTC) + timedelta(minutes=3)):
        named("clocks", "failed", "apart")


def test_a_product_that_owns_its_database() -> None:
    """By its own command, with the owner's URL."""
    name = connection.settings_dict["NAME"]
    environment = {**os.environ, "DATABASE_URL": url_of(name, OWNER)}
    command = [sys.executable, "manage.py", "doctor"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "FAIL  database-role:" in done.stdout
    assert "as the tables' owner" in done.stdout


def test_row_level_security_and_migrations_that_are_gone() -> None:
    with owning() as cursor:
        cursor.execute("ALTER TABLE workspaces DISABLE ROW LEVEL SECURITY")
        cursor.execute(
            "DELETE FROM django_migrations WHERE app = 'audit' AND name = (SELECT max(name) FROM django_migrations WHERE app = 'audit') RETURNING name"
        )
        (gone,) = cursor.fetchone() or ("",)
        try:
            named("row-level-security", "failed", "workspaces")
            named("migrations", "failed", f"audit.{gone}")
        finally:
            cursor.execute("ALTER TABLE workspaces ENABLE ROW LEVEL SECURITY")
            cursor.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('audit', %s, now())", [gone])


def test_redis_that_is_not_there(settings: Any) -> None:
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    named("redis", "failed", "does not answer")


def test_a_database_that_is_not_there_keeps_nothing_else_from_being_looked_at() -> None:
    nowhere = f"postgresql://tenantry_product@127.0.0.1:{free_port()}/tenantry"
    command = [sys.executable, "manage.py", "doctor", "--output", "json"]
    environment = {**os.environ, "DATABASE_URL": nowhere}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    states = {each["name"]: each["state"] for each in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1
    assert {states[name] for name in ("database-role", "clocks", "queue", "drift")} == {"unproved"}
    assert states["redis"] == "ok"


def test_a_beat_that_has_gone(installation: Path) -> None:
    with owning() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 60_000) FROM pg_stat_activity WHERE application_name = 'tenantry beat' AND datname = current_database()"
        )
    assert "celery -A portal beat" in named("beat", "failed", "lease")["remedy"]


def test_a_beat_that_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the lease, workers answer, and nobody is woken: no other one takes over."""
    monkeypatch.setattr("portal.celery_app.control.ping", lambda **_: [{"worker": {"ok": "pong"}}])
    with redis.Redis.from_url(django_settings.REDIS_URL) as client:
        client.delete("tenantry:heartbeat")
        named("beat", "warning", "holds the lease", "nobody was woken for 60 minutes")
        heartbeat()
        named("beat", "ok", "holds the lease")
        client.expire("tenantry:heartbeat", 3600 - 17 * 60)
        named("beat", "warning", "for 17 minutes")
        client.delete("tenantry:heartbeat")


def test_work_that_waits_and_work_that_was_in_vain() -> None:
    made = workspace()
    Operation.objects.update(not_before=timezone.now() - timedelta(minutes=9))
    named("queue", "failed", "9 minutes")
    Operation.objects.update(state=OperationState.FAILED, error="the quota is no quota")
    assert "Try again" in named("queue", "warning", "the quota is no quota")["remedy"]
    Workspace.objects.filter(pk=made.pk).update(phase=Phase.READY, ready_at=timezone.now() - timedelta(hours=3))
    named("drift", "warning", "1 workspaces")


def test_clusters_that_are_away_end_soon_or_have_lost_a_fence() -> None:
    found = cluster(unreached_since=timezone.now() - timedelta(minutes=7), unreached_why="refused")
    named("cluster fra-1", "failed", "7 minutes", "refused")
    Cluster.objects.update(unreached_since=None, credential_expires_at=timezone.now() + timedelta(days=3))
    assert "Rotate" in named("cluster fra-1", "warning", "ends on")["remedy"]
    check = {
        "name": "tenantry-gateway-fence",
        "state": "failed",
        "found": "not in force",
        "remedy": "kubectl apply it.",
    }
    Cluster.objects.update(credential_expires_at=None, checks=[check])
    assert named("cluster fra-1", "failed", "tenantry-gateway-fence", "not in force")["remedy"] == "kubectl apply it."
    Cluster.objects.filter(pk=found.pk).update(sealed_credential=None)
    named("cluster fra-1", "failed", "no credential")


def test_an_audit_that_nobody_signs_any_more(settings: Any) -> None:
    factories.event("system", Action.CLUSTER_CHANGED, factories.operator())
    named("checkpoints", "warning", "is not there")
    checkpoint_write(now=timezone.now() - timedelta(hours=2))
    named("checkpoints", "failed", "the last checkpoint is of")
    checkpoint_write(now=timezone.now())


def test_doors_that_are_closed() -> None:
    lock_set(space="root", reason="restored from a backup")
    named("doors", "warning", "restored from a backup")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ALLOWED_HOSTS": ["*"]}, "everybody"),
        ({"PORTAL_URL": "http://portal.example.org"}, "without TLS"),
        ({"PORTAL_HTTPS": True}, "leads to itself"),
        ({"FAILPOINT": "before:commit"}, "failpoint"),
        ({"DEBUG": True}, "DEBUG"),
        ({"APISERVER_URL": "http://api.example.org"}, "not https"),
    ],
)
def test_settings_that_are_unsafe(settings: Any, changes: dict[str, Any], words: str) -> None:
    for name, value in changes.items():
        setattr(settings, name, value)
    named("settings", "failed", words)
