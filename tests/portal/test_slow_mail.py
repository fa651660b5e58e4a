"""A mail server that takes its time: every e-mail goes out once, and workers have their hands free (GW25, GW15)."""

from __future__ import annotations

import re
import socketserver
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from celery.exceptions import Retry
from django.db import connections
from django.utils import timezone

from portal.notices import sending
from portal.notices.sending import notices_send
from portal.tasks import password_link_ask
from tenants.models import Delivery, Notification, User
from tests.portal.conftest import House
from tests.portal.test_notices import Sink, hook, server, sink  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE = 300.0
TEN = timedelta(seconds=10)


class MailServer(socketserver.ThreadingTCPServer):
    """Takes every message, and says so at once but for the first: that has to wait for ``let_go``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Conversation)
        self.taken: list[str] = []
        self.answer = "250 taken"
        self.answered_at: datetime | None = None
        self.holds, self.let_go = threading.Event(), threading.Event()

    def answer_for(self, recipient: str) -> str:
        self.taken.append(recipient)
        if len(self.taken) == 1:
            self.holds.set()
            self.let_go.wait()
        self.answered_at = timezone.now()
        return self.answer


class Conversation(socketserver.StreamRequestHandler):
    server: MailServer

    def handle(self) -> None:
        self.say("220 slow.test")
        recipient = ""
        while line := self.rfile.readline():
            match line.split(b" ")[0].strip().upper():
                case b"RCPT":
                    recipient = re.search(rb"<(.*)>", line)[1].decode()  # type: ignore[index]
                    self.say("250 yes")
                case b"DATA":
                    self.say("354 go on")
                    while self.rfile.readline() not in {b".\r\n", b""}:
                        pass
                    self.say(self.server.answer_for(recipient))
                case b"QUIT":
                    return self.say("221 bye")
                case _:
                    self.say("250 yes")
        return None

    def say(self, words: str) -> None:
        self.wfile.write(f"{words}\r\n".encode())


@pytest.fixture
def slow(settings: Any) -> Iterator[MailServer]:
    with MailServer() as made:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = made.server_address
        settings.EMAIL_URL = f"smtp://127.0.0.1:{settings.EMAIL_PORT}"
        # The server is slow by its answers; how long is waited for them is not what is tried here.
        settings.EMAIL_TIMEOUT = 3600
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.let_go.set()
        made.shutdown()
        thread.join()


def begun(work: Callable[[], object]) -> threading.Thread:
    """What another of a worker's threads does."""

    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def ended(*threads: threading.Thread) -> bool:
    for thread in threads:
        thread.join(PATIENCE)
    return not any(thread.is_alive() for thread in threads)


def mail_for(*people: User) -> datetime:
    """One message for each, due now."""
    now = timezone.now()
    for user in people:
        said = Notification.objects.create(user=user, kind="request.opened", text="x", created_at=now)
        Delivery.objects.create(notification=said, kind="request.opened", not_before=now)
    return now


def test_no_mail_goes_out_twice_though_another_worker_sweeps_meanwhile(
    acme: House, slow: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = [acme.owner, acme.admin, acme.editor, acme.viewer]
    now = mail_for(*people)
    first = begun(lambda: notices_send(now=now))
    assert slow.holds.wait(PATIENCE)
    with monkeypatch.context() as another_process:
        another_process.setattr(sending, "_MAILING", threading.Lock())
        assert ended(begun(lambda: notices_send(now=now + timedelta(seconds=61))))
    assert len(slow.taken) == len(people), "what waits for a slow server is anybody's"
    slow.let_go.set()
    assert ended(first)
    assert Counter(slow.taken) == Counter(person.email for person in people)
    assert set(Delivery.objects.values_list("state", "attempts")) == {("sent", 1)}


def test_mail_holds_one_thread_of_a_worker_and_no_webhook(acme: House, slow: MailServer, sink: Sink) -> None:  # noqa: F811
    now = mail_for(acme.owner, acme.admin, acme.editor)
    first = begun(lambda: notices_send(now=now))
    assert slow.holds.wait(PATIENCE)
    made, _ = hook(sink.url)
    Delivery.objects.create(webhook=made, kind="request.opened", body="{}", not_before=now)
    others = [begun(lambda: notices_send(now=now + timedelta(seconds=61))) for _ in range(7)]
    assert ended(*others)
    assert (len(slow.taken), len(sink.came)) == (1, 1)
    slow.let_go.set()
    assert ended(first)
    assert len(slow.taken) == 3


def test_a_link_for_a_new_password_waits_for_its_turn_elsewhere_than_in_a_thread(acme: House, slow: MailServer) -> None:
    """Whoever asks for many of them holds no more of a worker than one."""
    for person in (acme.owner, acme.admin):
        person.set_password("a long and windy road")
        person.save()
    first = begun(lambda: password_link_ask(acme.owner.email))
    assert slow.holds.wait(PATIENCE)
    with pytest.raises(Retry):
        password_link_ask(acme.admin.email)
    slow.let_go.set()
    assert ended(first)
    password_link_ask(acme.admin.email)
    assert slow.taken == [acme.owner.email, acme.admin.email]


def test_what_has_failed_late_is_tried_again_after_its_pause(acme: House, slow: MailServer, sink: Sink) -> None:  # noqa: F811
    """The pause is counted from the answer, not from the beginning of the sweep."""
    slow.answer, sink.status = "451 later", "500 Oh"
    slow.let_go.set()
    now = mail_for(acme.owner)
    made, _ = hook(sink.url)
    Delivery.objects.create(webhook=made, kind="request.opened", body="{}", not_before=now)
    notices_send(now=timezone.now())
    mail, post = Delivery.objects.get(webhook=None), Delivery.objects.get(notification=None)
    assert (mail.answer, post.answer) == ("SMTPDataError", "status 500")
    assert slow.answered_at is not None
    assert mail.not_before >= slow.answered_at + TEN
    assert post.not_before >= sink.answered_at + TEN
