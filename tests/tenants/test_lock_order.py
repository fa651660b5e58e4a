"""Services that lock rows in an order of their own never wait for each other in a circle (GW5, GW15)."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from django.db import connection, connections, transaction

from access.credentials.intents import intend
from audit.recorder import Actor
from portal.signin.oidc.mapping import Rights
from portal.signin.oidc.people import Person, user_admit
from tenants.models import Membership, Role, Tenant, User
from tenants.rights import rights_locked
from tenants.services import tenant_delete, tenant_suspend
from tests import factories
from tests.requirements import FLOORS, ROOT
from tests.tenants.conftest import OPERATOR

PATIENCE = 300.0

DELETING = {"tier_delete", "_tenant_end"}
"""What goes is locked against references as well."""

SERVICES: dict[str, Callable[[Tenant], object]] = {
    "suspend": lambda tenant: tenant_suspend(actor=OPERATOR, name=tenant.name, reason="mining"),
    "delete": lambda tenant: tenant_delete(actor=OPERATOR, name=tenant.name),
}


def is_waiting() -> bool:
    """Whether some other transaction of this database waits for a row; other tests' have databases of their own."""
    with connection.cursor() as cursor:
        # Without that a transaction sees in pg_stat_activity what it saw first.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE NOT granted AND datname = current_database()"
        )
        found: int = cursor.fetchone()[0]
    return found > 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("service", SERVICES)
def test_a_tenant_cannot_hold_up_what_operators_do_with_it_by_asking_for_kubeconfigs(service: str) -> None:
    """Who issues has the tenant and the workspace, and writes a row that names both; the service waits for the tenant alone."""
    tenant = factories.tenant()
    owner = factories.member(tenant, Role.OWNER)
    workspace = factories.workspace(tenant, owner)
    actor = Actor(name=owner.email, user_id=owner.pk)

    def serve() -> None:
        try:
            SERVICES[service](tenant)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            intend(actor, workspace.pk, Role.VIEWER, "", datetime.now(UTC))
            served = pool.submit(serve)
            deadline = time.monotonic() + PATIENCE
            while not is_waiting() and not served.done():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            # Once more, as all that it names is held already.
            intend(actor, workspace.pk, Role.EDITOR, "", datetime.now(UTC))
        served.result(PATIENCE)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("role", [Role.ADMIN, None])
def test_who_signs_in_at_a_provider_waits_for_the_tenant_before_anybody_waits_for_them(role: Role | None) -> None:
    """Who issues has the tenant, and then asks for the person, whose address and role the provider has just changed."""
    tenant = factories.tenant()
    factories.member(tenant, Role.OWNER)
    person = factories.member(tenant, Role.VIEWER)
    User.objects.filter(pk=person.pk).update(issuer="https://id.test", subject="jane")
    said = Person(issuer="https://id.test", subject="jane", email="jane@new.test", name="Jane")

    def sign_in() -> User:
        try:
            return user_admit(actor=OPERATOR, person=said, rights=Rights(operator=None, roles={tenant.name: role}))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
            admitted = pool.submit(sign_in)
            deadline = time.monotonic() + PATIENCE
            while not is_waiting() and not admitted.done():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert rights_locked(Actor(name=person.email, user_id=person.pk), tenant.name).user_id == person.pk
        user = admitted.result(PATIENCE)
    assert user.email == "jane@new.test"
    assert list(Membership.objects.filter(user=user).values_list("role", flat=True)) == ([role] if role else [])


def test_nobody_locks_a_row_against_references_that_does_not_delete_it() -> None:
    """Whatever is written about a thing refers to it: ``FOR UPDATE`` would have it wait, and its own locks with it."""
    found = []
    for floor in FLOORS:
        for path in sorted((ROOT / floor).rglob("*.py")):
            for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(function, ast.FunctionDef) or function.name in DELETING:
                    continue
                found += [
                    f"{path.relative_to(ROOT)}:{call.lineno}"
                    for call in ast.walk(function)
                    if isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Attribute)
                    and call.func.attr == "select_for_update"
                    and not any(word.arg == "no_key" for word in call.keywords)
                ]
    assert found == []
