"""Nobody in a tenant fills what all share: every table names its bound, and what bounds it holds (AD8)."""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings as configured
from django.contrib.sessions.models import Session
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from access.credentials.tokens import token_create, token_revoke
from access.models import Credential, Login, PersonalAccessToken
from access.retention import ended_before, ended_rows_forget
from audit.models import AuditEntry, Outcome
from audit.recorder import Actor
from kube.requests.status import ServiceUnavailable
from portal.api import urls as api_urls
from portal.database.bounds import BOUNDS, By
from portal.database.rights import RIGHTS
from portal.signin.sessions import SHOWN, sessions_forget
from tenants import actionlimits
from tenants.actionlimits import Bucket
from tenants.models import (
    AccessRequest,
    Invitation,
    Operation,
    PasswordReset,
    PortalSession,
    Recording,
    RequestState,
    Role,
    Status,
    User,
    Workspace,
)
from tenants.services import membership_set
from tests import factories
from tests.portal.conftest import House, house, signed_in
from tests.portal.test_requests import ROLE, ask
from tests.portal.test_stored_texts import addresses, full_house

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
LONG_AGO = timedelta(days=500)


def test_every_table_that_there_is_names_its_bound() -> None:
    with connection.cursor() as cursor:
        there = {
            name
            for name in connection.introspection.table_names(cursor)
            if not re.search(r"_[0-9]{1,}$|_[0-9_]+$", name)
        }
    models = {model._meta.db_table for model in apps.get_models(include_auto_created=True)}
    assert BOUNDS.keys() == RIGHTS.keys()
    assert models <= BOUNDS.keys()
    assert there <= BOUNDS.keys()


@pytest.mark.parametrize("table", sorted(BOUNDS))
def test_a_bound_is_a_number_that_stands_somewhere(table: str) -> None:
    bound = BOUNDS[table]
    assert bool(bound.words) is (bound.by is not By.NOBODY)
    # What people of tenants may insert is bounded by more than a promise that they do not.
    assert bound.by is not By.NOBODY or "INSERT" not in RIGHTS[table].scoped
    # A number is a row for each of something that is bounded itself, or stands in the code.
    assert bound.where or bound.by in (By.NOBODY, By.WITH) or bound.words.startswith("one ")
    if bound.where:
        module, _, name = bound.where.rpartition(".")
        assert getattr(configured if module == "portal.settings" else import_module(module), name)


def test_the_document_says_the_same() -> None:
    rows = {
        table: (by, words)
        for table, by, words in re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]*) \|$", SECURITY.read_text(), re.MULTILINE)
    }
    said = {table: (str(bound.by), bound.words) for table, bound in BOUNDS.items() if bound.by is not By.NOBODY}
    assert rows == said


def test_tables_whose_rows_go_when_they_are_over_are_those_that_age_bounds() -> None:
    swept = {model._meta.db_table for model in ended_before(timezone.now())}
    elsewhere = {"store_event", "django_session", "usage_hours"}
    assert swept | elsewhere == {table for table, bound in BOUNDS.items() if bound.by is By.AGE}


def rest_addresses(house: House, before: str = "/api/v1/") -> list[str]:
    """Every route of the REST API, about what there is."""
    workspace = str(house.workspace.pk)
    known = {
        "workspaces": {"pk": workspace, "jti": Credential.objects.filter(issued_to=house.owner)[0].jti},
        "operations": {"pk": Operation.objects.filter(workspace=house.workspace)[0].pk},
        "tiers": {"name": house.workspace.tier_id},
        "users": {"pk": house.owner.pk},
    }
    other = {"name": "acme", "pk": house.viewer.pk, "user_id": house.viewer.pk, "policy": "p", "jti": "x"}
    found = []
    for each in api_urls.urlpatterns:
        values = {**other, **known.get(str(each.pattern).partition("/")[0], {})}
        found.append(before + re.sub(r"<\w+:(\w+)>", lambda part: str(values[part[1]]), str(each.pattern)))  # noqa: B023
    return [*found, f"{before}workspaces/credentials/kubeconfig?workspace_id={workspace}"]


@pytest.mark.parametrize("left", ["pace", "none"])
def test_what_reading_leaves_in_the_record_is_at_a_pace(monkeypatch: pytest.MonkeyPatch, left: str) -> None:
    """AD8: no page is loaded over and over to fill what nobody may make room in."""
    operator = factories.operator()
    house = full_house(operator)
    factories.api_request("acme")
    paths = [*addresses(house, house.owner), "/audit/export/", "/audit/export/?chain=acme", *rest_addresses(house)]
    leaving = set()
    for name, bucket in vars(actionlimits).copy().items():
        if left == "none" and isinstance(bucket, actionlimits.Bucket):
            empty = replace(bucket, name=f"{bucket.name}-{house.owner.pk}", burst=1, interval=3600)
            monkeypatch.setattr(actionlimits, name, empty)
            actionlimits.take(empty, house.owner.pk)
    # Refusals have a pace of their own (``portal.signin.refusals``).
    done = AuditEntry.objects.exclude(outcome=Outcome.DENIED)
    for path in paths:
        client = signed_in(house.owner)  # some pages end a session
        before = done.count()
        client.get(path)
        if done.count() > before:
            leaving.add(path.partition("?")[0])
    exported = {"/audit/export/", "/api/v1/audit-logs/export"}
    played = f"/recordings/{Recording.objects.order_by('pk')[0].pk}/cast/"
    assert leaving == (exported | {played} if left == "pace" else set())


def finished(workspace: Workspace) -> Operation:
    """What a worker was done with long ago."""
    made = Operation.objects.get(workspace=workspace)
    Operation.objects.filter(pk=made.pk).update(finished_at=timezone.now() - LONG_AGO)
    return made


def actor_named(user: User) -> Actor:
    return Actor(name=user.email, user_id=user.pk)


def over(house: House) -> dict[type[Any], Any]:
    """One row of each table that is over, and was long ago."""
    then = timezone.now() - LONG_AGO
    owner, week = house.owner, timedelta(days=7)
    gone = factories.workspace(house.tenant, owner, "gone", status=Status.DELETED, deleted_at=then)
    ended = finished(factories.workspace(house.tenant, owner))
    credential = factories.credential(house.workspace, owner, issued_at=then - week)
    Credential.objects.filter(pk=credential.pk).update(revoked_at=then, revocation_confirmed_at=then)
    asked = factories.access_request(house.tenant, owner)
    AccessRequest.objects.filter(pk=asked.pk).update(state=RequestState.WITHDRAWN, decided_at=then)
    fields = {"created_at": then - week, "expires_at": then}
    invitation = Invitation.objects.create(
        tenant=house.tenant, email="a@b.test", role="viewer", digest="1", invited_by=owner, **fields
    )
    token = PersonalAccessToken.objects.create(user=owner, name="old", digest="2", prefix="tnt_", **fields)
    reset = PasswordReset.objects.create(user=owner, digest="3", **fields)
    login = Login.objects.create(user=owner, redeemed_at=then, revoked_at=then, **fields)
    return {
        Workspace: gone,
        Operation: ended,
        Credential: credential,
        AccessRequest: asked,
        Invitation: invitation,
        PersonalAccessToken: token,
        PasswordReset: reset,
        Login: login,
    }


def living(house: House) -> list[Any]:
    """Rows of the same tables that count."""
    now, owner = timezone.now(), house.owner
    later = now + timedelta(days=7)
    suspended = factories.workspace(house.tenant, owner, "held", status=Status.SUSPENDED, suspended_at=now - LONG_AGO)
    receipt = finished(suspended)
    revoked = token_create(
        actor=actor_named(owner),
        user=owner,
        name="new",
        scope=PersonalAccessToken.Scope.READ,
        expires_at=later,
        now=now,
    ).token
    token_revoke(actor=actor_named(owner), token_id=revoked.pk, now=now)
    return [
        house.workspace,
        suspended,
        receipt,
        revoked,
        factories.credential(house.workspace, owner),
        factories.access_request(house.tenant, house.viewer),
        Invitation.objects.create(
            tenant=house.tenant, email="c@d.test", role="viewer", digest="4", invited_by=owner, expires_at=later
        ),
    ]


def test_what_ended_long_ago_goes_and_what_counts_stays(acme: House) -> None:
    kept, gone = living(acme), over(acme)
    assert gone.keys() == ended_before(timezone.now()).keys()
    assert ended_rows_forget(now=timezone.now()) >= len(gone)
    assert [model for model, row in gone.items() if model._default_manager.filter(pk=row.pk).exists()] == []
    assert [row for row in kept if not type(row)._default_manager.filter(pk=row.pk).exists()] == []


def spend(user: User) -> None:
    """Let a person have sent as much as they may at once."""
    while actionlimits.wait_for(actionlimits.WRITES, user.pk) == 0:
        pass


def test_a_person_sends_at_a_pace_whatever_it_is_and_by_whichever_way(
    acme: House, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is spent does not come back while this lasts.
    monkeypatch.setattr(actionlimits, "WRITES", replace(actionlimits.WRITES, interval=3600.0))
    person = acme.admin
    client, machine = signed_in(person), signed_in(acme.viewer)
    now = timezone.now()
    text = token_create(
        actor=actor_named(person), user=person, name="ci", scope=PersonalAccessToken.Scope.WRITE,
        expires_at=now + timedelta(days=1), now=now,
    ).text  # fmt: skip
    bearer = {"HTTP_AUTHORIZATION": f"Bearer {text}"}
    machine.logout()
    path, body = "/api/v1/tenants/acme/invitations/", {"email": "x@y.test", "role": "viewer", "days": 3}
    spend(person)
    for sent in (
        client.post(reverse("profile"), {}),
        client.post(path, body, content_type="application/json"),
        machine.post(path, body, content_type="application/json", **bearer),
    ):
        assert sent.status_code == 429 and int(sent["Retry-After"]) >= 1
    assert not Invitation.objects.filter(email="x@y.test").exists()
    # Reading and signing out go on, and so does everybody else.
    assert client.get(reverse("overview")).status_code == 200
    assert machine.get("/api/v1/tenants/acme/", **bearer).status_code == 200
    assert signed_in(acme.owner).post(path, body, content_type="application/json").status_code == 201
    assert client.post(reverse("logout")).status_code == 302
    spend(operator)
    answer = signed_in(operator).post("/api/v1/tenants/", {"name": "third"}, content_type="application/json")
    assert answer.status_code == 201


def test_a_person_reads_at_a_pace_and_so_do_all_of_a_tenant(
    globex: House, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AD6: pages and REST answers, per person and tenant; nobody else waits, operators least of all."""
    monkeypatch.setattr(actionlimits, "READS", Bucket("reads", burst=6, interval=3600.0))
    monkeypatch.setattr(actionlimits, "TENANT_READS", Bucket("tenant-reads", burst=9, interval=3600.0))
    there = house(f"reading-{secrets.token_hex(4)}")
    path, one, other = f"/api/v1/tenants/{there.tenant.name}/quota/", signed_in(there.viewer), signed_in(there.editor)
    first = one.get(path)
    assert (first.status_code, first["RateLimit"]) == (200, '"person-read";r=5;t=3600')
    assert first["RateLimit-Policy"] == '"person-read";q=6;w=21600'
    again = one.get(path, HTTP_IF_NONE_MATCH=first["ETag"])
    assert (again.status_code, again["X-RateLimit-Remaining"]) == (304, "4")
    assert [one.get(reverse("overview")).status_code for _ in range(4)] == [200] * 4
    for refused in (one.get(path), one.get(reverse("overview"))):
        assert refused.status_code == 429 and int(refused["Retry-After"]) >= 1
    assert one.get(path)["RateLimit"] == '"person-read";r=0;t=21600'
    # Who reads too much may still act, and end their session.
    assert one.post(reverse("profile"), {}).status_code != 429
    assert [other.get(path).status_code for _ in range(4)] == [200] * 3 + [429]
    assert other.get(path)["RateLimit-Policy"] == '"tenant-read";q=9;w=32400'
    assert signed_in(globex.viewer).get("/api/v1/tenants/globex/quota/").status_code == 200
    watching = signed_in(operator)
    answers = [watching.get(path) for _ in range(12)]
    assert {(answer.status_code, "RateLimit" in answer) for answer in answers} == {(200, False)}
    stopped = watching.post(
        f"/api/v1/tenants/{there.tenant.name}/suspend", {"reason": "x"}, content_type="application/json"
    )
    assert stopped.status_code < 300, stopped.content


def test_nobody_reads_less_for_being_made_a_member_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """AD6: a membership takes nothing, whatever the other tenant is called and however much its people read."""
    monkeypatch.setattr(actionlimits, "TENANT_READS", Bucket("tenant-reads", burst=4, interval=3600.0))
    crowd, there = (house(f"{name}-{secrets.token_hex(4)}") for name in ("a-crowd", "reading"))
    membership_set(actor=actor_named(crowd.owner), tenant=crowd.tenant.name, user=there.viewer, role=Role.VIEWER)
    many, path = signed_in(crowd.editor), reverse("overview")
    assert [many.get(path).status_code for _ in range(5)] == [200] * 4 + [429]
    assert signed_in(there.viewer).get(path).status_code == 200
    assert signed_in(crowd.viewer).get(path).status_code == 429


def test_what_strangers_ask_for_takes_no_members_place(acme: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many accounts somebody has made elsewhere: those of a tenant can ask."""
    monkeypatch.setattr("tenants.services.requests.asking.OPEN_OF_TENANT_MAX", 1)
    for _ in range(2):
        factories.access_request(acme.tenant, factories.user())
    ask(acme.viewer, "role", **ROLE)
    ask(acme.editor, "role", 422, **ROLE)


def test_a_person_is_signed_in_at_so_many_places_and_sessions_that_are_over_go(acme: House) -> None:
    oldest = signed_in(acme.viewer)
    assert oldest.get(reverse("overview")).status_code == 200
    for number in range(SHOWN):
        key = f"{number:032}"
        Session.objects.create(session_key=key, session_data="", expire_date=timezone.now() + timedelta(hours=1))
        PortalSession.objects.create(session_id=key, user=acme.viewer)
    newest = signed_in(acme.viewer)
    assert newest.get(reverse("overview")).status_code == 200
    assert PortalSession.objects.filter(user=acme.viewer).count() == SHOWN
    assert oldest.get(reverse("overview")).status_code == 302
    Session.objects.filter(session_key__startswith="000").update(expire_date=timezone.now() - timedelta(hours=1))
    assert sessions_forget(now=timezone.now()) == SHOWN - 1
    assert newest.get(reverse("overview")).status_code == 200
    assert PortalSession.objects.filter(user=acme.viewer).count() == 1


def test_recordings_of_a_tenant_take_no_more_room_than_they_have(acme: House, globex: House, settings: Any) -> None:
    settings.RECORDINGS_TENANT_MAX_MIB = 1
    for _ in range(2):
        factories.recording(acme.workspace, acme.owner, shown="x" * (600 << 10))
    with pytest.raises(ServiceUnavailable, match="take all the room"):
        factories.recording(acme.workspace, acme.owner, shown="x")
    factories.recording(globex.workspace, globex.owner, shown="x")
