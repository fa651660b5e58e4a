"""Every page, as each kind of person: it is there, and it forbids what it must."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from audit.actions import Action
from audit.models import AuditEntry
from portal.api.openapi.docs import document
from tenants.models import Cluster, Operation, OperationState, Workspace
from tests import factories
from tests.portal.conftest import House, signed_in

PUBLIC = ["/login/", "/api/docs/", "/api/schema/", "/healthz", "/readyz", "/metrics"]
MEMBER = [
    "/",
    "/workspaces/",
    "/workspaces/new/",
    "/tenants/",
    "/tokens/",
    "/tokens/new/",
    "/audit/",
    "/explain/",
    "/identity/",
    "/explain/?ask=who",
    "/explain/?ask=change",
    "/explain/choices/",
    "/profile/",
    "/search/?q=a",
]
OPERATOR = ["/tiers/", "/tiers/new/", "/clusters/", "/clusters/new/", "/users/", "/users/new/", "/tenants/new/"]


@pytest.mark.parametrize("path", PUBLIC)
def test_public_page_without_session_is_served(path: str) -> None:
    assert Client().get(path).status_code == 200


def test_operations_of_the_rest_api_are_written_once_for_all_and_name_each_ones_portal(
    acme: House, settings: Any
) -> None:
    """Nearly all that the page takes, and strangers ask for it as often as they like."""
    settings.ALLOWED_HOSTS = ["*"]
    browsers = {"one.test": Client(), "other.test": signed_in(acme.viewer)}
    Client().get("/api/docs/", headers={"Host": "first.test"})
    for host, browser in browsers.items():
        answer = browser.get("/api/docs/", headers={"Host": host})
        assert "components/text/code.html" not in [each.name for each in answer.templates]
        page = answer.content.decode()
        assert set(re.findall(r"https?://[\w.-]+(?=/api/v1/)", page)) == {f"http://{host}"}
        assert ("first.test" in page, "portal.invalid" in page) == (False, False)
        assert page.count("<details") == sum(map(len, document()["paths"].values()))


@pytest.mark.parametrize("path", MEMBER + OPERATOR)
def test_page_without_session_leads_to_sign_in(path: str) -> None:
    response = Client().get(path)
    assert response.status_code == 302
    assert response.headers["Location"].startswith("/login/?next=")


@pytest.mark.parametrize("path", MEMBER)
def test_member_page_is_served_to_members_and_operators(path: str, acme: House, operator: factories.User) -> None:
    for user in (acme.viewer, acme.owner, operator, factories.user()):
        assert signed_in(user).get(path).status_code == 200


@pytest.mark.parametrize("path", OPERATOR)
def test_operator_page_is_for_operators_alone(path: str, acme: House, operator: factories.User) -> None:
    assert signed_in(operator).get(path).status_code == 200
    assert signed_in(acme.owner).get(path).status_code == 403


def workspace_pages(house: House) -> list[str]:
    names = [
        "workspace",
        "workspace-progress",
        "workspace-kubeconfig",
        "workspace-suspend",
        "workspace-resume",
        "workspace-delete",
        "workspace-tier",
    ]
    return [reverse(name, args=[house.workspace.pk]) for name in names]


def tenant_pages(house: House) -> list[str]:
    member = house.viewer.pk
    return [
        reverse("tenant", args=[house.tenant.name]),
        reverse("members", args=[house.tenant.name]),
        reverse("member-add", args=[house.tenant.name]),
        reverse("member-remove", args=[house.tenant.name, member]),
        reverse("tenant-export", args=[house.tenant.name]),
        f"/audit/?chain={house.tenant.name}",
        f"/audit/export/?chain={house.tenant.name}&format=csv",
        f"/audit/?workspace={house.workspace.pk}",
    ]


def test_pages_of_a_tenant_are_served_to_its_owner(acme: House) -> None:
    client = signed_in(acme.owner)
    for path in workspace_pages(acme) + tenant_pages(acme):
        assert client.get(path).status_code == 200, path


def test_pages_of_another_tenant_do_not_exist(acme: House, globex: House) -> None:
    """P1: 404, never 403, for what one may not know of."""
    factories.credential(globex.workspace, globex.editor, jti="jti-1")
    client = signed_in(acme.owner)
    credential = reverse("credential-revoke", args=["jti-1"])
    for path in [*workspace_pages(globex), *tenant_pages(globex), credential]:
        data = {"reason": "x", "name": "x", "email": globex.owner.email, "role": "owner"}
        for method, response in (("get", client.get(path)), ("post", client.post(path, data))):
            # Pages that only read say 405 to every POST, whoever sends it.
            assert response.status_code in ({404} if method == "get" else {404, 405}), (method, path)
            assert globex.workspace.k8s_namespace not in response.content.decode()


def test_overview_shows_my_workspaces_and_not_others(acme: House, globex: House) -> None:
    body = signed_in(acme.editor).get("/").content.decode()
    assert "acme-web" in body
    assert "globex" not in body


def test_the_overview_of_an_operator_says_what_failed_and_what_to_set_up(acme: House, operator: factories.User) -> None:
    """GW15: a member is told to join and to work, an operator what needs him now."""
    member = signed_in(acme.editor).get("/").content.decode()
    assert "Join a tenant" in member
    assert "Get a kubeconfig" in member
    client = signed_in(operator)
    registered = Cluster.objects.exclude(kind=Cluster.Kind.EMBEDDED)
    assert registered.exists()
    assert 'href="/clusters/">Register a cluster' not in client.get("/").content.decode()
    registered.update(kind=Cluster.Kind.EMBEDDED)
    calm = client.get("/").content.decode()
    assert "Join a tenant" not in calm
    assert 'href="/clusters/">Register a cluster' in calm
    assert "operation failed" not in calm
    Operation.objects.update(state=OperationState.FAILED, error="refused")
    alarmed = client.get("/").content.decode()
    assert "1 operation failed" in alarmed
    assert 'href="/operations/"' in alarmed.split('aria-label="Numbers"')[0].split("1 operation failed")[1]
    assert "operation failed" not in signed_in(acme.editor).get("/").content.decode()


def test_search_finds_my_own_things_only(acme: House, globex: House) -> None:
    client = signed_in(acme.viewer)
    assert "acme-web" in client.get("/search/?q=acme").content.decode()
    assert "globex" not in client.get("/search/?q=glo").content.decode()


def test_search_finds_what_an_id_is_the_id_of(acme: House, globex: House, operator: factories.User) -> None:
    """A namespace, its UID, a person, a credential, a request, an operation, an event, a refusal: never a neighbour's."""
    Workspace.objects.filter(pk=acme.workspace.pk).update(namespace_uid=str(uuid4()))
    acme.workspace.refresh_from_db()
    operation = acme.workspace.operations.first()
    credential = factories.credential(acme.workspace, acme.editor)
    asked = factories.access_request(acme.tenant, acme.viewer)
    factories.event("acme", Action.WORKSPACE_READY, acme.editor, of=acme.workspace)
    event = AuditEntry.objects.get(chain="acme")
    refused = factories.api_request("acme", code=403, allowed=False, request_id=str(uuid4()))
    page = f"/workspaces/{acme.workspace.pk}/"
    leads = {
        acme.workspace.k8s_namespace[2:]: page,
        acme.workspace.namespace_uid: page,
        str(acme.workspace.pk): page,
        str(operation.pk): page,
        str(credential.jti): page,
        str(asked.pk): f"/inbox/{asked.pk}/",
        str(event.pk): f"/audit/{event.pk}/",
        refused.request_id: f"/audit/requests/{refused.key}/",
        acme.editor.email[:8]: "/tenants/acme/members/",
    }
    for words, url in leads.items():
        for person in (operator, acme.owner):
            if "members" not in url or person is acme.owner:
                assert f'href="{url}"' in signed_in(person).get("/search/", {"q": words}).content.decode(), words
        assert url not in signed_in(globex.owner).get("/search/", {"q": words}).content.decode(), words
    for words in (acme.editor.email[:8], acme.workspace.k8s_namespace[2:], acme.workspace.namespace_uid):
        assert f'href="{page}"' in signed_in(operator).get("/workspaces/", {"q": words}).content.decode(), words
        assert page not in signed_in(globex.owner).get("/workspaces/", {"q": words}).content.decode(), words
    person = str(acme.viewer.pk)
    assert f"/users/{person}/" in signed_in(operator).get("/search/", {"q": person}).content.decode()
    assert f"/users/{person}/" not in signed_in(acme.owner).get("/search/", {"q": person}).content.decode()


def test_tier_is_changed_by_an_operator(operator: factories.User) -> None:
    """GW2."""
    made = factories.tier("basic")
    client = signed_in(operator)
    body = client.get("/tiers/basic/").content.decode()
    assert "requests.cpu: 4" in body
    data = {
        "display_name": "Basic",
        "quota": "requests.cpu: 6",
        "limit_range": "[]",
        "workspaces_per_user": 1,
        "position": 0,
        "is_available": "on",
    }
    assert client.post("/tiers/basic/", data).status_code == 302
    made.refresh_from_db()
    assert made.quota == {"requests.cpu": "6"}
    assert client.post("/tiers/basic/", {**data, "quota": "requests.cpu: lots"}).status_code == 422


def test_cluster_credential_is_never_shown(operator: factories.User) -> None:
    made = factories.cluster(sealed_credential=b"SEALED-CANARY")
    body = signed_in(operator).get(f"/clusters/{made.name}/").content.decode()
    assert "SEALED-CANARY" not in body
    assert "never shown again" in body


def test_cluster_with_a_bad_kubeconfig_is_refused_in_words(operator: factories.User) -> None:
    data = {"name": "x", "kubeconfig": "not: a kubeconfig", "tenant_role": "tenantry-tenant-admin"}
    assert signed_in(operator).post("/clusters/new/", data).status_code == 422


@pytest.mark.parametrize("path", ["/nothing/", "/workspaces/00000000-0000-0000-0000-000000000000/", "/tenants/none/"])
def test_missing_page_says_what_to_do(path: str, acme: House) -> None:
    response = signed_in(acme.owner).get(path)
    assert response.status_code == 404
    assert "Go to the overview" in response.content.decode()


@pytest.mark.parametrize(
    "path", ["/workspaces/%00/", "/workspaces/?q=%00", "/search/?q=%00", "/audit/?text=%00", "/tenants/?after=%00"]
)
def test_nul_characters_are_refused(path: str, acme: House) -> None:
    """API-26."""
    assert signed_in(acme.owner).get(path).status_code == 400


@pytest.mark.parametrize("path", ["/workspaces/?after=zzz", "/audit/?after=zzz", "/workspaces/?after=" + "e30"])
def test_foreign_cursor_is_refused(path: str, acme: House) -> None:
    assert signed_in(acme.owner).get(path).status_code == 400


def test_error_page_stands_in_the_middle_of_the_window() -> None:
    assert '<main class="alone alone--wide"' in Client().get("/nothing/").content.decode()
