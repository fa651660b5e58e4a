"""What operators say is on top of the pages of those whom it is meant for, and of nobody else's (GW28)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from audit.models import AuditEntry
from audit.recorder import Actor
from kube.requests.status import Conflict, Forbidden, Invalid
from tenants.models import Announcement, User
from tenants.services.operating.announcements import LIVING_MAX, Said, announcement_create
from tests import factories
from tests.portal.commandline import Shell
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import bearer, send
from tests.portal.test_command_line import shell  # noqa: F401
from tests.tenants.conftest import OPERATOR

NEVER = "<b data-x>Never & nowhere</b>"


def say(text: str = "Down at noon", **of: Any) -> Announcement:
    return announcement_create(actor=OPERATOR, said=Said(text=text, **of), now=timezone.now())


def top(person: User, path: str = "/") -> str:
    """What stands on top of a page."""
    page = signed_in(person).get(path).content.decode()
    return page.partition('aria-label="Banners">')[2].partition("</section>")[0]


def test_an_operator_announces_and_everybody_reads_it_on_every_page(acme: House, operator: User) -> None:
    client = signed_in(operator)
    assert client.get(reverse("announcement-new")).status_code == 200
    sent = {"text": NEVER, "severity": "critical", "audience": "everybody", "dismissible": "on"}
    assert client.post(reverse("announcement-new"), sent).status_code == 302
    for path in ("/", "/workspaces/", f"/workspaces/{acme.workspace.pk}/", "/profile/"):
        assert "&lt;b data-x&gt;Never &amp; nowhere&lt;/b&gt;" in top(acme.viewer, path)
    assert NEVER not in signed_in(operator).get("/admin/").content.decode()
    assert "Never &amp; nowhere" in signed_in(operator).get("/admin/").content.decode()
    made = Announcement.objects.get()
    assert client.post(reverse("announcement", args=[made.pk]), {**sent, "text": "Back"}).status_code == 302
    assert "Back" in top(acme.viewer)
    client.post(reverse("announcement-end", args=[made.pk]))
    assert top(acme.viewer) == ""
    assert "Over" in client.get(reverse("announcements")).content.decode()
    actions = AuditEntry.objects.filter(target=f"announcements/{made.pk}").order_by("sequence")
    assert [each.action for each in actions] == ["announcement.create", "announcement.change", "announcement.end"]


def test_it_is_for_those_whom_it_is_meant_for(acme: House, globex: House, operator: User) -> None:
    """By tenant and by tier; on their pages, and by REST."""
    factories.tier("big")
    globex.workspace.tier_id = "big"
    globex.workspace.save()
    say("for acme", audience="tenants", tenants=["acme"])
    say("for big", audience="tiers", tiers=["big"])
    say("later", starts_at=timezone.now() + timedelta(hours=1))
    for person, said in ((acme.viewer, ["for acme"]), (globex.owner, ["for big"]), (operator, [])):
        assert [text for text in ("for acme", "for big", "later") if text in top(person)] == said
        rows = send(bearer(person, "read"), "GET", "announcements/").json()["results"]
        assert [row["text"] for row in rows] == said
        assert all("tenants" not in row for row in rows), "whom else it is for is nobody's business"
    assert send(bearer(acme.owner, "read"), "GET", "announcements/?all=true").status_code == 403
    rows = send(bearer(operator, "operate"), "GET", "announcements/?all=true").json()["results"]
    assert {row["text"]: row["tenants"] + row["tiers"] for row in rows} == {
        "later": [],
        "for big": ["big"],
        "for acme": ["acme"],
    }


def test_a_token_for_one_tenant_is_told_nothing_that_is_said_to_another(acme: House, globex: House) -> None:
    factories.member(globex.tenant, "viewer", acme.viewer)
    for name in ("acme", "globex"):
        say(f"for {name}", audience="tenants", tenants=[name])
    say("for all")
    script = bearer(acme.viewer, "write", acme.tenant)
    rows = send(script, "GET", "announcements/").json()["results"]
    assert {row["text"] for row in rows} == {"for acme", "for all"}
    other = Announcement.objects.get(text="for globex")
    assert send(script, "POST", f"announcements/{other.pk}/dismiss").status_code == 404
    rows = send(bearer(acme.viewer, "read"), "GET", "announcements/").json()["results"]
    assert len(rows) == 3


@pytest.mark.parametrize("header", ["Referer", "HX-Current-URL"])
@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example/x", "///evil.example"])
def test_putting_it_away_leads_to_no_other_site(acme: House, header: str, path: str) -> None:
    """An address of ours may be another site's once its host is left out."""
    made = say()
    away = reverse("announcement-dismiss", args=[made.pk])
    client = signed_in(acme.viewer)
    assert client.post(away, headers={header: f"http://testserver{path}"}).url == "/"
    assert client.post(away, headers={header: "http://testserver/workspaces/?q=x"}).status_code == 404
    made.dismissed_by.clear()
    assert client.post(away, headers={header: "http://testserver/workspaces/?q=x"}).url == "/workspaces/?q=x"


def test_it_goes_with_its_last_tenant(acme: House) -> None:
    """What was for some tenants is for nobody when they are gone, never for everybody."""
    doomed = factories.tenant("doomed")
    say("for doomed", audience="tenants", tenants=["doomed"])
    doomed.delete()
    assert top(acme.owner) == ""


def test_each_puts_away_for_themselves_until_it_has_new_words(acme: House, operator: User) -> None:
    stays, goes = say("stays", dismissible=False), say("goes")
    client = signed_in(acme.viewer)
    answer = client.post(
        reverse("announcement-dismiss", args=[goes.pk]), headers={"Referer": "http://testserver/workspaces/"}
    )
    assert answer["Location"] == "/workspaces/"
    assert client.post(reverse("announcement-dismiss", args=[stays.pk])).status_code == 409
    assert "goes" not in top(acme.viewer)
    assert "stays" in top(acme.viewer)
    assert "goes" in top(acme.owner)
    body = {"text": "goes", "severity": "warning"}
    assert send(bearer(operator, "operate"), "PUT", f"announcements/{goes.pk}/", body).status_code == 200
    assert "goes" not in top(acme.viewer)
    send(bearer(operator, "operate"), "PUT", f"announcements/{goes.pk}/", {"text": "goes on"})
    assert "goes on" in top(acme.viewer)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"text": ""}, "text"),
        ({"text": "x" * 501}, "text"),
        ({"text": "two\nlines"}, "text"),
        ({"severity": "loud"}, "severity"),
        ({"audience": "tenants"}, "tenants"),
        ({"tenants": ["acme"]}, "tenants"),
        ({"audience": "tenants", "tenants": ["nobody"]}, "tenants"),
        ({"audience": "tiers", "tiers": ["nothing"]}, "tiers"),
        ({"ends_at": timezone.now() - timedelta(hours=1)}, "ends_at"),
        ({"starts_at": timezone.now() + timedelta(days=2000)}, "starts_at"),
    ],
)
def test_what_cannot_be_said_is_refused_by_its_field(said: dict[str, Any], field: str) -> None:
    factories.tenant("acme")
    with pytest.raises(Invalid) as refused:
        say(**said)
    assert [cause.field for cause in refused.value.causes] == [field]


def test_there_are_no_more_than_people_read(acme: House) -> None:
    for _ in range(LIVING_MAX):
        say()
    with pytest.raises(Conflict):
        say()
    assert top(acme.owner).count("Down at noon</p>") == 5


def test_operators_alone_announce(acme: House) -> None:
    with pytest.raises(Forbidden):
        announcement_create(actor=Actor(name="x"), said=Said(text="x"), now=timezone.now())
    client, found = signed_in(acme.owner), say()
    for name, args in (("announcement-new", []), ("announcement", [found.pk]), ("announcement-end", [found.pk])):
        assert client.post(reverse(name, args=args), {"text": "x"}).status_code == 403


def test_from_a_shell(acme: House, operator: User, shell: Shell) -> None:  # noqa: F811
    shell.sign_in(operator, "operate")
    made = shell.done("announcements", "create", "Down at noon", "--tenant", "acme", "-o", "json").json
    shell.sign_in(acme.owner)
    assert "Down at noon" in shell.done("announcements", "list").output
    assert "INFO: Down at noon" in shell.done("whoami").errors
    shell.done("announcements", "dismiss", made["id"])
    assert "noon" not in shell.done("whoami").errors
    assert shell.run("announcements", "end", made["id"]).status == 4
    shell.sign_in(operator, "operate")
    shell.done("announcements", "end", made["id"])
    assert shell.done("announcements", "list", "--all", "-o", "json").json[0]["ends_at"]
