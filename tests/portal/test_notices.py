"""Being told what has happened: in the portal, by e-mail, by signed webhooks; bounded, chosen, and never to others (GW25)."""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
import time_machine
import trustme
import werkzeug.serving
from django.core import mail
from django.db import connections
from django.db.models.functions import Now
from django.utils import timezone

from access.credentials.intents import intend
from audit.recorder import WORKER
from portal import tasks
from portal.http import proxies
from portal.notices.sending import notices_send
from tenants.models import AccessRequest, Delivery, Membership, Notice, Notification, Role, User, Webhook, Workspace
from tenants.operationqueue import run_one
from tenants.reconciler.lapses import lapses_sweep
from tenants.services import membership_remove, membership_set, tenant_suspend, workspace_resume, workspace_suspend
from tenants.services.notices import KEPT_OF_PERSON, mails_due, posts_claim, webhook_create
from tests import factories
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import bearer, send
from tests.portal.test_requests import ROLE, _many, ask, decide, shape, text  # noqa: F401
from tests.tenants.conftest import OPERATOR

AUTHORITY = trustme.CA()


class Sink:
    """Somebody's HTTPS server: what came, and what it answers."""

    def __init__(self) -> None:
        self.came: list[tuple[dict[str, str], bytes]] = []
        self.status, self.location, self.url = "204 No Content", "", ""
        self.before_answering: Callable[[str], None] = lambda _path: None
        self.answered_at = timezone.now()

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        self.came.append(({name: value for name, value in environ.items() if name.startswith("HTTP_")}, body))
        self.before_answering(environ["PATH_INFO"])
        self.answered_at = timezone.now()
        start(self.status, [("Location", self.location)] if self.location else [])
        return [b""]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sink, Path]]:
    sink, context = Sink(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    authority = tmp_path_factory.mktemp("hook") / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(str(authority))
    made = werkzeug.serving.make_server("127.0.0.1", 0, sink, threaded=True, ssl_context=context)
    thread = threading.Thread(target=made.serve_forever, args=(0.02,))
    thread.start()
    sink.url = f"https://localhost:{made.server_port}/hook"
    yield sink, authority
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def sink(server: tuple[Sink, Path], settings: Any) -> Sink:
    """The server, which an operator has allowed, with nothing come yet."""
    found, authority = server
    found.came, found.status, found.location = [], "204 No Content", ""
    found.before_answering = lambda _path: None
    settings.WEBHOOK_CA_FILE = authority
    settings.WEBHOOK_ALLOWED_NETWORKS = proxies.parse(["127.0.0.0/8", "::1"])
    return found


def told(user: User) -> list[str]:
    notices_send(now=timezone.now())
    return list(Notification.objects.filter(user=user).order_by("created_at", "id").values_list("text", flat=True))


def hook(url: str, tenant: str = "acme", kinds: tuple[str, ...] = ()) -> tuple[Webhook, str]:
    made = webhook_create(actor=OPERATOR, tenant=tenant, url=url, kinds=kinds, now=timezone.now())
    return made.webhook, made.secret


def test_those_who_decide_and_whoever_asked_are_told(acme: House, globex: House, operator: User) -> None:
    found = ask(acme.viewer, "role", **ROLE)
    assert told(acme.owner) == [f"{acme.viewer.email} asks for the role admin in acme"]
    assert told(acme.viewer) == told(operator) == told(globex.owner) == told(acme.admin) == []
    page = text(acme.owner, "/")
    assert 'aria-label="Notifications, 1 unread"' in page
    assert f'href="/inbox/{found.pk}/"' in text(acme.owner, "/notifications/")
    decide(acme.owner, found, "deny", answer="not now")
    assert told(acme.viewer) == ["Denied: the role admin in acme (not now)"]
    assert len(told(acme.owner)) == 1, "nobody is told what they did themselves"
    signed_in(acme.owner).post("/notifications/read/")
    assert 'aria-label="Notifications"' in text(acme.owner, "/")
    assert not Notice.objects.exists()
    assert told(acme.viewer) == ["Denied: the role admin in acme (not now)"], "once"


def test_everything_that_concerns_a_person_is_told(acme: House, operator: User) -> None:
    membership_set(actor=OPERATOR, tenant="acme", user=acme.viewer, role=Role.EDITOR)
    assert told(acme.viewer) == ["You are editor in acme"]
    workspace_suspend(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="mining")
    workspace_resume(actor=OPERATOR, workspace_id=acme.workspace.pk)
    words = [f"The workspace {acme.workspace} is suspended: mining", f"The workspace {acme.workspace} is open again"]
    assert told(acme.owner) == told(acme.editor) == words
    tenant_suspend(actor=OPERATOR, name="acme", reason="unpaid")
    assert told(acme.owner)[-1] == "The tenant acme is suspended: unpaid"
    assert told(acme.viewer) == ["You are editor in acme"]


def test_a_failure_and_a_credential_by_somebody_else_are_told(acme: House) -> None:
    from tenants.operationqueue import Refused

    made = factories.workspace(acme.tenant, acme.editor, "late", phase="provisioning", observed_generation=0)
    made.operations.update(state="pending")

    def refuse(_lease: Any) -> None:
        raise Refused("the quota is refused")

    assert run_one(refuse, made.pk)
    assert told(acme.editor) == ["The workspace acme/late fails: the quota is refused"]
    intend(WORKER, acme.workspace.pk, "viewer", "direct", timezone.now())
    assert told(acme.editor)[-1] == f"A credential for {acme.workspace} is issued for you by system:worker"
    intend(OPERATOR, acme.workspace.pk, "viewer", "direct", timezone.now())


@pytest.mark.parametrize("how", ["removed", "lapsed", "workspace gone"])
def test_a_notice_leads_where_its_reader_may_go_now(acme: House, settings: Any, how: str) -> None:
    """On the page and by e-mail: whoever has left a tenant is told so, and is led to no page that is not theirs."""
    settings.EMAIL_IS_SET = True
    path, person = f"/workspaces/{acme.workspace.pk}/", acme.editor
    workspace_suspend(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="mining")
    notices_send(now=timezone.now())
    assert f'href="{path}"' in text(person, "/notifications/")
    if how == "removed":
        membership_remove(actor=OPERATOR, tenant="acme", user=person)
    elif how == "lapsed":
        Membership.objects.filter(user=person).update(expires_at=timezone.now() - timedelta(seconds=1))
        lapses_sweep(now=timezone.now())
    else:
        Workspace.objects.filter(pk=acme.workspace.pk).update(
            phase="deleted", status="deleted", deleted_at=timezone.now()
        )
    words = told(person)[-1]
    page = text(person, "/notifications/")
    assert words in page
    assert path not in page
    assert ("/tenants/acme/" in page) is (how == "workspace gone")
    if how != "workspace gone":
        assert "/tenants/acme/" not in mail.outbox[-1].body
        assert f"{settings.PORTAL_URL}/notifications/" in mail.outbox[-1].body
    client = signed_in(person)
    for link in set(re.findall(r'href="(/[^"#]*)"', page.partition('id="main"')[2])):
        assert client.get(link).status_code == 200, link


def test_e_mail_goes_out_where_a_server_is_configured_and_wanted(acme: House, settings: Any) -> None:
    membership_set(actor=OPERATOR, tenant="acme", user=acme.viewer, role=Role.EDITOR)
    told(acme.viewer)
    assert mail.outbox == []
    settings.EMAIL_IS_SET = True
    membership_set(actor=OPERATOR, tenant="acme", user=acme.viewer, role=Role.ADMIN)
    told(acme.viewer)
    (message,) = mail.outbox
    assert (message.to, message.subject) == ([acme.viewer.email], "[Tenantry] You are admin in acme")
    assert f"{settings.PORTAL_URL}/tenants/acme/" in message.body
    client = signed_in(acme.viewer)
    sent = {"membership-changed": ["portal"], "request-decided": ["mail"]}
    assert client.post("/notifications/choices/", sent).status_code == 302
    membership_set(actor=OPERATOR, tenant="acme", user=acme.viewer, role=Role.EDITOR)
    assert told(acme.viewer)[-1] == "You are editor in acme"
    assert len(mail.outbox) == 1
    decide(acme.owner, ask(acme.viewer, "role", **ROLE))
    told(acme.viewer)
    assert mail.outbox[-1].subject.startswith("[Tenantry] Approved: the role admin")
    unread = Notification.objects.filter(user=acme.viewer, read_at=None, kind="request.decided")
    assert not unread.exists(), "by e-mail alone"


@pytest.mark.parametrize("how", ["expired", "denied", "commented"])
def test_no_notice_about_a_request_tells_which_tenants_there_are(acme: House, operator: User, how: str) -> None:
    """What becomes of a request is told in the same words and fields; a member's names the tenant."""
    told = []
    for name in ("acme", "nobody"):
        stranger = factories.user()
        found = ask(stranger, "role", **{**ROLE, "tenant": name})
        if how == "denied":
            decide(operator, found, "deny", answer="who are you?")
        elif how == "commented":
            signed_in(operator).post(f"/inbox/{found.pk}/comment/", {"text": "who are you?"})
        else:
            AccessRequest.objects.filter(pk=found.pk).update(expires_at=timezone.now())
            lapses_sweep(now=timezone.now())
        notices_send(now=timezone.now())
        client = signed_in(stranger)
        assert len(client.get("/api/v1/notifications/").json()["results"]) == 1
        pages = [client.get(path).content.decode() for path in ("/api/v1/notifications/", "/notifications/")]
        told.append([shape(pages[0], name), shape(pages[1], name).split("<main")[1].split("csrf")[0]])
    assert told[0] == told[1]
    decide(acme.owner, ask(acme.viewer, "role", **ROLE), "deny", answer="not now")
    notices_send(now=timezone.now())
    (mine,) = signed_in(acme.viewer).get("/api/v1/notifications/").json()["results"]
    assert mine["tenant"] == "acme"


@pytest.mark.parametrize(
    "hostile", ["x\r\nBcc: all@else.test", "x\nSubject: y", "\x85Bcc: z", "\u2028Bcc: z", "=?utf-8?q?=0ABcc:_a?="]
)
def test_no_text_of_anybody_becomes_a_header(acme: House, settings: Any, hostile: str) -> None:
    settings.EMAIL_IS_SET = True
    found = ask(acme.viewer, "role", **ROLE)
    from tenants.services.requests import request_comment
    from tests.portal.test_requests import actor

    request_comment(actor=actor(acme.viewer), request_id=found.pk, text=f"a {hostile}", now=timezone.now())
    told(acme.owner)
    for message in mail.outbox:
        assert not {"bcc", "cc"} & {name.lower() for name in message.message()}
        assert len(message.message().get_all("Subject")) == 1
        assert message.recipients() == [acme.owner.email]
    assert len(mail.outbox) == 2


def test_what_a_person_is_told_is_bounded(acme: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenants.services.notices.KEPT_OF_PERSON", 3)
    for number in range(6):
        membership_set(actor=OPERATOR, tenant="acme", user=acme.viewer, role=[Role.EDITOR, Role.ADMIN][number % 2])
    assert len(told(acme.viewer)) == 3
    assert KEPT_OF_PERSON == 200


def test_hostile_words_are_text_in_the_list(acme: House) -> None:
    tenant_suspend(actor=OPERATOR, name="acme", reason="<script>alert(1)</script>")
    told(acme.owner)
    page = text(acme.owner, "/notifications/")
    assert "&lt;script&gt;" in page
    assert "<script>alert" not in page


def test_a_webhook_gets_signed_messages_of_its_tenant_alone(acme: House, globex: House, sink: Sink) -> None:
    page = signed_in(acme.owner).post("/tenants/acme/webhooks/new/", {"url": sink.url, "kinds": ["membership.changed"]})
    secret = re.search(r">([\w-]{43})<", page.content.decode())[1]  # type: ignore[index]
    made = Webhook.objects.get()
    assert secret.encode() not in bytes(made.sealed_secret)
    assert secret not in text(acme.owner, f"/webhooks/{made.pk}/")
    for tenant, user in (("acme", acme.viewer), ("globex", globex.viewer)):
        membership_set(actor=OPERATOR, tenant=tenant, user=user, role=Role.EDITOR)
    workspace_suspend(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="mining")
    notices_send(now=timezone.now())
    ((headers, body),) = sink.came
    message = orjson.loads(body)
    assert (message["kind"], message["tenant"], message["text"]) == (
        "membership.changed",
        "acme",
        "You are editor in acme",
    )
    moment, digest = re.fullmatch(r"t=(\d+),v1=([0-9a-f]{64})", headers["HTTP_TENANTRY_SIGNATURE"]).groups()  # type: ignore[union-attr]
    assert digest == hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    assert abs(int(moment) - timezone.now().timestamp()) < 300
    assert "status 204" in text(acme.owner, f"/webhooks/{made.pk}/")


def test_the_platforms_webhook_is_told_everything(acme: House, operator: User, sink: Sink) -> None:
    assert signed_in(acme.owner).get("/webhooks/").status_code == 403
    signed_in(operator).post("/webhooks/new/", {"url": sink.url})
    ask(factories.user(), "tenant", tenant="newts", reason="x")
    membership_set(actor=OPERATOR, tenant="acme", user=acme.viewer, role=Role.EDITOR)
    notices_send(now=timezone.now())
    assert {orjson.loads(body)["kind"] for _, body in sink.came} == {"request.opened", "membership.changed"}


def test_what_is_not_taken_is_tried_again_and_given_up(acme: House, sink: Sink) -> None:
    hook(sink.url)
    sink.status = "500 Oh"
    membership_set(actor=OPERATOR, tenant="acme", user=acme.viewer, role=Role.EDITOR)
    now = timezone.now()
    notices_send(now=now)
    notices_send(now=now + timedelta(seconds=5))
    assert len(sink.came) == 1, "not at once"
    notices_send(now=now + timedelta(seconds=11))
    row = Delivery.objects.get()
    assert (len(sink.came), row.attempts, row.state, row.answer) == (2, 2, "waiting", "status 500")
    notices_send(now=now + timedelta(days=2))
    row.refresh_from_db()
    assert row.state == "failed"
    notices_send(now=now + timedelta(days=3))
    assert len(sink.came) == 3


@pytest.mark.parametrize("days", [2, -2])
def test_what_is_due_is_so_by_the_databases_clock(acme: House, sink: Sink, days: int) -> None:
    """A worker whose clock is wrong neither tries again at once, nor gives up, nor waits for its own time to come."""
    hook(sink.url)
    sink.status = "500 Oh"
    membership_set(actor=OPERATOR, tenant="acme", user=acme.viewer, role=Role.EDITOR)
    tasks.notices_send()
    for due, attempts in ((False, 1), (True, 2)):
        if due:
            Delivery.objects.update(not_before=Now())
        with time_machine.travel(timezone.now() + timedelta(days=days)):
            tasks.notices_send()
        row = Delivery.objects.get()
        assert (len(sink.came), row.attempts, row.state) == (attempts, attempts, "waiting")


def test_addresses_that_never_answer_hold_up_nobody_elses_messages(acme: House, globex: House) -> None:
    """Tenants take turns, and so do people: a thousand messages of one are one of another's."""
    now = timezone.now()
    slow = [hook(f"https://slow{number}.example.org/")[0] for number in range(3)]
    other, _ = hook("https://hooks.example.org/", "globex")
    Delivery.objects.bulk_create(
        Delivery(webhook=slow[number % 3], kind="request.opened", body="{}", not_before=now - timedelta(hours=1))
        for number in range(90)
    )
    late = Delivery.objects.create(webhook=other, kind="request.opened", body="{}", not_before=now)
    claimed = posts_claim(now=now, limit=5)
    assert len(claimed) == 5
    assert late in claimed
    many = [Notification(user=acme.viewer, kind="request.opened", text="x", created_at=now) for _ in range(9)]
    said = Notification(user=globex.viewer, kind="request.opened", text="x", created_at=now)
    Notification.objects.bulk_create([*many, said])
    Delivery.objects.bulk_create(
        Delivery(notification=each, kind="request.opened", not_before=now - timedelta(hours=1)) for each in many
    )
    last = Delivery.objects.create(notification=said, kind="request.opened", not_before=now)
    assert last.pk in mails_due(now=now, limit=2)


@pytest.mark.parametrize("host", ["xn--a-.example", "[::1]x"])
def test_an_address_that_cannot_be_read_holds_up_nobody_elses_messages(
    acme: House, globex: House, sink: Sink, settings: Any, host: str
) -> None:
    """What a form takes for an address a library stumbles over: that one message fails, and is given up in time."""
    settings.EMAIL_IS_SET = True
    hook(f"https://{host}/")
    hook(sink.url, "globex")
    for tenant, user in (("acme", acme.viewer), ("globex", globex.viewer)):
        membership_set(actor=OPERATOR, tenant=tenant, user=user, role=Role.EDITOR)
    now = timezone.now()
    notices_send(now=now)
    assert (len(sink.came), len(mail.outbox)) == (1, 2)
    row = Delivery.objects.get(webhook__tenant="acme")
    assert (row.state, row.attempts, row.answer) == ("waiting", 1, "this is no address")
    notices_send(now=now + timedelta(days=2))
    row.refresh_from_db()
    assert row.state == "failed"


@pytest.mark.django_db(transaction=True)
def test_a_webhook_that_goes_while_it_is_told_holds_up_nobody_elses_messages(
    acme: House, globex: House, sink: Sink, settings: Any
) -> None:
    """Its receiver deletes it before it answers, by the API: nobody is told twice for that, and e-mail goes out."""
    settings.EMAIL_IS_SET = True
    mine, _ = hook(sink.url.replace("/hook", "/mine"))
    hook(sink.url, "globex")
    client, answers = bearer(acme.admin), []

    def delete(path: str) -> None:
        if path == "/mine":
            answers.append(send(client, "DELETE", f"webhooks/{mine.pk}/").status_code)
            connections.close_all()

    sink.before_answering = delete
    for tenant, user in (("acme", acme.viewer), ("globex", globex.viewer)):
        membership_set(actor=OPERATOR, tenant=tenant, user=user, role=Role.EDITOR)
    now = timezone.now()
    notices_send(now=now)
    assert answers == [204]
    assert not Webhook.objects.filter(tenant="acme").exists()
    assert [(row.state, row.answer) for row in Delivery.objects.exclude(webhook=None)] == [("sent", "status 204")]
    mailed = [message.to[0] for message in mail.outbox]
    assert {acme.viewer.email, globex.viewer.email} <= set(mailed)
    notices_send(now=now + timedelta(seconds=61))
    assert len(sink.came) == 2
    assert len(mailed) == len(mail.outbox)


def test_a_redirect_leads_nowhere(acme: House, sink: Sink) -> None:
    hook(sink.url)
    sink.status, sink.location = "307 Go", sink.url.replace("/hook", "/elsewhere")
    membership_set(actor=OPERATOR, tenant="acme", user=acme.viewer, role=Role.EDITOR)
    notices_send(now=timezone.now())
    assert len(sink.came) == 1
    assert "redirect" in Delivery.objects.get().answer


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]", "127.1", "0x7f000001"])
def test_our_own_network_is_told_nothing_unless_an_operator_allows_it(
    acme: House, sink: Sink, settings: Any, host: str
) -> None:
    settings.WEBHOOK_ALLOWED_NETWORKS = ()
    hook(sink.url.replace("localhost", host))
    membership_set(actor=OPERATOR, tenant="acme", user=acme.viewer, role=Role.EDITOR)
    notices_send(now=timezone.now())
    assert sink.came == []
    row = Delivery.objects.get()
    assert row.state == "waiting"
    assert "status" not in row.answer


@pytest.mark.parametrize(
    "url",
    [
        *("http://hooks.test/", "ftp://hooks.test/", "https://", "https:///x", "javascript:alert(1)", "//hooks.test/"),
        *(
            "https://user:pass@hooks.test/",
            "https://hooks.test/#x",
            "https://hooks.test:99999/",
            "https://hooks.test:0/",
        ),
        *(
            "https://hooks.test/\r\nX: y",
            "https://hööks.test/",
            "https://hooks.test\\@x.test/",
            f"https://x.test/{'a' * 512}",
        ),
    ],
)
def test_what_is_no_address_for_a_webhook_is_refused(acme: House, url: str) -> None:
    answer = signed_in(acme.owner).post("/tenants/acme/webhooks/new/", {"url": url})
    assert answer.status_code == 422
    assert not Webhook.objects.exists()


def test_webhooks_are_for_admins_of_the_tenant(acme: House, globex: House) -> None:
    made, _ = hook("https://hooks.test/")
    for who, status in ((acme.editor, 403), (globex.owner, 404)):
        client = signed_in(who)
        assert client.get("/tenants/acme/webhooks/").status_code == status
        assert client.get(f"/webhooks/{made.pk}/").status_code == status
        assert client.post(f"/webhooks/{made.pk}/delete/").status_code == status
    assert signed_in(acme.admin).post(f"/webhooks/{made.pk}/delete/").status_code == 302
    assert not Webhook.objects.exists()


def test_the_log_of_a_webhook_is_bounded(acme: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenants.services.notices.KEPT_OF_WEBHOOK", 2)
    hook("https://hooks.test/")
    for role in (Role.EDITOR, Role.ADMIN, Role.EDITOR, Role.ADMIN):
        membership_set(actor=OPERATOR, tenant="acme", user=acme.viewer, role=role)
    from tenants.services.notices import notices_tell

    notices_tell(now=timezone.now())
    assert Delivery.objects.count() == 2


def test_the_rest_api_lists_and_marks_them(acme: House, globex: House) -> None:
    membership_set(actor=OPERATOR, tenant="acme", user=acme.viewer, role=Role.EDITOR)
    membership_set(actor=OPERATOR, tenant="globex", user=acme.viewer, role=Role.EDITOR)
    told(acme.viewer)
    client = bearer(acme.viewer)
    rows = send(client, "GET", "notifications/?unread=true").json()["results"]
    assert {row["tenant"] for row in rows} == {"acme", "globex"}
    bound = send(bearer(acme.viewer, tenant=acme.tenant), "GET", "notifications/").json()["results"]
    assert [row["tenant"] for row in bound] == ["acme"]
    elsewhere = [{"id": row["id"]} for row in rows if row["tenant"] == "globex"]
    marked = [send(bearer(acme.viewer, tenant=acme.tenant), "POST", "notifications/read", each) for each in elsewhere]
    assert [answer.json() for answer in marked] == [{"read": 0}], "a token for one tenant knows of no other"
    assert send(client, "POST", "notifications/read", {"id": rows[0]["id"]}).json() == {"read": 1}
    assert send(bearer(acme.owner), "POST", "notifications/read", {"id": rows[1]["id"]}).json() == {"read": 0}
    assert send(client, "POST", "notifications/read").json() == {"read": 1}
    assert send(client, "GET", "notifications/?unread=maybe").status_code == 400
