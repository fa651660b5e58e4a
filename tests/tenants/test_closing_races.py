"""What is decided by the state of a tenant is decided by its state then: nothing slips through as it closes (GW5)."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections, transaction

from access.credentials.intents import intend, intend_for_tenant
from access.credentials.tokens import token_create
from access.models import PersonalAccessToken
from audit.recorder import Actor
from kube.requests.status import StatusError
from tenants.models import (
    AccessRequest,
    CredentialKind,
    Invitation,
    OperationState,
    Role,
    Status,
    Tenant,
    User,
    Workspace,
)
from tenants.services import (
    membership_remove,
    membership_set,
    operation_retry,
    tenant_change,
    tenant_suspend,
    workspace_change_tier,
    workspace_delete,
    workspace_init,
    workspace_resume,
)
from tenants.services.endings import workspace_end_at
from tenants.services.invitations import digest_of, invitation_accept, invitation_create
from tenants.services.memberships import membership_break_glass
from tenants.services.notices import webhook_create
from tenants.services.requests import RequestDraft, request_approve, request_comment, request_create
from tests import factories
from tests.requirements import FLOORS, ROOT
from tests.tenants.conftest import OPERATOR
from tests.tenants.test_lock_order import PATIENCE, is_waiting

pytestmark = pytest.mark.django_db(transaction=True)

NOW = datetime.now(UTC)
SECRET = "of-a-link"


@dataclass
class Scene:
    """A tenant with an owner, somebody else, and workspaces: one that is open, and one that was suspended by itself."""

    tenant: Tenant
    owner: User
    guest: User
    open: Workspace
    closed: Workspace
    viewer: User
    asked: AccessRequest

    @property
    def actor(self) -> Actor:
        return Actor(name=self.owner.email, user_id=self.owner.pk)


def init(scene: Scene) -> object:
    return workspace_init(actor=scene.actor, user=scene.owner, tier="roomy", tenant=scene.tenant.name, name="late")


def token(scene: Scene) -> object:
    until = NOW + timedelta(days=1)
    scope = PersonalAccessToken.Scope.WRITE
    return token_create(
        actor=scene.actor, user=scene.owner, name="t", scope=scope, expires_at=until, tenant=scene.tenant, now=NOW
    )


def accept(scene: Scene) -> object:
    guest = Actor(name=scene.guest.email, user_id=scene.guest.pk)
    return invitation_accept(actor=guest, user=scene.guest, digest=digest_of(SECRET), now=NOW)


def retry(scene: Scene) -> object:
    return operation_retry(actor=scene.actor, operation_id=scene.open.operations.earliest("generation").pk)


def wish(scene: Scene, kind: str, **of: Any) -> object:
    return request_create(actor=scene.actor, draft=RequestDraft(kind=kind, reason="load", **of), now=NOW)


def break_glass(scene: Scene) -> object:
    return membership_break_glass(
        actor=scene.actor, tenant=scene.tenant.name, user=scene.guest, role=Role.ADMIN, minutes=60, now=NOW
    )


# By the function that asks: what calls it.
SERVICES: dict[str, Callable[[Scene], object]] = {
    "workspace_make": init,
    "workspace_resume": lambda scene: workspace_resume(actor=OPERATOR, workspace_id=scene.closed.pk),
    "workspace_delete": lambda scene: workspace_delete(actor=scene.actor, workspace_id=scene.open.pk),
    "workspace_change_tier": lambda scene: workspace_change_tier(
        actor=scene.actor, workspace_id=scene.open.pk, tier="roomy"
    ),
    "operation_retry": retry,
    "_current": lambda scene: membership_set(
        actor=scene.actor, tenant=scene.tenant.name, user=scene.guest, role=Role.ADMIN
    ),
    "tenant_change": lambda scene: tenant_change(actor=scene.actor, name=scene.tenant.name, display_name="Late"),
    "_locked": lambda scene: invitation_create(
        actor=scene.actor, tenant=scene.tenant.name, email="late@invited.test", role=Role.VIEWER, days=1, now=NOW
    ),
    "invitation_accept": accept,
    "_wants_tier": lambda scene: wish(scene, "tier", workspace=scene.open.pk, tier="roomy"),
    "_wants_quota": lambda scene: wish(scene, "quota", tenant=scene.tenant.name, hard={"pods": "9"}),
    "_wants_role": lambda scene: request_create(
        actor=Actor(name="viewer", user_id=scene.viewer.pk),
        draft=RequestDraft(kind="role", reason="x", tenant=scene.tenant.name, role="admin"),
        now=NOW,
    ),
    "_wants_leave": lambda scene: wish(scene, "leave", tenant=scene.tenant.name),
    "_to_decide": lambda scene: request_approve(actor=scene.actor, request_id=scene.asked.pk, now=NOW),
    "request_comment": lambda scene: request_comment(
        actor=scene.actor, request_id=scene.asked.pk, text="why?", now=NOW
    ),
    "membership_break_glass": break_glass,
    "workspace_end_at": lambda scene: workspace_end_at(
        actor=scene.actor, workspace_id=scene.open.pk, expires_at=NOW + timedelta(days=9), now=NOW
    ),
    "webhook_create": lambda scene: webhook_create(
        actor=scene.actor, tenant=scene.tenant.name, url="https://hooks.test/", kinds=(), now=NOW
    ),
    "token_create": token,
    "intend_for_tenant": lambda scene: intend_for_tenant(scene.actor, scene.tenant.name, "", CredentialKind.EXEC, NOW),
    "_chosen": lambda scene: intend(scene.actor, scene.open.pk, Role.VIEWER, "", NOW),
}
ASKS = {"require_open", "_require_active"}


@pytest.fixture
def scene() -> Scene:
    tenant = factories.tenant()
    owner, guest = factories.member(tenant, Role.OWNER), factories.user()
    factories.tier("roomy", workspaces_per_user=9)
    Invitation.objects.create(
        tenant=tenant,
        email=guest.email,
        role=Role.VIEWER,
        digest=digest_of(SECRET),
        invited_by=owner,
        expires_at=NOW + timedelta(days=1),
    )
    workspace = factories.workspace(tenant, owner)
    workspace.operations.update(state=OperationState.FAILED)
    return Scene(
        tenant,
        owner,
        guest,
        workspace,
        factories.workspace(tenant, owner, status=Status.SUSPENDED, suspended_at=NOW),
        factories.member(tenant, Role.VIEWER),
        factories.access_request(tenant, guest, role=Role.VIEWER),
    )


def refused_meanwhile(scene: Scene, service: str, change: Callable[[], object]) -> StatusError:
    """How a service is refused that comes while a change is not yet committed: it waits for it."""

    def serve() -> object:
        try:
            return SERVICES[service](scene)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            change()
            served = pool.submit(serve)
            deadline = time.monotonic() + PATIENCE
            while not is_waiting() and not served.done():
                assert time.monotonic() < deadline
                time.sleep(0.02)
        with pytest.raises(StatusError) as refused:
            served.result(PATIENCE)
    return refused.value


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_is_done_any_more_in_a_tenant_that_is_closed_meanwhile(scene: Scene, service: str) -> None:
    refusal = refused_meanwhile(
        scene, service, lambda: tenant_suspend(actor=OPERATOR, name=scene.tenant.name, reason="mining")
    )
    assert refusal.code in (403, 409)
    scene.closed.refresh_from_db()
    assert scene.closed.status == Status.SUSPENDED


@pytest.mark.parametrize("service", sorted(SERVICES.keys() - {"workspace_resume", "_wants_role"}))
def test_nothing_is_done_any_more_by_who_is_put_out_meanwhile(scene: Scene, service: str) -> None:
    """A webhook would go on telling for good. All but what an operator does, and what another member asks for."""
    factories.member(scene.tenant, Role.OWNER)
    refusal = refused_meanwhile(
        scene, service, lambda: membership_remove(actor=OPERATOR, tenant=scene.tenant.name, user=scene.owner)
    )
    assert refusal.code in (403, 404)


def test_every_service_that_asks_for_the_state_is_tried() -> None:
    found = {
        function.name
        for floor in FLOORS
        for path in sorted((ROOT / floor).rglob("*.py"))
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef) and function.name not in ASKS
        for called in ast.walk(function)
        if (isinstance(called, ast.Call) and isinstance(called.func, ast.Name) and called.func.id in ASKS)
    }
    assert found <= SERVICES.keys(), "each has a row above"
