"""Asking for workspaces, seeing them, and the clusters that they are made on (GW6, GW8, GW12)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import orjson
import pytest
import trustme
from django.db import IntegrityError, connection, connections, transaction

from audit.models import AuditEntry
from audit.recorder import Actor
from audit.selectors import entries_of_chain
from kube.authentication.kubeconfig import read_kubeconfig
from kube.requests.status import Conflict, Forbidden, Invalid, NotFound, ServiceUnavailable, TooManyRequests
from store import synchronous
from tenants import actionlimits
from tenants.clusters import encryption
from tenants.clusters.client import ClusterUnusable, client_for, object_path
from tenants.clusters.objects import TIER_ANNOTATION
from tenants.models import Cluster, Operation, Phase, Role, Status, Tenant, Tier, User, Workspace
from tenants.placednamespaces import placed_namespace_key, placed_namespace_show
from tenants.selectors import (
    overview_of,
    tiers_offered,
    workspace_visible_to,
    workspaces_page,
    workspaces_visible_to,
)
from tenants.services import (
    cluster_change,
    cluster_delete,
    cluster_register,
    tenant_suspend,
    tier_change,
    workspace_change_tier,
    workspace_delete,
    workspace_init,
    workspace_resume,
    workspace_suspend,
)
from tests import factories
from tests.databases import owning
from tests.kubeapiserver import make_kubeconfig
from tests.tenants.conftest import OPERATOR, actor_of, join, make_tenant, make_user
from tests.tenants.test_lock_order import PATIENCE, is_waiting

pytestmark = pytest.mark.django_db
CA = trustme.CA()
PEM = CA.cert_pem.bytes().decode()
TOKEN = "a-token-of-the-gateway"


def register(name: str = "east", server: str = "https://192.0.2.1:6443", **fields) -> Cluster:
    values = {"is_default": True} | fields
    return cluster_register(
        actor=OPERATOR, name=name, kubeconfig=make_kubeconfig(server, PEM, {"token": TOKEN}), **values
    )


@pytest.fixture
def alice(tiers) -> User:
    register()
    user = make_user()
    make_tenant("acme", user)
    return user


def init(user: User, **fields) -> Workspace:
    return workspace_init(actor=actor_of(user), user=user, **({"tier": "basic"} | fields))


def test_asking_twice_gives_the_same_workspace(alice):
    """GW6."""
    first = init(alice)
    assert init(alice) == first
    assert init(alice, name=first.name) == first
    assert Operation.objects.count() == 1
    assert first.name == "alice-basic"
    assert AuditEntry.objects.filter(action="workspace.create").count() == 1


def test_the_same_key_gives_the_same_workspace_and_never_another(alice):
    tier_change(actor=OPERATOR, name="basic", workspaces_per_user=5)
    first = init(alice, idempotency_key="k1", name="one")
    assert init(alice, idempotency_key="k1", name="one") == first
    assert init(alice, idempotency_key="k2", name="two") != first
    for changed in ({"tier": "standard"}, {"name": "three"}):
        with pytest.raises(Conflict):
            init(alice, **({"idempotency_key": "k1", "name": "one"} | changed))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"tier": "gold"}, Invalid),
        ({"tier": "large"}, Invalid),
        ({"tier": ""}, Invalid),
        ({"name": "Not A Name"}, Invalid),
        ({"name": "x" * 64}, Invalid),
        ({"cluster": "nowhere"}, Invalid),
        ({"tenant": "nobody"}, NotFound),
        ({"idempotency_key": "k" * 200}, Invalid),
        ({"idempotency_key": "a\0b"}, Invalid),
    ],
)
def test_bad_input_is_told_and_makes_nothing(alice, fields, error):
    with pytest.raises(error):
        init(alice, **fields)
    assert not Workspace.objects.exists()


def test_the_tiers_limit_is_told(alice):
    init(alice, name="one")
    with pytest.raises(Forbidden, match="allows 1 workspace per user, and you have 1: take another tier"):
        init(alice, name="two")
    workspace_delete(actor=actor_of(alice), workspace_id=Workspace.objects.get().id)
    with pytest.raises(Forbidden, match="1 of them still being deleted"):
        init(alice, name="two")
    Workspace.objects.update(phase=Phase.DELETED)
    init(alice, name="two")


def test_asking_without_a_pause_is_refused_for_a_while(alice, monkeypatch):
    """GW6; with a bucket so slow that no machine takes as long as its next token."""
    assert (actionlimits.INIT.burst, actionlimits.INIT.interval) == (10, 6)
    monkeypatch.setattr(actionlimits, "INIT", replace(actionlimits.INIT, interval=100_000))
    for _ in range(10):
        init(alice)
    with pytest.raises(TooManyRequests) as caught:
        init(alice)
    assert 99_000 < caught.value.retry_after <= 100_000


def test_who_may_ask(alice):
    viewer, stranger = make_user("v@example.org"), make_user("s@example.org")
    join(Tenant.objects.get(), viewer, Role.VIEWER)
    with pytest.raises(Forbidden):
        init(viewer)
    with pytest.raises(Forbidden, match="no tenant"):
        init(stranger)
    with pytest.raises(NotFound):
        init(stranger, tenant="acme")
    make_tenant("second", alice)
    with pytest.raises(Invalid, match="tenant"):
        init(alice)
    tenant_suspend(actor=OPERATOR, name="acme", reason="unpaid")
    with pytest.raises(Forbidden, match="unpaid"):
        init(alice, tenant="acme")


def test_without_a_cluster_it_is_told(tiers):
    user = make_user()
    make_tenant("acme", user)
    with pytest.raises(ServiceUnavailable):
        init(user)


def test_namespaces_grow_longer_on_collision(alice, monkeypatch):
    first = init(alice, name="one")
    twin = uuid.UUID(first.id.hex[:8] + uuid.uuid4().hex[8:])
    monkeypatch.setattr("tenants.services.workspaces.uuid.uuid4", lambda: twin)
    second = init(alice, name="two", tier="standard")
    assert first.k8s_namespace == f"tenant-{twin.hex[:8]}"
    assert second.k8s_namespace == f"tenant-{twin.hex[:12]}"


def test_only_operators_pull_the_switch(alice):
    workspace = init(alice)
    for act in (
        lambda actor: workspace_suspend(actor=actor, workspace_id=workspace.id, reason="x"),
        lambda actor: workspace_resume(actor=actor, workspace_id=workspace.id),
    ):
        with pytest.raises(Forbidden):
            act(actor_of(alice))
        with pytest.raises(NotFound):
            act(actor_of(make_user(f"{uuid.uuid4().hex}@example.org")))
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="first")
    assert workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="second").suspended_reason == "first"
    with pytest.raises(Conflict):
        workspace_change_tier(actor=OPERATOR, workspace_id=workspace.id, tier="standard")
    with pytest.raises(Forbidden, match="first"):
        workspace_delete(actor=actor_of(alice), workspace_id=workspace.id)
    workspace_delete(actor=OPERATOR, workspace_id=workspace.id)
    with pytest.raises(Conflict):
        workspace_resume(actor=OPERATOR, workspace_id=workspace.id)


def test_the_door_goes_by_another_tier_before_a_worker_has_looked_at_it(alice):
    """GW21, AD5: what is recorded, refused and proxied goes by what the Namespace says."""
    recorded = factories.tier("recorded")
    workspace = factories.workspace(alice.memberships.get().tenant, alice)
    placed_namespace_show(workspace)
    workspace_change_tier(actor=OPERATOR, workspace_id=workspace.id, tier=recorded.name)
    stored = synchronous.get(placed_namespace_key(workspace))
    assert stored is not None
    assert orjson.loads(stored.data)["metadata"]["annotations"][TIER_ANNOTATION] == recorded.name


def test_members_see_their_tenants_workspaces_and_no_others(alice):
    mine = init(alice)
    bob = make_user("bob@example.org")
    make_tenant("other", bob)
    theirs = init(bob)
    assert list(workspaces_visible_to(actor_of(alice))) == [mine]
    with pytest.raises(NotFound):
        workspace_visible_to(actor_of(alice), theirs.id)
    with pytest.raises(NotFound):
        workspace_visible_to(actor_of(alice), "not-a-uuid")
    assert workspaces_visible_to(OPERATOR).count() == 2
    assert [tier.name for tier in tiers_offered(actor_of(alice))] == ["basic", "standard"]
    numbers = overview_of(actor_of(alice))
    assert (numbers.workspaces, numbers.working, numbers.tenants) == (1, 1, 1)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE workspaces SET status = 'suspended'",
        "UPDATE workspaces SET k8s_namespace = 'kube-system'",
        "UPDATE workspaces SET observed_generation = generation + 1",
        "UPDATE workspaces SET name = 'Bad Name'",
    ],
)
def test_the_database_refuses_what_cannot_be(alice, statement):
    init(alice)
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_pages_cost_the_same_with_many_rows(alice, django_assert_num_queries):
    tier, cluster, tenant = Tier.objects.get(name="basic"), Cluster.objects.get(), Tenant.objects.get()
    Workspace.objects.bulk_create(
        Workspace(
            tenant=tenant,
            user=alice,
            name=f"w{number}",
            cluster=cluster,
            tier=tier,
            k8s_namespace=f"tenant-{number:08x}",
        )
        for number in range(3000)
    )
    with django_assert_num_queries(2):
        page = workspaces_page(actor_of(alice), limit=100)
        assert len([(w.tier.name, w.cluster.name, w.user.email, w.current) for w in page.rows]) == 100
    with django_assert_num_queries(2):
        workspaces_page(actor_of(alice), after=page.next)
    with django_assert_num_queries(4):
        assert overview_of(actor_of(alice)).workspaces == 3000


@pytest.mark.django_db(transaction=True)
def test_a_million_audit_rows_are_listed_by_the_index():
    """The plan, not the clock: an index walk, no sort, no sequential scan."""
    with owning() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            "INSERT INTO audit_logs (id, chain, sequence, created_at, action, outcome, actor, target, user_agent, "
            "request_id, detail, previous_hash, hash) SELECT gen_random_uuid(), 't' || n %% 50, n, "
            "now() - n * interval '1 s', 'session.open', 'success', 'a', '', '', '', '{}', '', '' "
            "FROM generate_series(1, 20000) n",
            [],
        )
        cursor.execute("ANALYZE audit_logs")
    with connection.cursor() as cursor:
        page = entries_of_chain("t7", limit=50)
        assert len(page.rows) == 50
        query = str(type(page.rows[0]).objects.filter(chain="t7").order_by("-created_at", "-id")[:51].query).replace(
            "= t7", "= 't7'"
        )
        cursor.execute(f"EXPLAIN {query}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "audit_chain_time" in plan
    assert "Seq Scan" not in plan


def test_a_credential_is_sealed_and_wiped_when_the_server_changes(settings):
    """API-32."""
    cluster = register()
    with connection.cursor() as cursor:
        cursor.execute("SELECT c::text FROM clusters c")
        assert TOKEN not in cursor.fetchone()[0]
    assert TOKEN in encryption.decrypt(cluster.sealed_credential)
    assert TOKEN not in repr(read_kubeconfig(make_kubeconfig(cluster.server, PEM, {"token": TOKEN})))
    cluster_change(actor=OPERATOR, name="east", client_url="https://api.example.org")
    assert Cluster.objects.get().sealed_credential is not None
    cluster_change(actor=OPERATOR, name="east", server="https://evil.example.org")
    assert Cluster.objects.get().sealed_credential is None
    with pytest.raises(ClusterUnusable):
        client_for(Cluster.objects.get(), "acme")
    assert TOKEN not in str(list(AuditEntry.objects.values()))


def test_another_sealing_key_says_nothing_of_the_secret(settings):
    from cryptography.fernet import Fernet

    cluster = register()
    old = settings.SEALING_KEYS
    settings.SEALING_KEYS = [Fernet.generate_key().decode(), *old]
    assert TOKEN in encryption.decrypt(encryption.rotate(cluster.sealed_credential))
    settings.SEALING_KEYS = settings.SEALING_KEYS[:1]
    with pytest.raises(encryption.DecryptionError) as caught:
        encryption.decrypt(cluster.sealed_credential)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("server", "ca", "user"),
    [
        ("http://192.0.2.1", PEM, {"token": TOKEN}),
        ("https://user:pw@192.0.2.1", PEM, {"token": TOKEN}),
        ("https://192.0.2.1/?x=1", PEM, {"token": TOKEN}),
        ("https://192.0.2.1/a/../b", PEM, {"token": TOKEN}),
        ("https://192.0.2.1:99999", PEM, {"token": TOKEN}),
        ("", PEM, {"token": TOKEN}),
        ("https://192.0.2.1", "no certificate", {"token": TOKEN}),
        ("https://192.0.2.1", PEM, {}),
        ("https://192.0.2.1", PEM, {"exec": {"command": "sh"}}),
        ("https://192.0.2.1", PEM, {"tokenFile": "/etc/passwd"}),
        ("https://192.0.2.1", PEM, {"client-certificate-data": "eA=="}),
        ("https://192.0.2.1", PEM, {"token": "a\r\nX-Remote-User: admin"}),
    ],
)
def test_a_bad_kubeconfig_is_refused_without_its_secrets(server, ca, user):
    with pytest.raises(Invalid) as caught:
        cluster_register(actor=OPERATOR, name="east", kubeconfig=make_kubeconfig(server, ca, user))
    assert caught.value.causes[0].field
    assert TOKEN not in caught.value.message


def test_clusters_are_operators_business(alice):
    with pytest.raises(Forbidden):
        cluster_register(actor=Actor(name="eve"), name="x", kubeconfig="")
    init(alice)
    with pytest.raises(Conflict):
        cluster_delete(actor=OPERATOR, name="east")
    register("west")
    assert Cluster.objects.get(is_default=True).name == "west"
    cluster_delete(actor=OPERATOR, name="west")


def overtaken(service: Callable[[], object]) -> str:
    """The refusal of what is asked while ``east`` is being registered as the default one, by another operator."""

    def serve() -> object:
        try:
            return service()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            register("east", "https://192.0.2.2:6443")
            served = pool.submit(serve)
            deadline = time.monotonic() + PATIENCE
            while not is_waiting() and not served.done():
                assert time.monotonic() < deadline
                time.sleep(0.02)
        with pytest.raises(Conflict) as refused:
            served.result(PATIENCE)
    return refused.value.message


@pytest.mark.django_db(transaction=True)
def test_of_two_first_registrations_of_a_name_one_counts(tiers: None) -> None:
    """The other operator may have meant another cluster: nothing of this one is replaced."""
    said = overtaken(lambda: register("east", is_default=False))
    assert "registered as east" in said
    (kept,) = Cluster.objects.all()
    assert (kept.name, kept.server, kept.is_default) == ("east", "https://192.0.2.2:6443", True)
    register("east", "https://192.0.2.2:6443")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("known", [False, True])
def test_of_two_clusters_that_become_the_default_at_once_one_does(tiers: None, known: bool) -> None:
    if known:
        register("west", is_default=False)

    def make_default() -> object:
        return cluster_change(actor=OPERATOR, name="west", is_default=True) if known else register("west")

    assert "made the default" in overtaken(make_default)
    assert Cluster.objects.get(is_default=True).name == "east"
    make_default()
    assert Cluster.objects.get(is_default=True).name == "west"


@pytest.mark.parametrize("parts", [{"namespace": ""}, {"name": ""}, {"namespace": ".."}, {"name": "."}])
def test_an_empty_part_of_a_path_is_a_defect_and_no_request(parts):
    """URL-08: ``namespaces//secrets`` would be the whole cluster's."""
    with pytest.raises(ValueError, match="part"):
        object_path("", "v1", "secrets", **parts)


def test_a_path_is_built_from_quoted_parts():
    assert (
        object_path("", "v1", "secrets", namespace="a/../b", name="x?y")
        == "/api/v1/namespaces/a%2F..%2Fb/secrets/x%3Fy"
    )


def test_a_deleted_workspaces_status_and_lock(alice):
    workspace = init(alice)
    workspace_delete(actor=actor_of(alice), workspace_id=workspace.id)
    assert Workspace.objects.get().status == Status.DELETED
    assert list(workspaces_visible_to(OPERATOR)) == [workspace], "it is there until its cluster says otherwise"
    Workspace.objects.update(phase=Phase.DELETED)
    assert list(workspaces_visible_to(OPERATOR)) == []
