"""Recordings in the portal: who sees which, that watching is an event, how long they last and what keys open them (GW21)."""

from __future__ import annotations

import hashlib
import html
import re
import tracemalloc
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.conf import settings as configured
from django.test import Client

from audit.models import AuditEntry
from tenants.models import Recording, RecordingChunk, RecordingMode, Role, Tenant
from tenants.reconciler.deletion import tenants_end
from tenants.recordings import recording_file, recording_text, seal
from tenants.services import recordings as services
from tenants.services import tier_change
from tenants.services.tenants import tenant_delete, tenant_suspend
from tests import factories
from tests.portal.conftest import House, house, signed_in
from tests.portal.test_api import bearer, send
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db

SHOWN = "uid=0(root) gid=0(root)\r\n"


@pytest.fixture(autouse=True)
def _sealing_keys(settings: Any) -> None:
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]


@pytest.fixture
def acme() -> House:
    return house("acme")


@pytest.fixture
def kept(acme: House) -> Recording:
    """What an editor has done in a pod."""
    return factories.recording(acme.workspace, acme.editor, shown=SHOWN)


def cast(client: Client, found: Recording, query: str = "") -> Any:
    return client.get(f"/recordings/{found.pk}/cast/{query}")


def watched(found: Recording) -> list[tuple[str, str]]:
    events = AuditEntry.objects.filter(action="recording.watch", detail__recording=str(found.pk)).order_by("sequence")
    return [(event.actor, event.detail["how"]) for event in events]


def test_admins_and_operators_see_recordings_and_nobody_else(acme: House, kept: Recording) -> None:
    stranger, operator = house("globex").owner, factories.operator()
    admin = factories.member(acme.tenant, Role.ADMIN)
    for who, sees in ((acme.owner, 200), (admin, 200), (operator, 200), (acme.editor, 403), (stranger, 404)):
        client = signed_in(who)
        listed = client.get("/recordings/").content.decode()
        assert (str(kept.pk) in listed) is (sees == 200), who
        assert client.get(f"/recordings/{kept.pk}/").status_code == sees
        assert cast(client, kept).status_code == sees
    assert watched(kept) == [(who.email, "page") for who in (acme.owner, admin, operator)]


def test_a_recordings_page_leads_to_its_events(acme: House, kept: Recording) -> None:
    """Also whoever administers several tenants, to whom the log shows no chain unasked."""
    factories.member(house("globex").tenant, Role.ADMIN, acme.owner)
    client = signed_in(acme.owner)
    [link] = re.findall(r'href="(/audit/\?[^"]+)"', client.get(f"/recordings/{kept.pk}/").content.decode())
    events = AuditEntry.objects.filter(chain="acme", action__startswith="recording.")
    log = client.get(html.unescape(link)).content.decode()
    assert events.count() == 2
    for event in events:
        assert f'href="/audit/{event.pk}/"' in log


def test_a_recording_is_taken_away_as_a_file_and_that_is_an_event(acme: House, kept: Recording) -> None:
    answer = cast(signed_in(acme.owner), kept, "?download")
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{kept.pk}.cast"'
    assert "no-store" in answer.headers["Cache-Control"]
    assert "uid=0(root)" in answer.content.decode()
    end = AuditEntry.objects.get(action="recording.end")
    assert hashlib.sha256(answer.content).hexdigest() == kept.sha256 == end.detail["sha256"]
    assert watched(kept) == [(acme.owner.email, "file")]


def test_what_a_recording_takes_in_memory_is_what_it_holds_whatever_its_letters(kept: Recording) -> None:
    """Its pieces and the whole, and little more: not four bytes for each letter because one of them needs four."""
    first = b"".join(text.encode() for text in recording_text(kept))
    pieces = ["𝄞" + "x" * (1 << 16) for _ in range(64)]
    number = kept.chunks.count()
    RecordingChunk.objects.bulk_create(
        RecordingChunk(recording=kept, number=number + more, sealed=seal(kept.pk, number + more, text))
        for more, text in enumerate(pieces)
    )
    kept.sha256 = hashlib.sha256(first + "".join(pieces).encode()).hexdigest()
    tracemalloc.start()
    try:
        content = recording_file(kept)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert content == first + "".join(pieces).encode()
    assert peak < 2.5 * len(content)


def test_only_the_page_that_plays_may_compile_its_player(acme: House, kept: Recording) -> None:
    client = signed_in(acme.owner)
    policies = {
        path: client.get(path).headers["Content-Security-Policy"]
        for path in ("/recordings/", f"/recordings/{kept.pk}/")
    }
    assert "wasm" not in policies["/recordings/"]
    (script,) = [part for part in policies[f"/recordings/{kept.pk}/"].split("; ") if part.startswith("script-src")]
    assert script == "script-src 'self' 'wasm-unsafe-eval'"


def test_facts_alone_have_a_page_and_no_file(acme: House) -> None:
    found = factories.recording(
        acme.workspace, acme.editor, shown=None, why="the connection was closed", exit_code=None
    )
    client = signed_in(acme.owner)
    page = client.get(f"/recordings/{found.pk}/").content.decode()
    assert "the connection was closed" in page
    assert "data-recording" not in page
    assert cast(client, found).status_code == 404
    assert watched(found) == []


def test_a_suspended_tenants_recordings_stay_readable(acme: House, kept: Recording) -> None:
    operator = factories.operator()
    tenant_suspend(actor=OPERATOR, name="acme", reason="unpaid")
    for who in (operator, acme.owner):
        assert cast(signed_in(who), kept).status_code == 200


def test_programs_list_recordings_of_the_tenants_that_they_may_see(acme: House, kept: Recording) -> None:
    other = house("globex")
    theirs = factories.recording(other.workspace, other.editor, shown=None)
    both = [str(theirs.pk), str(kept.pk)]
    operator = factories.operator()
    for asking, sees in (
        (bearer(acme.owner, "read"), both[1:]),
        (bearer(acme.editor, "read"), []),
        (signed_in(operator), both),
        (bearer(acme.owner, "read", tenant=acme.tenant), both[1:]),
    ):
        listed = send(asking, "GET", "recordings/").json()["results"]
        assert [row["id"] for row in listed] == sees
    first = send(signed_in(operator), "GET", "recordings/?limit=1").json()
    assert [row["id"] for row in first["results"]] == both[:1]
    shown = send(bearer(acme.owner, "read"), "GET", "recordings/?tenant=acme").json()["results"][0]
    assert (shown["sha256"], shown["caller"], shown["tenant"]) == (kept.sha256, kept.caller, "acme")
    assert send(bearer(acme.owner, "read"), "GET", "recordings/?tenant=globex").json().get("results", []) == []
    assert AuditEntry.objects.filter(action="recording.watch").count() == 0, "what was shown is not in the list"


@pytest.mark.django_db(transaction=True)
def test_who_bears_a_tenants_name_later_sees_nothing_of_it(acme: House, kept: Recording) -> None:
    """Operators do, until it is forgotten."""
    type(acme.workspace).objects.update(status="deleted", phase="deleted")
    tenant_delete(actor=OPERATOR, name="acme")
    tenants_end()
    assert not Tenant.objects.filter(name="acme").exists()
    heirs = signed_in(house("acme").owner)
    assert str(kept.pk) not in heirs.get("/recordings/").content.decode()
    assert cast(heirs, kept).status_code == 404
    assert cast(signed_in(factories.operator()), kept).status_code == 200


def test_many_recordings_come_page_by_page(acme: House) -> None:
    made = {str(factories.recording(acme.workspace, acme.editor, shown=None).pk) for _ in range(53)}
    client, seen, path = signed_in(acme.owner), [], "/recordings/"
    while path:
        answer = client.get(path)
        seen += [str(row.pk) for row in answer.context["rows"]]
        path = "/recordings/" + answer.context["pager"]["older"] if answer.context["pager"]["older"] else ""
    assert (len(seen), set(seen)) == (53, made)


def test_recordings_are_kept_for_their_time(acme: House, kept: Recording) -> None:
    ended = kept.ended_at
    assert ended is not None
    assert services.recordings_forget(now=ended + timedelta(days=configured.RECORDINGS_KEEP_DAYS)) == 0
    after = ended + timedelta(days=configured.RECORDINGS_KEEP_DAYS, seconds=1)
    assert services.recordings_forget(now=after) == 1
    assert not RecordingChunk.objects.exists()
    event = AuditEntry.objects.get(action="recording.forget")
    assert (event.chain, event.detail["recordings"]) == ("acme", 1)
    assert cast(signed_in(acme.owner), kept).status_code == 404


def abandoned(kept: Recording) -> Recording:
    """The same, left by a process that has gone."""
    Recording.objects.filter(pk=kept.pk).update(ended_at=None, sha256="", exit_code=None)
    return kept


def test_what_a_killed_process_leaves_is_ended_with_what_there_is(acme: House, kept: Recording) -> None:
    left = abandoned(kept)
    assert cast(signed_in(acme.owner), left).status_code == 200, "of one that goes on there is what there is"
    assert services.recordings_close(now=kept.seen_at + timedelta(seconds=80)) == 0
    assert services.recordings_close(now=kept.seen_at + timedelta(seconds=100)) == 1
    found = Recording.objects.get()
    assert "has gone" in found.ended_why
    event = AuditEntry.objects.filter(action="recording.end").order_by("-sequence")[0]
    assert (event.outcome, event.detail["sha256"]) == ("failure", kept.sha256)
    assert cast(signed_in(acme.owner), found).status_code == 200


def test_a_new_sealing_key_leaves_old_recordings_readable_while_theirs_is_there(
    settings: Any, acme: House, kept: Recording
) -> None:
    old, new = settings.SEALING_KEYS[0], Fernet.generate_key().decode()
    settings.SEALING_KEYS = [new, old]
    assert cast(signed_in(acme.owner), kept).status_code == 200
    settings.SEALING_KEYS = [new]
    refused = cast(signed_in(acme.owner), kept)
    assert refused.status_code == 409
    assert "TENANTRY_SEALING_KEYS" in refused.content.decode()
    # What cannot be read any more goes with its time all the same, and is ended by whoever finds it open.
    left = abandoned(kept)
    assert services.recordings_close(now=left.seen_at + timedelta(seconds=100)) == 1
    assert "sealing keys" in Recording.objects.get().ended_why


def put(kept: Recording, sealed: dict[int, bytes]) -> None:
    """Pieces in the place of others, as whoever has the product's own role in the database could."""
    for number, content in sealed.items():
        RecordingChunk.objects.filter(recording=kept, number=number).delete()
        RecordingChunk.objects.create(recording=kept, number=number, sealed=content)


@pytest.mark.parametrize("how", ["cut", "exchanged", "another's", "rewritten"])
def test_a_recording_that_was_changed_is_not_shown(acme: House, kept: Recording, how: str) -> None:
    chunks = list(RecordingChunk.objects.filter(recording=kept).order_by("number"))
    if how == "cut":
        chunks[-1].delete()
    elif how == "exchanged":
        put(kept, {0: chunks[1].sealed, 1: chunks[0].sealed})
    elif how == "another's":
        other = factories.recording(acme.workspace, acme.editor, shown="nothing to see")
        put(kept, {1: RecordingChunk.objects.get(recording=other, number=1).sealed})
    else:
        put(kept, {1: services.seal(kept.pk, 1, '[1.0,"o","nothing to see"]\n')})
    refused = cast(signed_in(acme.owner), kept)
    assert refused.status_code == 409
    assert watched(kept) == []


def test_operators_say_per_tier_what_is_recorded(acme: House) -> None:
    """By the form; the API server is told with the commit, and once more when there was nobody to tell."""
    from store import synchronous
    from tenants.policies import kept_recording, tier_recording_key

    tier = acme.workspace.tier
    values = {
        "display_name": "Basic",
        "quota": "pods: 30",
        "workspaces_per_user": 3,
        "position": 0,
        "recording": "output",
        "pod_security": "baseline",
        "network": "tenant",
    }
    assert signed_in(factories.operator()).post(f"/tiers/{tier.name}/", values).status_code == 302
    tier.refresh_from_db()
    assert tier.recording == RecordingMode.OUTPUT
    stored = synchronous.get(tier_recording_key(tier.name))
    assert stored is not None
    assert kept_recording(stored.data) == RecordingMode.OUTPUT
    tier_change(actor=OPERATOR, name=tier.name, recording="off")
    stored = synchronous.get(tier_recording_key(tier.name))
    assert stored is not None
    assert kept_recording(stored.data) == kept_recording(None) == RecordingMode.OFF


def test_operators_open_the_proxy_per_tier(acme: House) -> None:
    """By the form and by the REST API; off unless said, and the API server is told with the commit."""
    from store import synchronous
    from tenants.policies import kept_proxies, tier_proxies_key

    def told() -> bool:
        stored = synchronous.get(tier_proxies_key(tier.name))
        return kept_proxies(stored.data if stored is not None else None)

    tier = acme.workspace.tier
    assert not tier.proxies
    assert not told()
    values = {"display_name": "Basic", "quota": "pods: 30", "workspaces_per_user": 3, "position": 0}
    operator = signed_in(factories.operator())
    assert operator.post(f"/tiers/{tier.name}/", {**values, "proxies": "on"}).status_code == 302
    tier.refresh_from_db()
    assert tier.proxies
    assert told()
    assert operator.post(f"/tiers/{tier.name}/", values).status_code == 302
    assert not told()
    url = f"/api/v1/tiers/{tier.name}/"
    answer = operator.patch(url, {"proxies": True}, content_type="application/json")
    assert (answer.status_code, answer.json()["proxies"], told()) == (200, True, True)
    # What is not said stays as it is.
    answer = operator.patch(url, {"description": "x"}, content_type="application/json")
    assert (answer.json()["proxies"], told()) == (True, True)
    assert operator.patch(url, {"proxies": "perhaps"}, content_type="application/json").status_code in (400, 422)
    tier_change(actor=OPERATOR, name=tier.name, proxies=False)
    assert not told()
