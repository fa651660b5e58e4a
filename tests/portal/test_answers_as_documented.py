"""What the REST API answers is what its document says: every route that shows something, and every way it fails (GW14)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from typing import Any, Final

import jsonschema_rs
import pytest
from django.core.cache import cache as kept
from django.db import transaction
from django.test import Client
from django.utils import timezone

from access.models import Credential
from portal.api.openapi.docs import document
from tenants.models import Membership, Tenant, UsageHour, UsagePrice, User, Webhook, Workspace
from tenants.suspensions import installation_close
from tests import factories
from tests.portal.conftest import House, house, signed_in
from tests.portal.test_api import bearer
from tests.portal.test_long_lists import let_in
from tests.portal.test_reachable_pages import lived_in
from tests.portal.test_stored_texts import full_house

NONSENSE: Final = ([], {"nonsense": 1}, "{", {"tier": 1, "name": [], "reason": {}, "role": "king", "email": "no"})
ASKED: Final = {
    "/api/v1/memberships/": "managed_by=declared",
    "/api/v1/webhooks/": "tenant=acme",
    "/api/v1/audit-logs/export": "tenant=acme",
    "/api/v1/announcements/": "all=true",
}
"""What a route needs to be asked to show something."""

JSON: Final = {"application/json", "application/problem+json"}
LACKING: Final = {
    "/api/v1/workspaces/credentials/kubeconfig": "a cluster that answers: tests/access/test_credentials.py",
}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


@cache
def validator(name: str) -> Any:
    """Of a component, as strict as the document is meant: nothing but what it names is answered."""
    schemas = document()["components"]["schemas"]
    components = {"schemas": {each: strict(shape) for each, shape in schemas.items()}}
    shape = {"$ref": f"#/components/schemas/{name}", "components": components}
    return jsonschema_rs.Draft202012Validator(json.loads(json.dumps(shape, default=str)), validate_formats=True)


def strict(shape: dict[str, Any]) -> dict[str, Any]:
    """A schema of OpenAPI 3.0 as one of JSON Schema, which says of itself what ``nullable`` says."""
    made = dict(shape)
    for name in ("allOf", "oneOf", "anyOf"):
        if name in made:
            made[name] = [strict(each) for each in made[name]]
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), dict):
            made[name] = strict(made[name])
    if "properties" in made:
        made["properties"] = {name: strict(each) for name, each in made["properties"].items()}
        made.setdefault("additionalProperties", False)
    return {"anyOf": [made, {"type": "null"}]} if made.pop("nullable", False) else made


def differences(operation: dict[str, Any], answer: Any) -> list[str]:
    """How an answer differs from what is said of the operation."""
    said = operation["responses"].get(str(answer.status_code))
    if said is None:
        return [f"{answer.status_code} is not among {', '.join(operation['responses'])}: {answer.said[:200]!r}"]
    content = said.get("content", {})
    if answer.status_code in {204, 304}:
        return [] if not content else ["a body is said, and none comes"]
    media = answer.headers["Content-Type"].partition(";")[0]
    if media not in content:
        return [f"{media} is not among {', '.join(content)}"]
    if media not in JSON:
        return []
    schema, body = content[media].get("schema", {}), json.loads(answer.said)
    rows = body if schema.get("type") == "array" else [body]
    name = (schema.get("items") or schema)["$ref"].rsplit("/", 1)[-1]
    return [
        f"{answer.status_code} {'.'.join(map(str, error.instance_path))}: {error.message[:200]}"
        for row in rows
        for error in validator(name).iter_errors(row)
    ]


class World:
    """A house full of everything, and whoever asks."""

    def __init__(self, operator: User) -> None:
        self.acme, self.open = full_house(operator), house("globex")
        lived_in(self.acme)
        now = timezone.now()
        hour = now.replace(minute=0, second=0, microsecond=0)
        Tenant.objects.update(created_at=hour)
        let_in("acme", ["partners"], {"globex": str(uuid.uuid4())})
        Membership.objects.filter(user=self.acme.viewer).update(managed_by="declared")
        quota = {"used": {"pods": 19}, "hard": {"pods": 20}}
        UsageHour.objects.create(tenant="acme", namespace="", hour=hour, requests=2000, **quota)
        UsageHour.objects.create(tenant="globex", namespace="", hour=hour, used={"pods": 1}, hard={"pods": 20})
        UsagePrice.objects.create(measure="requests", amount="0.40", per=1000, since=hour.date().replace(day=1))
        old = now - timedelta(days=400)
        sleeper = factories.member(self.open.tenant, "viewer")
        User.objects.filter(pk=sleeper.pk).update(created_at=old, last_login=old)
        Workspace.objects.filter(pk=self.open.workspace.pk).update(created_at=old)
        whole = factories.credential(self.acme.workspace, self.acme.owner, kind="gateway")
        Credential.objects.filter(pk=whole.pk).update(workspace=None)
        asked = self.acme.tenant.requests.first()
        hook = Webhook.objects.get()
        token = operator.access_tokens.first()
        assert asked and token
        self.names = {
            "/announcements/{id}/": self.row("announcements"),
            "/clusters/{name}/": self.acme.workspace.cluster.name,
            "/operations/{id}/": self.acme.workspace.operations.get().pk,
            "/requests/{id}/": asked.pk,
            "/sessions/{id}/": operator.portal_sessions.first().pk,
            "/tiers/{name}/": self.acme.workspace.tier_id,
            "/tokens/{id}/": token.pk,
            "/users/{id}/": self.acme.viewer.pk,
            "/webhooks/{id}/": hook.pk,
            "/workspaces/{id}/": self.acme.workspace.pk,
            "/tenants/{name}/": "acme",
            "/{user_id}/": self.acme.editor.pk,
            "/invitations/{id}/": self.row("invitations"),
            "/credentials/{jti}/": self.acme.workspace.credentials.first().jti,
            "/access-policies/{policy}/": "partners",
        }

    @staticmethod
    def row(table: str) -> Any:
        from django.apps import apps

        (model,) = [each for each in apps.get_models() if each._meta.db_table == table]
        return model._default_manager.order_by("pk").first().pk

    def address(self, path: str) -> str:
        """Of something that is there."""
        whole = f"{path}/" if not path.endswith("/") else path
        for place, name in self.names.items():
            field = place[place.index("{") : place.index("}") + 1]
            whole = whole.replace(place, place.replace(field, str(name)))
        assert "{" not in whole, whole
        return whole if path.endswith("/") else whole[:-1]

    def ask(self, client: Client, method: str, address: str, body: Any = None, **headers: str) -> Any:
        """One request, of which nothing stays."""
        kept.clear()
        data = "" if body is None else body if isinstance(body, str) else json.dumps(body)
        with transaction.atomic():
            answer = client.generic(method, address, data, content_type="application/json", headers=headers)
            answer.said = answer.getvalue()
            transaction.set_rollback(True)
        return answer


@pytest.fixture
def world(operator: User) -> World:
    return World(operator)


def test_every_route_shows_what_the_document_says(world: World, operator: User) -> None:
    """To an operator, who finds something everywhere; to a member, to somebody from elsewhere, and to nobody."""
    people = {
        "operator": bearer(operator, "operate"),
        "owner": bearer(world.acme.owner),
        "viewer": bearer(world.open.viewer),
        "session": signed_in(operator),
        "nobody": Client(),
    }
    found, empty = [], set()
    for method, path, operation in operations():
        if method != "GET":
            continue
        for who, client in people.items():
            for query in queries(path, operation) if who in {"operator", "owner"} else ["", ASKED.get(path, "")]:
                answer = world.ask(client, "GET", f"{world.address(path)}?{query}")
                found += [f"{who}: GET {path}?{query}: {each}" for each in differences(operation, answer)]
                if who == "operator" and query == ASKED.get(path, ""):
                    shown = answer.status_code == 200
                    page = json.loads(answer.said) if shown and answer.headers["Content-Type"] in JSON else {}
                    if not shown or (isinstance(page, dict) and page.get("results") == []):
                        empty.add(path)
    assert not found, "\n".join(found)
    assert empty == set(LACKING)


def queries(path: str, operation: dict[str, Any]) -> list[str]:
    """What a route is asked: as it is, with each of its choices, a page, and what there is not."""
    needed = ASKED.get(path, "")
    more = ["limit=0", "after=x", "nonsense=1", "format=nonsense"]
    for parameter in operation.get("parameters", []):
        schema = parameter["schema"]
        choices = schema.get("enum", {"integer": [1], "boolean": ["true", "false"]}.get(schema.get("type"), []))
        more += [f"{parameter['name']}={choice}" for choice in choices if parameter["in"] == "query"]
    return ["", needed, *(f"{needed}&{each}" if needed else each for each in more)]


def test_every_route_refuses_as_the_document_says(world: World, operator: User) -> None:
    """Bodies that are none, rights that are missing, conditions that do not hold; and what is done where nothing is asked."""
    people = {
        "operator": bearer(operator, "operate"),
        "owner": bearer(world.acme.owner),
        "viewer": bearer(world.acme.viewer),
        "reader": bearer(world.acme.owner, "read"),
        "elsewhere": bearer(world.open.owner),
        "nobody": Client(),
    }
    found, codes = [], set()
    for method, path, operation in operations():
        if method == "GET":
            continue
        bodies = NONSENSE if "requestBody" in operation else (None,)
        asked: list[tuple[Any, dict[str, str]]] = [(body, {}) for body in bodies]
        asked += [(bodies[0], {"If-Match": '"stale"'}), (bodies[0], {"Content-Type": "text/plain"})]
        for who, client in people.items():
            for body, headers in asked if who in {"operator", "owner"} else asked[:1]:
                answer = world.ask(client, method, world.address(path), body, **headers)
                codes.add(answer.status_code)
                found += [f"{who}: {method} {path} {body} {headers}: {each}" for each in differences(operation, answer)]
    assert not found, "\n".join(found)
    promised = {int(code) for _, _, operation in operations() for code in operation["responses"]}
    assert promised == codes | {201, 413, 429, 503}, (
        "these four are the next tests'; nothing is promised that none answers"
    )


def test_too_much_and_too_many_and_closed_doors_are_said_too(acme: House) -> None:
    responses = document()["paths"]["/api/v1/workspaces/init"]["post"]
    client = bearer(acme.owner)
    body = json.dumps({"tier": "x" * 2_000_000})
    large = client.post("/api/v1/workspaces/init", body, content_type="application/json")
    large.said = large.content
    assert (large.status_code, differences(responses, large)) == (413, [])
    while True:
        answer = client.post("/api/v1/workspaces/init", "{}", content_type="application/json")
        answer.said = answer.content
        assert differences(responses, answer) == []
        if answer.status_code == 429:
            break
    installation_close("Restored from a backup.")
    closed = client.post("/api/v1/workspaces/init", "{}", content_type="application/json")
    closed.said = closed.content
    assert (closed.status_code, differences(responses, closed)) == (503, [])


def test_what_is_made_and_changed_is_shown_as_the_document_says(world: World, operator: User) -> None:
    """One valid body for what takes one."""
    client, session = bearer(operator, "operate"), signed_in(operator)
    soon = (timezone.now() + timedelta(days=20)).isoformat()
    globex, workspace = "/api/v1/tenants/globex/", f"/api/v1/workspaces/{world.open.workspace.pk}/"
    asked = f"/api/v1/requests/{factories.access_request(world.open.tenant, world.open.viewer).pk}/"
    person = f"/api/v1/users/{world.open.viewer.pk}/"
    writes: list[tuple[str, str, str, Any]] = [
        ("POST", "/announcements/", "", {"text": "Upgrades.", "audience": "tenants", "tenants": ["globex"]}),
        ("PUT", "/announcements/{id}/", "", {"text": "Later.", "severity": "warning", "ends_at": soon}),
        ("PATCH", "/clusters/{name}/", "", {"limits_events": True}),
        ("POST", "/notifications/read", "", {}),
        ("PUT", "/prices/", "", {"prices": [{"measure": "requests", "amount": "0.5", "per": 1000}]}),
        ("POST", "/requests/", "", {"kind": "tenant", "tenant": "third", "reason": "One is not enough."}),
        ("POST", "/requests/{id}/comments", f"{asked}comments", {"text": "Why?"}),
        ("POST", "/requests/{id}/deny", f"{asked}deny", {"answer": "No."}),
        ("POST", "/tenants/", "", {"name": "fourth", "quota": {"pods": "9"}}),
        ("PATCH", "/tenants/{name}/", globex, {"display_name": "Globex"}),
        ("POST", "/tenants/{name}/freeze", f"{globex}freeze", {"reason": "An audit.", "until": soon}),
        ("POST", "/tenants/{name}/suspend", f"{globex}suspend", {"reason": "unpaid"}),
        ("POST", "/tenants/{name}/offboard", f"{globex}offboard", {"reason": "They leave."}),
        ("POST", "/tenants/{name}/invitations/", f"{globex}invitations/", {"email": "n@x.test", "role": "viewer"}),
        ("POST", "/tenants/{name}/members/", f"{globex}members/", {"email": world.acme.editor.email, "role": "viewer"}),
        (
            "PATCH",
            "/tenants/{name}/members/{user_id}/",
            f"{globex}members/{world.open.viewer.pk}/",
            {"expires_at": soon},
        ),
        ("PUT", "/tenants/{name}/policies/", f"{globex}policies/", {"policies": {"registries": ["ghcr.io/a"]}}),
        ("POST", "/tenants/{name}/policies/what-if", f"{globex}policies/what-if", {"policies": {"hosts": ["*.x.org"]}}),
        ("PUT", "/tenants/{name}/quota/", f"{globex}quota/", {"hard": {"pods": "7"}}),
        ("POST", "/tiers/", "", {"name": "small", "display_name": "Small", "quota": {"pods": "9"}}),
        ("PATCH", "/tiers/{name}/", "", {"display_name": "Other"}),
        ("POST", "/tokens/", "", {"name": "script", "scope": "read", "expires_at": soon}),
        ("POST", "/users/", "", {"email": "made@x.test", "name": "Made"}),
        ("PATCH", "/users/{id}/", person, {"name": "Vera"}),
        ("POST", "/users/{id}/reset", f"{person}reset", {"way": "link"}),
        ("POST", "/webhooks/", "", {"url": "https://hooks.example.org/x", "tenant": "globex"}),
        ("PATCH", "/workspaces/{id}/", workspace, {"expires_at": soon}),
        ("POST", "/workspaces/{id}/suspend", f"{workspace}suspend", {"reason": "mining"}),
        ("POST", "/workspaces/{id}/freeze", f"{workspace}freeze", {"reason": "An audit."}),
        ("POST", "/workspaces/", "", {"tier": world.open.workspace.tier_id, "tenant": "globex", "name": "more"}),
        ("POST", "/workspaces/init", "", {"tier": world.open.workspace.tier_id, "tenant": "globex"}),
    ]
    found = []
    for method, path, address, body in writes:
        operation = document()["paths"][f"/api/v1{path}"][method.lower()]
        by = session if path == "/tokens/" else client
        answer = world.ask(by, method, address or world.address(f"/api/v1{path}"), body)
        if answer.status_code >= 300:
            found.append(f"{method} {path}: {answer.status_code} {answer.said[:300]!r}")
        found += [f"{method} {path}: {each}" for each in differences(operation, answer)]
        if "412" in operation["responses"]:
            late = {"If-Match": '"stale"'}
            for who in (client, bearer(world.open.owner)):
                refused = world.ask(who, method, address or world.address(f"/api/v1{path}"), body, **late)
                found += [f"{method} {path} If-Match: {each}" for each in differences(operation, refused)]
    assert not found, "\n".join(found)
