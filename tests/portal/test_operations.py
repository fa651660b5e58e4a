"""Operations that do not end: seen, hurried, given up (GW15)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from access.credentials.revoking import credentials_expire
from audit.models import AuditEntry
from tenants.models import Cluster, Lock, Operation, OperationState, Phase, Role, User, Workspace
from tenants.operationqueue import claim
from tenants.services import workspace_suspend
from tests import factories
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import send
from tests.portal.test_namesakes import scripted
from tests.tenants.conftest import OPERATOR

AWAY = "The cluster does not answer."


@pytest.fixture
def stuck(acme: House) -> Operation:
    """The deletion of a workspace whose cluster is gone."""
    assert send(signed_in(acme.owner), "DELETE", f"workspaces/{acme.workspace.pk}/").status_code == 202
    Cluster.objects.update(last_error=AWAY, away_until=timezone.now() + timedelta(hours=1))
    operation = Operation.objects.get(workspace=acme.workspace, desired="deleted")
    operation.error, operation.attempts = AWAY, 7
    operation.not_before = timezone.now() + timedelta(hours=1)
    operation.save()
    return operation


def test_whoever_asks_is_told_who_they_are(acme: House, operator: User) -> None:
    me = signed_in(acme.editor).get("/api/v1/me/").json()
    assert (me["email"], me["operator"], me["scope"], me["tenant"]) == (acme.editor.email, False, "", "")
    assert me["memberships"] == [{"tenant": "acme", "role": "editor"}]
    assert signed_in(operator).get("/api/v1/me/").json()["operator"] is True
    factories.member(factories.tenant("globex"), Role.OWNER, acme.editor)
    bound = scripted(acme.editor, "acme").get("/api/v1/me/").json()
    assert bound["tenant"] == "acme"
    assert [found["tenant"] for found in bound["memberships"]] == ["acme"]


def test_what_waits_is_in_the_list_with_its_cause(acme: House, globex: House, operator: User, stuck: Operation) -> None:
    """Also when the workspace is in no other list."""
    for who in (operator, acme.viewer):
        (row,) = signed_in(who).get("/api/v1/operations/?waiting=true").json()["results"]
        assert (row["id"], row["error"], row["attempts"], row["tenant"]) == (str(stuck.pk), AWAY, 7, "acme")
    assert signed_in(globex.owner).get("/api/v1/operations/?waiting=true").json()["results"] == []
    assert signed_in(globex.owner).get(f"/api/v1/operations/{stuck.pk}/").status_code == 404
    assert scripted(globex.owner, "globex").get("/api/v1/operations/?tenant=acme").status_code == 404
    assert signed_in(acme.viewer).get("/api/v1/operations/?waiting=perhaps").status_code == 400
    page = signed_in(operator).get(reverse("operations")).content.decode()
    assert AWAY in page
    assert reverse("operation-retry", args=[stuck.pk]) in page
    assert reverse("workspace-abandon", args=[acme.workspace.pk]) in page
    assert signed_in(acme.owner).get(reverse("operations")).status_code == 403


@pytest.mark.parametrize("browser", [True, False], ids=["page", "rest"])
def test_trying_again_is_now(acme: House, operator: User, stuck: Operation, browser: bool) -> None:
    assert claim() is None
    Cluster.objects.update(away_until=None)
    for who, status in ((acme.viewer, 403), (acme.owner, 202)):
        client = signed_in(who)
        if browser:
            answer = client.post(reverse("operation-retry", args=[stuck.pk])).status_code
            assert answer == (403 if status == 403 else 302)
        else:
            assert send(client, "POST", f"operations/{stuck.pk}/retry").status_code == status
    claimed = claim()
    assert claimed is not None
    assert claimed[0] == stuck.pk
    Operation.objects.update(state=OperationState.DONE)
    assert send(signed_in(operator), "POST", f"operations/{stuck.pk}/retry").status_code == 409


def test_behind_a_closed_door_only_operators_hurry_what_opens_it(acme: House, operator: User) -> None:
    operation = acme.workspace.operations.get()
    Operation.objects.update(state=OperationState.FAILED, error="refused")
    other = factories.workspace(acme.tenant, acme.owner, "other")
    workspace_suspend(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="mining")
    Operation.objects.filter(pk=operation.pk).update(state=OperationState.FAILED)
    refused = send(signed_in(acme.owner), "POST", f"operations/{operation.pk}/retry")
    assert refused.status_code == 403
    assert b"mining" in refused.content
    Operation.objects.filter(workspace=other).update(state=OperationState.FAILED)
    assert send(signed_in(acme.owner), "POST", f"operations/{other.operations.get().pk}/retry").status_code == 202
    assert send(signed_in(operator), "POST", f"operations/{operation.pk}/retry").status_code == 202


def test_what_a_dead_cluster_holds_is_given_up(acme: House, operator: User, stuck: Operation) -> None:
    """Its name, its place in the tier and its door are free; nothing is called confirmed that nobody saw."""
    living = factories.credential(acme.workspace, acme.editor)
    path, console = f"workspaces/{acme.workspace.pk}/abandon", signed_in(operator)
    assert send(signed_in(acme.owner), "POST", path, {"reason": "r"}).status_code == 403
    assert send(console, "POST", path, {"reason": ""}).status_code == 400
    given_up = send(console, "POST", path, {"reason": "the data centre burnt"})
    assert given_up.status_code == 200, given_up.content
    workspace = Workspace.objects.get(pk=acme.workspace.pk)
    assert workspace.phase == Phase.DELETED
    assert not Lock.objects.filter(namespace=workspace.k8s_namespace).exists()
    assert claim() is None
    living.refresh_from_db()
    assert living.revoked_at is not None
    assert living.revocation_confirmed_at is None
    assert credentials_expire(now=timezone.now()) == 0
    living.refresh_from_db()
    assert living.confirm_attempts == 0, "nobody asks a cluster that is gone"
    entry = AuditEntry.objects.get(action="workspace.abandon")
    assert entry.detail["reason"] == "the data centre burnt"
    assert entry.detail["tokens_until"] == living.expires_at.isoformat()
    assert signed_in(operator).get("/api/v1/operations/?waiting=true").json()["results"] == []
    body: dict[str, Any] = {"tier": "basic", "tenant": "acme", "name": workspace.name}
    assert send(signed_in(acme.editor), "POST", "workspaces/", body).status_code == 202
    assert send(console, "POST", path, {"reason": "again"}).status_code == 200


def test_a_worker_that_still_tries_commits_nothing_more(acme: House, operator: User, stuck: Operation) -> None:
    send(signed_in(operator), "POST", f"operations/{stuck.pk}/retry")
    claimed = claim()
    assert claimed is not None
    Cluster.objects.update(last_error=AWAY)
    path = reverse("workspace-abandon", args=[acme.workspace.pk])
    assert "does not answer" in signed_in(operator).get(path).content.decode()
    assert signed_in(operator).post(path, {"reason": "gone"}).status_code == 302
    stuck.refresh_from_db()
    assert stuck.state == OperationState.SUPERSEDED
    assert Workspace.objects.get(pk=acme.workspace.pk).generation > stuck.generation


def test_what_lives_and_what_answers_is_not_given_up(acme: House, operator: User) -> None:
    path = f"workspaces/{acme.workspace.pk}/abandon"
    Cluster.objects.update(last_error=AWAY)
    refused = send(signed_in(operator), "POST", path, {"reason": "r"})
    assert (refused.status_code, b"delete it first" in refused.content) == (409, True)
    send(signed_in(acme.owner), "DELETE", f"workspaces/{acme.workspace.pk}/")
    Cluster.objects.update(last_error="")
    refused = send(signed_in(operator), "POST", path, {"reason": "r"})
    assert (refused.status_code, b"answers" in refused.content) == (409, True)
