"""Every page, as each kind of person: it is there, it says what it should, it forbids what it must."""

from __future__ import annotations

import re

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient, Client
from django.urls import reverse
from django.utils import timezone

from audit.actions import Action
from audit.models import ApiRequest
from audit.partitions import partitions_prepare
from portal.meters import meters_of
from portal.wording import target_name
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
    "/who-can/",
    "/what-if/",
    "/profile/",
    "/search/?q=a",
]
OPERATOR = ["/tiers/", "/tiers/new/", "/clusters/", "/clusters/new/", "/users/", "/users/new/", "/tenants/new/"]


@pytest.mark.parametrize("path", PUBLIC)
def test_public_page_without_session_is_served(path: str) -> None:
    assert Client().get(path).status_code == 200


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
        reverse("tenant-delete", args=[house.tenant.name]),
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
    credential = reverse("credential-revoke", args=[globex.workspace.pk, "jti-1"])
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


def test_search_finds_my_own_things_only(acme: House, globex: House) -> None:
    client = signed_in(acme.viewer)
    assert "acme-web" in client.get("/search/?q=acme").content.decode()
    assert "globex" not in client.get("/search/?q=glo").content.decode()


def test_new_workspace_is_created_and_its_page_shows_progress(acme: House) -> None:
    """GW6, GW14."""
    client = signed_in(acme.owner)
    response = client.post("/workspaces/new/", {"name": "payments", "tenant": "acme", "tier": "basic"})
    assert response.status_code == 302
    body = client.get(response.headers["Location"]).content.decode()
    assert "Provisioning" in body
    assert 'hx-trigger="every 1s"' in body


def test_new_workspace_over_the_limit_says_so_in_the_form(acme: House) -> None:
    factories.tier("tiny", workspaces_per_user=0)
    response = signed_in(acme.owner).post("/workspaces/new/", {"name": "a", "tenant": "acme", "tier": "tiny"})
    assert response.status_code == 422
    assert "allows 0 workspaces per user" in response.content.decode()


def test_new_workspace_in_another_tenant_is_no_choice(acme: House, globex: House) -> None:
    response = signed_in(acme.owner).post("/workspaces/new/", {"name": "a", "tenant": "globex", "tier": "basic"})
    assert response.status_code == 422


def test_finished_progress_fetches_the_rest_of_the_page_once_and_reloads_nothing(acme: House) -> None:
    """A reload would abort the way to wherever the person has just clicked."""
    client, page = signed_in(acme.viewer), reverse("workspace", args=[acme.workspace.pk])
    response = client.get(reverse("workspace-progress", args=[acme.workspace.pk]))
    assert not {"HX-Refresh", "HX-Redirect", "HX-Location"} & set(response.headers)
    assert f'hx-get="{page}" hx-trigger="load" hx-target="#main" hx-select="#main"' in response.content.decode()
    rest = client.get(page, headers={"HX-Request": "true", "HX-Target": "main"}).content.decode()
    assert 'id="main"' in rest
    assert 'id="progress"' not in rest


def test_failed_operation_is_told_in_words(acme: House) -> None:
    made = factories.workspace(
        acme.tenant, acme.editor, "broken", phase="provisioning", ready_at=None, observed_generation=0
    )
    made.operations.update(state="failed", error="The cluster fra-1 refuses the credential.")
    body = signed_in(acme.editor).get(reverse("workspace", args=[made.pk])).content.decode()
    assert "The cluster fra-1 refuses the credential." in body


def test_suspend_by_operator_closes_and_leaves_a_receipt(acme: House, operator: factories.User) -> None:
    """GW5."""
    client = signed_in(operator)
    path = reverse("workspace-suspend", args=[acme.workspace.pk])
    assert client.post(path, {"reason": "mining"}).status_code == 302
    body = client.get(reverse("workspace", args=[acme.workspace.pk])).content.decode()
    assert "mining" in body
    assert "Suspending" in body
    assert "Receipt of the suspension" in body


def test_suspend_by_owner_is_refused(acme: House) -> None:
    """GW5: admins of the platform only."""
    response = signed_in(acme.owner).post(reverse("workspace-suspend", args=[acme.workspace.pk]), {"reason": "x"})
    assert "Only operators may do this." in response.content.decode()
    acme.workspace.refresh_from_db()
    assert acme.workspace.status == "active"


def test_delete_needs_the_name_typed(acme: House) -> None:
    client = signed_in(acme.editor)
    path = reverse("workspace-delete", args=[acme.workspace.pk])
    assert client.post(path, {"name": "something"}).status_code == 422
    acme.workspace.refresh_from_db()
    assert acme.workspace.status == "active"
    assert client.post(path, {"name": "acme-web"}).status_code == 302
    acme.workspace.refresh_from_db()
    assert acme.workspace.status == "deleted"


def test_dialog_and_page_are_the_same_form(acme: House) -> None:
    client = signed_in(acme.editor)
    path = reverse("workspace-delete", args=[acme.workspace.pk])
    page = client.get(path).content.decode()
    dialog = client.get(path, headers={"HX-Request": "true", "HX-Target": "dialog"}).content.decode()
    assert "<!DOCTYPE html>" in page
    assert "<!DOCTYPE html>" not in dialog
    assert "hx-post" in dialog
    done = client.post(path, {"name": "acme-web"}, headers={"HX-Request": "true", "HX-Target": "dialog"})
    assert done.headers["HX-Redirect"] == reverse("workspace", args=[acme.workspace.pk])


def test_member_is_added_by_email_and_the_last_owner_stays(acme: House) -> None:
    newcomer = factories.user()
    client = signed_in(acme.owner)
    assert (
        client.post(reverse("member-add", args=["acme"]), {"email": newcomer.email, "role": "editor"}).status_code
        == 302
    )
    assert newcomer.memberships.get().role == "editor"
    role = reverse("member-role", args=["acme", acme.owner.pk])
    body = client.post(role, {"role": "viewer"}, follow=True).content.decode()
    assert "last owner" in body
    assert acme.owner.memberships.get().role == "owner"


def test_viewer_cannot_add_members(acme: House) -> None:
    newcomer = factories.user()
    response = signed_in(acme.viewer).post(
        reverse("member-add", args=["acme"]), {"email": newcomer.email, "role": "editor"}
    )
    assert response.status_code == 403
    assert not newcomer.memberships.exists()


def test_token_is_shown_once_and_stored_as_a_digest(acme: House) -> None:
    """API-35."""
    client = signed_in(acme.owner)
    response = client.post("/tokens/new/", {"name": "ci", "scope": "read", "tenant": "", "days": "30"})
    text = re.search(r"tnt_[0-9A-Za-z]{38}", response.content.decode())
    assert text is not None
    assert response.headers["Cache-Control"].find("no-store") >= 0
    assert text[0] not in client.get("/tokens/").content.decode()
    stored = acme.owner.access_tokens.get()
    assert text[0] not in (stored.digest, stored.prefix)


def test_token_of_another_user_cannot_be_revoked(acme: House, globex: House) -> None:
    signed_in(acme.owner).post("/tokens/new/", {"name": "ci", "scope": "read", "tenant": "", "days": "30"})
    token = acme.owner.access_tokens.get()
    assert signed_in(globex.owner).post(reverse("token-revoke", args=[token.pk])).status_code == 404
    assert signed_in(acme.owner).post(reverse("token-revoke", args=[token.pk])).status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_audit_page_shows_the_chain_and_only_ones_own(acme: House, globex: House) -> None:
    """GW13."""
    factories.event("acme", Action.WORKSPACE_READY, acme.editor, of=acme.workspace)
    factories.event("globex", Action.WORKSPACE_READY, globex.editor, of=globex.workspace)
    body = signed_in(acme.owner).get("/audit/").content.decode()
    assert "workspaces/acme/acme-web" in body
    assert "globex" not in body
    assert "The chain acme is whole." in body
    assert "workspaces/acme/acme-web" not in signed_in(acme.viewer).get("/audit/").content.decode()


def test_a_refused_request_is_shown_with_its_trace_to_the_tenants_admins(
    acme: House, globex: House, operator: factories.User
) -> None:
    """AZ11, GW13: the steps that were asked, each with verdict, reason and rule, as an explanation shows them."""
    trace = [
        {"step": "lock", "decision": "no opinion", "reason": "nothing is locked here", "rule": ""},
        {"step": "Webhook", "decision": "deny", "reason": "<b>not on Sundays</b>", "rule": "calendar"},
    ]
    row = factories.api_request("acme", trace=trace)
    other = factories.api_request("globex", trace=None)
    client = signed_in(acme.owner)
    listed = client.get("/audit/requests/").content.decode()
    assert row.path in listed and other.path not in listed
    body = client.get(reverse("audit-request", args=[row.key])).content.decode()
    assert "Why it was refused" in body and "nothing is locked here" in body and "calendar" in body
    assert "<b>not on" not in body
    assert client.get(reverse("audit-request", args=[other.key])).status_code == 404
    assert client.get("/audit/requests/?tenant=globex").status_code == 404
    assert client.get(reverse("audit-request", args=["nonsense"])).status_code == 400
    assert signed_in(acme.viewer).get("/audit/requests/").status_code == 404
    assert signed_in(acme.viewer).get(reverse("audit-request", args=[row.key])).status_code == 404
    assert signed_in(operator).get(reverse("audit-request", args=[other.key])).status_code == 200
    assert signed_in(operator).get("/audit/requests/?tenant=globex").status_code == 200


def test_audit_export_is_formula_safe_and_an_event_itself(acme: House) -> None:
    """API-20, AUD-07."""
    factories.event("acme", Action.WORKSPACE_READY, acme.editor, target="=HYPERLINK(1)")
    client = signed_in(acme.owner)
    text = b"".join(client.get("/audit/export/?chain=acme&format=csv").streaming_content).decode()  # type: ignore[attr-defined]
    assert "'=HYPERLINK(1)" in text
    assert "audit.export" in client.get("/audit/").content.decode()


@pytest.mark.filterwarnings("error:StreamingHttpResponse")
def test_audit_export_is_read_while_it_is_sent(acme: House) -> None:
    """Django reads all of a download first where it serves asynchronously: a chain of a million rows would not fit."""

    async def lines() -> bytes:
        response = await browser.get("/audit/export/?chain=acme")
        return b"".join([part async for part in response])

    browser = AsyncClient()
    browser.cookies = signed_in(acme.admin).cookies
    factories.event("acme", Action.WORKSPACE_READY, acme.owner, of=acme.workspace)
    assert b"workspace.ready" in async_to_sync(lines)()


def test_audit_export_is_for_admins(acme: House) -> None:
    assert signed_in(acme.viewer).get("/audit/export/?chain=acme&format=csv").status_code == 403


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


def test_user_is_disabled_and_out_at_once(acme: House, operator: factories.User) -> None:
    client = signed_in(acme.owner)
    assert client.get("/").status_code == 200
    assert signed_in(operator).post(reverse("user-status", args=[acme.owner.pk])).status_code == 302
    assert client.get("/").status_code == 302


def test_operator_cannot_disable_themselves(operator: factories.User) -> None:
    assert signed_in(operator).post(reverse("user-status", args=[operator.pk])).status_code == 422
    operator.refresh_from_db()
    assert operator.is_active


def test_password_change_ends_other_sessions_and_keeps_this_one(acme: House) -> None:
    here, elsewhere = signed_in(acme.owner), signed_in(acme.owner)
    wrong = here.post("/profile/password/", {"old": "nonsense", "password": "a much longer phrase"})
    assert wrong.status_code == 422
    response = here.post("/profile/password/", {"old": factories.PASSWORD, "password": "a much longer phrase"})
    assert response.status_code == 302
    assert here.get("/").status_code == 200
    assert elsewhere.get("/").status_code == 302


def test_theme_is_kept_and_painted_by_the_server(acme: House) -> None:
    client = signed_in(acme.owner)
    client.post("/profile/appearance/", {"theme": "dark", "density": "comfortable"})
    body = client.get("/").content.decode()
    assert 'data-theme="dark" data-density="comfortable"' in body
    client.cookies["theme"] = '"><script>'
    assert 'data-theme="auto"' in client.get("/").content.decode()


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


def test_what_happened_when_is_drawn_with_its_numbers_in_words(acme: House, operator: factories.User) -> None:
    """GW14: a picture is no news to those who cannot see it."""
    factories.event("acme", Action.KUBECONFIG_ISSUED, acme.owner, of=acme.workspace)
    factories.event("acme", Action.WORKSPACE_SUSPENDED, acme.viewer, of=acme.workspace, outcome="denied")
    factories.event("acme", Action.KUBECONFIG_ISSUED, acme.owner, of=acme.workspace, outcome="intent")
    path = reverse("workspace-activity", args=[acme.workspace.pk])
    assert 'aria-label="1 done, 1 denied or failed"' in signed_in(acme.viewer).get(path).content.decode()
    now = timezone.now()
    partitions_prepare(now=now)
    for allowed, count in ((True, 1), (False, 7)):
        ApiRequest.objects.create(
            created_at=now, tenant="acme", verb="get", path="/", code=200, allowed=allowed, count=count
        )
    stranger = factories.user()
    for path, who in ((reverse("tenant-activity", args=["acme"]), acme.viewer), (reverse("requests"), operator)):
        assert 'aria-label="1 allowed, 7 refused"' in signed_in(who).get(path).content.decode()
        assert signed_in(stranger).get(path).status_code in {403, 404}


def test_request_is_told_by_the_person_behind_the_service_account(acme: House) -> None:
    """GW8: every kubectl call, although all of a workspace share one account."""
    now = timezone.now()
    partitions_prepare(now=now)
    issued = factories.credential(acme.workspace, acme.editor)
    ApiRequest.objects.create(
        created_at=now,
        tenant="acme",
        actor="system:serviceaccount:tenant-1:sa-tenant-admin",
        credential=f"JTI={issued.jti}",
        verb="list",
        path="/api/v1/secrets",
        code=403,
        allowed=False,
        latency=1234,
    )
    path = reverse("tenant-requests", args=["acme"])
    body = signed_in(acme.admin).get(path, {"outcome": "refused"}).content.decode()
    assert acme.editor.email in body
    assert "list /api/v1/secrets" in body
    assert "Refused, 403" in body
    assert "1.2 ms" in body
    assert "/api/v1/secrets" not in signed_in(acme.admin).get(path, {"outcome": "allowed"}).content.decode()
    assert signed_in(acme.viewer).get(path).status_code == 403
    assert signed_in(factories.user()).get(path).status_code == 404


@pytest.mark.parametrize(
    ("resource", "amount", "shown"),
    [
        ("requests.cpu", "3500m", "3.5"),
        ("count/configmaps", "1k", "1,000"),
        ("limits.memory", "5368709120", "5 GiB"),
        ("requests.storage", "1536Mi", "1.5 GiB"),
        ("pods", "0", "0"),
        ("pods", "many", "many"),
    ],
)
def test_amounts_are_shown_as_people_write_them(resource: str, amount: str, shown: str) -> None:
    assert meters_of({resource: amount}, None)[0].hard == shown


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("workspaces/acme/web", "workspace web of acme"),
        ("workspaces/acme/web/credentials/1", "credential for the workspace web of acme"),
        ("tenants/acme", "tenant acme"),
        ("tenants/acme/members/1", "member of acme"),
        ("session", "session"),
        ("", ""),
    ],
)
def test_targets_of_events_are_said_in_words(target: str, words: str) -> None:
    assert target_name(target) == words


def test_quota_that_cannot_be_read_still_shows_the_limits(acme: House) -> None:
    body = signed_in(acme.viewer).get(reverse("workspace-quota", args=[acme.workspace.pk])).content.decode()
    assert "8 GiB" in body
    assert "cannot be read from the cluster" in body


def test_error_page_stands_in_the_middle_of_the_window() -> None:
    assert '<main class="alone alone--wide"' in Client().get("/nothing/").content.decode()


def test_no_refused_request_leads_to_all_of_them(acme: House) -> None:
    everything = "?tenant=acme&show=all"
    browser = signed_in(acme.owner)
    assert f'href="{everything}"'.replace("&", "&amp;") in browser.get("/audit/requests/").content.decode()
    assert "Show all requests" not in browser.get(f"/audit/requests/{everything}").content.decode()
