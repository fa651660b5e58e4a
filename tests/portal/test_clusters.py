"""Clusters as operators see them: whether they answer, until when the credential lasts, and another one (GW12, GW14)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.utils import timezone

from tenants.clusters import encryption
from tenants.models import Cluster, ClusterProbe, User
from tests import factories
from tests.clusters import TestCluster
from tests.portal.commandline import Shell
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import bearer, send

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _sealing_keys(settings) -> None:
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]


LEFT = {
    "name": "acme-left",
    "uid": "8d1e7f7a-3f53-4c53-a8f7-6b5d0c7a2f10",
    "tenant": "acme",
    "workspace": "5a7d1c7e-1c1b-4a39-8f6f-0f3c6b1e9d22",
    "created_at": "2026-11-01T09:30:00Z",
}


@pytest.fixture
def away() -> Cluster:
    """One that answered until a while ago, with a credential for three days more."""
    now = timezone.now()
    found = factories.cluster(
        version="v1.36.1",
        latency_ms=None,
        unreached_since=now - timedelta(minutes=7),
        unreached_why="The cluster cannot be reached: no connection in time.",
        credential_expires_at=now + timedelta(days=3),
        opened="storageclasses.storage.k8s.io/fast",
        unclaimed_namespaces=[LEFT],
    )
    for minutes, latency in ((5, None), (65, 20), (66, 40), (60 * 13, 9000)):
        ClusterProbe.objects.create(cluster=found, at=now - timedelta(minutes=minutes), latency_ms=latency)
    return found


def test_the_page_says_what_is_known_of_a_cluster(away: Cluster, operator: User) -> None:
    client = signed_in(operator)
    page = client.get(f"/clusters/{away.name}/").content.decode()
    for words in ("v1.36.1", "no connection in time", "storageclasses.storage.k8s.io/fast", "ends soon", "Away"):
        assert words in page
    assert 'data-copy-text="kubectl delete namespace acme-left"' in page
    assert f"of the tenant acme, workspace {LEFT['workspace']}" in " ".join(page.split())
    Cluster.objects.update(unclaimed_namespaces=[LEFT | {"tenant": ""}])
    page = client.get(f"/clusters/{away.name}/").content.decode()
    assert f"of an unknown tenant, workspace {LEFT['workspace']}" in " ".join(page.split())
    Cluster.objects.update(unclaimed_namespaces=[])
    assert "Namespaces of nobody" not in client.get(f"/clusters/{away.name}/").content.decode()
    plot = client.get(f"/clusters/{away.name}/latency/").content.decode()
    assert "<b>40</b> ms at most" in plot
    assert "9000" not in plot, "older than what is drawn"
    assert "without an answer" in plot


def test_the_overview_names_what_is_to_be_done_to_operators_alone(away: Cluster, operator: User, acme: House) -> None:
    page = signed_in(operator).get("/").content.decode()
    assert f"{away.name} is away since" in page
    assert f"The gateway&#x27;s credential of {away.name} ends on" in page
    assert f"/clusters/{away.name}/credential/" in page
    assert away.name not in signed_in(acme.owner).get("/").content.decode()
    Cluster.objects.update(unreached_since=None, credential_expires_at=timezone.now() + timedelta(days=15))
    assert away.name not in signed_in(operator).get("/").content.decode().split('aria-label="Numbers"')[0]


def test_the_rest_api_says_the_same_and_nothing_of_the_credential(away: Cluster, operator: User) -> None:
    found = send(bearer(operator, "operate"), "GET", f"clusters/{away.name}/").json()
    assert (found["version"], found["latency_ms"]) == ("v1.36.1", None)
    assert (found["unreached_why"], bool(found["unreached_since"])) == (away.unreached_why, True)
    assert found["credential_expires_at"].startswith(f"{away.credential_expires_at:%Y-%m-%d}")
    assert "sealed" not in str(found)
    assert found["unclaimed_namespaces"] == [LEFT]


def test_a_credential_is_nobodys_but_operators_to_rotate(away: Cluster, acme: House) -> None:
    body = {"kubeconfig": "x"}
    assert send(bearer(acme.owner), "POST", f"clusters/{away.name}/credential", body).status_code == 403
    client = signed_in(acme.owner)
    for path in ("credential/", "latency/"):
        assert client.get(f"/clusters/{away.name}/{path}").status_code == 403
    assert client.post(f"/clusters/{away.name}/credential/", body).status_code == 403


def by_page(operator: User, name: str, kubeconfig: str) -> tuple[bool, str]:
    answer = signed_in(operator).post(f"/clusters/{name}/credential/", {"kubeconfig": kubeconfig})
    return answer.status_code == 302, answer.content.decode()


def by_rest(operator: User, name: str, kubeconfig: str) -> tuple[bool, str]:
    answer = send(bearer(operator, "operate"), "POST", f"clusters/{name}/credential", {"kubeconfig": kubeconfig})
    return answer.status_code == 200, answer.content.decode()


@pytest.mark.parametrize("ask", [by_page, by_rest])
def test_an_operator_rotates_a_credential(
    cluster: TestCluster, operator: User, ask: Callable[[User, str, str], tuple[bool, str]]
) -> None:
    """What is wrong with one is said where it was given; neither the old nor the new one is ever shown."""
    stranger = cluster.real.kubeconfig("somebody")
    done, shown = ask(operator, cluster.kind, stranger)
    assert (done, "the fences bind only the user tenantry-gateway" in shown) == (False, True)
    new = cluster.real.kubeconfig("tenantry-gateway")
    done, shown = ask(operator, cluster.kind, new)
    assert done, shown
    assert "client-key-data" not in shown
    assert encryption.decrypt(bytes(Cluster.objects.get().sealed_credential or b"")).strip() == new.strip()


@pytest.mark.django_db(transaction=True)
def test_the_command_line_rotates_a_credential(
    cluster: TestCluster,
    operator: User,
    live_server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    shell = Shell(live_server.url, monkeypatch, capsys).sign_in(operator, "operate")
    new = cluster.real.kubeconfig("tenantry-gateway")
    file = tmp_path / "gateway.kubeconfig"
    file.write_text(new)
    assert "Rotated" in shell.done("clusters", "rotate", cluster.kind, "-f", str(file)).errors
    assert encryption.decrypt(bytes(Cluster.objects.get().sealed_credential or b"")) == new
    refused = shell.run("clusters", "rotate", "nowhere", "-f", str(file))
    assert (refused.status, "not found" in refused.errors) == (5, True)
