"""Asking others for something: asked by forms, decided once by whom it is for, done by the same services (GW25)."""

from __future__ import annotations

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from access.credentials import token_create
from access.models import PersonalAccessToken
from audit.models import AuditEntry
from audit.recorder import Actor
from kube.requests.status import Conflict, StatusError
from portal.backup.closing import credentials_end_all
from portal.signin.accounts import user_change
from tenants import actionlimits
from tenants.models import AccessRequest, Membership, RequestState, Role, Tenant, User
from tenants.quotas import tenant_quota
from tenants.reconciler.deletion import tenants_end
from tenants.reconciler.lapses import lapses_sweep
from tenants.requests.approvers import approvers_read
from tenants.services import (
    membership_remove,
    membership_set,
    tenant_create,
    tenant_delete,
    tenant_quota_change,
    tenant_suspend,
    tier_change,
)
from tenants.services.operating.freezing import tenant_freeze
from tenants.services.requests import request_approve
from tests import factories
from tests.portal.conftest import House, signed_in
from tests.tenants.conftest import OPERATOR

ROLE = {"tenant": "acme", "role": "admin", "reason": "on call"}
GLASS = {**ROLE, "minutes": "60"}


@pytest.fixture(autouse=True)
def _many(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often one may ask is tried by itself."""
    monkeypatch.setattr(actionlimits, "REQUEST", actionlimits.Bucket("request-tests", burst=1000, interval=0.01))


def ask(who: User, kind: str, status: int = 302, **sent: Any) -> AccessRequest:
    answer = signed_in(who).post(f"/my-requests/new/{kind}/", sent)
    assert answer.status_code == status, answer.content.decode()
    return AccessRequest.objects.order_by("-created_at").first()  # type: ignore[return-value]


def decide(who: User, found: AccessRequest, what: str = "approve", answer: str = "fine") -> Any:
    return signed_in(who).post(f"/inbox/{found.pk}/{what}/", {"answer": answer})


def state(found: AccessRequest) -> str:
    found.refresh_from_db()
    return found.state


def actions(chain: str = "acme") -> list[str]:
    return list(AuditEntry.objects.filter(chain=chain).order_by("sequence").values_list("action", flat=True))


def text(who: User, path: str) -> str:
    return str(signed_in(who).get(path).content.decode())


def actor(user: User) -> Actor:
    return Actor(name=user.email, user_id=user.pk, operator=user.is_staff)


def test_somebody_asks_for_a_tenant_and_owns_it(operator: User) -> None:
    newt = factories.user("newt@acme.test")
    found = ask(newt, "tenant", tenant="newts", display_name="Newts", reason="a new team")
    assert "a tenant newts" in text(operator, "/inbox/").lower()
    assert 'class="nav__count">1<' in text(operator, "/")
    assert decide(operator, found).status_code == 302
    assert (state(found), newt.memberships.get().role) == ("approved", "owner")
    assert Tenant.objects.get(name="newts").display_name == "Newts"
    page = text(newt, f"/inbox/{found.pk}/")
    assert "Approved" in page
    assert operator.email in page
    assert "Nothing waits for you" in text(operator, "/inbox/")
    assert actions("system")[-2:] == ["request.create", "request.approve"]
    assert actions("newts")[0] == "tenant.create"


def test_a_stranger_asks_for_a_role_and_an_owner_gives_it(acme: House) -> None:
    stranger = factories.user("stranger@else.test")
    found = ask(stranger, "role", **ROLE)
    assert "stranger@else.test" in text(acme.owner, "/inbox/")
    assert "stranger@else.test" not in text(acme.admin, "/inbox/"), "owners decide, by default"
    assert decide(acme.admin, found).status_code == 404
    assert decide(acme.owner, found).status_code == 302
    assert (state(found), stranger.memberships.get().role) == ("approved", "admin")
    assert actions("system")[-1] == "request.create", "a stranger's own events are of no tenant"
    assert actions()[-2:] == ["request.approve", "membership.set"]


def test_a_bigger_tier_and_more_quota(acme: House, operator: User) -> None:
    factories.tier("large")
    tenant_create(actor=OPERATOR, name="umbrella", owner=acme.editor, quota={"pods": "10", "services": "5"})
    found = ask(acme.editor, "tier", workspace=str(acme.workspace.pk), tier="large", reason="load")
    assert decide(acme.owner, found).status_code == 403, "an operator decides, by default"
    assert decide(operator, found).status_code == 302
    acme.workspace.refresh_from_db()
    assert acme.workspace.tier_id == "large"
    more = ask(acme.editor, "quota", tenant="umbrella", hard="pods: 30", reason="load")
    assert decide(operator, more).status_code == 302
    assert tenant_quota("umbrella").hard == {"pods": "30", "services": "5"}
    for wrong in ("pods: 30", "pods: 1", "secrets: 5", "pods: many", ""):
        ask(acme.editor, "quota", 422, tenant="umbrella", hard=wrong, reason="load")


def test_less_is_never_given_by_asking_for_more(acme: House, operator: User) -> None:
    """What was asked for and is there meanwhile is refused, not undone."""
    tenant_create(actor=OPERATOR, name="umbrella", owner=acme.editor, quota={"pods": "10"})
    found = ask(acme.editor, "quota", tenant="umbrella", hard="pods: 20", reason="load")
    tenant_quota_change(actor=OPERATOR, name="umbrella", hard={"pods": "50"})
    refused = decide(operator, found)
    assert (refused.status_code, "50 already" in refused.content.decode()) == (422, True)
    assert (state(found), tenant_quota("umbrella").hard) == ("open", {"pods": "50"})


def test_what_a_tier_allows_bounds_what_is_approved(acme: House, operator: User) -> None:
    factories.tier("large", workspaces_per_user=0)
    found = ask(acme.editor, "tier", workspace=str(acme.workspace.pk), tier="large", reason="load")
    refused = decide(operator, found)
    assert (refused.status_code, "allows 0 workspaces" in refused.content.decode()) == (422, True)
    assert state(found) == "open"
    assert "request.approve" not in actions(), "all or nothing"


def test_a_tier_on_request_is_taken_by_nobody_freely(acme: House, operator: User) -> None:
    factories.tier("gold")
    tier_change(actor=OPERATOR, name="gold", approval="owner")
    page = f"/workspaces/{acme.workspace.pk}/tier/"
    refused = signed_in(acme.editor).post(page, {"tier": "gold"})
    assert (refused.status_code, "given on request" in refused.content.decode()) == (422, True)
    found = ask(acme.editor, "tier", workspace=str(acme.workspace.pk), tier="gold", reason="load")
    assert decide(acme.admin, found).status_code == 404
    assert decide(acme.owner, found).status_code == 302
    acme.workspace.refresh_from_db()
    assert acme.workspace.tier_id == "gold"


def test_break_glass_gives_a_role_for_an_hour_and_nothing_for_good(acme: House, operator: User) -> None:
    found = ask(acme.viewer, "break-glass", **GLASS)
    assert decide(operator, found).status_code == 302
    row = Membership.objects.get(user=acme.viewer)
    assert (row.role, row.present_role, row.raised_until is not None) == ("viewer", "admin", True)
    client = signed_in(acme.viewer)
    assert client.get("/tenants/acme/requests/").status_code == 200
    assert client.get("/audit/?chain=acme").status_code == 200, "admins read their tenant's chain"
    assert "tenantry:admin" in client.get("/explain/").content.decode(), "as the API server knows them now"
    guest = factories.user("guest@else.test")
    # Whoever is let in for an hour lets in nobody else, themselves neither.
    let_in = client.post("/tenants/acme/members/add/", {"email": guest.email, "role": "viewer"})
    invited = client.post("/tenants/acme/members/invite/", {"email": "x@else.test", "role": "viewer", "days": "7"})
    client.post(f"/tenants/acme/members/{acme.viewer.pk}/role/", {"role": "admin"})
    assert (let_in.status_code, invited.status_code) == (422, 422)
    assert not guest.memberships.exists()
    credential = factories.credential(acme.workspace, acme.viewer)
    # The rows refuse from its end on, whether a worker has come by or not.
    Membership.objects.filter(pk=row.pk).update(raised_until=timezone.now() - timedelta(seconds=1))
    for path in ("/tenants/acme/requests/", "/audit/?chain=acme"):
        assert client.get(path).status_code in (403, 404)
    assert "tenantry:viewer" in client.get("/explain/").content.decode()
    assert lapses_sweep(now=timezone.now()) == 1
    row.refresh_from_db()
    credential.refresh_from_db()
    assert (row.role, row.raised_role, row.raised_until) == ("viewer", "", None)
    assert credential.revoked_at is not None
    assert actions()[-1] == "membership.lower"
    assert lapses_sweep(now=timezone.now()) == 0


def test_break_glass_of_a_stranger_ends_as_a_whole(acme: House, operator: User) -> None:
    stranger = factories.user("stranger@else.test")
    found = ask(stranger, "break-glass", **{**GLASS, "minutes": "480"})
    assert decide(acme.owner, found).status_code == 403, "an operator decides, by default"
    decide(operator, found)
    client = signed_in(stranger)
    assert client.get(f"/workspaces/{acme.workspace.pk}/").status_code == 200
    Membership.objects.filter(user=stranger).update(expires_at=timezone.now() - timedelta(seconds=1))
    for path in (f"/workspaces/{acme.workspace.pk}/", "/tenants/acme/"):
        assert client.get(path).status_code == 404
    assert "acme" not in client.get("/tenants/").content.decode()
    lapses_sweep(now=timezone.now())
    assert not Membership.stored.filter(user=stranger).exists()
    assert actions()[-1] == "membership.remove"


@pytest.mark.parametrize(
    "sent", [{"role": "owner"}, {"minutes": "481"}, {"minutes": "0"}, {"role": "king"}, {"reason": ""}]
)
def test_break_glass_is_bounded(acme: House, sent: dict[str, str]) -> None:
    ask(acme.viewer, "break-glass", 422, **{**GLASS, **sent})
    assert not AccessRequest.objects.exists()


def test_nobody_decides_what_they_have_asked_for(acme: House, operator: User) -> None:
    second = factories.operator()
    found = ask(operator, "tenant", tenant="mine", reason="mine")
    assert str(found.pk) not in text(operator, "/inbox/")
    assert decide(operator, found).status_code == 403
    assert decide(operator, found, "deny").status_code == 403
    with pytest.raises(StatusError) as refused:
        request_approve(actor=actor(operator), request_id=found.pk, now=timezone.now())
    assert refused.value.code == 403
    assert decide(second, found).status_code == 302


def test_two_persons_and_neither_is_the_asker(acme: House, operator: User, settings: Any) -> None:
    settings.REQUEST_APPROVERS = approvers_read({"role": "two"})
    stranger = factories.user("stranger@else.test")
    other = factories.member(acme.tenant, "owner")
    found = ask(stranger, "role", **ROLE)
    assert decide(acme.owner, found).status_code == 302
    assert (state(found), found.approved_first_id) == ("open", acme.owner.pk)
    assert "Nothing waits" in text(acme.owner, "/inbox/")
    again = decide(acme.owner, found)
    assert (again.status_code, "second person" in again.content.decode()) == (422, True)
    assert "One person has said yes" in text(other, f"/inbox/{found.pk}/")
    # A yes counts while its giver may give it: the first has lost the role, so that the next is the first.
    membership_set(actor=OPERATOR, tenant="acme", user=acme.owner, role=Role.VIEWER)
    decide(other, found)
    assert (state(found), found.approved_first_id) == ("open", other.pk)
    assert decide(operator, found).status_code == 302
    assert (state(found), stranger.memberships.get().role) == ("approved", "admin")
    assert found.decided_by == f"{other.email}, {operator.email}"


def test_the_yes_of_whoever_is_an_auditor_since_counts_no_more(acme: House, operator: User, settings: Any) -> None:
    settings.REQUEST_APPROVERS = approvers_read({"role": "two"})
    found = ask(factories.user("stranger@else.test"), "role", **ROLE)
    decide(acme.owner, found)
    user_change(actor=actor(operator), user_id=acme.owner.pk, is_auditor=True)
    assert decide(operator, found).status_code == 302
    assert (state(found), found.approved_first_id) == ("open", operator.pk)
    found = ask(factories.user(), "role", **ROLE)
    assert decide(acme.owner, found).status_code == 403
    assert "stranger@else.test" not in text(acme.owner, "/inbox/"), "nothing waits for whoever decides nothing"


def test_the_second_may_be_an_owner_after_an_operator(acme: House, operator: User, settings: Any) -> None:
    """Whom an owner cannot see still counts."""
    settings.REQUEST_APPROVERS = approvers_read({"role": "two"})
    found = ask(factories.user("stranger@else.test"), "role", **ROLE)
    assert decide(operator, found).status_code == 302
    assert decide(acme.owner, found).status_code == 302
    assert state(found) == "approved"


def test_a_role_lost_meanwhile_decides_nothing(acme: House) -> None:
    found = ask(factories.user("stranger@else.test"), "role", **ROLE)
    factories.member(acme.tenant, "owner")
    browser = signed_in(acme.owner)
    assert browser.get(f"/inbox/{found.pk}/approve/").status_code == 200
    membership_set(actor=OPERATOR, tenant="acme", user=acme.owner, role=Role.ADMIN)
    assert browser.post(f"/inbox/{found.pk}/approve/", {}).status_code == 404
    assert state(found) == "open"


def test_whoever_asked_must_still_be_somebody_who_may(acme: House, operator: User) -> None:
    factories.tier("large")
    found = ask(acme.editor, "tier", workspace=str(acme.workspace.pk), tier="large", reason="load")
    membership_remove(actor=OPERATOR, tenant="acme", user=acme.editor)
    refused = decide(operator, found)
    assert (refused.status_code, "may not ask for this" in refused.content.decode()) == (422, True)
    role = ask(acme.viewer, "role", **ROLE)
    User.objects.filter(pk=acme.viewer.pk).update(status=User.Status.DISABLED)
    assert decide(operator, role).status_code == 422
    assert {state(found), state(role)} == {"open"}


def test_a_denial_says_why_and_a_withdrawn_one_is_over(acme: House, operator: User) -> None:
    found = ask(acme.viewer, "role", **ROLE)
    assert decide(acme.owner, found, "deny", answer=" ").status_code == 422
    assert decide(acme.owner, found, "deny", answer="not now").status_code == 302
    assert "not now" in text(acme.viewer, f"/inbox/{found.pk}/")
    for what in ("approve", "deny"):
        assert decide(operator, found, what).status_code == 422, "decided once"
    other = ask(acme.viewer, "role", **ROLE)
    ask(acme.viewer, "role", 422, **ROLE)
    assert signed_in(acme.owner).post(f"/inbox/{other.pk}/withdraw/").status_code in {403, 422}
    assert signed_in(acme.viewer).post(f"/inbox/{other.pk}/withdraw/").status_code == 302
    assert state(other) == "withdrawn"
    assert decide(operator, other).status_code == 422


def test_people_talk_about_a_request(acme: House, globex: House) -> None:
    found = ask(acme.viewer, "role", **ROLE)
    for who, words in ((acme.owner, "what for?"), (acme.viewer, "releases <b>"), (globex.owner, "me too")):
        signed_in(who).post(f"/inbox/{found.pk}/comment/", {"text": words})
    page = text(acme.owner, f"/inbox/{found.pk}/")
    assert "what for?" in page
    assert "releases &lt;b&gt;" in page
    assert found.comments.count() == 2


@pytest.mark.parametrize("why", ["frozen", "too long", "decided"])
def test_a_comment_that_is_refused_is_not_lost(acme: House, why: str) -> None:
    found = ask(acme.viewer, "role", **ROLE)
    if why == "frozen":
        tenant_freeze(actor=OPERATOR, name="acme", reason="moving", until=None)
    if why == "decided":
        decide(acme.owner, found)
    words = "because of the release" + " x" * (2048 if why == "too long" else 0)
    answer = signed_in(acme.viewer).post(f"/inbox/{found.pk}/comment/", {"text": words})
    page = answer.content.decode()
    assert answer.status_code == 422
    assert f'value="{words}"' in page
    assert {"frozen": "frozen: moving", "too long": "at most 2048", "decided": "approved already"}[why] in page


def test_a_request_expires(acme: House, operator: User) -> None:
    found = ask(acme.viewer, "role", **ROLE)
    assert found.expires_at - found.created_at == timedelta(days=14)
    AccessRequest.objects.update(expires_at=timezone.now())
    assert decide(operator, found).status_code == 422
    lapses_sweep(now=timezone.now())
    assert (state(found), actions()[-1]) == ("expired", "request.expire")


def test_others_know_nothing_of_a_request(acme: House, globex: House) -> None:
    found = ask(acme.viewer, "role", **ROLE)
    for who in (globex.owner, acme.editor, acme.admin):
        assert signed_in(who).get(f"/inbox/{found.pk}/").status_code == 404
        assert decide(who, found).status_code == 404
        assert decide(who, found, "deny").status_code == 404
        assert str(found.pk) not in text(who, "/inbox/") + text(who, "/my-requests/")
    assert signed_in(globex.owner).get(f"/inbox/{uuid.uuid4()}/").status_code == 404


def test_asking_does_not_tell_which_tenants_there_are(acme: House, operator: User) -> None:
    """The same words for a tenant that is there and one that is not; operators alone learn of it."""
    stranger = factories.user("stranger@else.test")
    pages = []
    for name in ("acme", "nobody"):
        found = ask(stranger, "role", **{**ROLE, "tenant": name})
        page = re.sub(r"<time.*?</time>", "", text(stranger, f"/inbox/{found.pk}/"))
        pages.append(page.replace(name, "NAME").replace(str(found.pk), "PK").split("<main")[1].split("csrf")[0])
    assert pages[0] == pages[1]
    missing = AccessRequest.objects.get(name="nobody")
    refused = decide(operator, missing)
    assert (refused.status_code, "There was no tenant" in refused.content.decode()) == (422, True)
    factories.tenant("nobody")
    assert decide(operator, missing).status_code == 422, "whoever has the name now was not asked about"
    ask(stranger, "role", 422, tenant="No Name", role="viewer", reason="x")


@pytest.mark.parametrize("suspended", [False, True])
def test_nothing_that_is_done_with_a_request_tells_which_tenants_there_are(acme: House, *, suspended: bool) -> None:
    """Read, talked about, taken back, found among one's own events: the same, whether there is such a tenant or not."""
    stranger = factories.user("stranger@else.test")
    client, told = signed_in(stranger), []
    for name in ("acme", "nobody"):
        sent = {**ROLE, "tenant": name, "kind": "role"}
        asked = client.post("/api/v1/requests/", sent, content_type="application/json")
        address = f"/api/v1/requests/{asked.json()['id']}"
        if suspended and name == "acme":
            tenant_suspend(actor=OPERATOR, name="acme", reason="unpaid")
        answers = [
            asked,
            client.get(f"{address}/"),
            client.get("/api/v1/requests/", {"tenant": name}),
            client.post(f"{address}/comments", {"text": "please"}, content_type="application/json"),
            client.post(f"/inbox/{asked.json()['id']}/comment/", {"text": "please"}),
            client.post(f"{address}/withdraw", {}, content_type="application/json"),
            client.post("/api/v1/requests/", sent, content_type="application/json"),
            client.post(f"/inbox/{AccessRequest.objects.latest('created_at').pk}/withdraw/"),
        ]
        assert [answer.status_code for answer in answers] == [201, 200, 200, 201, 302, 200, 201, 302]
        events = client.get("/api/v1/audit-logs/").json()["results"]
        mine = [(each["chain"], each["action"]) for each in events if name in (each["detail"] or {}).values()]
        told.append(([shape(answer.content.decode(), name) for answer in answers], mine))
        assert len({each["chain"] for each in events}) == 1
    assert told[0] == told[1]


def shape(content: str, name: str) -> str:
    """What an answer says, without what is another each time."""
    content = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", content.replace(name, "NAME"))
    return re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "TIME", content)


def test_a_namesake_inherits_no_request(acme: House, operator: User) -> None:
    """A tenant that is deleted and made again under its name has none of the requests of before (TS1)."""
    made = tenant_create(actor=OPERATOR, name="umbrella", owner=acme.owner)
    stranger = factories.user("stranger@else.test")
    found = ask(stranger, "role", tenant="umbrella", role="viewer", reason="x")
    tenant_delete(actor=OPERATOR, name=made.name)
    tenants_end()
    tenant_create(actor=OPERATOR, name="umbrella", owner=acme.viewer)
    assert not AccessRequest.objects.filter(tenant="umbrella").exists()
    assert decide(operator, found).status_code == 404
    assert not stranger.memberships.exists()


def test_a_closed_tenant_is_asked_and_decides_nothing(acme: House, operator: User) -> None:
    found = ask(factories.user("stranger@else.test"), "role", **ROLE)
    tenant_suspend(actor=OPERATOR, name="acme", reason="unpaid")
    refused = decide(acme.owner, found)
    assert (refused.status_code, "unpaid" in refused.content.decode()) == (422, True)
    ask(acme.viewer, "role", 422, **ROLE)
    assert decide(operator, found).status_code == 302, "operators change what they have closed"


def test_a_token_of_before_break_glass_dies_with_it(acme: House, operator: User) -> None:
    stranger = factories.user("stranger@else.test")
    decide(operator, ask(stranger, "break-glass", **GLASS))
    now = timezone.now()
    scope = PersonalAccessToken.Scope.WRITE
    made = token_create(
        actor=actor(stranger),
        user=stranger,
        name="t",
        scope=scope,
        expires_at=now + timedelta(days=9),
        tenant=acme.tenant,
        now=now,
    )
    bearer = {"Authorization": f"Bearer {made.text}"}
    client = signed_in(factories.user())
    client.logout()
    assert client.get("/api/v1/tenants/acme/", headers=bearer).status_code == 200
    Membership.objects.filter(user=stranger).update(expires_at=now - timedelta(seconds=1))
    assert client.get("/api/v1/tenants/acme/", headers=bearer).status_code == 401


def test_one_asks_only_so_much(acme: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenants.services.requests.asking.OPEN_OF_PERSON_MAX", 2)
    for name in ("a", "b"):
        ask(acme.viewer, "tenant", tenant=name, reason="x")
    ask(acme.viewer, "tenant", 422, tenant="c", reason="x")
    monkeypatch.setattr(actionlimits, "REQUEST", actionlimits.Bucket(f"request-{uuid.uuid4()}", burst=1, interval=3600))
    ask(acme.editor, "tenant", tenant="d", reason="x")
    ask(acme.editor, "tenant", 422, tenant="e", reason="x")


@pytest.mark.django_db(transaction=True)
def test_a_request_is_decided_once_however_many_decide() -> None:
    """Operators who approve and deny at once: one of them does, the others are told so."""
    tenant = factories.tenant("acme")
    factories.member(tenant, "owner")
    newt = factories.user()
    deciders = [factories.operator() for _ in range(4)]
    found = ask(newt, "role", **ROLE)

    def yes(who: User) -> bool:
        try:
            request_approve(actor=actor(who), request_id=found.pk, now=timezone.now())
        except Conflict:
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(len(deciders)) as pool:
        assert sorted(pool.map(yes, deciders)) == [False, False, False, True]
    assert (state(found), newt.memberships.count()) == (RequestState.APPROVED, 1)
    assert actions().count("request.approve") == actions().count("membership.set") == 1


@pytest.mark.parametrize(
    "wrong", [[], {"cluster": "owner"}, {"role": "king"}, {"quota": "owner"}, {"tenant": "owner"}, {"role": 1}]
)
def test_a_policy_that_could_not_be_carried_out_is_refused_at_the_start(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        approvers_read(wrong)


def test_nothing_that_waited_or_was_for_an_hour_outlives_a_restore(acme: House, operator: User) -> None:
    """What was decided, or taken away, after the backup would wait and count again in it (P12)."""
    raised, found = ask(acme.viewer, "break-glass", **GLASS), ask(factories.user(), "role", **ROLE)
    stranger = factories.user()
    decide(operator, raised)
    decide(operator, ask(stranger, "break-glass", **GLASS))
    list(credentials_end_all(now=timezone.now()))
    assert (state(raised), state(found)) == ("approved", "withdrawn")
    assert Membership.objects.get(user=acme.viewer).present_role == "viewer"
    assert not stranger.memberships.exists()
