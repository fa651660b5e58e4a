"""A name is not an identity: whatever is deleted and made again by somebody else has nothing of what was before.

Two tenants, each with what refers to the other: a provider in a nested workspace, a consumer that has accepted its
claims, a policy, lent rights, tokens. For every kind of X, X is deleted and somebody else makes X again, with all that
was in it, and everything is asked for again that worked before and crosses from one owner to another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from tests.databases import ROOT
from tests.gateway.apiexports import APIS, WIDGETS, binding, binds, export, schema, status_of, widget
from tests.gateway.callers import Answer, Caller, config_map, eventually
from tests.gateway.conftest import Server, tenant_named
from tests.gateway.definitions import definition
from tests.gateway.organization import RBAC, TENANCY, bound, made, ready, role, rule, workspace, workspace_type

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLICIES = "/apis/abac.authorization.kubernetes.io/v1beta1/policies"
MAPS = "/api/v1/namespaces/default/configmaps"
GIZMOS = "/apis/own.example.org/v1/namespaces/default/gizmos"
SECRETS = {"group": "", "resource": "secrets", "all": True, "verbs": ["*"]}
_numbers = count(1)


@pytest.fixture(scope="module")
def worker(server: Server) -> Iterator[None]:
    """What ends tenants."""
    environment = {**os.environ, "DATABASE_URL": server.database, "TENANTRY_DATA_DIR": str(server.folder)}
    process = subprocess.Popen([sys.executable, "-m", "tests.gateway.worker"], cwd=ROOT, env=environment)
    yield
    process.kill()
    process.wait()


@dataclass
class World:
    """A maker, with its workspaces ``outer`` and ``outer:inner``, and another tenant, with its workspace ``cons``."""

    server: Server
    maker: str
    other: str

    def user(self, tenant: str, name: str, *groups: str) -> Caller:
        return self.server.user(tenant, name, *groups)

    @property
    def mia(self) -> Caller:
        """The owner of the maker."""
        return self.user(self.maker, "mia", "tenantry:owner")

    @property
    def otto(self) -> Caller:
        """The owner of the other tenant."""
        return self.user(self.other, "otto", "tenantry:owner")

    @property
    def home(self) -> str:
        return f"/clusters/root:{self.maker}"

    @property
    def inner(self) -> str:
        return f"{self.home}:outer:inner"

    @property
    def away(self) -> str:
        return f"/clusters/root:{self.other}"

    @property
    def cons(self) -> str:
        return f"{self.away}:cons"

    @property
    def view(self) -> str:
        return f"/services/apiexport/root:{self.maker}:outer:inner/widgets/clusters"

    # What there is, in an order in which it can be made.

    def outer(self) -> None:
        ready(self.mia, self.home, "outer")

    def inner_workspace(self) -> None:
        ready(self.mia, f"{self.home}:outer", "inner")

    def rights_inside(self) -> None:
        role(self.mia, self.inner, "lend", rule("bind", "apis.kcp.io", "apiexports"))
        bound(self.mia, self.inner, "lend", "Group", f"system:cluster:root:{self.other}")

    def schema(self) -> None:
        made(self.mia.post(f"{self.inner}{APIS}/apiresourceschemas", schema("Widget")))

    def export(self) -> None:
        claiming = export("widgets", "v1.widgets.example.org", permissionClaims=[SECRETS])
        made(self.mia.post(f"{self.inner}{APIS}/apiexports", claiming))

    def definition(self) -> None:
        made(self.mia.post(f"{self.inner}{CRDS}", definition("Gizmo", group="own.example.org")))
        assert eventually(lambda: self.mia.get(f"{self.inner}{GIZMOS}").status == 200)

    def namespace(self) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "place"}}
        made(self.mia.post(f"{self.inner}/api/v1/namespaces", body))
        self.account()

    def account(self) -> None:
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        made(self.mia.post(f"{self.inner}/api/v1/namespaces/place/serviceaccounts", body))
        self.anchor()

    def anchor(self) -> None:
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "anchor"}}
        answer = self.mia.post(f"{self.inner}/api/v1/namespaces/place/secrets", body)
        assert answer.status in (201, 409), answer.body

    def type(self) -> None:
        made(self.mia.post(f"{self.home}{TENANCY}/workspacetypes", workspace_type("lent")))

    def type_rights(self) -> None:
        role(self.mia, self.home, "use", rule("use", "tenancy.kcp.io", "workspacetypes", "lent"))
        bound(self.mia, self.home, "use", "Group", f"system:cluster:root:{self.other}")

    def cons_workspace(self) -> None:
        ready(self.otto, self.away, "cons")
        made(self.otto.post(f"{self.cons}/api/v1/namespaces/default/secrets", {"metadata": {"name": "kept"}}))

    def consents(self) -> None:
        """What the other tenant gives to the maker; nobody but whoever is asked may do this again."""
        accepted = [{**SECRETS, "state": "Accepted"}]
        target = f"root:{self.maker}:outer:inner:widgets"
        binds(self.otto, self.cons, "widgets", target, permissionClaims=accepted)
        made(self.otto.post(f"{self.cons}{WIDGETS}", widget("theirs")))

    def lets_in(self) -> None:
        spec = {"tenant": self.maker, "user": "pat", "resource": "configmaps", "apiGroup": "", "namespace": "*"}
        policy = {"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": spec}
        made(self.otto.post(f"{self.away}{POLICIES}", {**policy, "metadata": {"name": "partners"}}))
        made(self.otto.post(f"{self.away}{APIS}/apiresourceschemas", schema("Offer", scope="Cluster")))
        made(self.otto.post(f"{self.away}{APIS}/apiexports", export("offers", "v1.offers.example.org")))
        role(self.otto, self.away, "lend", rule("bind", "apis.kcp.io", "apiexports", "offers"))
        bound(self.otto, self.away, "lend", "Group", f"system:cluster:root:{self.maker}")
        made(self.otto.post(f"{self.away}{MAPS}", config_map("shown")))

    def given_inside(self) -> None:
        """What the first owner of things gave to people and machines there; a later one gives nothing."""
        bound(self.mia, self.inner, "cluster-admin", "User", "wes")
        made(self.mia.post(f"{self.inner}{GIZMOS}", {**GIZMO, "metadata": {"name": "kept"}}))
        binding_ = {
            "metadata": {"name": "robots"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "place"}],
        }
        made(self.mia.post(f"{self.inner}{RBAC}/clusterrolebindings", binding_))

    def token(self, **spec: Any) -> Caller:
        path = f"{self.inner}/api/v1/namespaces/place/serviceaccounts/robot/token"
        return self.server.bearer(made(self.mia.post(path, {"spec": spec}))["status"]["token"])


GIZMO = {"apiVersion": "own.example.org/v1", "kind": "Gizmo"}

# Each kind of X: how it ends, and what whoever has it next makes again, by steps of ``World``.
INSIDE = ("rights_inside", "schema", "export", "definition", "namespace")
INNER = ("inner_workspace", *INSIDE)
OUTER = ("outer", *INNER)
HOME = ("type", "type_rights")
KINDS: dict[str, tuple[Callable[[World], str], tuple[str, ...]]] = {
    "tenant": (lambda w: f"/api/v1/tenants/{w.maker}", (*HOME, *OUTER)),
    "other tenant": (lambda w: f"/api/v1/tenants/{w.other}", ("cons_workspace",)),
    "workspace": (lambda w: f"{w.home}:outer{TENANCY}/workspaces/inner", INNER),
    "workspace above": (lambda w: f"{w.home}{TENANCY}/workspaces/outer", OUTER),
    "consuming workspace": (lambda w: f"{w.away}{TENANCY}/workspaces/cons", ("cons_workspace",)),
    "export": (lambda w: f"{w.inner}{APIS}/apiexports/widgets", ("export",)),
    "schema": (lambda w: f"{w.inner}{APIS}/apiresourceschemas/v1.widgets.example.org", ("schema",)),
    "workspace type": (lambda w: f"{w.home}{TENANCY}/workspacetypes/lent", ("type",)),
    "definition": (lambda w: f"{w.inner}{CRDS}/gizmos.own.example.org", ("definition",)),
    "namespace": (lambda w: f"{w.inner}/api/v1/namespaces/place", ("namespace",)),
    "service account": (lambda w: f"{w.inner}/api/v1/namespaces/place/serviceaccounts/robot", ("account",)),
    "secret": (lambda w: f"{w.inner}/api/v1/namespaces/place/secrets/anchor", ("anchor",)),
    "binding": (lambda w: f"{w.cons}{APIS}/apibindings/widgets", ()),
    "policy": (lambda w: f"{w.away}{POLICIES}/partners", ()),
}
PROVIDER = {"tenant", "workspace", "workspace above", "export"}
CONSUMER = {"other tenant", "consuming workspace", "binding"}
BELOW = {"tenant", "workspace", "workspace above"}


def found(answer: Answer) -> bool:
    """Whether anything was given."""
    return answer.status in (200, 201) and answer.body.get("items") != []


@dataclass(frozen=True)
class Probe:
    """Something that crosses from one owner to another, and the kinds with which it ends."""

    name: str
    ends_with: frozenset[str]
    ask: Callable[[World, dict[str, Caller]], Answer]


def probe(name: str, ends_with: set[str], ask: Callable[[World, dict[str, Caller]], Answer]) -> Probe:
    return Probe(name, frozenset(ends_with), ask)


PROBES = (
    probe(
        "claimed objects of a consumer",
        PROVIDER | CONSUMER,
        lambda w, _: w.mia.get(f"{w.view}/root:{w.other}:cons/api/v1/namespaces/default/secrets"),
    ),
    probe(
        "claimed objects of all", PROVIDER | CONSUMER, lambda w, _: w.mia.get(f"{w.view}/*/api/v1/secrets")
    ),
    probe(
        "exported objects of a consumer",
        PROVIDER | CONSUMER,
        lambda w, _: w.mia.get(f"{w.view}/root:{w.other}:cons/apis/example.org/v1/widgets"),
    ),
    probe(
        "exported objects of all",
        PROVIDER | CONSUMER,
        lambda w, _: w.mia.get(f"{w.view}/*/apis/example.org/v1/widgets"),
    ),
    probe("bound objects at home", PROVIDER | CONSUMER, lambda w, _: w.otto.get(f"{w.cons}{WIDGETS}")),
    probe(
        "whom a policy lets in",
        {"tenant", "other tenant", "policy"},
        lambda w, _: w.user(w.maker, "pat").get(f"{w.away}{MAPS}"),
    ),
    probe(
        "lent to the maker",
        {"tenant", "other tenant"},
        lambda w, _: w.mia.post(
            f"{w.home}{APIS}/apibindings", binding("offers", f"root:{w.other}:offers"), dryRun="All"
        ),
    ),
    probe(
        "lent to the other",
        {"other tenant"},
        lambda w, _: w.otto.post(
            f"{w.away}{TENANCY}/workspaces", workspace("new", f"root:{w.maker}:lent"), dryRun="All"
        ),
    ),
    probe(
        "may be bound by the other",
        {"other tenant"},
        lambda w, _: w.otto.post(
            f"{w.away}{APIS}/apibindings", binding("widgets", f"root:{w.maker}:outer:inner:widgets"), dryRun="All"
        ),
    ),
    probe("a member inside", BELOW, lambda w, _: w.user(w.maker, "wes").get(f"{w.inner}/api/v1/secrets")),
    probe("own objects", BELOW | {"definition"}, lambda w, _: w.mia.get(f"{w.inner}{GIZMOS}")),
    probe(
        "an account's token",
        BELOW | {"namespace", "service account"},
        lambda w, tokens: tokens["plain"].get(f"{w.inner}/api/v1/namespaces"),
    ),
    probe(
        "a token bound to a secret",
        BELOW | {"namespace", "service account", "secret"},
        lambda w, tokens: tokens["anchored"].get(f"{w.inner}/api/v1/namespaces"),
    ),
)  # fmt: skip


def may_enter_anew(world: World) -> bool:
    """Whether certificates that are made out now count: by the second, those of the one before do not."""
    world.server.issued.anew()
    return {who.get(f"{home}{MAPS}").status for who, home in ((world.mia, world.home), (world.otto, world.away))} == {
        200
    }


def is_gone(world: World, path: str) -> bool:
    return world.server.admin.get(path).status == 404


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_passes_to_whoever_makes_it_again(server: Server, worker: None, kind: str) -> None:
    """TS1, KC5, KC6, KC11, AZ7, GW3."""
    number = next(_numbers)
    world = World(server, f"maker-{number}", f"other-{number}")
    for tenant in (world.maker, world.other):
        tenant_named(server, tenant)
    for step in (*HOME, *OUTER, "cons_workspace", "consents", "lets_in", "given_inside"):
        getattr(world, step)()
    anchor = server.admin.get(f"{world.inner}/api/v1/namespaces/place/secrets/anchor").body["metadata"]
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "anchor", "uid": anchor["uid"]}
    tokens = {"plain": world.token(), "anchored": world.token(boundObjectRef=reference)}
    for each in PROBES:
        answer = each.ask(world, tokens)
        assert found(answer), (each.name, answer.body)

    path, again = KINDS[kind]
    where = path(world)
    assert server.admin.delete(where).status in (200, 202), where
    assert eventually(lambda: is_gone(world, where)), server.admin.get(where).body
    if "tenant" in kind:
        tenant_named(server, world.maker if kind == "tenant" else world.other)
        assert eventually(lambda: may_enter_anew(world))
    for step in again:
        getattr(world, step)()

    ended = {each.name for each in PROBES if kind in each.ends_with}
    # What a process is told of shortly after it has happened is asked for until then; what must hold, at once.
    for each in PROBES:
        if each.name in ended:
            assert eventually(lambda each=each: not found(each.ask(world, tokens))), each.name
    for each in PROBES:
        if each.name not in ended:
            assert eventually(lambda each=each: found(each.ask(world, tokens))), each.name
        else:
            answer = each.ask(world, tokens)
            assert not found(answer), (each.name, answer.raw[:500])
    if kind in PROVIDER:
        again_by_consent(world)


def again_by_consent(world: World) -> None:
    """The binding says what has happened; who makes it again has consented to what is there now."""

    def ready_() -> dict[str, Any]:
        conditions = status_of(world.otto, world.cons, "widgets").get("conditions", ())
        return next((one for one in conditions if one["type"] == "Ready"), {})

    assert eventually(lambda: ready_().get("reason") == "IdentityMismatch"), ready_()
    assert ready_()["status"] == "False"
    assert "make it again" in ready_()["message"]
    assert status_of(world.otto, world.cons, "widgets")["phase"] == "Binding"
    assert world.otto.delete(f"{world.cons}{APIS}/apibindings/widgets").status == 200
    assert eventually(lambda: world.otto.get(f"{world.cons}{APIS}/apibindings/widgets").status == 404)
    world.consents()
    assert ready_()["status"] == "True"
    for each in PROBES[:5]:
        assert found(each.ask(world, {})), each.name
