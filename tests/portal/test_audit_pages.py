"""The pages of the audit: events, refused requests, exports, and what happened when."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.core.cache import cache
from django.db.models import Sum
from django.test import AsyncClient
from django.urls import reverse
from django.utils import timezone

from audit.actions import Action
from audit.models import ApiRequest, AuditEntry
from audit.requestlog.partitions import partitions_prepare
from portal.pages.labels import target_name
from tests import factories
from tests.portal.conftest import House, signed_in


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
        {"step": "suspension", "decision": "no opinion", "reason": "nothing is locked here", "rule": ""},
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


def test_requests_are_those_that_the_filter_says(acme: House, globex: House, operator: factories.User) -> None:
    """Of several tenants the list names the one whose requests are shown, when none has been chosen as well."""
    factories.member(globex.tenant, who=acme.owner)
    for person, asked in ((operator, ""), (operator, "?show=all"), (operator, "?tenant=globex"), (acme.owner, "")):
        body = signed_in(person).get(f"/audit/requests/{asked}").content.decode()
        select = body[body.index('<select name="tenant"') :].partition("</select>")[0]
        said = re.search(r'value="(\w+)"[^>]* selected', select) or re.search(r'value="(\w+)"', select)
        assert said is not None
        assert f"by users of {said[1]}," in body


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
    # An API server of another test may have noted its last ones after all was cleared.
    drawn = ApiRequest.objects.filter(created_at__gt=now - timedelta(days=1)).values_list("allowed")
    counts = dict(drawn.annotate(asked=Sum("count")))
    assert counts[True] >= 1 and counts[False] >= 7
    cache.clear()  # or what another test has had counted is remembered
    told = f'aria-label="{counts[True]} allowed, {counts[False]} refused"'
    stranger = factories.user()
    for path, who in ((reverse("tenant-activity", args=["acme"]), acme.viewer), (reverse("requests"), operator)):
        assert told in signed_in(who).get(path).content.decode()
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


def test_no_refused_request_leads_to_all_of_them(acme: House) -> None:
    everything = "?tenant=acme&show=all"
    browser = signed_in(acme.owner)
    assert f'href="{everything}"'.replace("&", "&amp;") in browser.get("/audit/requests/").content.decode()
    assert "Show all requests" not in browser.get(f"/audit/requests/{everything}").content.decode()


@pytest.mark.parametrize("path", ["/audit/export/?", "/api/v1/audit-logs/export?"])
def test_what_is_exported_is_what_is_listed(acme: House, globex: House, operator: factories.User, path: str) -> None:
    """GW13: under the same filters, over every chain that is listed, and nothing of anybody else's."""
    chain, outcome = ("chain", "outcome") if path.startswith("/audit/") else ("tenant", "outcome")
    for house in (acme, globex):
        factories.event(house.tenant.name, Action.WORKSPACE_READY, house.editor, of=house.workspace)
        factories.event(house.tenant.name, Action.WORKSPACE_SUSPENDED, house.owner, of=house.workspace)

    def exported(person: factories.User, query: str) -> list[tuple[str, str]]:
        answer = signed_in(person).get(path + query)
        assert answer.status_code == 200, answer.content
        lines = b"".join(answer.streaming_content).decode().splitlines()  # type: ignore[attr-defined]
        return [(row["chain"], row["action"]) for row in map(json.loads, lines)]

    ready, suspended = Action.WORKSPACE_READY.value, Action.WORKSPACE_SUSPENDED.value
    assert exported(operator, f"action={ready}") == [("acme", ready), ("globex", ready)]
    assert exported(operator, f"{chain}=acme&action={suspended}") == [("acme", suspended)]
    assert exported(operator, f"workspace={globex.workspace.pk}") == [("globex", ready), ("globex", suspended)]
    assert exported(operator, f"{outcome}=denied") == []
    assert exported(acme.admin, f"{chain}=acme&action={ready}") == [("acme", ready)]
    assert exported(acme.editor, f"action={ready}") == [("acme", ready)]
    assert signed_in(acme.viewer).get(f"{path}{chain}=acme").status_code == 403
    assert signed_in(acme.owner).get(f"{path}{chain}=globex").status_code == 404
    assert signed_in(acme.owner).get(f"{path}workspace={globex.workspace.pk}").status_code == 404


ROLES = ["viewer", "editor", "admin", "owner", "elsewhere", "operator", "auditor"]


@pytest.mark.parametrize("who", ROLES)
@pytest.mark.parametrize("asked", ["", "workspace", "chain"])
def test_list_export_and_event_show_the_same(
    acme: House, globex: House, operator: factories.User, who: str, asked: str
) -> None:
    """GW13: one rule; addresses and clients of others are told to those who read the whole chain, and to nobody else."""
    people = {
        "elsewhere": globex.owner,
        "operator": operator,
        "auditor": factories.user(is_auditor=True),
        **{role: getattr(acme, role) for role in ROLES[:4]},
    }
    for house in (acme, globex):
        for person in (house.owner, house.editor, house.viewer):
            factories.event(house.tenant.name, Action.WORKSPACE_TOKEN_ISSUED, person, of=house.workspace)
    made = list(AuditEntry.objects.all())
    client, person = signed_in(people[who]), people[who]
    query = {"workspace": f"workspace={acme.workspace.pk}", "chain": "chain=acme", "": ""}[asked]
    at_api = query.replace("chain=", "tenant=")
    seen = {
        "list": client.get(f"/audit/?{query}"),
        "export": client.get(f"/audit/export/?{query}"),
        "list by REST": client.get(f"/api/v1/audit-logs/?{at_api}"),
        "export by REST": client.get(f"/api/v1/audit-logs/export?{at_api}"),
    }
    if asked and who == "elsewhere":
        assert {answer.status_code for answer in seen.values()} == {404}
        return
    if asked == "chain" and who in {"viewer", "editor"}:
        assert {seen.pop(way).status_code for way in ("list", "export", "export by REST")} == {403}
        assert {row["user_id"] for row in seen["list by REST"].json()["results"]} == {str(person.pk)}
        return
    assert {answer.status_code for answer in seen.values()} == {200}
    shown = {
        "list": set(re.findall(r'href="/audit/([0-9a-f-]{36})/"', seen["list"].content.decode())),
        "export": ids(b"".join(seen["export"].streaming_content)),  # type: ignore[attr-defined]
        "list by REST": {row["id"] for row in seen["list by REST"].json()["results"]},
        "export by REST": ids(b"".join(seen["export by REST"].streaming_content)),  # type: ignore[attr-defined]
    }
    ours = {str(entry.pk) for entry in made}
    told = {name: found & ours for name, found in shown.items()}
    opened = {str(entry.pk) for entry in made if client.get(f"/audit/{entry.pk}/").status_code == 200}
    for found in told.values():
        assert found <= opened, told
    assert told["list"] == told["export"]
    assert told["list by REST"] == told["export by REST"]
    if who in {"viewer", "editor", "elsewhere"}:
        reads = {"globex"} if who == "elsewhere" else set()
        assert opened == {str(entry.pk) for entry in made if entry.user_id == person.pk or entry.chain in reads}


def ids(lines: bytes) -> set[str]:
    return {json.loads(line)["id"] for line in lines.splitlines()}


def test_a_workspaces_page_says_to_its_readers_where_its_people_came_from(acme: House) -> None:
    """GW13: what was done and by whom to every member, the addresses to those who read the log, and the way there."""
    factories.event("acme", Action.WORKSPACE_READY, acme.editor, of=acme.workspace)
    path = f"/workspaces/{acme.workspace.pk}/"
    for person, reads in ((acme.viewer, False), (acme.editor, False), (acme.admin, True)):
        page = signed_in(person).get(path).content.decode()
        assert acme.editor.email in page
        assert ("203.0.113.7" in page, f"/audit/?workspace={acme.workspace.pk}" in page) == (reads, reads)


def test_an_event_outlives_its_workspace_and_a_membership(acme: House, operator: factories.User) -> None:
    """GW13: what somebody did stays theirs to see; no link leads to what is not theirs any more."""
    factories.event("acme", Action.WORKSPACE_READY, acme.editor, of=acme.workspace)
    entry, place = AuditEntry.objects.get(), f'href="/workspaces/{acme.workspace.pk}/"'
    client = signed_in(acme.editor)
    assert place in client.get(f"/audit/{entry.pk}/").content.decode()
    acme.editor.memberships.all().delete()
    for path in ("/", f"/audit/{entry.pk}/"):
        page = client.get(path).content.decode()
        assert "workspace acme-web of acme" in page and place not in page
