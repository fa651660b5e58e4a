"""Lists that grow without end: a page at a time, at the same cost however long they are (GW14, API-25)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest
from django.db.models.signals import post_init
from django.utils import timezone
from psycopg import Cursor

from access.authorization.tenancy.grants import RESOURCE
from kube.authorization.abac import API_VERSION, GROUP
from kube.authorization.tenantreferences import TENANT_DIGESTS, digests_annotation
from kube.quota.tenantquotas import PLACED_USAGES
from kube.requests.logicalclusters import space_of
from portal.api.openapi.docs import document
from store import synchronous
from store.types import Create, Key
from tenants.models import Membership, Role, Tenant, UsageHour, User, Workspace
from tenants.spaces import tenant_key
from tests.portal.conftest import House, signed_in

MANY: Final = 120
BOUNDED: Final = {
    "/api/v1/clusters/": "registered by operators",
    "/api/v1/freezes/": "the newest two hundred",
    "/api/v1/prices/": "a measure each, set by operators",
    "/api/v1/sessions/": "one's own",
    "/api/v1/tenants/{name}/credentials/": "the newest two hundred",
    "/api/v1/tenants/{name}/invitations/": "two hundred wait at a time",
    "/api/v1/tenants/{name}/usage/hours": "a year at most",
    "/api/v1/tiers/": "made by operators",
    "/api/v1/tokens/": "fifty of a person live",
    "/api/v1/users/{id}/sessions/": "a person's",
    "/api/v1/webhooks/": "ten of a tenant",
    "/api/v1/webhooks/{id}/deliveries/": "the newest hundred are kept",
    "/api/v1/workspaces/{id}/credentials/": "the newest two hundred",
}
"""Lists without pages, and why they do not grow."""


def test_every_list_has_pages_or_an_end() -> None:
    without = set()
    for path, methods in document()["paths"].items():
        operation = methods.get("get", {"responses": {}})
        shape = operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema", {})
        names = {parameter["name"] for parameter in operation.get("parameters", [])}
        if shape.get("$ref", "").endswith("Page") and not {"after", "limit"} <= names:
            without.add(path)
    assert without == set(BOUNDED)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], tuple[int, int]]:
    """How many statements to the store something takes, and how many memberships it reads."""

    def counted(ask: Callable[[], object]) -> tuple[int, int]:
        statements, read = [0], [0]

        def cursor(using: str) -> Cursor[Any]:
            statements[0] += 1
            return opened(using)

        def seen(**_: Any) -> None:
            read[0] += 1

        opened = synchronous._cursor
        post_init.connect(seen, sender=Membership)
        try:
            with monkeypatch.context() as here:
                here.setattr(synchronous, "_cursor", cursor)
                ask()
        finally:
            post_init.disconnect(seen, sender=Membership)
        return statements[0], read[0]

    return counted


def everything(user: User, path: str, size: int = 50) -> list[dict[str, Any]]:
    """The rows of all pages, of which each is of that size but the last."""
    client, found = signed_in(user), []
    following = f"{path}?limit={size}"
    while following:
        answer = client.get(following)
        assert answer.status_code == 200, answer.content
        page = answer.json()
        assert len(page["results"]) == size or not page["next"]
        found += page["results"]
        following = page["next"]
    return found


def shown(user: User, path: str, row: str) -> list[str]:
    """What the pages of a list show of each row, from the first to the last."""
    client, found, query = signed_in(user), [], ""
    while True:
        page = client.get(path + query).content.decode()
        here = re.findall(row, page)
        assert len(here) <= 50
        found += here
        older = re.search(r'<a[^>]*href="(\?[^"]*after=[^"]*)"', page)
        if older is None:
            return found
        query = older[1].replace("&amp;", "&")


def let_in(tenant: str, names: list[str], others: dict[str, str]) -> None:
    """Policies of a tenant that name these others by turns, with the UIDs that they had then."""
    creates = []
    for number, name in enumerate(names):
        other = sorted(others)[number % len(others)]
        spec = {"tenant": other, "user": "pat", "namespace": "team", "resource": "pods", "readonly": True}
        body: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Policy", "spec": spec}
        body["metadata"] = {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": "2026-11-01T00:00:00Z"}
        body["metadata"]["annotations"] = {TENANT_DIGESTS: digests_annotation(body, None, space_of(tenant), others)}
        creates.append(Create(Key(space_of(tenant), GROUP, RESOURCE, "", name), body))
    synchronous.commit(creates)


def test_policies_are_read_a_page_at_a_time_and_whom_they_mean_in_one_read(acme: House, rows: Any) -> None:
    others = {"globex": str(uuid.uuid4()), "initech": str(uuid.uuid4()), "gone": str(uuid.uuid4())}
    there = [name for name in others if name != "gone"]
    synchronous.commit([Create(tenant_key(name), {"metadata": {"name": name, "uid": others[name]}}) for name in there])
    names = [f"policy-{number:04}" for number in range(MANY)]
    let_in("acme", names[:10], others)
    api, page = "/api/v1/tenants/acme/access-policies/", "/tenants/acme/policies/"
    client = signed_in(acme.viewer)
    few = [rows(lambda path=path: client.get(path))[0] for path in (api, page)]
    let_in("acme", names[10:], others)
    assert [rows(lambda path=path: client.get(path))[0] for path in (api, page)] == few
    assert max(few) <= 2
    found = everything(acme.viewer, api)
    assert [row["name"] for row in found] == names
    assert {row["spec"]["tenant"] for row in found if not row["opens"]} == {"gone"}
    assert {row["spec"]["tenant"] for row in found if row["opens"]} == set(there)
    assert shown(acme.viewer, page, r"<code>(policy-\d+)</code>") == names
    assert everything(acme.viewer, api, 7) == found


def test_members_are_read_a_page_at_a_time_owners_first(acme: House, rows: Any) -> None:
    paths = [
        "/api/v1/tenants/acme/members/?limit=50",
        "/tenants/acme/members/",
        f"/api/v1/tenants/acme/members/{acme.editor.pk}/",
        f"/tenants/acme/members/{acme.editor.pk}/end/",
        f"/tenants/acme/members/{acme.editor.pk}/remove/",
        f"/workspaces/{acme.workspace.pk}/",
    ]
    client = signed_in(acme.owner)

    def join(number: int) -> None:
        people = User.objects.bulk_create(User(email=f"m{uuid.uuid4().hex}@acme.test") for _ in range(number))
        Membership.objects.bulk_create(Membership(tenant=acme.tenant, user=each, role=Role.VIEWER) for each in people)

    join(60)
    before = [rows(lambda path=path: client.get(path))[1] for path in paths]
    join(MANY)
    assert [rows(lambda path=path: client.get(path))[1] for path in paths] == before
    assert max(before[2:]) <= 20
    raised = Membership.objects.filter(tenant=acme.tenant, role=Role.VIEWER).order_by("user__email")[MANY]
    raised.raised_role, raised.raised_until = Role.OWNER, timezone.now() + timedelta(hours=1)
    raised.save()
    wanted = sorted(
        Membership.objects.filter(tenant=acme.tenant).select_related("user").order_by("user__email"),
        key=lambda row: list(Role).index(Role(row.present_role)),
    )
    everybody = [row.user.email for row in wanted]
    assert [row["email"] for row in everything(acme.viewer, paths[0].partition("?")[0])] == everybody
    assert shown(acme.viewer, paths[1], r'data-label="Person">([^<\s]+)') == everybody
    for foreign in ("x", "MCA=", "////", "eCB5", "AA", "MCAA"):
        assert client.get(f"/api/v1/tenants/acme/members/?after={foreign}").status_code in {200, 400}
    assert client.get("/api/v1/tenants/acme/members/?after=x").status_code == 400


def test_quotas_of_namespaces_and_use_on_clusters_and_hours_of_workspaces_have_pages(acme: House) -> None:
    names = [f"space-{number:03}" for number in range(MANY)]
    quota = {"spec": {"hard": {"pods": "9"}}, "status": {"used": {"pods": "1"}}}
    synchronous.commit(
        [
            Create(
                Key(space_of("acme"), "", "resourcequotas", name, "own"),
                {"metadata": {"name": "own", "namespace": name}, **quota},
            )
            for name in names
        ]
    )
    assert shown(acme.viewer, "/tenants/acme/quota/", r"<code>(space-\d+)</code>") == names

    shared = {"tier": acme.workspace.tier, "cluster": acme.workspace.cluster}
    made = Workspace.objects.bulk_create(
        Workspace(
            tenant=acme.tenant, user=acme.editor, name=name, k8s_namespace=f"tenant-{uuid.uuid4().hex[:12]}", **shared
        )
        for name in names
    )
    synchronous.commit(
        [
            Create(
                Key(space_of("acme"), *PLACED_USAGES, "", each.k8s_namespace),
                {"metadata": {"name": each.k8s_namespace}, "counted": {"pods": "2"}, "turn": 1, "objects": 2},
            )
            for each in made
        ]
    )
    page = signed_in(acme.viewer).get("/tenants/acme/quota/").content.decode()
    assert len(re.findall(r"<code>tenant-\w{12}</code>", page)) <= 50
    assert f"And {MANY + 1 - 50} more" in page
    (cluster,) = signed_in(acme.viewer).get("/api/v1/tenants/acme/quota/").json()["clusters"]
    assert (cluster["used"]["pods"], len(cluster["namespaces"]), cluster["more"]) == (str(2 * MANY), MANY + 1, 0)

    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    Tenant.objects.update(created_at=hour)
    UsageHour.objects.bulk_create(UsageHour(tenant="acme", namespace=name, hour=hour) for name in ("", *names))
    assert shown(acme.viewer, "/tenants/acme/usage/", r"<code>(space-\d+)</code>") == names
