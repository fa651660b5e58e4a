"""The cluster that the product runs in registers itself, with no more rights than the chart gives it (GW10, GW12)."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
import yaml
from cryptography.fernet import Fernet
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.utils import timezone
from kubernetes.config import incluster_config

from tenants.models import Cluster
from tests.deploy.rendering import flat, rendered
from tests.kubeapiserver import ASSETS, KubeApiserver
from tests.ports import free_port
from tests.story.product import eventually

pytestmark = pytest.mark.django_db

ACCOUNT = "system:serviceaccount:tenantry:tenantry-joincluster"


@pytest.fixture
def inside(
    kube_apiserver: KubeApiserver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    request: pytest.FixtureRequest,
) -> Iterator[KubeApiserver]:
    """As in a Pod of the chart's service account; the cluster's own signer signs what was approved, for a year at most."""
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]
    cache.delete("portal:joining:local")
    kube_apiserver.kubectl("delete", "csr", "--all")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenantry"}}
    objects = [namespace, *(each for each in flat({"": rendered({"joinCluster": {"enabled": True}})["joincluster"]}))]
    applied = kube_apiserver.kubectl(
        *("apply", "--server-side", "--force-conflicts", "-f", "-"), stdin=yaml.safe_dump_all(objects)
    )
    assert applied.returncode == 0, applied.stderr
    token = kube_apiserver.kubectl("create", "token", "tenantry-joincluster", "-n", "tenantry").stdout.strip()
    (tmp_path / "token").write_text(token)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(kube_apiserver.folder / "ca.pem"))
    address = urlsplit(kube_apiserver.url)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(address.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(address.port))
    admin = kube_apiserver.folder / "admin.kubeconfig"
    signer = subprocess.Popen(
        [
            str(ASSETS / "kube-controller-manager"),
            *(f"--{name}kubeconfig={admin}" for name in ("", "authentication-", "authorization-")),
            f"--cluster-signing-cert-file={kube_apiserver.folder / 'ca.pem'}",
            f"--cluster-signing-key-file={kube_apiserver.folder / 'ca.key'}",
            f"--cluster-signing-duration={getattr(request, 'param', '8760h')}",
            "--controllers=certificatesigningrequest-signing-controller",
            "--leader-elect=false",
            f"--secure-port={free_port()}",
            f"--cert-dir={tmp_path}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=(tmp_path / "signer.log").open("wb"),
    )
    yield kube_apiserver
    signer.kill()
    signer.wait()


def join(*arguments: str) -> str:
    said = StringIO()
    call_command("joincluster", "local", *arguments, stdout=said)
    return said.getvalue()


def requests(server: KubeApiserver) -> list[str]:
    found = json.loads(server.kubectl("get", "csr", "-o", "json").stdout)["items"]
    return [each["metadata"]["name"] for each in found if each["spec"]["username"] == ACCOUNT]


def approver(server: KubeApiserver, known: set[str]) -> threading.Thread:
    """Whoever owns the cluster, and approves the next request."""

    def approve() -> None:
        (name,) = eventually(lambda: set(requests(server)) - known)
        server.kubectl("certificate", "approve", name)

    thread = threading.Thread(target=approve)
    thread.start()
    return thread


def test_it_asks_and_the_owner_approves_and_the_credential_is_renewed_in_time(inside: KubeApiserver) -> None:
    owner = approver(inside, set())
    said = join()
    owner.join()
    cluster = Cluster.objects.get(name="local")
    assert "local is registered" in said
    assert (cluster.server, cluster.kind) == (inside.url, Cluster.Kind.EXTERNAL)
    assert {each["name"] for each in cluster.checks if each["state"] == "failed"} <= {"credential"}, cluster.checks
    ends = cluster.credential_expires_at
    assert ends is not None
    assert timedelta(days=80) < ends - timezone.now() < timedelta(days=91)
    assert "holds until" in join()
    Cluster.objects.update(credential_expires_at=timezone.now() + timedelta(days=20))
    owner = approver(inside, set(requests(inside)))
    assert "has a new credential" in join()
    owner.join()
    assert len(requests(inside)) == 2
    # A credential that was wiped is given again, and what an operator has said of the cluster stays.
    said = {"tenant_role": "tenantry-tenant-view", "limits_events": True, "is_default": True}
    Cluster.objects.update(sealed_credential=None, credential_expires_at=None, **said)
    owner = approver(inside, set(requests(inside)))
    assert "has a new credential" in join()
    owner.join()
    kept = Cluster.objects.get(name="local")
    assert kept.sealed_credential
    assert {name: getattr(kept, name) for name in said} == said


@pytest.mark.parametrize("inside", ["240h"], indirect=True)
def test_a_certificate_that_the_cluster_makes_short_is_renewed_after_half_of_its_life(inside: KubeApiserver) -> None:
    owner = approver(inside, set())
    assert "local is registered" in join()
    owner.join()
    Cluster.objects.update(credential_expires_at=timezone.now() + timedelta(days=6))
    assert "holds until" in join()
    Cluster.objects.update(credential_expires_at=timezone.now() + timedelta(days=4))
    with pytest.raises(CommandError, match="Nobody has approved"):
        join("--patience=0")


def test_an_approval_of_the_next_morning_is_one(inside: KubeApiserver, settings: Any) -> None:
    """The request that was named is gone on with, at first and with each renewal, and nothing else is asked meanwhile."""
    for said in ("local is registered", "has a new credential"):
        before = set(requests(inside))
        for _ in range(2):
            with pytest.raises(CommandError, match="kubectl certificate approve tenantry-gateway-") as told:
                join("--patience=0")
        (name,) = set(requests(inside)) - before
        assert name in str(told.value)
        assert cache.get("portal:joining:local")
        assert not any(b"PRIVATE KEY" in value for value in everything_in_redis(settings.REDIS_URL))
        assert inside.kubectl("certificate", "approve", name).returncode == 0
        assert said in join()
        assert set(requests(inside)) - before == {name}
        assert cache.get("portal:joining:local") is None
        Cluster.objects.update(credential_expires_at=timezone.now() + timedelta(days=20))
    # One that the cluster has forgotten, as it does after a day, is asked for anew; so is one that was denied.
    with pytest.raises(CommandError):
        join("--patience=0")
    (forgotten,) = set(requests(inside)) - before - {name}
    inside.kubectl("delete", "csr", forgotten)
    with pytest.raises(CommandError, match="Nobody"):
        join("--patience=0")
    (denied,) = set(requests(inside)) - before - {name}
    inside.kubectl("certificate", "deny", denied)
    with pytest.raises(CommandError, match="denied"):
        join()
    with pytest.raises(CommandError, match="Nobody"):
        join("--patience=0")
    (waiting,) = set(requests(inside)) - before - {name, denied}
    # Its key goes by the sealing keys: the older ones open it until they are let go of, and then another one is asked for.
    settings.SEALING_KEYS = [Fernet.generate_key().decode(), *settings.SEALING_KEYS]
    with pytest.raises(CommandError, match=waiting):
        join("--patience=0")
    settings.SEALING_KEYS = settings.SEALING_KEYS[:1]
    with pytest.raises(CommandError, match="Nobody"):
        join("--patience=0")
    (another,) = set(requests(inside)) - before - {name, denied, waiting}
    inside.kubectl("certificate", "approve", another)
    assert "has a new credential" in join()


def everything_in_redis(url: str) -> list[bytes]:
    with redis.Redis.from_url(url) as client:
        return [bytes(client.get(key) or b"") for key in client.scan_iter() if client.type(key) == b"string"]


def test_without_a_word_of_the_owner_nothing_is_registered(inside: KubeApiserver) -> None:
    with pytest.raises(CommandError, match="kubectl certificate approve tenantry-gateway-"):
        join("--patience=1")
    with pytest.raises(CommandError, match="403"):
        join("--approve", "--patience=1")
    assert not Cluster.objects.filter(name="local").exists()


@pytest.mark.parametrize(
    "asked",
    [("get", "secrets"), ("create", "pods"), ("update", "certificatesigningrequests/approval"), ("delete", "csr")],
)
def test_its_account_may_do_nothing_else(inside: KubeApiserver, asked: tuple[str, str]) -> None:
    answer = inside.kubectl("auth", "can-i", *asked, "-A", f"--as={ACCOUNT}").stdout
    assert answer.strip() == "no"
