"""What is frozen is read by its people and changed by none of them, until an operator or a date says so (GW28)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from access.credentials.clustertokens import _conclude
from access.credentials.intents import intend
from access.credentials.tokenrequests import ClusterToken
from audit.models import AuditEntry
from gateway.server.explanation import explain
from kube.authentication.identity import Principal
from kube.requests.status import Conflict, Forbidden, Invalid
from portal.notices.sending import notices_send
from tenants.models import CredentialKind, Freeze, Notification, Role, User, Workspace
from tenants.reconciler.lapses import lapses_sweep
from tenants.services import membership_remove, membership_set, tenant_suspend, workspace_delete
from tenants.services.endings import workspace_end_at, workspaces_expire
from tenants.services.operating.freezing import tenant_freeze, tenant_thaw, workspace_freeze
from tenants.suspensions import installation_close, installation_open
from tests import factories
from tests.portal.commandline import Shell
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import bearer, send
from tests.portal.test_command_line import shell  # noqa: F401
from tests.portal.test_requests import actor
from tests.tenants.conftest import OPERATOR


def page(person: User, path: str) -> str:
    return signed_in(person).get(path).content.decode()


def decided(acme: House, verb: str, path: str) -> str:
    """What the API server would say to the owner, for the explanation."""
    who = Principal(name=acme.owner.email, tenant="acme", authenticator="test")
    return explain(who, verb, path, "root:acme")[2].reason


def test_an_operator_freezes_a_tenant_and_its_people_read_why(acme: House, operator: User) -> None:
    client = signed_in(operator)
    assert client.get(reverse("tenant-freeze", args=["acme"])).status_code == 200
    assert client.post(reverse("tenant-freeze", args=["acme"]), {"reason": "<b>audit</b>"}).status_code == 302
    for path in ("/tenants/acme/", f"/workspaces/{acme.workspace.pk}/"):
        assert "&lt;b&gt;audit&lt;/b&gt;" in page(acme.viewer, path)
        assert "can be read and not written to" in page(acme.viewer, path)
    notices_send(now=timezone.now())
    assert "can only be read" in Notification.objects.get(user=acme.owner).text
    maps = "/api/v1/namespaces/default/configmaps"
    assert decided(acme, "POST", maps) == "frozen: <b>audit</b>"
    assert "frozen" not in decided(acme, "GET", maps)
    assert client.post(reverse("tenant-thaw", args=["acme"])).status_code == 302
    assert "not written to" not in page(acme.viewer, "/tenants/acme/")
    assert "frozen" not in decided(acme, "POST", maps)
    actions = AuditEntry.objects.filter(chain="acme").order_by("sequence").values_list("action", flat=True)
    assert list(actions) == ["tenant.freeze", "tenant.thaw"]


def test_what_is_frozen_is_marked_in_lists_and_asks_nobody_to_write(acme: House, globex: House, operator: User) -> None:
    mark = '<span class="muted">frozen</span>'
    new = reverse("workspace-new")
    other = factories.workspace(acme.tenant, acme.owner)

    def marks(path: str) -> int:
        return page(operator, path).count(mark)

    assert (marks("/tenants/"), marks("/workspaces/")) == (0, 0)
    assert new in page(acme.owner, "/tenants/acme/")
    workspace_freeze(actor=OPERATOR, workspace_id=other.pk, reason="incident")
    assert (marks("/tenants/"), marks("/workspaces/")) == (0, 1)
    tenant_freeze(actor=OPERATOR, name="acme", reason="audit")
    assert (marks("/tenants/"), marks("/workspaces/")) == (1, 2)
    assert page(acme.viewer, "/workspaces/").count(mark) == 2
    assert page(globex.viewer, "/workspaces/").count(mark) == 0
    assert "Create a workspace" not in page(acme.owner, "/tenants/acme/")


def test_in_the_portal_nothing_of_it_changes(acme: House) -> None:
    workspace_freeze(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="incident")
    with pytest.raises(Forbidden, match="frozen: incident"):
        workspace_delete(actor=actor(acme.owner), workspace_id=acme.workspace.pk)
    other = factories.workspace(acme.tenant, acme.owner)
    tenant_freeze(actor=OPERATOR, name="acme", reason="audit")
    with pytest.raises(Forbidden, match="frozen: audit"):
        workspace_delete(actor=actor(acme.owner), workspace_id=other.pk)
    tenant_thaw(actor=OPERATOR, name="acme")
    workspace_delete(actor=actor(acme.owner), workspace_id=other.pk)
    workspace_delete(actor=OPERATOR, workspace_id=acme.workspace.pk)
    assert not Freeze.objects.exists(), "its namespace's name may serve another"


def test_kubeconfigs_are_given_out_but_none_that_writes_past_the_api_server(acme: House, operator: User) -> None:
    acme.workspace.cluster.credential_kinds = [CredentialKind.GATEWAY, CredentialKind.DIRECT]
    acme.workspace.cluster.save()
    now = timezone.now()
    factories.credential(acme.workspace, acme.editor, kind=CredentialKind.DIRECT, role=Role.EDITOR, jti="out")
    workspace_freeze(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="audit")
    who = actor(acme.editor)
    assert intend(who, acme.workspace.pk, "", CredentialKind.GATEWAY, now).credential
    assert intend(who, acme.workspace.pk, Role.VIEWER, CredentialKind.DIRECT, now).credential
    with pytest.raises(Conflict, match="frozen: audit"):
        intend(who, acme.workspace.pk, Role.EDITOR, CredentialKind.DIRECT, now)
    shown = page(operator, f"/workspaces/{acme.workspace.pk}/")
    assert "1 direct credential can write on" in shown
    assert "direct credential can write" not in page(acme.owner, f"/workspaces/{acme.workspace.pk}/")


def test_a_token_that_is_being_made_when_it_is_frozen_does_not_come_out(acme: House) -> None:
    """What was allowed before writes after: the outcome is asked again, under the lock that the freeze takes as well."""
    factories.credential(acme.workspace, acme.editor, kind=CredentialKind.DIRECT, role=Role.EDITOR, jti="out")
    credential = acme.workspace.credentials.get()
    now = timezone.now()
    token = ClusterToken(text="x", jti="made", expires_at=now + timedelta(hours=1))
    tenant_freeze(actor=OPERATOR, name="acme", reason="audit")
    with pytest.raises(Conflict, match="frozen: audit"):
        _conclude(actor(acme.editor), acme.workspace, credential, token)
    credential.role = Role.VIEWER
    _conclude(actor(acme.editor), acme.workspace, credential, token)


def test_a_workspace_that_has_ended_is_not_opened_again_by_its_people(acme: House) -> None:
    now = timezone.now()
    Workspace.objects.filter(pk=acme.workspace.pk).update(expires_at=now - timedelta(days=1))
    assert workspaces_expire(now=now) == 1
    workspace_freeze(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="incident")
    said = {"workspace_id": acme.workspace.pk, "expires_at": now + timedelta(days=9), "now": now}
    with pytest.raises(Forbidden, match="frozen: incident"):
        workspace_end_at(actor=actor(acme.owner), **said)
    workspace_end_at(actor=OPERATOR, **said)


def test_it_keeps_nobody_in(acme: House) -> None:
    """What is held still is read on: who is put out, or leaves, reads no more; nobody is let in or raised."""
    tenant_freeze(actor=OPERATOR, name="acme", reason="audit")
    with pytest.raises(Forbidden, match="frozen: audit"):
        membership_set(actor=actor(acme.owner), tenant="acme", user=acme.viewer, role=Role.ADMIN)
    membership_remove(actor=actor(acme.owner), tenant="acme", user=acme.editor)
    membership_remove(actor=actor(acme.viewer), tenant="acme", user=acme.viewer)
    assert send(bearer(acme.owner, "write"), "DELETE", f"tenants/acme/members/{acme.admin.pk}/").status_code == 204
    tenant_suspend(actor=OPERATOR, name="acme", reason="unpaid")
    assert Freeze.objects.exists(), "one does not end the other"


def test_it_ends_by_its_date_and_the_newest_word_counts(acme: House) -> None:
    now = timezone.now()
    tenant_freeze(actor=OPERATOR, name="acme", reason="audit", until=now + timedelta(days=1))
    workspace_freeze(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="incident")
    tenant_freeze(actor=OPERATOR, name="acme", reason="audit", until=now + timedelta(days=3))
    lapses_sweep(now=now + timedelta(days=2))
    assert Freeze.objects.count() == 2
    installation_close("restored")
    lapses_sweep(now=now + timedelta(days=4))
    assert Freeze.objects.count() == 2, "nothing opens while the platform is closed"
    installation_open()
    lapses_sweep(now=now + timedelta(days=4))
    assert Freeze.objects.get().workspace == acme.workspace
    assert AuditEntry.objects.get(action="tenant.thaw").actor == "system:worker"


@pytest.mark.parametrize("wrong", [{"reason": ""}, {"reason": "x", "until": timezone.now() - timedelta(days=1)}])
def test_it_needs_a_reason_and_an_end_ahead(acme: House, wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        tenant_freeze(actor=OPERATOR, name="acme", **wrong)


def test_operators_alone_freeze_and_thaw(acme: House, globex: House, operator: User) -> None:
    for path in ("tenants/acme/{}", f"workspaces/{acme.workspace.pk}/{{}}"):
        assert send(bearer(acme.owner, "write"), "POST", path.format("freeze"), {"reason": "x"}).status_code == 403
        assert send(bearer(globex.owner, "write"), "POST", path.format("freeze"), {"reason": "x"}).status_code == 404
        answer = send(bearer(operator, "operate"), "POST", path.format("freeze"), {"reason": "x"})
        assert (answer.status_code, answer.json()["reason"]) == (200, "x")
        assert "What runs goes on" in answer.json()["remains"][0]
        assert send(bearer(acme.owner, "write"), "POST", path.format("thaw")).status_code == 403
    assert len(send(bearer(acme.viewer, "read"), "GET", "freezes/").json()["results"]) == 2
    assert send(bearer(globex.viewer, "read"), "GET", "freezes/").json()["results"] == []
    assert send(bearer(globex.viewer, "read"), "GET", "freezes/?tenant=acme").status_code == 404


def test_from_a_shell(acme: House, operator: User, shell: Shell) -> None:  # noqa: F811
    shell.sign_in(operator, "operate")
    assert "audit" in shell.done("tenants", "freeze", "acme", "--reason", "audit").output
    shell.done("workspaces", "freeze", f"acme/{acme.workspace.name}", "--reason", "incident")
    shell.done("tenants", "thaw", "acme")
    shell.done("workspaces", "thaw", f"acme/{acme.workspace.name}")
    assert not Freeze.objects.exists()
