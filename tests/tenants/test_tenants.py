"""Tenants, members and tiers (TS1, GW2, GW5)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest
from django.db import connection, transaction

from audit.models import AuditEntry
from audit.recorder import Actor
from gateway.process.tenantservices import Caller, TenantServices
from kube.requests.status import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from store import synchronous
from store.models import StoredObject
from store.types import Create, Delete, Key, Update
from tenants import spaces
from tenants.models import Membership, Role, Tenant, TenantState
from tenants.reconciler.deletion import tenants_end
from tenants.rights import role_of
from tenants.selectors import members_page, tenant_visible_to, tenants_page, tenants_visible_to
from tenants.services import (
    desiredstate,
    membership_remove,
    membership_set,
    tenant_create,
    tenant_delete,
    tenant_resume,
    tenant_suspend,
    tier_change,
    tier_create,
)
from tenants.suspensions import locks_all
from tests.tenants.conftest import OPERATOR, actor_of, join, make_tenant, make_user

pytestmark = pytest.mark.django_db


def body_of(*key: str) -> dict:
    stored = synchronous.get(Key(*key))
    assert stored is not None
    return orjson.loads(stored.data)


def test_creating_a_tenant_creates_its_space_with_a_default_namespace():
    """TS1, TS2, TS5."""
    owner = make_user()
    make_tenant("acme", owner)
    tenant = body_of("root", "", "tenants", "", "acme")
    assert tenant["metadata"]["selfLink"] == "/api/v1/tenants/acme"
    assert tenant["status"] == {"phase": "Active"}
    namespace = body_of("root:acme", "", "namespaces", "", "default")
    assert namespace["metadata"]["tenant"] == "acme"
    assert namespace["metadata"]["selfLink"] == "/api/v1/tenants/acme/namespaces/default"
    assert namespace["metadata"]["uid"] and namespace["metadata"]["creationTimestamp"].endswith("Z")
    assert namespace["metadata"]["resourceVersion"]
    for role, target in {"owner": "cluster-admin", "admin": "admin", "editor": "edit", "viewer": "view"}.items():
        binding = body_of("root:acme", "rbac.authorization.k8s.io", "clusterrolebindings", "", f"tenantry:{role}")
        assert binding["roleRef"]["name"] == target
        assert binding["subjects"] == [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"tenantry:{role}"}
        ]
    assert role_of(actor_of(owner), "acme") is Role.OWNER
    assert AuditEntry.objects.filter(chain="acme", action="tenant.create").count() == 1


@pytest.mark.parametrize("name", ["all", "system", "root", "", "-a", "A", "a" * 64, "a/b", "a:b", "*", "ä", "a\n"])
def test_a_magic_or_malformed_tenant_name_is_invalid(name):
    with pytest.raises(Invalid) as caught:
        make_tenant(name)
    assert caught.value.causes[0].field == "metadata.name"
    assert not Tenant.objects.exists()


def test_a_taken_name_leaves_everything_as_it_was():
    make_tenant("acme")
    with pytest.raises(AlreadyExists):
        make_tenant("acme")
    assert AuditEntry.objects.filter(action="tenant.create").count() == 1


def test_an_object_without_a_row_stops_the_creation_whole():
    synchronous.commit([Create(Key("root", "", "tenants", "", "acme"), {"metadata": {"name": "acme"}})])
    with pytest.raises(AlreadyExists):
        make_tenant("acme")
    assert not Tenant.objects.exists()
    assert StoredObject.objects.count() == 1


def test_only_operators_create_tenants():
    with pytest.raises(Forbidden):
        tenant_create(actor=Actor(name="eve"), name="acme")


def test_deleting_a_tenant_ends_everything_in_it():
    make_tenant("acme")
    make_tenant("acme-two")
    for space in ("root:acme", "root:acme:child"):
        synchronous.commit([Create(Key(space, "", "configmaps", "default", "x"), {"metadata": {"name": "x"}})])
    tenant_delete(actor=OPERATOR, name="acme")
    assert ("root:acme", "") in locks_all()
    assert body_of("root", "", "tenants", "", "acme")["status"]["phase"] == "Terminating"
    tenant_delete(actor=OPERATOR, name="acme")
    assert tenants_end() == 1
    assert tenants_end() == 0
    assert not Tenant.objects.filter(name="acme").exists()
    assert not StoredObject.objects.filter(space__in=["root:acme", "root:acme:child"]).exists()
    assert synchronous.get(Key("root", "", "tenants", "", "acme")) is None
    assert StoredObject.objects.filter(space="root:acme-two").exists()
    assert locks_all() == {}
    assert AuditEntry.objects.filter(chain="acme").count() == 3
    make_tenant("acme")


def test_a_full_space_is_emptied_a_little_at_a_time(monkeypatch):
    """DOS-03: what a worker holds, and for how long every writer waits, is nothing that the tenant chooses."""
    make_tenant("acme")
    text = "x" * 1024 * 1024
    for number in range(12):
        key = Key("root:acme", "", "configmaps", "default", f"n{number}")
        synchronous.commit([Create(key, {"metadata": {"name": key.name}, "data": {"text": text}})])
    commits, commit = [], synchronous.commit

    def noted(operations):
        commits.append(sum(len(orjson.dumps(each.body)) for each in operations if isinstance(each, Delete)))
        return commit(operations)

    tenant_delete(actor=OPERATOR, name="acme")
    monkeypatch.setattr(synchronous, "commit", noted)
    assert tenants_end() == 1
    assert not StoredObject.objects.filter(space="root:acme").exists()
    assert sum(commits) > 12 * len(text)
    assert max(commits) < 4 * len(text)


def test_a_tenant_that_cannot_end_keeps_no_other(monkeypatch):
    """TS1: nor does one at which another worker is."""
    for name in ("acme", "globex"):
        make_tenant(name)
        tenant_delete(actor=OPERATOR, name=name)
    empty = spaces.space_empty

    def failing(name):
        if name == "acme":
            raise ValueError(name)
        return empty(name)

    with monkeypatch.context() as broken:
        broken.setattr(spaces, "space_empty", failing)
        assert tenants_end() == 1
    assert [tenant.name for tenant in Tenant.objects.all()] == ["acme"]
    assert tenants_end() == 1


def test_one_worker_at_a_time_ends_a_tenant(transactional_db):
    """TS1: who finds another at it goes on with the next one, and holds nothing of it."""
    for name in ("acme", "globex"):
        make_tenant(name)
        tenant_delete(actor=OPERATOR, name=name)

    def other() -> int:
        try:
            return tenants_end()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as workers:
        with transaction.atomic():
            assert Tenant.objects.select_for_update().get(name="acme")
            assert workers.submit(other).result(300) == 1
            assert [tenant.name for tenant in Tenant.objects.all()] == ["acme"]
            assert StoredObject.objects.filter(space="root:acme").exists()
        assert workers.submit(other).result(300) == 1
    assert not Tenant.objects.exists()


def test_who_deletes_a_tenant_is_shown_it_however_fast_it_ends(transactional_db, monkeypatch):
    make_tenant("acme")
    monkeypatch.setattr(desiredstate, "enqueue_sweep", tenants_end)
    shown = TenantServices().delete(caller=Caller(name="ada", operator=True), name="acme", together=())
    assert orjson.loads(shown.data)["status"] == {"phase": "Terminating"}
    assert not Tenant.objects.filter(name="acme").exists()


def test_a_suspended_tenant_is_closed_until_it_is_resumed():
    make_tenant("acme")
    with pytest.raises(Invalid):
        tenant_suspend(actor=OPERATOR, name="acme", reason=" ")
    tenant_suspend(actor=OPERATOR, name="acme", reason="abuse")
    assert locks_all() == {("root:acme", ""): "abuse"}
    assert body_of("root", "", "tenants", "", "acme")["status"]["phase"] == "Suspended"
    tenant_resume(actor=OPERATOR, name="acme")
    assert locks_all() == {}
    assert Tenant.objects.get().state == TenantState.ACTIVE


def test_a_lock_is_announced_when_it_is_committed(transactional_db):
    import psycopg

    make_tenant("acme")
    settings = connection.get_connection_params()
    with psycopg.connect(**{k: v for k, v in settings.items() if k in {"dbname", "user", "host", "port"}}) as listener:
        listener.autocommit = True
        listener.execute("LISTEN tenantry_locks")
        tenant_suspend(actor=OPERATOR, name="acme", reason="abuse")
        assert [n.payload for n in listener.notifies(timeout=300, stop_after=1)] == ["root:acme"]


def test_the_last_owner_stays():
    owner = make_user()
    tenant = make_tenant("acme", owner)
    for change in (
        lambda: membership_remove(actor=actor_of(owner), tenant="acme", user=owner),
        lambda: membership_set(actor=OPERATOR, tenant="acme", user=owner, role=Role.ADMIN),
    ):
        with pytest.raises(Conflict):
            change()
    second = make_user("bob@example.org")
    membership_set(actor=actor_of(owner), tenant="acme", user=second, role=Role.OWNER)
    membership_remove(actor=actor_of(owner), tenant="acme", user=owner)
    assert [m.user_id for m in members_page(OPERATOR, tenant.name).rows] == [second.id]


@pytest.mark.parametrize(
    ("actor_role", "target", "new", "allowed"),
    [
        (Role.OWNER, Role.ADMIN, Role.OWNER, True),
        (Role.ADMIN, Role.VIEWER, Role.ADMIN, True),
        (Role.ADMIN, Role.VIEWER, Role.OWNER, False),
        (Role.ADMIN, Role.OWNER, Role.VIEWER, False),
        (Role.EDITOR, Role.VIEWER, Role.EDITOR, False),
        (Role.VIEWER, None, Role.VIEWER, False),
    ],
)
def test_members_change_members_only_below_their_own_role(actor_role, target, new, allowed):
    tenant = make_tenant("acme", make_user("owner@example.org"))
    actor, user = make_user("actor@example.org"), make_user("user@example.org")
    join(tenant, actor, actor_role)
    if target:
        join(tenant, user, target)
    if allowed:
        membership_set(actor=actor_of(actor), tenant="acme", user=user, role=new)
        assert Membership.objects.get(user=user).role == new
    else:
        with pytest.raises(Forbidden):
            membership_set(actor=actor_of(actor), tenant="acme", user=user, role=new)


def test_strangers_may_not_know_of_a_tenant():
    make_tenant("acme")
    eve = make_user("eve@example.org")
    for ask in (
        lambda: tenant_visible_to(actor_of(eve), "acme"),
        lambda: tenant_delete(actor=actor_of(eve), name="acme"),
        lambda: members_page(actor_of(eve), "acme"),
        lambda: membership_set(actor=actor_of(eve), tenant="acme", user=eve, role=Role.OWNER),
    ):
        with pytest.raises(NotFound) as known:
            ask()
    assert "acme" in known.value.message
    assert list(tenants_visible_to(actor_of(eve))) == []
    assert list(tenants_visible_to(Actor(name="nobody"))) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"quota": {}},
        {"quota": {"requests.cpu": "1E+1000000"}},
        {"quota": {"Requests CPU": "1"}},
        {"quota": {"requests.cpu": "-1"}},
        {"limit_range": [{"type": "Planet"}]},
        {"limit_range": [{"type": "Container", "default": {"cpu": "lots"}}]},
        {"generation": 7},
    ],
)
def test_a_bad_tier_names_the_field(tiers, changes):
    with pytest.raises(Invalid) as caught:
        tier_change(actor=OPERATOR, name="basic", **changes)
    assert caught.value.causes


def test_tiers_are_made_by_operators_once(tiers):
    with pytest.raises(AlreadyExists):
        tier_create(actor=OPERATOR, name="basic", display_name="Basic", quota={"pods": "1"})
    with pytest.raises(Forbidden):
        tier_create(actor=Actor(name="eve"), name="own", display_name="Own", quota={"pods": "999"})


def test_lists_cost_the_same_with_ten_thousand_tenants(django_assert_num_queries):
    Tenant.objects.bulk_create(Tenant(name=f"t-{number:05}") for number in range(10_000))
    with django_assert_num_queries(3):
        page = tenants_page(OPERATOR, after="t-05000", limit=50)
    assert page[0].name == "t-05001"
    assert len(page) == 50


@pytest.mark.parametrize("part", ["metadata", "spec"])
def test_tenant_whose_object_has_finalizers_waits_for_those_who_set_them(part):
    """TS1: its space is emptied all the same."""
    make_tenant("acme")
    key = Key("root", "", "tenants", "", "acme")

    def finalizers(*names: str) -> None:
        stored = synchronous.get(key)
        body = orjson.loads(stored.data)
        body[part]["finalizers"] = list(names)
        synchronous.commit([Update(key, stored.revision, body)])

    finalizers("example.org/bills")
    tenant_delete(actor=OPERATOR, name="acme")
    assert tenants_end() == 0
    assert not StoredObject.objects.filter(space="root:acme").exists()
    assert Tenant.objects.get().state == TenantState.TERMINATING
    assert synchronous.get(key) is not None
    finalizers()
    assert tenants_end() == 1
    assert (Tenant.objects.exists(), synchronous.get(key)) == (False, None)


def test_object_that_no_tenant_is_behind_ends_as_others_do():
    """TS1: as servers made them that kept what was applied."""
    key = Key("root", "", "tenants", "", "acme")
    synchronous.commit([Create(key, {"metadata": {"name": "acme"}})])
    synchronous.commit([Create(Key("root:acme", "", "configmaps", "default", "x"), {"metadata": {"name": "x"}})])
    stored = synchronous.get(key)
    write = Update(key, stored.revision, orjson.loads(stored.data))
    tenant_delete(actor=OPERATOR, name="acme", together=[write])
    assert body_of(*key)["status"]["phase"] == "Terminating"
    assert tenants_end() == 1
    assert (Tenant.objects.exists(), StoredObject.objects.exists()) == (False, False)
    make_tenant("acme")
