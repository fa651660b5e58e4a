"""Conditional requests: nobody overwrites what they have not seen, and nobody is sent what they have (GW14)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any

import pytest
import yaml
from django.db import connections, transaction
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from kube.requests.status import StatusError
from portal.api import urls
from portal.http.conditions import entity_tag, is_known, require_match
from tenants.models import Membership, Tenant, User, Workspace
from tenants.rights import as_actor
from tenants.services.operating.announcements import Said, announcement_create
from tests import factories
from tests.portal.conftest import House
from tests.portal.test_api import bearer, send

STALE = '"0123456789abcdef0123456789abcdef"'
PLAIN = {"display_name": "Acme & Sons"}


@pytest.fixture
def things(acme: House, operator: User) -> dict[str, tuple[str, str, Any, str]]:
    """Route → its address, how it is changed, by what, and what shows that it was."""
    tenant = f"tenants/{acme.tenant.name}/"
    said = announcement_create(actor=as_actor(operator), said=Said(text="Clusters are upgraded."), now=timezone.now())
    return {
        "announcements/<uuid:pk>/": (
            f"announcements/{said.pk}/",
            "PUT",
            {"text": "Clusters were upgraded.", "severity": "info"},
            "text",
        ),
        "tenants/<str:name>/": (tenant, "PATCH", PLAIN, "display_name"),
        "tenants/<str:name>/members/<uuid:user_id>/": (
            f"{tenant}members/{acme.viewer.pk}/",
            "PATCH",
            {"role": "editor"},
            "role",
        ),
        "tenants/<str:name>/quota/": (f"{tenant}quota/", "PUT", {"hard": {"pods": "7"}}, "hard"),
        "tenants/<str:name>/policies/": (
            f"{tenant}policies/",
            "PUT",
            {"policies": {"registries": ["ghcr.io/acme"]}},
            "policies",
        ),
        "workspaces/<str:pk>/": (
            f"workspaces/{acme.workspace.pk}/",
            "PATCH",
            {"expires_at": (datetime.now(UTC) + timedelta(days=30)).isoformat()},
            "expires_at",
        ),
        "tiers/<str:name>/": ("tiers/basic/", "PATCH", {"display_name": "Other"}, "display_name"),
        "clusters/<str:name>/": (
            f"clusters/{acme.workspace.cluster.name}/",
            "PATCH",
            {"limits_events": True},
            "limits_events",
        ),
        "users/<uuid:pk>/": (f"users/{acme.viewer.pk}/", "PATCH", {"name": "Vera"}, "name"),
        "prices/": ("prices/", "PUT", {"prices": [{"measure": "requests", "amount": "1", "per": 1000}]}, "results"),
    }


def test_every_thing_that_is_shown_and_changed_at_one_address_keeps_if_match(things: dict[str, Any]) -> None:
    """A webhook is only made and deleted; the test below has it."""
    both = {
        str(pattern.pattern)
        for pattern in urls.urlpatterns
        if hasattr(pattern.callback.view_class, "get")
        and any(hasattr(pattern.callback.view_class, name) for name in ("put", "patch", "delete"))
    }
    assert both == set(things) | {"webhooks/<uuid:pk>/"}


def test_a_change_of_what_has_changed_meanwhile_is_refused(things: dict[str, Any], acme: House, operator: User) -> None:
    client = bearer(operator, "operate")
    for route, (path, method, body, shown) in things.items():
        read = send(client, "GET", path)
        tag = read.headers["ETag"]
        assert read.status_code == 200, (route, read.content)
        refused = send(client, method, path, body, **{"If-Match": STALE})
        assert (refused.status_code, refused.json()["reason"]) == (412, "PreconditionFailed"), route
        assert "read it again" in refused.json()["detail"]
        assert send(client, method, path, body, **{"If-Match": f"W/{tag}"}).status_code == 412, route
        assert send(client, "GET", path).headers["ETag"] == tag, f"{route}: something was changed"

        changed = send(client, method, path, body, **{"If-Match": f"{STALE}, {tag}"})
        assert changed.status_code == 200, (route, changed.content)
        assert changed.json()[shown] != read.json()[shown], route
        newer = send(client, "GET", path)
        assert changed.headers["ETag"] == newer.headers["ETag"] != tag, route
        assert send(client, method, path, body, **{"If-Match": tag}).status_code == 412, route
        assert send(client, method, path, body).status_code == 200, f"{route}: without a condition as things are"
        assert send(client, method, path, body, **{"If-Match": "*"}).status_code == 200, route


def test_what_is_deleted_is_what_was_seen(acme: House, operator: User) -> None:
    client = bearer(operator, "operate")
    made = send(client, "POST", "webhooks/", {"url": "https://hooks.example.org/a", "tenant": "acme"})
    assert made.status_code == 201
    for path in (
        f"webhooks/{made.json()['webhook']['id']}/",
        f"tenants/acme/members/{acme.viewer.pk}/",
        f"workspaces/{acme.workspace.pk}/",
        "tenants/acme/",
    ):
        tag = send(client, "GET", path).headers["ETag"]
        assert send(client, "DELETE", path, **{"If-Match": STALE}).status_code == 412, path
        assert send(client, "GET", path).headers["ETag"] == tag
        assert send(client, "DELETE", path, **{"If-Match": tag}).status_code in {202, 204}, path
    assert not Membership.objects.filter(user=acme.viewer).exists()
    assert Tenant.objects.get(name="acme").state == "terminating"


def test_where_no_condition_is_kept_none_is_taken(acme: House) -> None:
    """A condition that is not understood must not read like one that holds."""
    path = f"workspaces/{acme.workspace.pk}/suspend"
    answer = send(bearer(acme.owner), "POST", path, {"reason": "x"}, **{"If-Match": STALE})
    assert (answer.status_code, "If-Match" in answer.json()["detail"]) == (400, True)


def test_a_quota_that_is_in_use_can_be_changed_by_who_has_read_it(acme: House, operator: User) -> None:
    """What is used moves by itself; what was set is what the condition is about."""
    client = bearer(operator, "operate")
    before = send(client, "GET", "tenants/acme/quota/")
    factories.workspace(acme.tenant, acme.editor)
    after = send(client, "GET", "tenants/acme/quota/")
    assert before.headers["ETag"] != after.headers["ETag"]
    send_it = {"If-Match": before.headers["ETag"]}
    assert send(client, "PUT", "tenants/acme/quota/", {"hard": {"pods": "9"}}, **send_it).status_code == 200
    assert send(client, "PUT", "tenants/acme/quota/", {"hard": {"pods": "8"}}, **send_it).status_code == 412


def test_what_somebody_has_is_not_sent_again(acme: House) -> None:
    client = bearer(acme.owner)
    for path in ("tenants/acme/", "tenants/", "me/", f"workspaces/{acme.workspace.pk}/", "operations/"):
        tag = send(client, "GET", path).headers["ETag"]
        again = send(client, "GET", path, **{"If-None-Match": f"{STALE}, W/{tag}"})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag), path
        assert again.headers["X-Request-ID"]
        assert send(client, "GET", path, **{"If-None-Match": STALE}).status_code == 200
    assert send(client, "GET", "me/", **{"If-None-Match": "bare"}).status_code == 400


def test_what_is_shown_once_has_no_tag(acme: House) -> None:
    made = send(bearer(acme.owner), "POST", "webhooks/", {"url": "https://hooks.example.org/a", "tenant": "acme"})
    assert made.json()["secret"]
    assert "ETag" not in made.headers
    assert made.headers["Cache-Control"] == "no-store"


@pytest.mark.django_db(transaction=True)
def test_of_two_who_have_read_the_same_one_changes_it() -> None:
    """Both have the right tag; the second one waits for the first, and is refused."""
    house = factories.tenant()
    owner = factories.member(house, "owner")
    path = f"tenants/{house.name}/"
    tag = send(bearer(owner), "GET", path).headers["ETag"]
    client = bearer(owner)

    def change(name: str) -> int:
        try:
            return int(send(client, "PATCH", path, {"display_name": name}, **{"If-Match": tag}).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        with transaction.atomic():
            Tenant.objects.select_for_update(no_key=True).get(name=house.name)
            both = [pool.submit(change, name) for name in ("One", "Two")]
        assert sorted(each.result(300) for each in both) == [200, 412]


@pytest.mark.django_db(transaction=True)
def test_of_four_who_have_read_that_there_are_no_prices_one_sets_them() -> None:
    """There is no row yet that could be held."""
    operator = factories.operator()
    tag = send(bearer(operator), "GET", "prices/").headers["ETag"]
    start = Barrier(4)

    def put(measure: str) -> int:
        client = bearer(operator, "operate")
        start.wait(300)
        try:
            body = {"prices": [{"measure": measure, "amount": "1"}]}
            return int(send(client, "PUT", "prices/", body, **{"If-Match": tag}).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(put, ("requests", "pods", "secrets", "services"))) == [200, 412, 412, 412]
    assert len(send(bearer(operator), "GET", "prices/").json()["results"]) == 1


def test_yaml_in_and_out(acme: House, operator: User) -> None:
    """The same routes, bounds and answers as in JSON."""
    client = bearer(operator, "operate")
    as_yaml = {"Accept": "application/yaml"}

    def sent(text: str, **headers: str) -> Any:
        return client.generic(
            "PATCH", "/api/v1/tenants/acme/", text, content_type="application/yaml", headers={**as_yaml, **headers}
        )

    read = send(client, "GET", "tenants/acme/", **as_yaml)
    assert read.headers["Content-Type"].startswith("application/yaml")
    assert yaml.safe_load(read.content) == send(client, "GET", "tenants/acme/").json()
    assert read.headers["ETag"] != send(client, "GET", "tenants/acme/").headers["ETag"]
    assert "Accept" in read.headers["Vary"]
    changed = sent("display_name: Übung\n", **{"If-Match": read.headers["ETag"]})
    assert (changed.status_code, yaml.safe_load(changed.content)["display_name"]) == (200, "Übung")
    user = client.generic(
        "PATCH", f"/api/v1/users/{acme.viewer.pk}/", "name: Vera", content_type="application/yaml", headers=as_yaml
    )
    assert yaml.safe_load(user.content)["name"] == "Vera"
    for wrong in ("{", "a: 1\na: 2", "display_name: !!python/object:os.system x", "- &a [*a]", "\x00"):
        assert sent(wrong).status_code == 400, wrong
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]" for i in range(8)
    )
    assert sent(bomb).status_code == 400
    assert send(client, "PATCH", "tenants/acme/", {"display_name": "x"}, Accept="text/html").status_code == 200


def test_lists_are_narrowed_and_turned_round(acme: House, operator: User) -> None:
    client = bearer(operator, "operate")
    factories.tenant("zeta")

    def names(query: str, key: str = "name") -> list[str]:
        answer = send(client, "GET", query)
        assert answer.status_code == 200, (query, answer.content)
        return [row[key] for row in answer.json()["results"]]

    assert names("tenants/?order=-name") == list(reversed(names("tenants/?order=name")))
    assert names("tenants/?order=-name&limit=1") == ["zeta"]
    assert names("tenants/?order=-name&limit=1&after=zeta") == ["acme"]
    assert names("tenants/?state=suspended") == []
    newest = names("users/", "email")
    assert names("users/?order=created_at", "email") == newest[::-1]
    first = send(client, "GET", "users/?order=created_at&limit=2").json()
    following = client.get(first["next"]).json()["results"]
    assert [row["email"] for row in first["results"] + following] == newest[::-1][:4]
    assert names("users/?operator=true", "email") == [operator.email]
    assert operator.email not in names("users/?operator=false", "email")
    assert names("users/?status=disabled", "email") == []
    assert names(f"workspaces/?tier={acme.workspace.tier_id}&order=created_at") == [acme.workspace.name]
    assert names("workspaces/?tier=other") == names("workspaces/?cluster=other") == []
    assert names(f"operations/?workspace={acme.workspace.pk}&state=failed", "id") == []
    for wrong in ("tenants/?order=state", "users/?operator=yes", "workspaces/?order=name", "operations/?state=x"):
        assert send(client, "GET", wrong).status_code == 400, wrong


def test_what_is_accepted_can_be_followed_to_its_end(acme: House) -> None:
    """A deletion answers 202 with the operation that brings it about."""
    client = bearer(acme.owner)
    deleted = send(client, "DELETE", f"workspaces/{acme.workspace.pk}/")
    assert deleted.status_code == 202
    operation = client.get(deleted.headers["Location"]).json()
    assert (operation["desired"], operation["workspace"]) == ("deleted", str(acme.workspace.pk))
    listed = send(client, "GET", f"operations/?workspace={acme.workspace.pk}").json()["results"]
    assert operation in listed


def test_ends_are_set_and_taken_away(acme: House) -> None:
    """GW25: of a workspace and of a membership, by whom the pages let do it."""
    admin, editor = bearer(acme.admin), bearer(acme.viewer)
    soon = (datetime.now(UTC) + timedelta(days=3)).isoformat()
    workspace, member = f"workspaces/{acme.workspace.pk}/", f"tenants/acme/members/{acme.viewer.pk}/"
    for path in (workspace, member):
        assert send(admin, "PATCH", path, {"expires_at": soon}).json()["expires_at"]
        assert send(admin, "PATCH", path, {"expires_at": None}).json()["expires_at"] is None
        assert send(admin, "PATCH", path, {"expires_at": "2001-01-01T00:00:00Z"}).status_code == 400
        assert send(admin, "PATCH", path, {}).status_code == 400
        assert send(editor, "PATCH", path, {"expires_at": soon}).status_code == 403
    assert Workspace.objects.get(pk=acme.workspace.pk).expires_at is None


def test_webhooks_are_made_read_and_deleted_by_admins(acme: House, globex: House, operator: User) -> None:
    """GW25: by REST as on their page; the secret is shown once."""
    admin, body = (
        bearer(acme.admin),
        {"url": "https://hooks.example.org/x", "tenant": "acme", "kinds": ["request.opened"]},
    )
    made = send(admin, "POST", "webhooks/", body)
    assert (made.status_code, len(made.json()["secret"]) > 30) == (201, True)
    path = f"webhooks/{made.json()['webhook']['id']}/"
    assert send(admin, "GET", path).json() == made.json()["webhook"]
    assert made.json()["secret"].encode() not in send(admin, "GET", path).content
    assert [row["url"] for row in send(admin, "GET", "webhooks/?tenant=acme").json()["results"]] == [body["url"]]
    assert send(admin, "GET", f"{path}deliveries/").json()["results"] == []
    assert send(admin, "POST", "webhooks/", {**body, "url": "http://plain.example.org"}).status_code == 400
    assert send(admin, "POST", "webhooks/", {**body, "kinds": ["nothing"]}).status_code == 400
    strangers: list[tuple[Any, int]] = [
        (bearer(globex.owner), 404),
        (bearer(acme.editor), 403),
        (bearer(operator, "operate", tenant=None), 200),
    ]
    for client, status in strangers:
        assert send(client, "GET", path).status_code == status
        assert send(client, "GET", "webhooks/?tenant=acme").status_code == status
    assert send(admin, "GET", "webhooks/").status_code == 403
    assert send(bearer(operator, "operate"), "POST", "webhooks/", {"url": "https://all.example.org"}).status_code == 201
    bound = bearer(factories.member(acme.tenant, "admin", globex.admin), tenant=globex.tenant)
    assert send(bound, "GET", path).status_code == 404
    assert send(admin, "DELETE", path).status_code == 204
    assert send(admin, "GET", path).status_code == 404


SHOWN = st.dictionaries(st.text(max_size=3), st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=3)


@given(SHOWN, SHOWN)
def test_two_tags_are_equal_when_what_is_shown_is(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (entity_tag(one) == entity_tag(other)) is (one == other)
    assert is_known(f"W/{entity_tag(one)}", entity_tag(other)) is (one == other)
    assert entity_tag(one, form="yaml") != entity_tag(one)
    _refuses(lambda: require_match(entity_tag(one), entity_tag(other)), None if one == other else 412)
    _refuses(lambda: require_match(entity_tag(one, form="yaml"), entity_tag(other)), None if one == other else 412)


@given(st.text(max_size=40))
def test_whatever_stands_in_a_condition_is_a_tag_or_refused(header: str) -> None:
    """Never a defect, and never a match of what was not named."""
    if header.strip() != "*":
        _refuses(lambda: require_match(header, entity_tag({})), 412, 400)


def _refuses(action: Callable[[], None], *codes: int | None) -> None:
    code = None
    try:
        action()
    except StatusError as error:
        code = error.code
    assert code in codes


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("display_name: One\n", 200),
        ("# said\n%YAML 1.2\n---\ndisplay_name: One\n---\n# nothing\n", 200),
        ("display_name: One\n...\n", 200),
        ("display_name: One\n---\ndisplay_name: Two\n", 400),
        ("--- {display_name: One}\n--- {display_name: Two}\n", 400),
        ("display_name: One\n...\ndisplay_name: Two\n", 400),
    ],
)
def test_a_second_document_is_not_lost_in_silence(text: str, status: int, acme: House, operator: User) -> None:
    answer = bearer(operator, "operate").patch("/api/v1/tenants/acme/", text, content_type="application/yaml")
    assert answer.status_code == status, answer.content
    assert Tenant.objects.get(pk="acme").display_name != "Two"
