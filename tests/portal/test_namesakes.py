"""A tenant's name that is given to another customer brings nothing of the first with it (TS1, GW8, GW13)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from access.credentials import token_create
from access.models import PersonalAccessToken
from tenants.models import Role, Tenant, User, Workspace
from tenants.reconciler.deletion import tenants_end
from tenants.services.memberships import membership_set
from tenants.services.tenants import tenant_create, tenant_delete
from tests import factories
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import send
from tests.tenants.conftest import OPERATOR, actor_of


def test_people_tokens_and_audit_of_the_first_customer_are_not_the_seconds(operator: User) -> None:
    """Memberships and tokens end with the row; the chain goes on, and is shown from the tenant's own beginning."""
    first, second = factories.user("first@one.test"), factories.user("second@two.test")
    tenant_create(actor=OPERATOR, name="acme", owner=first)
    membership_set(actor=OPERATOR, tenant="acme", user=factories.user("staff@one.test"), role=Role.VIEWER)
    now = timezone.now()
    minted = token_create(
        actor=actor_of(first),
        user=first,
        tenant=Tenant.objects.get(name="acme"),
        name="t",
        scope=PersonalAccessToken.Scope.READ,
        expires_at=now + timedelta(days=1),
        now=now,
    )
    bearer = {"HTTP_AUTHORIZATION": f"Bearer {minted.text}"}
    assert Client().get("/api/v1/tenants/acme/", **bearer).status_code == 200

    tenant_delete(actor=OPERATOR, name="acme")
    assert tenants_end() == 1
    tenant_create(actor=OPERATOR, name="acme", owner=second)
    assert list(Tenant.objects.get(name="acme").members.all()) == [second]
    assert Client().get("/api/v1/tenants/acme/", **bearer).status_code == 401
    assert signed_in(first).get("/api/v1/tenants/acme/").status_code == 404
    theirs = signed_in(second)
    for path in (
        "/api/v1/audit-logs/?tenant=acme",
        "/api/v1/audit-logs/export?tenant=acme",
        "/audit/?chain=acme",
        "/tenants/acme/",
    ):
        answer = theirs.get(path)
        assert answer.status_code == 200, path
        text = b"".join(answer) if answer.streaming else answer.content
        assert b"one.test" not in text, path
    seen = theirs.get("/api/v1/audit-logs/?tenant=acme").json()["results"]
    assert [row["action"] for row in seen][-1] == "tenant.create"
    assert b"one.test" in signed_in(operator).get("/api/v1/audit-logs/?tenant=acme").content, "operators see all of it"


def scripted(who: User, tenant: str) -> Client:
    """A script of somebody's, with a token that was made over HTTP."""
    ends = f"{timezone.now() + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
    body = {"name": "t", "scope": "write", "expires_at": ends, "tenant": tenant}
    made = send(signed_in(who), "POST", "tokens/", body)
    assert made.status_code == 201, made.content
    return Client(headers={"Authorization": f"Bearer {made.json()['token']}"})


class Thing(ABC):
    """What is deleted over HTTP and made again by somebody else under its name; ``holds`` is what came of the first."""

    def __init__(self, acme: House, operator: User) -> None:
        self.acme, self.operator = acme, signed_in(operator)
        self.owner = signed_in(acme.owner)
        self.begin()

    def begin(self) -> None:
        """Make the first, and what comes of it."""
        self.first = self.make()

    @abstractmethod
    def make(self) -> Any:
        """Make one under the name."""

    @abstractmethod
    def delete(self) -> bool:
        """Whether it could be."""

    @abstractmethod
    def holds(self) -> bool:
        """Whether what came of the first still counts."""


class Member(Thing):
    """A member that an owner removes; another one lets the person in again."""

    def make(self) -> Any:
        self.owner = signed_in(factories.member(self.acme.tenant))
        body = {"email": self.acme.viewer.email, "role": "viewer"}
        made = send(self.owner, "POST", "tenants/acme/members/", body)
        assert made.status_code == 201, made.content
        return made

    def begin(self) -> None:
        self.script = scripted(self.acme.viewer, "acme")
        self.credential = factories.credential(self.acme.workspace, self.acme.viewer)

    def delete(self) -> bool:
        return send(self.owner, "DELETE", f"tenants/acme/members/{self.acme.viewer.pk}/").status_code == 204

    def holds(self) -> bool:
        self.credential.refresh_from_db()
        return self.script.get("/api/v1/tenants/acme/").status_code == 200 or self.credential.revoked_at is None


class Account(Thing):
    """An account is disabled, never deleted: its address is nobody else's. Who is enabled again begins anew."""

    def make(self) -> Any:
        taken = self.operator.post(reverse("user-new"), {"email": self.acme.viewer.email})
        assert taken.status_code == 422
        self.operator.post(reverse("user-status", args=[self.acme.viewer.pk]), {"status": "active"})
        assert User.objects.get(pk=self.acme.viewer.pk).is_active

    def begin(self) -> None:
        self.script, self.browser = scripted(self.acme.viewer, "acme"), signed_in(self.acme.viewer)

    def delete(self) -> bool:
        self.operator.post(reverse("user-status", args=[self.acme.viewer.pk]), {"status": "disabled"})
        return not User.objects.get(pk=self.acme.viewer.pk).is_active

    def holds(self) -> bool:
        page = self.browser.get("/api/v1/tenants/acme/").status_code
        return page == 200 or self.script.get("/api/v1/tenants/acme/").status_code == 200


class TokenOfThatName(Thing):
    """A personal access token."""

    def make(self) -> Any:
        return scripted(self.acme.editor, "acme")

    def delete(self) -> bool:
        (row,) = PersonalAccessToken.objects.filter(user=self.acme.editor, revoked_at=None)
        return send(signed_in(self.acme.editor), "DELETE", f"tokens/{row.pk}/").status_code == 204

    def holds(self) -> bool:
        return bool(self.first.get("/api/v1/tenants/acme/").status_code == 200)


class WorkspaceOfThatName(Thing):
    """A workspace, which another editor asks for again."""

    def make(self) -> Any:
        self.maker = factories.member(self.acme.tenant, Role.EDITOR)
        made = send(signed_in(self.maker), "POST", "workspaces/", {"tier": "basic", "tenant": "acme", "name": "same"})
        assert made.status_code == 202, made.content
        return made.json()["id"]

    def begin(self) -> None:
        self.first = self.make()
        self.theirs, self.namespace = self.maker, Workspace.objects.get(pk=self.first).k8s_namespace
        factories.credential(Workspace.objects.get(pk=self.first), self.maker)

    def delete(self) -> bool:
        return send(self.owner, "DELETE", f"workspaces/{self.first}/").status_code == 202

    def holds(self) -> bool:
        now = Workspace.objects.exclude(status="deleted").get(name="same")
        changed = send(signed_in(self.theirs), "PATCH", f"workspaces/{now.pk}/", {"tier": "basic"})
        return (
            changed.status_code == 200
            or now.k8s_namespace == self.namespace
            or bool(send(self.owner, "GET", f"workspaces/{now.pk}/credentials/").json()["results"])
        )


@pytest.mark.parametrize("kind", [Member, Account, TokenOfThatName, WorkspaceOfThatName])
def test_whoever_makes_a_thing_again_inherits_nothing_of_the_first(
    acme: House, operator: User, kind: type[Thing]
) -> None:
    """Over HTTP: deleted, and made again by somebody else."""
    thing = kind(acme, operator)
    assert kind is WorkspaceOfThatName or thing.holds()
    assert thing.delete()
    thing.make()
    assert not thing.holds()


def test_what_a_deleted_workspace_was_made_of_gives_its_name_to_nobody(acme: House, operator: User) -> None:
    """A tier and a cluster are withdrawn and never deleted: what is deleted still says where it was."""
    console, workspace = signed_in(operator), acme.workspace
    kept = (f"tiers/{workspace.tier_id}/", f"clusters/{workspace.cluster.name}/")
    assert [send(console, "DELETE", thing).status_code for thing in kept] == [409, 409]
    send(signed_in(acme.owner), "DELETE", f"workspaces/{workspace.pk}/")
    assert [send(console, "DELETE", thing).status_code for thing in kept] == [409, 409]
