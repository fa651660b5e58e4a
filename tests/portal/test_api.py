"""The REST API as scripts use it: isolation, tokens and scopes, problems, idempotency, hostile bodies, the document."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.test import AsyncClient, Client
from django.utils import timezone
from drf_spectacular.renderers import OpenApiYamlRenderer

from access.credentials import token_create
from access.models import PersonalAccessToken
from audit.recorder import Actor
from tenants import actionlimits
from tenants.models import Tenant, User, Workspace
from tests import factories
from tests.portal.conftest import House, signed_in

NOBODY = "00000000-0000-0000-0000-000000000000"


def bearer(user: User, scope: str = "write", tenant: Tenant | None = None) -> Client:
    """A script with a token of the user's."""
    now = timezone.now()
    minted = token_create(
        actor=Actor(name=user.email, user_id=user.pk, operator=user.is_staff),
        user=user,
        name="script",
        scope=PersonalAccessToken.Scope(scope),
        expires_at=now + timedelta(days=1),
        now=now,
        tenant=tenant,
    )
    return Client(headers={"Authorization": f"Bearer {minted.text}"})


def send(client: Client, method: str, path: str, body: Any = None, **headers: str) -> Any:
    data = "" if body is None else body if isinstance(body, str | bytes) else json.dumps(body)
    headers = {"X-Requested-With": "script", **headers}
    return client.generic(method, f"/api/v1/{path}", data, content_type="application/json", headers=headers)


def routes(house: House, jti: str = "jti") -> list[tuple[str, str, Any]]:
    """Every route that names something of one tenant."""
    workspace, tenant, member = f"workspaces/{house.workspace.pk}", f"tenants/{house.tenant.name}", house.viewer.pk
    return [
        ("GET", f"{workspace}/", None),
        ("PATCH", f"{workspace}/", {"tier": "basic"}),
        ("DELETE", f"{workspace}/", None),
        ("POST", f"{workspace}/suspend", {"reason": "x"}),
        ("POST", f"{workspace}/resume", None),
        ("POST", f"{workspace}/credentials", {}),
        ("GET", f"{workspace}/credentials/", None),
        ("POST", f"{workspace}/credentials/{jti}/revoke", None),
        ("GET", f"workspaces/credentials/kubeconfig?workspace={house.workspace.pk}", None),
        ("POST", "workspaces/init", {"tier": "basic", "tenant": house.tenant.name}),
        ("POST", "workspaces/", {"tier": "basic", "tenant": house.tenant.name, "name": "x"}),
        ("GET", f"{tenant}/", None),
        ("DELETE", f"{tenant}/", None),
        ("POST", f"{tenant}/suspend", {"reason": "x"}),
        ("POST", f"{tenant}/resume", None),
        ("GET", f"{tenant}/members/", None),
        ("POST", f"{tenant}/members/", {"email": house.owner.email, "role": "owner"}),
        ("PATCH", f"{tenant}/members/{member}/", {"role": "owner"}),
        ("DELETE", f"{tenant}/members/{member}/", None),
        ("GET", f"{tenant}/invitations/", None),
        ("POST", f"{tenant}/invitations/", {"email": "new@acme.test", "role": "viewer"}),
        ("POST", f"{tenant}/invitations/{member}/revoke", None),
        ("GET", f"{tenant}/quota/", None),
        ("PUT", f"{tenant}/quota/", {"hard": {"pods": "1"}}),
        ("GET", f"{tenant}/usage/", None),
        ("GET", f"{tenant}/usage/hours", None),
        ("GET", f"{tenant}/charges", None),
        ("GET", f"audit-logs/?tenant={house.tenant.name}", None),
        ("GET", f"audit-logs/?workspace={house.workspace.pk}", None),
        ("GET", f"audit-logs/export?tenant={house.tenant.name}", None),
    ]


@pytest.mark.parametrize("number", range(30))
def test_foreign_id_does_not_exist(number: int, acme: House, globex: House) -> None:
    """P1: for sessions, for tokens, and for a token of one's other tenant."""
    factories.credential(globex.workspace, globex.editor, jti="jti")
    method, path, body = routes(globex)[number]
    both = factories.member(acme.tenant, "owner")
    factories.member(globex.tenant, "owner", both)
    for client in (signed_in(acme.owner), bearer(acme.owner), bearer(both, tenant=acme.tenant)):
        response = send(client, method, path, body)
        assert response.status_code == 404, (method, path, response.content)
        assert response.headers["Content-Type"] == "application/problem+json"
    globex.workspace.refresh_from_db()
    assert globex.workspace.status == "active"
    assert Tenant.objects.get(name="globex").state == "active"
    assert globex.viewer.memberships.get().role == "viewer"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["acme"]),
        ("?search=cm&state=active&order=-name", ["acme"]),
        ("?search=globex", []),
        ("?state=suspended", []),
        ("?managed_by=somebody", []),
        ("?after=acme", []),
    ],
)
def test_a_tokens_one_tenant_is_listed_as_any(acme: House, globex: House, query: str, found: list[str]) -> None:
    """The filters are those of the list, whatever the token is bound to."""
    factories.member(globex.tenant, "owner", acme.owner)
    answer = send(bearer(acme.owner, tenant=acme.tenant), "GET", f"tenants/{query}")
    assert answer.status_code == 200
    assert [each["name"] for each in answer.json()["results"]] == found


@pytest.mark.parametrize("number", range(30))
def test_stranger_is_asked_to_authenticate(number: int, acme: House) -> None:
    method, path, body = routes(acme)[number]
    response = send(Client(), method, path, body)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith("Bearer")
    assert response.json()["status"] == 401


@pytest.mark.parametrize("who", ["owner", "admin", "editor", "viewer"])
def test_suspension_is_for_operators(who: str, acme: House) -> None:
    """GW5, API-07."""
    for path in (
        f"workspaces/{acme.workspace.pk}/suspend",
        f"workspaces/{acme.workspace.pk}/resume",
        "tenants/acme/suspend",
    ):
        assert send(signed_in(getattr(acme, who)), "POST", path, {"reason": "x"}).status_code == 403


def test_operator_suspends_and_resumes(acme: House, operator: User) -> None:
    client = bearer(operator, "operate")
    closed = send(client, "POST", f"workspaces/{acme.workspace.pk}/suspend", {"reason": "mining"})
    assert (closed.status_code, closed.json()["status"]) == (200, "suspending")
    assert closed.json()["receipt"][0]["layer"] == "lock"
    assert not Workspace.objects.get(pk=acme.workspace.pk).stopped
    further = send(client, "POST", f"workspaces/{acme.workspace.pk}/suspend", {"reason": "mining", "stop": True})
    assert (further.status_code, Workspace.objects.get(pk=acme.workspace.pk).stopped) == (200, True)
    assert send(client, "POST", f"workspaces/{acme.workspace.pk}/resume").json()["status"] == "resuming"


def test_operators_token_without_operator_scope_is_an_ordinary_one(acme: House, operator: User) -> None:
    assert (
        send(bearer(operator, "write"), "POST", f"workspaces/{acme.workspace.pk}/suspend", {"reason": "x"}).status_code
        == 404
    )
    assert send(bearer(operator, "write"), "GET", "clusters/").status_code == 403
    assert send(bearer(operator, "operate"), "GET", "clusters/").status_code == 200


def test_read_token_cannot_write(acme: House) -> None:
    client = bearer(acme.owner, "read")
    assert send(client, "GET", f"workspaces/{acme.workspace.pk}/").status_code == 200
    assert send(client, "DELETE", f"workspaces/{acme.workspace.pk}/").status_code == 403
    assert send(client, "POST", "workspaces/init", {"tier": "basic"}).status_code == 403


def test_revoked_and_expired_and_mistyped_tokens_read_alike(acme: House) -> None:
    client = bearer(acme.owner)
    acme.owner.access_tokens.update(revoked_at=timezone.now())
    answers = [send(client, "GET", "workspaces/")]
    acme.owner.access_tokens.update(
        revoked_at=None, created_at=timezone.now() - timedelta(days=2), expires_at=timezone.now() - timedelta(days=1)
    )
    answers.append(send(client, "GET", "workspaces/"))
    answers.append(send(Client(headers={"Authorization": "Bearer tnt_nonsense"}), "GET", "workspaces/"))
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.json()["detail"] for answer in answers}) == 1


def test_token_cannot_make_another(acme: House) -> None:
    body = {"name": "x", "expires_at": (timezone.now() + timedelta(days=1)).isoformat()}
    assert send(bearer(acme.owner), "POST", "tokens/", body).status_code == 403
    made = send(signed_in(acme.owner), "POST", "tokens/", body)
    assert made.status_code == 201
    assert made.json()["token"].startswith("tnt_")
    assert "token" not in send(signed_in(acme.owner), "GET", "tokens/").json()["results"][0]


def test_session_needs_the_csrf_token(acme: House) -> None:
    """API-14."""
    client = signed_in(acme.owner, enforce_csrf_checks=True)
    assert send(client, "GET", "workspaces/").status_code == 200
    response = send(client, "POST", "workspaces/init", {"tier": "basic"})
    assert (response.status_code, response.json()["detail"]) == (403, "The CSRF token is missing or wrong.")


def test_init_answers_202_with_its_place_and_is_idempotent(acme: House) -> None:
    """GW6, API-01, API-02."""
    client = bearer(acme.owner)
    first = send(client, "POST", "workspaces/init", {"tier": "basic"}, **{"Idempotency-Key": "k1"})
    assert first.status_code == 202
    body = first.json()
    assert body["status"] == "provisioning"
    assert body["quota"] == {"cpu": "4", "memory": "8Gi"}
    assert body["namespace"].startswith("tenant-")
    assert first.headers["Location"] == f"/api/v1/workspaces/{body['id']}/"
    again = send(client, "POST", "workspaces/init", {"tier": "basic"}, **{"Idempotency-Key": "k1"})
    assert again.json()["id"] == body["id"]
    factories.tier("standard")
    assert send(client, "POST", "workspaces/init", {"tier": "standard"}, **{"Idempotency-Key": "k1"}).status_code == 409
    other = send(bearer(acme.admin), "POST", "workspaces/init", {"tier": "basic"}, **{"Idempotency-Key": "k1"})
    assert other.json()["id"] != body["id"]
    assert Workspace.objects.filter(user=acme.owner).count() == 1


def test_init_of_a_ready_workspace_answers_as_the_document_has_it(acme: House) -> None:
    """GW6: the documented shape."""
    response = send(bearer(acme.editor), "POST", "workspaces/", {"tier": "basic", "name": "acme-web"})
    assert (response.status_code, response.json()["status"]) == (201, "provisioned")


def test_init_is_limited_by_user_whatever_the_address_or_token(acme: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """API-29."""
    monkeypatch.setattr(actionlimits, "INIT", replace(actionlimits.INIT, interval=100_000))
    clients = [bearer(acme.owner), bearer(acme.owner), signed_in(acme.owner)]
    codes = [
        send(
            clients[n % 3], "POST", "workspaces/init", {"tier": "basic"}, **{"X-Forwarded-For": f"10.0.0.{n}"}
        ).status_code
        for n in range(12)
    ]
    assert codes[0] == 202
    assert codes[-1] == 429
    refused = send(clients[0], "POST", "workspaces/init", {"tier": "basic"})
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.json()["reason"] == "TooManyRequests"


@pytest.mark.parametrize(
    "body",
    [
        {"tier": None},
        {"tier": []},
        {"tier": {"__proto__": 1}},
        {"tier": "x" * 10_000},
        {},
        {"tier": "basic", "user": "x"},
        {"tier": "basic", "__proto__": {}},
        [],
        "null",
        "1",
        '"x"',
        "",
        "{",
        '{"tier": "a", "tier": "b"}',
        '{"tier": "\\u0000"}',
        '{"tier": "\\ud800"}',
        '{"tier": NaN}',
        '{"tier": ' + "9" * 5000 + "}",
        "[" * 100_000,
        '{"tier": ' * 40 + "1" + "}" * 40,
        b"\xff\xfe{\x00}\x00",
        b'{"tier": "\xff"}',
        {"tier": "nonsense"},
        {"tier": "basic", "name": "Bad_Name"},
        {"tier": "basic", "cluster": "nowhere"},
    ],
    ids=range(25),
)
def test_hostile_body_is_refused_in_a_problem(body: Any, acme: House) -> None:
    """API-04, API-26, P9: never a 500."""
    response = send(bearer(acme.owner), "POST", "workspaces/init", body)
    assert response.status_code in (400, 422), response.content
    assert response.headers["Content-Type"] == "application/problem+json"
    assert not Workspace.objects.filter(user=acme.owner).exists()


def test_wrong_values_are_named_by_field(acme: House) -> None:
    response = send(bearer(acme.owner), "POST", "tenants/acme/members/", {"email": "no", "role": "king"})
    assert response.status_code == 400
    assert {error["field"] for error in response.json()["errors"]} == {"email", "role"}


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", ""],
)
def test_other_media_types_are_unsupported(kind: str, acme: House) -> None:
    response = bearer(acme.owner).generic("POST", "/api/v1/workspaces/init", b'{"tier": "basic"}', content_type=kind)
    assert response.status_code == 415


def test_large_and_compressed_bodies_are_refused(acme: House) -> None:
    """API-28."""
    assert send(bearer(acme.owner), "POST", "workspaces/init", b" " * 1_200_000).status_code == 413
    assert (
        send(
            bearer(acme.owner), "POST", "workspaces/init", {"tier": "basic"}, **{"Content-Encoding": "gzip"}
        ).status_code
        == 415
    )


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1",
        "limit=1000000000",
        "limit=x",
        "offset=5",
        "ordering=password",
        "after=zzz",
        "user=1",
        "status=deleted",
        "limit=%EF%BC%91",
        "after=%00",
    ],
)
def test_undeclared_or_unbounded_parameters_are_refused(query: str, acme: House) -> None:
    """API-25."""
    assert send(bearer(acme.owner), "GET", f"workspaces/?{query}").status_code == 400


def test_list_is_walked_by_cursor_without_loss(acme: House) -> None:
    for _ in range(6):
        factories.workspace(acme.tenant, acme.editor)
    client, seen, path = bearer(acme.viewer), [], "/api/v1/workspaces/?limit=3"
    while path:
        page = client.get(path).json()
        seen += [row["id"] for row in page["results"]]
        path = page["next"]
    assert len(seen) == len(set(seen)) == 7


def test_kubeconfig_by_get_needs_more_than_a_cookie(acme: House) -> None:
    """GW7, API-08."""
    client = signed_in(acme.editor)
    assert client.get("/api/v1/workspaces/credentials/kubeconfig").status_code == 403
    cross = {"X-Requested-With": "x", "Sec-Fetch-Site": "cross-site"}
    assert client.get("/api/v1/workspaces/credentials/kubeconfig", headers=cross).status_code == 403
    assert not acme.workspace.credentials.exists()


def test_head_issues_nothing(acme: House) -> None:
    """API-10."""
    assert bearer(acme.editor).head("/api/v1/workspaces/credentials/kubeconfig").status_code == 204
    assert not acme.workspace.credentials.exists()


def test_unreachable_cluster_issues_nothing_and_says_so(acme: House) -> None:
    response = send(bearer(acme.editor), "GET", "workspaces/credentials/kubeconfig")
    assert response.status_code == 503
    assert "eyJ" not in response.content.decode()


def test_several_workspaces_must_be_named(acme: House) -> None:
    factories.workspace(acme.tenant, acme.editor)
    assert send(bearer(acme.editor), "GET", "workspaces/credentials/kubeconfig").status_code == 409
    assert send(bearer(acme.viewer), "GET", "workspaces/credentials/kubeconfig").status_code == 404


def test_options_and_unknown_routes_tell_nothing(acme: House) -> None:
    assert send(bearer(acme.owner), "OPTIONS", "clusters/").status_code in (403, 405)
    assert send(Client(), "OPTIONS", "workspaces/").status_code == 401
    missing = send(bearer(acme.owner), "GET", "nothing/")
    assert (missing.status_code, missing.headers["Content-Type"]) == (404, "application/problem+json")


def test_only_named_origins_may_read(acme: House, settings: Any) -> None:
    """GW11."""
    settings.CORS_ALLOWED_ORIGINS = ["https://front.test"]
    client = bearer(acme.owner)
    allowed = client.get("/api/v1/workspaces/", headers={"Origin": "https://front.test"})
    assert allowed.headers["Access-Control-Allow-Origin"] == "https://front.test"
    assert "Access-Control-Allow-Credentials" not in allowed.headers
    for origin in ("https://evil.test", "null", "https://front.test.evil.test"):
        response = client.get("/api/v1/workspaces/", headers={"Origin": origin})
        assert "Access-Control-Allow-Origin" not in response.headers
    preflight = Client().options(
        "/api/v1/workspaces/init", headers={"Origin": "https://front.test", "Access-Control-Request-Method": "POST"}
    )
    assert (preflight.status_code, preflight.headers["Access-Control-Allow-Origin"]) == (204, "https://front.test")


def test_cluster_registration_never_gives_the_credential_back(operator: User) -> None:
    factories.cluster(sealed_credential=b"SEALED-CANARY")
    body = send(bearer(operator, "operate"), "GET", "clusters/").content.decode()
    assert "CANARY" not in body
    assert "sealed" not in body


def test_member_without_the_right_learns_nothing_about_accounts(acme: House) -> None:
    known, unknown = factories.user().email, "nobody@acme.test"
    answers = {
        send(bearer(acme.viewer), "POST", "tenants/acme/members/", {"email": e, "role": "viewer"}).status_code
        for e in (known, unknown)
    }
    assert answers == {403}


def test_audit_is_whole_for_admins_and_ones_own_for_others(acme: House) -> None:
    send(signed_in(acme.owner), "POST", "tenants/acme/members/", {"email": factories.user().email, "role": "viewer"})
    path = "audit-logs/?tenant=acme&action=membership.set"
    assert len(send(bearer(acme.admin), "GET", path).json()["results"]) == 1
    assert send(bearer(acme.viewer), "GET", path).json()["results"] == []


def test_explain_without_the_rules_says_so_and_guards_who_asks_about_whom(acme: House, globex: House) -> None:
    """AZ11."""
    body = {"user": {"name": globex.owner.email, "tenant": "globex"}, "path": "/api/v1/namespaces/x/pods"}
    assert send(bearer(acme.owner), "POST", "access/explain", body).status_code == 403
    own = {"user": {"name": "somebody", "tenant": "acme"}, "path": "/api/v1/namespaces/x/pods"}
    assert send(bearer(acme.viewer), "POST", "access/explain", own).status_code == 403


def test_document_is_valid_without_a_warning(capsys: Any) -> None:
    """GW14."""
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", "/dev/null")


def test_document_covers_every_route_and_is_served() -> None:
    from portal.api.openapi.docs import document
    from portal.api.urls import urlpatterns

    document_paths = document()["paths"]
    assert len(document_paths) == len(urlpatterns)
    assert Client().get("/api/schema/?format=json").json()["openapi"].startswith("3.")


def test_the_document_is_written_once_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers may, as often as they like."""
    written: list[str] = []
    render = OpenApiYamlRenderer.render

    def counted(*args: Any, **more: Any) -> Any:
        written.append("once")
        return render(*args, **more)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(OpenApiYamlRenderer, "render", counted)
    first, second = (Client().get("/api/schema/") for _ in range(2))
    assert first.content == second.content and first.content.startswith(b"openapi: 3.")
    assert len(written) <= 1


def test_api_answers_over_asgi(acme: House) -> None:
    """Under the interface that serves it: a list, and a refused empty body."""
    headers = {"Authorization": bearer(acme.viewer).defaults["HTTP_AUTHORIZATION"]}
    response = async_to_sync(AsyncClient().get)("/api/v1/workspaces/", headers=headers)
    assert (response.status_code, len(response.json()["results"])) == (200, 1)
    headers = {"Authorization": bearer(acme.owner).defaults["HTTP_AUTHORIZATION"]}
    refused = async_to_sync(AsyncClient().post)(
        "/api/v1/workspaces/init", "", content_type="application/json", headers=headers
    )
    assert refused.status_code == 400


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-13-01T00:00:00Z"])
def test_moments_that_no_clock_knows_are_bad_requests(acme: House, moment: str) -> None:
    """API-26: bad input never gives a 500."""
    client = bearer(acme.owner)
    assert send(client, "GET", f"audit-logs/?{urlencode({'since': moment})}").status_code == 400
    cursor = base64.urlsafe_b64encode(f"{moment} {NOBODY}".encode()).decode().rstrip("=")
    assert send(client, "GET", f"audit-logs/?after={cursor}").status_code == 400
    body = {"name": "x", "scope": "read", "expires_at": moment}
    assert send(signed_in(acme.owner), "POST", "tokens/", body).status_code == 400
