"""What was made out before a tenant was suspended, or to another customer of its name, opens nothing (TS1, P5).

Every kind of credential that says when it was made out is used, and used again after the tenant was suspended and
resumed, or after its name was given to somebody else; then a new one of the same kind works.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.databases import ROOT as HOUSE
from tests.databases import migrated
from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server, start, stop, tenant_named
from tests.gateway.test_credential_shapes import ROOT, SELF, WHOAMI, id_token, made, oidc_flags, pem_of, providing

TENANT = "shapes"
SPACE = f"/clusters/root:{TENANT}"
NAMESPACE = f"{SPACE}/api/v1/namespaces/default"
REVIEWS = f"{SPACE}/apis/authentication.k8s.io/v1/tokenreviews"
OPERATOR = "from audit.recorder import Actor; actor = Actor(name='operator', operator=True)"


class World:
    """A server, an OpenID Connect provider, and what people and programs of the tenant can show."""

    def __init__(self, server: Server, provider: str, place: Path) -> None:
        self.server, self.provider, self.place = server, provider, place

    def service(self, *lines: str) -> None:
        """What an operator does in the portal."""
        code = "; ".join([OPERATOR, *lines])
        environment = {**os.environ, "DATABASE_URL": self.server.database, "TENANTRY_DATA_DIR": str(self.server.folder)}
        subprocess.run([sys.executable, "manage.py", "shell", "-c", code], cwd=HOUSE, env=environment, check=True)

    # What is shown.

    def certificate(self) -> Caller:
        """Of a configured authority, from now on."""
        leaf, files = (
            made("bob", ROOT, begins=0),
            (self.place / f"{time.time()}.crt", self.place / f"{time.time()}.key"),
        )
        files[0].write_bytes(leaf.pem)
        files[1].write_bytes(pem_of(leaf.key))
        return Caller(self.server.url, self.server.folder / "pki" / "ca.crt", certificate=files[0], key=files[1])

    def id_token(self) -> Caller:
        return self.server.bearer(id_token(self.provider, iat=int(time.time())))

    def own_account(self) -> Caller:
        return self.server.bearer(self.token("robot"))

    def default_account(self) -> Caller:
        return self.server.bearer(self.token("default"))

    def bound_to_a_secret(self) -> Caller:
        reference = {"apiVersion": "v1", "kind": "Secret", "name": "anchor"}
        return self.server.bearer(self.token("robot", boundObjectRef=reference))

    def token(self, account: str, **spec: object) -> str:
        answer = self.server.admin.post(f"{NAMESPACE}/serviceaccounts/{account}/token", {"spec": spec})
        assert answer.status == 201, answer.body
        return str(answer.body["status"]["token"])

    def populate(self) -> None:
        tenant_named(self.server, TENANT)
        for resource, kind, name in (("serviceaccounts", "ServiceAccount", "robot"), ("secrets", "Secret", "anchor")):
            body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
            assert self.server.admin.post(f"{NAMESPACE}/{resource}", body).status == 201

    # What happens to the tenant.

    def suspended_and_resumed(self) -> None:
        self.service(
            "from tenants.services import tenant_resume, tenant_suspend",
            f"tenant_suspend(actor=actor, name='{TENANT}', reason='unpaid')",
            f"tenant_resume(actor=actor, name='{TENANT}')",
        )

    def given_to_another(self) -> None:
        self.service(
            "from tenants.reconciler.deletion import tenants_end",
            "from tenants.services import tenant_delete",
            f"tenant_delete(actor=actor, name='{TENANT}')",
            "assert tenants_end() == 1",
        )
        self.populate()


SHOWN = {
    kind.__name__: kind
    for kind in (
        World.certificate,
        World.id_token,
        World.own_account,
        World.default_account,
        World.bound_to_a_secret,
    )
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    place = tmp_path_factory.mktemp("spent")
    (place / "clients.crt").write_bytes(ROOT.pem)
    (place / "tokens.csv").write_text(f"listed,tom,1,,{TENANT}\n")
    with migrated("spent") as database, providing() as provider:
        flags = [f"--client-ca-file={place}/clients.crt", f"--token-auth-file={place}/tokens.csv"]
        server = start(place / "data", database, *flags, "--oidc-tenant-claim=tenant", *oidc_flags(provider, place))
        found = World(server, provider, place)
        found.populate()
        yield found
        stop(server)
    assert "Traceback" not in (place / "data.log").read_text()


def status(caller: Caller) -> int:
    return caller.post(WHOAMI, SELF).status


@pytest.mark.parametrize("event", [World.suspended_and_resumed, World.given_to_another], ids=lambda e: e.__name__)
def test_no_credential_from_before_works_after(world: World, event: Callable[[World], None]) -> None:
    before = {name: make(world) for name, make in SHOWN.items()}
    assert eventually(lambda: {name: status(caller) for name, caller in before.items()} == dict.fromkeys(SHOWN, 201))
    event(world)
    assert eventually(lambda: status(before["certificate"]) == 401), "the server has not heard of it"
    assert {name: status(caller) for name, caller in before.items()} == dict.fromkeys(SHOWN, 401)
    for name, make in SHOWN.items():
        # By the second: a certificate or ID token of the one in which it happened counts as an old one.
        assert eventually(lambda make=make: status(make(world)) == 201), name


def test_a_token_that_is_asked_for_as_soon_as_the_tenant_is_open_works(world: World) -> None:
    """Tokens say no more of when they were issued than the second: one of the same second is a new one all the same."""
    old = world.own_account()
    world.suspended_and_resumed()
    assert eventually(lambda: status(old) == 401)
    assert status(world.own_account()) == 201


def test_reviews_know_a_spent_token_for_no_audience(world: World) -> None:
    """KC9: whoever asks by TokenReview is told what a request would be told, also of tokens for others."""
    audiences = ["https://vault.example.org"]

    def known(token: str) -> bool:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
        answer = world.server.admin.post(REVIEWS, {**body, "spec": {"token": token, "audiences": audiences}})
        return bool(answer.body["status"].get("authenticated", False))

    spent = world.token("robot", audiences=audiences)
    assert known(spent)
    world.suspended_and_resumed()
    assert eventually(lambda: not known(spent))
    assert known(world.token("robot", audiences=audiences))


def test_a_listed_token_is_the_lists(world: World) -> None:
    """What says nothing of when it was made out ends with the line that it is in (docs/security.md)."""
    world.suspended_and_resumed()
    assert eventually(lambda: status(world.server.bearer("listed")) == 201)
