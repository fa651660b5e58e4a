"""A backup, a bad day, a restore: on the real quickstart, while it runs. Nothing opens that was issued before (P12)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from kube.authentication import pki
from tests.story.product import Person, Product, eventually

PASSWORD = "correct horse battery"
HOOKS = """
from datetime import UTC, datetime
from access.credentials.webhooks import webhook_credential_rotate
from audit.recorder import Actor
from tenants.models import Cluster
Cluster.objects.get_or_create(name="asking", kind="external", server="https://192.0.2.1:6443", ca_data="none")
actor = Actor(name="operator", operator=True)
print(webhook_credential_rotate(actor=actor, cluster="asking", now=datetime.now(UTC)))
"""
RECORDED = """
from tenants.models import User, Workspace
from tests import factories
print(factories.recording(Workspace.objects.get(), User.objects.get(email="alice@acme.test"), shown="uid=0(root)").pk)
"""
Door = Callable[[], int]


class House:
    """A product in use: a tenant, its owner, a workspace."""

    def __init__(self, product: Product) -> None:
        self.product = product
        product.add_person("alice@acme.test", PASSWORD, "acme")
        product.add_person("bob@globex.test", PASSWORD, "globex")
        self.alice = product.sign_in("alice@acme.test", PASSWORD)
        answer = self.alice.post("/api/v1/workspaces/init", json={"tier": "basic", "tenant": "acme"})
        assert answer.status_code in (201, 202), answer.text
        self.workspace: dict[str, Any] = answer.json()
        eventually(lambda: self.status_by(self.alice) == "provisioned")
        self.files = product.folder / "shown"
        self.files.mkdir()

    def status_by(self, person: Person) -> str:
        """What the REST API says of the workspace."""
        return str(person.get(f"/api/v1/workspaces/{self.workspace['id']}/").json()["status"])

    def operator(self) -> Person:
        return self.product.sign_in(self.product.facts["operator_email"], self.product.facts["operator_password"])

    def doors(self) -> dict[str, Door]:
        """A new credential of every kind, each as what it is answered with."""
        alice = self.product.sign_in("alice@acme.test", PASSWORD)
        ends = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        wanted = {"name": "t", "scope": "read", "expires_at": ends}
        token = alice.post("/api/v1/tokens/", json=wanted).json()["token"]
        bound = alice.post("/api/v1/tokens/", json={**wanted, "tenant": "acme"}).json()["token"]
        tenant = alice.post("/api/v1/tenants/acme/kubeconfig", json={})
        assert tenant.status_code in (200, 201), tenant.text
        workspace = yaml.safe_load(alice.kubeconfig(self.workspace["id"]).read_text())["users"][0]["user"]["token"]
        person = yaml.safe_load(tenant.json()["kubeconfig"])["users"][0]["user"]["token"]
        asking = self.product.manage("shell", code=HOOKS).split()[-1]
        account = self.account_token("root:acme")
        system = self.account_token("root")
        certificate = self.certificate()
        space, namespace = "/clusters/root:acme/api/v1/namespaces", self.workspace["namespace"]
        own = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        hook = "/webhooks/asking/authenticate"
        return {
            "session of the portal": lambda: alice.get("/workspaces/").status_code,
            "session of the REST API": lambda: alice.get("/api/v1/workspaces/").status_code,
            "personal access token": lambda: self.rest(token),
            "personal access token of one tenant": lambda: self.rest(bound),
            "kubeconfig of a workspace": lambda: self.ask(f"{space}/{namespace}/configmaps", workspace),
            "kubeconfig of a tenant": lambda: self.ask(f"{space}/default/configmaps", person),
            "client certificate": lambda: self.ask(f"{space}/default/configmaps", certificate=certificate),
            "service account of a tenant": lambda: self.ask(own, account, body=REVIEW),
            "service account of the system space": lambda: self.ask(own, system, body=REVIEW),
            "cluster at the webhooks": lambda: self.ask(hook, asking, body=review(person)),
        }

    def rest(self, token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return requests.get(f"{self.product.portal}/api/v1/workspaces/", headers=headers, timeout=300).status_code

    def ask(self, path: str, token: str = "", *, certificate: Any = None, body: Any = None) -> int:
        """The status of one request to the API server."""
        return self.answer(path, token, certificate=certificate, body=body).status_code

    def answer(self, path: str, token: str = "", *, certificate: Any = None, body: Any = None) -> requests.Response:
        return requests.request(
            "GET" if body is None else "POST",
            self.product.facts["apiserver_url"] + path,
            json=body,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            cert=certificate,
            verify=self.product.facts["ca_file"],
            timeout=300,
        )

    def administrator(self) -> tuple[str, str]:
        """The installation's own client certificate."""
        config = yaml.safe_load(Path(self.product.facts["admin_kubeconfig"]).read_text())
        return self._kept("admin", config["users"][0]["user"])

    def _kept(self, name: str, user: dict[str, str]) -> tuple[str, str]:
        paths = self.files / f"{name}.crt", self.files / f"{name}.key"
        for path, key in zip(paths, ("client-certificate-data", "client-key-data"), strict=True):
            path.write_bytes(base64.b64decode(user[key]))
        return str(paths[0]), str(paths[1])

    def account_token(self, space: str) -> str:
        path = f"/clusters/{space}/api/v1/namespaces/default/serviceaccounts/default/token"
        answer = self.answer(path, certificate=self.administrator(), body={"spec": {}, "kind": "TokenRequest"})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["status"]["token"])

    def certificate(self) -> tuple[str, str]:
        """Of a person of the tenant, by the installation's own authority."""
        pem = self.product.folder / "pki"
        authority = pki.KeyPair((pem / "client-ca.crt").read_bytes(), (pem / "client-ca.key").read_bytes())
        made = pki.make_client_certificate(
            authority,
            "carla",
            organizations=["tenant:acme"],
            units=["tenantry:owner"],
            now=datetime.now(UTC) + pki.BACKDATED,
            lifetime=timedelta(hours=1),
        )
        number = len(list(self.files.iterdir()))
        paths = self.files / f"{number}.crt", self.files / f"{number}.key"
        paths[0].write_bytes(made.certificate)
        paths[1].write_bytes(made.key)
        return str(paths[0]), str(paths[1])


REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def review(token: str) -> dict[str, Any]:
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}


def statuses(doors: dict[str, Door]) -> dict[str, int]:
    return {name: door() for name, door in doors.items()}


def opens(doors: dict[str, Door]) -> list[str]:
    """The doors that let somebody in."""
    return [name for name, status in statuses(doors).items() if status < 300]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("restore")
    for above in (folder, *folder.parents[:2]):
        above.chmod(0o711)
    product = Product(folder / "data")
    product.start()
    try:
        yield House(product)
    finally:
        product.stop()


def test_a_restore_over_a_running_product(house: House, tmp_path: Path) -> None:
    """Everything issued before is dead, the backup's and what came later; what was closed later stays closed."""
    product, file = house.product, tmp_path / "a.backup"
    before = house.doors()
    assert opens(before) == list(before), statuses(before)
    recording = product.manage("shell", code=RECORDED).split()[-1]
    product.manage("backup", str(file))
    after = house.doors()
    assert opens(after) == list(after)
    operator = house.operator()
    suspended = operator.post("/api/v1/tenants/globex/suspend", json={"reason": "mining"})
    assert suspended.status_code in (200, 202), suspended.text
    listed = house.answer("/api/v1/namespaces", certificate=house.administrator()).json()
    told = listed["metadata"]["resourceVersion"]

    said = product.manage("restore", str(file), "--replace", within=300)
    assert "tenant globex stays closed: mining" in said
    assert "cluster asking asks webhooks" in said
    # Running servers hear of it within a moment; what is closed then stays closed.
    for doors in (before, after):
        eventually(lambda doors=doors: opens(doors) == [])
    # Running servers notice: what was told is past, and what is told now is beyond it.
    gone = house.answer(f"/api/v1/namespaces?watch=true&resourceVersion={told}", certificate=house.administrator())
    assert '"code":410' in gone.text.replace(" ", "")
    now = house.answer("/api/v1/namespaces", certificate=house.administrator()).json()["metadata"]["resourceVersion"]
    assert int(now) > int(told)

    # People of tenants are told; operators come in, and are told what to do.
    alice = product.sign_in("alice@acme.test", PASSWORD)
    for path in ("/workspaces/", "/api/v1/workspaces/", "/profile/", "/tokens/new/"):
        refused = alice.get(path)
        assert refused.status_code == 503, path
        assert "restored from a backup" in refused.text
    assert alice.post("/logout/").status_code == 302
    operator = house.operator()
    assert "Closed to everybody but operators" in operator.get("/").text

    def confirmed() -> bool:
        return "Not confirmed yet" not in operator.get("/restore/open/").text

    eventually(confirmed)
    assert operator.form("/restore/open/", {}).status_code == 302
    assert "Closed to everybody" not in operator.get("/").text
    for doors in (before, after):
        assert opens(doors) == [], statuses(doors)
    globex = operator.get("/api/v1/tenants/globex/").json()
    assert globex["state"] == "suspended"

    # What somebody showed in a pod before is kept, and plays.
    (kept,) = [row for row in operator.get("/api/v1/recordings/").json()["results"] if row["id"] == recording]
    played = operator.get(f"/recordings/{recording}/cast/")
    assert "uid=0(root)" in played.text
    assert hashlib.sha256(played.content).hexdigest() == kept["sha256"]

    eventually(lambda: house.status_by(operator) == "provisioned")
    anew = house.doors()
    eventually(lambda: opens(anew) == list(anew))
    assert opens(before) + opens(after) == []
    assert "acme:" in product.manage("audit", "verify")
