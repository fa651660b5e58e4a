"""The second wall: PostgreSQL leaves out other tenants' rows, whatever a view forgets to ask for (TS3)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import AnonymousUser, Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.db import Error, connection, models, transaction
from django.http import HttpResponse, StreamingHttpResponse
from django.test import RequestFactory
from django.urls import get_resolver
from django.utils import timezone

from access.credentials import token_create
from access.models import Login, PersonalAccessToken
from audit.actions import Action
from audit.models import AuditEntry, Outcome
from audit.recorder import Actor, record
from portal.database import scopes
from portal.database.base import SCOPED_ROLE
from portal.database.rights import RIGHTS
from portal.database.scopes import NOBODY, Scope
from portal.middleware import ScopeMiddleware
from store import synchronous
from store.models import ReadLease
from store.postgresql import statements
from store.types import Create, Key
from tenants.models import (
    Announcement,
    Freeze,
    Invitation,
    Notice,
    Notification,
    Offboarding,
    PasswordReset,
    PodConnection,
    PortalSession,
    Recording,
    RecordingChunk,
    RecoveryCode,
    SecondFactor,
    StreamCount,
    Tenant,
    UsageHour,
    User,
    Webhook,
    Workspace,
)
from tenants.suspensions import lock_set
from tests import factories
from tests.databases import owning
from tests.portal.conftest import House, house, signed_in

MODELS = [model for model in apps.get_models(include_auto_created=True) if model._meta.managed]
OWNERS = {"tenant", "chain", "space", "workspace", "user"}
"""Columns that say whose a row is."""


def owned(model: type[models.Model]) -> bool:
    return model._meta.db_table == "tenants" or bool({field.name for field in model._meta.concrete_fields} & OWNERS)


WALLED = [model for model in MODELS if RIGHTS[model._meta.db_table].rows]


_leases = count(1)


def fill(of: House) -> None:
    """A row of every kind, of this tenant."""
    name, now = of.tenant.name, timezone.now()
    factories.event(name, Action.SIGN_IN, of.owner, of=of.workspace)
    factories.credential(of.workspace, of.editor)
    factories.api_request(name)
    lock_set(space=f"root:{name}", namespace="x", reason="closed")
    PersonalAccessToken.objects.create(
        user=of.owner, name="x", digest=uuid.uuid4().hex, prefix="tnt_0000", expires_at=now + timedelta(days=1)
    )
    Login.objects.create(user=of.owner, expires_at=now + timedelta(days=1))
    session = Session.objects.create(session_key=name, session_data="", expire_date=now + timedelta(days=1))
    PortalSession.objects.create(session=session, user=of.owner)
    SecondFactor.objects.create(user=of.owner, sealed_secret=b"x")
    RecoveryCode.objects.create(user=of.owner, digest=uuid.uuid4().hex)
    factories.passkey(of.owner)
    PasswordReset.objects.create(user=of.owner, digest=uuid.uuid4().hex, expires_at=now)
    Invitation.objects.create(
        tenant=of.tenant, email="x@x.test", role="viewer", digest=uuid.uuid4().hex, invited_by=of.owner, expires_at=now
    )
    asked = factories.access_request(of.tenant, of.editor)
    asked.comments.create(author="x", text="x")
    Notice.objects.create(kind="request.opened", text="x", tenant=of.tenant)
    Notification.objects.create(kind="request.opened", text="x", tenant=of.tenant, user=of.owner)
    hook = Webhook.objects.create(tenant=of.tenant, url="https://x.test/", sealed_secret=b"x", created_by="x")
    hook.deliveries.create(kind="request.opened", body="x")
    said = Announcement.objects.create(text="x", audience="tenants", starts_at=now, created_by="x")
    said.tenants.add(of.tenant)
    said.dismissed_by.add(of.owner)
    Freeze.objects.create(tenant=of.tenant, space=f"root:{name}", reason="x", frozen_by="x")
    Offboarding.objects.create(tenant=of.tenant, reason="x", begun_by="x", ends_at=now + timedelta(days=30))
    UsageHour.objects.create(tenant=name, hour=now)
    here = {"process": uuid.uuid4(), "tenant": name, "namespace": "x", "seen_at": now}
    StreamCount.objects.create(**here, open=1)
    PodConnection.objects.create(**here, id=uuid.uuid4(), pod="x", way="exec", caller="x", opened_at=now)
    facts = {"mode": "output", "tenant": name, "workspace_id": of.workspace.pk, "namespace": "x", "pod": "x"}
    kept = Recording.objects.create(**facts, id=uuid.uuid4(), caller="x", begun_at=now, seen_at=now)
    RecordingChunk.objects.create(recording=kept, number=0, sealed=b"x")
    of.owner.groups.add(Group.objects.create(name=name))
    permission = Permission.objects.first() or Permission.objects.create(
        name="x", codename="x", content_type=ContentType.objects.get_for_model(User)
    )
    of.owner.user_permissions.add(permission)
    for space in (f"root:{name}", f"root:{name}:web"):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "uid": str(uuid.uuid4())}}
        synchronous.commit([Create(Key(space, "", "configmaps", "default", "x"), body)])
    ReadLease.objects.create(number=next(_leases), space=f"root:{name}", holder=1)


@pytest.fixture
def both(acme: House, globex: House) -> User:
    """Two tenants with rows of every kind, and a person who owns both."""
    owner = factories.member(acme.tenant, "owner")
    factories.member(globex.tenant, "owner", owner)
    fill(acme)
    fill(globex)
    with connection.cursor() as cursor:
        cursor.execute("SELECT store_space_count_on()")
    return owner


def seen(model: type[models.Model], scope: Scope | None) -> set[Any]:
    with scopes.scoped(scope):
        return set(model._base_manager.values_list("pk", flat=True))


def test_every_table_with_an_owner_has_a_wall():
    """A new model is closed to tenants' requests until somebody says whose its rows are."""
    assert {model._meta.db_table for model in MODELS} <= set(RIGHTS)
    unwalled = {model._meta.db_table for model in MODELS if owned(model) and not RIGHTS[model._meta.db_table].rows}
    assert unwalled == {"django_admin_log"}
    assert not RIGHTS["django_admin_log"].scoped


PERSONAL = {
    "portal_sessions",
    "second_factors",
    "recovery_codes",
    "passkeys",
    "password_resets",
    "logins",
    "notifications",
    "announcement_dismissals",
    "personal_access_tokens",
    "users_groups",
    "users_user_permissions",
}


@pytest.mark.parametrize("model", WALLED, ids=lambda model: model._meta.label)
def test_a_scope_sees_its_own_tenant_and_nobody_sees_none(
    model: type[models.Model], acme: House, globex: House, both: User
):
    """Every model with an owner, by the scope of one tenant, of the other, of both, of a member of none, of nobody."""
    stranger = factories.user()
    everybody = seen(model, None)
    first, second = seen(model, Scope(acme.owner.pk)), seen(model, Scope(globex.owner.pk))
    assert first
    assert second
    assert first & second == ({both.pk} if model is User else set())
    assert first | second <= everybody
    own = {stranger.pk} if model is User else set()
    assert seen(model, Scope(stranger.pk)) == own
    assert seen(model, Scope(stranger.pk, "acme")) == own
    assert seen(model, NOBODY) == set()
    if model._meta.db_table not in PERSONAL:
        assert seen(model, Scope(both.pk)) == first | second
        assert seen(model, Scope(both.pk, "acme")) == first


@pytest.mark.parametrize("space", ["root", "root:acme", "root:acme:web:below"])
def test_no_lease_that_is_in_the_way_of_a_write_is_behind_the_wall(space: str, acme: House, globex: House):
    """A writer who does not see it would write what its holder then does not read."""
    lease = ReadLease.objects.create(number=next(_leases), space=space, holder=1)
    assert lease.pk in seen(ReadLease, Scope(acme.owner.pk))
    assert (lease.pk in seen(ReadLease, Scope(globex.owner.pk))) is (space == "root")


@pytest.mark.usefixtures("both")
def test_nothing_can_be_written_across_the_wall(acme: House, globex: House):
    with scopes.scoped(Scope(acme.owner.pk)):
        assert Workspace.objects.filter(pk=globex.workspace.pk).update(name="stolen") == 0
        assert globex.tenant.memberships.filter(user=globex.viewer).delete()[0] == 0
        with pytest.raises(Error, match="row-level security"), transaction.atomic():
            globex.tenant.memberships.create(user=acme.owner, role="owner")
        with pytest.raises(Error, match="row-level security"), transaction.atomic():
            Workspace.objects.filter(pk=acme.workspace.pk).update(tenant=globex.tenant)
        for statement in ("DELETE FROM tenants", "INSERT INTO tiers (name) VALUES ('x')", "TRUNCATE workspaces"):
            with pytest.raises(Error, match="permission denied"), transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(statement)


FORGETFUL = [
    "SELECT count(*) FROM tenants WHERE name <> 'acme'",
    "SELECT count(*) FROM workspaces WHERE tenant_id <> 'acme'",
    "SELECT count(*) FROM memberships WHERE tenant_id <> 'acme'",
    "SELECT count(*) FROM audit_logs WHERE chain <> 'acme'",
    "SELECT count(*) FROM api_requests WHERE tenant <> 'acme'",
    "SELECT count(*) FROM store_object WHERE space <> 'root:acme' AND space NOT LIKE 'root:acme:%' AND name <> 'acme'",
]


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("streaming", [False, True])
def test_a_view_that_forgets_its_filter_leaks_nothing(acme: House, operator: User, streaming: bool):
    """The middleware closes the wall before any view, and for what is read while the answer is sent."""

    def lines() -> Iterator[bytes]:
        with connection.cursor() as cursor:
            for statement in FORGETFUL:
                cursor.execute(statement)
                yield b"%d\n" % cursor.fetchone()[0]

    def view(_request: Any) -> Any:
        return StreamingHttpResponse(lines()) if streaming else HttpResponse(b"".join(lines()))

    def answer(user: Any) -> list[int]:
        request = RequestFactory().get("/")
        request.user, request.session = user, SessionStore()
        response = ScopeMiddleware(view)(request)
        return [int(line) for line in b"".join(response).split()]

    assert answer(AnonymousUser()) == [0] * len(FORGETFUL)
    assert answer(acme.owner) == [0] * len(FORGETFUL)
    assert all(answer(operator)[:5])
    assert scopes.current() is None


def token(user: User, tenant: Tenant | None, scope: str) -> str:
    now = timezone.now()
    return token_create(
        actor=Actor(name=user.email, user_id=user.pk, operator=user.is_staff),
        user=user,
        name="x",
        scope=PersonalAccessToken.Scope(scope),
        expires_at=now + timedelta(days=1),
        now=now,
        tenant=tenant,
    ).text


def test_a_token_sees_no_more_than_it_is_for(acme: House, globex: House, operator: User, client: Any, monkeypatch: Any):
    """The scope of a request with a token: one tenant's, its person's, or everything for operators' own."""
    globex.tenant.memberships.create(user=acme.owner, role="viewer")
    told: list[set[str]] = []

    def forgetful(*_: Any, **__: Any) -> Any:
        told.append(set(Tenant.objects.values_list("name", flat=True)))
        raise AssertionError

    monkeypatch.setattr("portal.api.tenants.api_actor", forgetful)
    for user, tenant, scope in (
        (acme.owner, acme.tenant, "read"),
        (acme.owner, None, "read"),
        (operator, None, "read"),
        (operator, None, "operate"),
    ):
        with pytest.raises(AssertionError):
            client.get("/api/v1/tenants/", headers={"Authorization": f"Bearer {token(user, tenant, scope)}"})
    assert told == [{"acme"}, {"acme", "globex"}, set(), {"acme", "globex"}]


def test_a_rolled_back_transaction_leaves_the_wall_standing(acme: House, globex: House):
    """Roles and settings roll back with the transaction that changed them: the connection is told anew."""
    with scopes.scoped(Scope(acme.owner.pk)):
        for _ in range(2):
            with pytest.raises(ZeroDivisionError), transaction.atomic():
                with scopes.scoped(Scope(globex.owner.pk)):
                    assert list(Tenant.objects.values_list("name", flat=True)) == ["globex"]
                raise ZeroDivisionError
            assert list(Tenant.objects.values_list("name", flat=True)) == ["acme"]
        with pytest.raises(Error), transaction.atomic(), connection.cursor() as cursor, scopes.everything():
            cursor.execute("SELECT 1/0")
        assert list(Tenant.objects.values_list("name", flat=True)) == ["acme"]
    assert Tenant.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_transaction_of_its_own_leaves_the_wall_standing():
    acme = house("acme")
    house("globex")
    for _ in range(2):
        with scopes.scoped(Scope(acme.owner.pk)):
            with pytest.raises(ZeroDivisionError), transaction.atomic():
                assert Tenant.objects.count() == 1
                raise ZeroDivisionError
            assert Tenant.objects.count() == 1
            connection.close()
            assert Tenant.objects.count() == 1
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            assert Tenant.objects.count() == 2
            raise ZeroDivisionError


def test_the_product_owns_nothing_and_is_nobody_in_particular():
    """Neither role is a superuser, owns a table or a function, or may make roles, databases or tables."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT session_user")
        product = cursor.fetchone()[0]
    with owning() as cursor:
        for role in (product, SCOPED_ROLE):
            cursor.execute(
                "SELECT rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb OR rolreplication"
                " FROM pg_roles WHERE rolname = %s",
                [role],
            )
            assert cursor.fetchone() == (False,), role
            cursor.execute("SELECT relname FROM pg_class WHERE pg_get_userbyid(relowner) = %s", [role])
            assert cursor.fetchall() == [], role
            cursor.execute("SELECT has_schema_privilege(%s, 'public', 'CREATE')", [role])
            assert cursor.fetchone() == (False,), role
        cursor.execute(
            "SELECT relname, verb FROM pg_class, unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) AS verb"
            " WHERE relnamespace = 'public'::regnamespace AND relname ~ '^(audit_|api_requests)' AND relkind IN ('r', 'p')"
            " AND has_table_privilege(%s, oid, verb)",
            [product],
        )
        assert cursor.fetchall() == []
        cursor.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef"
            " AND NOT coalesce(proconfig @> '{\"search_path=public, pg_temp\"}', false)"
        )
        assert cursor.fetchall() == []
        # Each locks or changes something: not for whoever may only sign in to the database.
        cursor.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef"
            " AND prorettype <> 'trigger'::regtype"
            " AND (proacl IS NULL OR EXISTS (SELECT FROM aclexplode(proacl) WHERE grantee = 0))"
        )
        assert cursor.fetchall() == []
        for role in (product, SCOPED_ROLE):
            cursor.execute("SELECT has_column_privilege(%s, 'store_revision', 'counted', 'UPDATE')", [role])
            assert cursor.fetchone() == (False,), role


def test_every_page_of_a_member_is_answered_behind_the_wall(acme: House, globex: House, monkeypatch: Any):
    """No page needs more than the wall leaves: all that take no argument are opened."""
    client = signed_in(acme.owner)
    pages = [pattern for pattern in get_resolver().url_patterns if not getattr(pattern, "url_patterns", None)]
    opened = 0
    for pattern in pages:
        if "<" in str(pattern.pattern):
            continue
        answer = client.get(f"/{pattern.pattern}")
        assert answer.status_code < 500, pattern
        assert b"globex" not in b"".join(answer), pattern
        opened += 1
    assert opened > 5


@pytest.mark.parametrize("chain", ["system", "globex", "nowhere"])
def test_everybody_may_add_to_the_audit_and_sees_none_of_it_by_that(chain: str, acme: House):
    """What is refused to nobody, or to a stranger, is recorded all the same."""
    for scope in (NOBODY, Scope(acme.owner.pk)):
        with scopes.scoped(scope):
            visible = AuditEntry.objects.count()
            record(Action.SIGN_IN, chain=chain, actor="eve", outcome=Outcome.DENIED)
            assert AuditEntry.objects.count() == visible
    assert AuditEntry.objects.filter(chain=chain, actor="eve").count() == 2


SETTINGS = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"
STATEMENTS = [
    *(getattr(statements, name) for name in ("STATE", "CURRENT", "WRITE")),
    *(statements.LOAD_RANGE, statements.LOAD_EVERYWHERE, statements.FOLLOW, statements.LOOK_BACK),
    *(statements.REPLAY_RANGE, statements.REPLAY_SPACES, statements.REPLAY_EVERYWHERE),
    *(statements.RESOURCES, statements.MENTIONING),
    statements.LEASES_LEFT,
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_wall_costs_the_api_server_no_step_of_any_plan(statement: str):
    """Every statement of the store is planned for the product as for a superuser, whom no policy concerns."""
    parts = statement.split("%s")
    text = parts[0] + "".join(f"${number}{part}" for number, part in enumerate(parts[1:], 1))
    plans = []
    with owning() as owner, connection.cursor() as product:
        for cursor in (owner, product):
            raw: Any = getattr(cursor, "cursor", cursor)
            raw.execute(f"SET search_path = public; {SETTINGS}")
            raw.execute(f"EXPLAIN (GENERIC_PLAN, VERBOSE, COSTS OFF) {text}")
            plans.append([line for (line,) in raw.fetchall()])
        product.execute("RESET ALL")
    assert plans[0] == plans[1]
