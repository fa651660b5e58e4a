"""The tokens that requests carry to a cluster: the least account's, one renewal for all, never too late (GW4)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from cryptography.fernet import Fernet
from django.db import connection
from django.utils import timezone

from access.credentials.tokenrequests import ClusterToken
from access.credentials.workspacetokens import NoAccess, workspace_token_issue
from audit.models import AuditEntry
from gateway.handlers.placednamespaces.forwarding import ask
from gateway.http.messages import Request
from gateway.upstream.client import Cluster as Reached
from gateway.upstream.placements import Placement
from gateway.upstream.reading import read_list_as
from gateway.upstream.tokens import PAUSE_SECONDS, RENEW_SECONDS, REST_SECONDS, WorkspaceTokens
from kube.authentication.identity import Principal
from kube.requests.requestinfo import parse, resolve
from kube.requests.status import ServiceUnavailable
from tenants.clusters import encryption
from tenants.clusters.client import Place, place_of
from tenants.clusters.objects import ACCOUNTS
from tenants.models import Role, Workspace
from tenants.services import cluster_register, workspace_resume, workspace_suspend
from tests import factories
from tests.gateway.callers import config_map
from tests.gateway.placed.conftest import Door, phase_of, said
from tests.gateway.upstream.asking import upstream_of
from tests.gateway.upstream.rawcluster import answering, ok
from tests.kubeapiserver import make_kubeconfig
from tests.ports import free_port
from tests.tenants.conftest import OPERATOR

WEB = Placement("4f0e…", "fra-1", "root:acme", "acme-web", "Active")
FRA = Reached(uid="c1", name="fra-1", url="https://fra-1.test", ca_pem="one")
_TOKEN = r"eyJ[A-Za-z0-9_-]+\.eyJ|65794a([0-9a-f]{2})+2e65794a"
"""How any JWT begins, and how PostgreSQL writes it where it is kept as bytes."""


class Cluster:
    """Issues tokens, one after the other, unless it is broken."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.now = 1_000_000.0
        self.broken = False
        self.error: ServiceUnavailable | None = None

    def issue(self, placement: Placement, _cluster: Reached, role: str, now: datetime) -> ClusterToken:
        self.asked.append((placement.workspace, role))
        if self.error is not None:
            raise self.error
        if self.broken:
            raise ServiceUnavailable("away", retry_after=1)
        return ClusterToken(f"token-{len(self.asked)}", None, now + timedelta(hours=2))

    def tokens(self) -> WorkspaceTokens:
        return WorkspaceTokens(self.issue, lambda: self.now)


async def test_five_hundred_wait_for_one_issuance() -> None:
    cluster = Cluster()
    tokens = cluster.tokens()
    assert set(await asyncio.gather(*(tokens.get(WEB, FRA, "viewer") for _ in range(500)))) == {"token-1"}
    assert len(cluster.asked) == 1


async def test_in_the_last_ten_minutes_one_renewal_serves_all() -> None:
    cluster = Cluster()
    tokens = cluster.tokens()
    await tokens.get(WEB, FRA, "viewer")
    cluster.now += 7200 - RENEW_SECONDS - 1
    assert await tokens.get(WEB, FRA, "viewer") == "token-1"
    assert len(cluster.asked) == 1
    cluster.now += 2
    assert set(await asyncio.gather(*(tokens.get(WEB, FRA, "viewer") for _ in range(500)))) == {"token-1"}
    await until(lambda: len(cluster.asked) == 2)
    while await tokens.get(WEB, FRA, "viewer") == "token-1":
        await asyncio.sleep(0)
    assert len(cluster.asked) == 2


async def test_a_failed_renewal_keeps_the_old_token_to_its_end() -> None:
    cluster = Cluster()
    tokens = cluster.tokens()
    await tokens.get(WEB, FRA, "viewer")
    cluster.now += 7200 - 60
    cluster.broken = True
    for _ in range(50):
        assert await tokens.get(WEB, FRA, "viewer") == "token-1"
        await asyncio.sleep(0)
    await until(lambda: len(cluster.asked) == 2)
    # While a renewal is under way there is no other.
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    cluster.now += PAUSE_SECONDS + 1
    assert await tokens.get(WEB, FRA, "viewer") == "token-1"
    await until(lambda: len(cluster.asked) == 3)
    cluster.now += 60
    with pytest.raises(ServiceUnavailable):
        await tokens.get(WEB, FRA, "viewer")


async def test_a_refused_token_is_replaced_once_for_all() -> None:
    cluster = Cluster()
    tokens = cluster.tokens()
    refused = await tokens.get(WEB, FRA, "viewer")
    with pytest.raises(ServiceUnavailable):
        # It has just come: a cluster that takes none would be asked for ever.
        await tokens.after_refusal(WEB, FRA, "viewer", refused)
    cluster.now += PAUSE_SECONDS
    others = await asyncio.gather(*(tokens.after_refusal(WEB, FRA, "viewer", refused) for _ in range(100)))
    assert (set(others), len(cluster.asked)) == ({"token-2"}, 2)


async def test_a_workspace_made_again_has_tokens_of_its_own() -> None:
    cluster = Cluster()
    tokens = cluster.tokens()
    again = Placement("another", WEB.cluster, WEB.space, WEB.namespace, "Active")
    assert await tokens.get(WEB, FRA, "viewer") != await tokens.get(again, FRA, "viewer")
    assert cluster.asked == [(WEB.workspace, "viewer"), ("another", "viewer")]


@pytest.mark.parametrize(
    "other", [{"uid": "c2"}, {"url": "https://other.test"}, {"ca_pem": "two"}, {"tls_server_name": "x"}]
)
async def test_a_cluster_that_came_under_the_name_of_another_is_shown_none_of_its_tokens(other: dict[str, str]) -> None:
    """GW4: a cluster is where it is and whom it shows to be, not what it is called."""
    cluster = Cluster()
    tokens = cluster.tokens()
    there = replace(FRA, **other)
    first = await tokens.get(WEB, FRA, "viewer")
    second = await tokens.get(WEB, there, "viewer")
    assert (first, second, await tokens.get(WEB, FRA, "viewer")) == ("token-1", "token-2", "token-1")
    # Nor is what was refused here replaced by what is shown there.
    cluster.now += PAUSE_SECONDS
    assert await tokens.after_refusal(WEB, there, "viewer", second) == "token-3"
    assert await tokens.get(WEB, FRA, "viewer") == "token-1"


async def test_a_cluster_that_cannot_be_reached_is_asked_by_one_for_all() -> None:
    """D8: at once while it is known to be away; each attempt is two entries in a tenant's audit log."""
    cluster = Cluster()
    cluster.error = NoAccess("gives no access", reached=False, retry_after=5)
    tokens = cluster.tokens()
    many = [replace(WEB, workspace=f"w{number}") for number in range(50)]

    async def refused(*placements: Placement) -> None:
        said = await asyncio.gather(*(tokens.get(each, FRA, "viewer") for each in placements), return_exceptions=True)
        assert {type(each) for each in said} <= {ServiceUnavailable, NoAccess}, said
        assert all(each.retry_after >= 1 for each in said)

    # Who waited for a turn does not ask any more when it comes.
    await refused(*many)
    first = len(cluster.asked)
    assert 1 <= first <= 4
    await refused(*many)
    assert len(cluster.asked) == first
    cluster.now += REST_SECONDS
    await refused(*many)
    assert len(cluster.asked) == first + 1, "one probe"
    # Another cluster has nothing to do with it.
    cluster.error = None
    assert await tokens.get(WEB, replace(FRA, uid="c2", name="ams-1"), "viewer")
    cluster.now += REST_SECONDS
    assert len(set(await asyncio.gather(*(tokens.get(each, FRA, "viewer") for each in many[:1])))) == 1
    assert len({await tokens.get(each, FRA, "viewer") for each in many}) == len(many)


async def test_what_a_cluster_does_not_give_one_workspace_it_is_asked_for_now_and_then() -> None:
    """And gives to the others all the while."""
    cluster = Cluster()
    tokens = cluster.tokens()
    cluster.error = NoAccess("its account is another one", reached=True, retry_after=5)
    for _ in range(20):
        with pytest.raises(ServiceUnavailable, match="its account is another one"):
            await tokens.get(WEB, FRA, "viewer")
    assert len(cluster.asked) == 1
    cluster.error = None
    assert await tokens.get(replace(WEB, workspace="another"), FRA, "viewer") == "token-2"
    cluster.now += REST_SECONDS
    assert await tokens.get(WEB, FRA, "viewer") == "token-3"


async def test_who_has_no_token_asks_no_cluster_for_one_that_connections_found_to_be_away() -> None:
    """D8, by a request that is passed on and by what the product reads for itself."""
    asked = 0

    def issue(*_: object) -> ClusterToken:
        nonlocal asked
        asked += 1
        raise NoAccess("gives no access", reached=False, retry_after=5)

    async with upstream_of(answering(ok())) as (there, upstream):
        there.close()
        with pytest.raises(ServiceUnavailable, match="cannot be reached"):
            await upstream.request("GET", b"/api", (), b"", token="t", audit_id="a")
        clusters = SimpleNamespace(upstream=lambda _: upstream)
        tokens = WorkspaceTokens(issue)
        runtime = SimpleNamespace(clusters=clusters, workspace_tokens=tokens)
        request = Request(
            principal=Principal(name="anna", tenant="acme", groups=(), authenticator="test"),
            info=resolve(parse("GET", b"/api/v1/namespaces/acme-web/pods"), "acme"),
            query={},
            headers={},
            body=b"",
            now=0.0,
        )
        for _ in range(5):
            with pytest.raises(ServiceUnavailable, match="is away"):
                await ask(runtime, request, WEB, "viewer", follows=False)  # type: ignore[arg-type]
            with pytest.raises(ServiceUnavailable, match="is away"):
                await read_list_as(clusters, tokens, WEB, "viewer", "/api/v1/namespaces/acme-web/pods")  # type: ignore[arg-type]
    assert asked == 0


async def until(condition) -> None:
    async with asyncio.timeout(300):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.django_db(transaction=True)
def test_it_is_told_whether_the_cluster_has_answered(settings: Any) -> None:
    """One that has not would not answer anybody else; what it answers to one workspace says nothing of the others."""
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]
    url = f"https://127.0.0.1:{free_port()}"
    kubeconfig = make_kubeconfig(url, trustme.CA().cert_pem.bytes().decode(), {"token": "gateway"})
    cluster = factories.cluster("gone", server=url, sealed_credential=encryption.encrypt(kubeconfig))
    tenant = factories.tenant()
    workspace = factories.workspace(tenant, factories.member(tenant), cluster=cluster)

    def refused(place: Place) -> NoAccess:
        with pytest.raises(NoAccess) as error:
            workspace_token_issue(
                workspace_id=workspace.pk,
                space=tenant.cluster_path,
                namespace=workspace.k8s_namespace,
                cluster="gone",
                place=place,
                role="viewer",
                now=timezone.now(),
            )
        return error.value

    there = place_of(cluster)
    assert not refused(there).reached
    assert refused(there._replace(server="https://elsewhere.test")).reached
    outcomes = AuditEntry.objects.filter(action="workspace.token").order_by("sequence")
    assert [row.outcome for row in outcomes] == ["intent", "failure"] * 2


@pytest.mark.django_db(transaction=True)
def test_a_request_carries_the_least_token_that_covers_it(door: Door) -> None:
    """An owner's reading needs the viewer's account only; each issuance was recorded before."""
    owner = door.person("olga", Role.OWNER)
    name = door.place(owner)
    path = f"/api/v1/namespaces/{name}"

    def issued() -> list[tuple[str, str]]:
        rows = AuditEntry.objects.filter(chain=door.name, action="workspace.token").order_by("sequence")
        return [(row.detail["role"], row.outcome) for row in rows]

    assert owner.get(f"{path}/pods").status == 200
    assert issued() == [("viewer", "intent"), ("viewer", "success")]
    for _ in range(3):
        assert owner.post(f"{path}/configmaps", config_map("c", generateName="c-")).status in (201, 409)
    assert owner.get(f"{path}/secrets").status == 200
    assert issued()[2:] == [("editor", "intent"), ("editor", "success")]
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    assert owner.post(f"{path}/serviceaccounts", account).status == 201
    assert issued()[4:] == [("admin", "intent"), ("admin", "success")]


@pytest.mark.django_db(transaction=True)
def test_a_token_is_nowhere_but_in_memory(door: Door) -> None:
    """Not in the database, a log, a metric or what somebody is answered; and the processes leave no core file (GW4)."""
    owner = door.person("olga", Role.OWNER)
    path = f"/api/v1/namespaces/{door.place(owner)}"
    shell = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Protocol": "v5.channel.k8s.io"}
    answers = [
        owner.get(f"{path}/pods"),
        owner.get(f"{path}/pods/nobody"),
        owner.post(f"{path}/configmaps", config_map("No Name")),
        owner.get(f"{path}/pods/nobody/exec?command=sh&stdout=true", shell),
    ]
    assert [answer.status for answer in answers[:3]] == [200, 404, 422]
    assert answers[3].status >= 400
    assert AuditEntry.objects.filter(chain=door.name, action="workspace.token", outcome="success").exists()
    folder = door.server.folder
    written = [f"{answer.headers}{answer.raw.decode()}" for answer in answers]
    written.append((folder.parent / f"{folder.name}.log").read_text())
    written.append(door.server.admin.get("/metrics").raw.decode())
    assert not [text for text in written if re.search(_TOKEN, text)]
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT row::text FROM "{table}" AS row WHERE row::text ~ %s', [_TOKEN])
            assert not cursor.fetchall(), table
    processes = [door.server.process.pid]
    for process in processes:
        tasks = Path(f"/proc/{process}/task").iterdir()
        processes += [int(child) for task in tasks for child in (task / "children").read_text().split()]
        # One byte is too small for any file, and holds where the kernel gives it to a program instead.
        assert re.search(r"^Max core file size +[01] ", Path(f"/proc/{process}/limits").read_text(), re.MULTILINE)


@pytest.mark.django_db(transaction=True)
def test_nobody_reaches_beyond_their_membership(door: Door) -> None:
    """A viewer, an editor, and somebody to whom a binding gave more."""
    owner, viewer, editor = (door.person(role.value, role) for role in (Role.OWNER, Role.VIEWER, Role.EDITOR))
    name = door.place(owner)
    path = f"/api/v1/namespaces/{name}"
    assert (viewer.get(f"{path}/configmaps").status, viewer.get(f"{path}/secrets").status) == (200, 403)
    assert viewer.post(f"{path}/configmaps", config_map("c")).status == 403
    assert editor.post(f"{path}/configmaps", config_map("c")).status == 201
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = {"kind": "ClusterRole", "metadata": {"name": "writers"}, "apiVersion": "rbac.authorization.k8s.io/v1"}
    role["rules"] = [
        {"apiGroups": ["", "rbac.authorization.k8s.io"], "resources": ["configmaps", "roles"], "verbs": ["*"]}
    ]
    assert owner.post(f"{rbac}/clusterroles", role).status == 201
    binding = {
        "kind": "ClusterRoleBinding",
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": "writers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writers"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"viewer@{door.name}.test"}],
    }
    assert owner.post(f"{rbac}/clusterrolebindings", binding).status == 201
    assert viewer.post(f"{path}/configmaps", config_map("d")).status == 201
    # What the admin's account holds is not theirs to give away.
    own = {**role, "kind": "Role", "metadata": {"name": "mine"}}
    own["rules"] = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    refused = viewer.post(f"{rbac}/namespaces/{name}/roles", own)
    assert (refused.status, "given by admins and owners" in said(refused)) == (403, True)
    assert owner.post(f"{rbac}/namespaces/{name}/roles", own).status == 201


@pytest.mark.django_db(transaction=True)
def test_a_token_whose_account_was_made_anew_is_replaced(door: Door) -> None:
    """A resume makes new accounts: the process learns it from the cluster's refusal, and the client learns nothing."""
    owner = door.person("olga", Role.OWNER)
    name = door.place(owner)
    path = f"/api/v1/namespaces/{name}/configmaps"
    assert owner.get(path).status == 200
    workspace = Workspace.objects.get(k8s_namespace=name)
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="unpaid")
    door.until(lambda: phase_of(owner, name) == "Suspended")
    workspace_resume(actor=OPERATOR, workspace_id=workspace.id)
    door.until(lambda: phase_of(owner, name) == "Active")
    door.until(lambda: owner.get(path).status == 200)
    assert Workspace.objects.get(k8s_namespace=name).service_accounts != workspace.service_accounts
    issued = AuditEntry.objects.filter(chain=door.name, action="workspace.token", outcome="success")
    assert issued.count() == 2


@pytest.mark.django_db(transaction=True)
def test_a_cluster_that_is_elsewhere_is_sent_a_token_that_was_asked_for_there(door: Door) -> None:
    """GW4: an older one is of whoever was under its name before; and nobody gets one for where the cluster is no more."""
    owner = door.person("olga", Role.OWNER)
    name = door.place(owner)
    path = f"/api/v1/namespaces/{name}/configmaps"
    proxy = door.cluster.proxy
    proxy.heal()
    issued = AuditEntry.objects.filter(chain=door.name, action="workspace.token", outcome="success")
    assert owner.get(path).status == 200
    count = issued.count()
    workspace = Workspace.objects.select_related("cluster").get(k8s_namespace=name)
    before = place_of(workspace.cluster)
    cluster_register(actor=OPERATOR, name="kube-apiserver", kubeconfig=door.cluster.gateway_kubeconfig)
    door.until(lambda: owner.get(path).status == 200 and any(call[1] == path for call in proxy.calls))
    called = [call[:2] for call in proxy.calls]
    assert called.index(
        ("POST", f"/api/v1/namespaces/{name}/serviceaccounts/{ACCOUNTS['viewer']}/token")
    ) < called.index(("GET", path))
    assert issued.count() > count
    count = issued.count()
    with pytest.raises(ServiceUnavailable, match="registered anew"):
        workspace_token_issue(
            workspace_id=workspace.pk,
            space=f"root:{door.name}",
            namespace=name,
            cluster="kube-apiserver",
            place=before,
            role="viewer",
            now=timezone.now(),
        )
    assert issued.count() == count
    proxy.heal()
