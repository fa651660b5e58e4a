"""Who may try to sign in how often, from where, and what is believed about where (API-34, HDR-11)."""

from __future__ import annotations

import itertools
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.test import Client, RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from audit.actions import Action
from audit.models import AuditEntry
from kube.requests.status import TooManyRequests
from portal.http import proxies
from portal.signin import attempts, refusals
from tenants import actionlimits
from tenants.models import User
from tests import factories
from tests.portal.conftest import House, signed_in, stranger

pytestmark = pytest.mark.usefixtures("nothing_comes_back")


def sign_in(client: Client, user: User, password: str = factories.PASSWORD, **extra: Any) -> int:
    return client.post("/login/", {"username": user.email, "password": password}, **extra).status_code


def request_from(address: str, **cookies: str) -> HttpRequest:
    request = RequestFactory().post("/login/", REMOTE_ADDR=address)
    request.COOKIES.update(cookies)
    return request


def anywhere() -> str:
    return f"2001:db8:{secrets.token_hex(2)}:{secrets.token_hex(2)}::1"


def known_browser(user: User) -> Client:
    client = stranger()
    assert sign_in(client, user) == 302
    assert client.post("/logout/").status_code == 302
    assert django_settings.DEVICE_COOKIE_NAME in client.cookies
    return client


# What is used up, by whoever may be refused afterwards.


def use_up(bucket: actionlimits.Bucket, key: str) -> None:
    for _ in range(bucket.burst):
        actionlimits.wait_for(bucket, key)


def the_address(user: User, address: str) -> None:
    use_up(attempts.ADDRESS, attempts.network_of(request_from(address)))


def the_account_from_the_address(user: User, address: str) -> None:
    use_up(attempts.ACCOUNT_AND_ADDRESS, f"{attempts.network_of(request_from(address))}:{user.email}")


def the_account(user: User, address: str) -> None:
    use_up(attempts.ACCOUNT, user.email)


LIMITS = (the_address, the_account_from_the_address, the_account)


def fresh_browser(user: User, address: str, client: Client | None = None) -> int:
    return sign_in(Client(REMOTE_ADDR=address), user)


def through_the_admin_site(user: User, address: str, client: Client) -> int:
    client = Client(REMOTE_ADDR=address)
    there = client.get("/admin/login/", {"next": "/admin/"})["Location"]
    return client.post(there, {"username": user.email, "password": factories.PASSWORD}).status_code


def another_spelling(user: User, address: str, client: Client) -> int:
    return (
        Client(REMOTE_ADDR=address)
        .post("/login/", {"username": f" {user.email.upper()} ", "password": factories.PASSWORD})
        .status_code
    )


def forged_device(user: User, address: str, client: Client) -> int:
    client = Client(REMOTE_ADDR=address)
    client.cookies[django_settings.DEVICE_COOKIE_NAME] = json.dumps([[str(user.pk), "x", "y"]])
    return sign_in(client, user)


def device_of_another_account(user: User, address: str, client: Client) -> int:
    client = known_browser(factories.user())
    return sign_in(client, user, REMOTE_ADDR=address)


def device_from_before_a_new_password(user: User, address: str, client: Client) -> int:
    user.set_password(factories.PASSWORD)
    user.save()
    return sign_in(client, user, REMOTE_ADDR=address)


PATHS = (
    fresh_browser,
    through_the_admin_site,
    another_spelling,
    forged_device,
    device_of_another_account,
    device_from_before_a_new_password,
)


@pytest.mark.parametrize(
    ("path", "limit"), list(itertools.product(PATHS, LIMITS)), ids=lambda item: item.__name__ if callable(item) else ""
)
def test_no_path_leads_around_a_limit(
    path: Callable[[User, str, Client], int], limit: Callable[[User, str], None]
) -> None:
    """API-34: the right password is refused as the wrong one is, so that guessing goes no further."""
    user, address = factories.user(f"{secrets.token_hex(4)}@acme.test"), anywhere()
    known = known_browser(user)
    limit(user, address)
    assert path(user, address, known) == 429


@pytest.mark.parametrize("limit", LIMITS, ids=lambda item: item.__name__)
def test_known_device_is_let_in_where_others_are_locked_out(limit: Callable[[User, str], None]) -> None:
    """An operator reaches the kill switch whoever guesses, also from behind the same address."""
    user, address = factories.operator(f"{secrets.token_hex(4)}@platform.test"), anywhere()
    client = known_browser(user)
    limit(user, address)
    assert fresh_browser(user, address) == 429
    assert sign_in(client, user, REMOTE_ADDR=address) == 302


@pytest.mark.parametrize("limit", LIMITS[:2], ids=lambda item: item.__name__)
def test_guessing_locks_nobody_out_elsewhere(limit: Callable[[User, str], None]) -> None:
    user = factories.operator(f"{secrets.token_hex(4)}@platform.test")
    limit(user, anywhere())
    assert fresh_browser(user, anywhere()) == 302


def test_known_device_has_a_limit_of_its_own() -> None:
    """Whoever has stolen one guesses no faster."""
    user = factories.user()
    client = known_browser(user)
    codes = [sign_in(client, user, "wrong") for _ in range(attempts.DEVICE.burst + 1)]
    assert codes == [401] * attempts.DEVICE.burst + [429]
    assert fresh_browser(user, anywhere()) == 302


def test_attempts_from_one_address_lock_no_account(acme: House) -> None:
    """An address that is refused takes nothing from the accounts that it names."""
    address = anywhere()
    for _ in range(attempts.ACCOUNT.burst + 20):
        with_any = request_from(address)
        try:
            attempts.attempt(with_any, email=acme.owner.email)
        except TooManyRequests:
            continue
    assert fresh_browser(acme.owner, anywhere()) == 302


def test_guesses_at_once_are_no_more_than_one_after_the_other() -> None:
    """However many processes and threads compare passwords: each counts before, and Redis counts for all of them."""
    address, email, begin = anywhere(), f"{secrets.token_hex(4)}@acme.test", threading.Barrier(16)

    def guess(number: int) -> int:
        begin.wait()
        spelled = email if number % 2 else f" {email.upper()}"
        return sum(was_let(request_from(address), spelled) for _ in range(4))

    with ThreadPoolExecutor(begin.parties) as pool:
        assert sum(pool.map(guess, range(begin.parties))) == attempts.ACCOUNT_AND_ADDRESS.burst


def was_let(request: HttpRequest, email: str) -> bool:
    """Whether a password is compared at all."""
    try:
        attempts.attempt(request, email=email)
    except TooManyRequests:
        return False
    return True


def test_success_is_not_counted(acme: House) -> None:
    address = anywhere()
    assert {fresh_browser(acme.owner, address) for _ in range(2 * attempts.ADDRESS.burst)} == {302}
    assert fresh_browser(acme.owner, address) == 302


def test_success_forgives_no_failure(acme: House) -> None:
    """Whoever has an account of their own does not guess another's with it."""
    address = anywhere()
    codes = []
    for _ in range(attempts.ADDRESS.burst + 1):
        codes.append(sign_in(Client(REMOTE_ADDR=address), acme.admin, "wrong"))
        sign_in(Client(REMOTE_ADDR=address), acme.owner)
    assert codes.count(401) == attempts.ACCOUNT_AND_ADDRESS.burst
    assert codes[-1] == 429


@pytest.mark.parametrize("redis_is_there", [True, False])
def test_bucket_gives_back_what_was_taken_and_no_more(redis_is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not redis_is_there:
        monkeypatch.setattr(actionlimits, "_away_until", float("inf"))
    bucket, key = actionlimits.Bucket("test-back", burst=3, interval=1000), secrets.token_hex(4)
    for _ in range(5):
        actionlimits.refund(bucket, key)
    assert [actionlimits.wait_for(bucket, key) == 0 for _ in range(4)] == [True, True, True, False]
    actionlimits.refund(bucket, key)
    assert [actionlimits.wait_for(bucket, key) == 0 for _ in range(2)] == [True, False]


def test_addresses_of_one_network_are_one() -> None:
    assert attempts.network_of(request_from("2001:db8::1")) == attempts.network_of(request_from("2001:db8::ffff:1"))
    assert attempts.network_of(request_from("2001:db8::1")) != attempts.network_of(request_from("2001:db8:0:1::1"))
    assert attempts.network_of(request_from("::ffff:192.0.2.1")) == attempts.network_of(request_from("192.0.2.1"))
    assert attempts.network_of(request_from("192.0.2.1")) != attempts.network_of(request_from("192.0.2.2"))


# Who is believed about addresses.

FORGERIES = {
    "X-Forwarded-For": "{0}",
    "X-Forwarded-For, many": "{0}, {0}, {0}",
    "X-Forwarded-For, long": "{0}," + "x" * 8000,
    "Forwarded": "for={0};proto=https",
    "X-Real-IP": "{0}",
    "X-Client-IP": "{0}",
    "True-Client-IP": "{0}",
    "CF-Connecting-IP": "{0}",
    "X-Cluster-Client-IP": "{0}",
    "X-Forwarded": "for={0}",
    "X-Remote-Addr": "{0}",
    "Remote-Addr": "{0}",
    "Via": "1.1 {0}",
}
PEERS = ("127.0.0.1", "::1", "192.0.2.7", "2001:db8::7")


@pytest.mark.parametrize(("header", "peer"), list(itertools.product(FORGERIES, PEERS)))
def test_forged_header_is_not_believed(header: str, peer: str, acme: House) -> None:
    """HDR-11: neither in the audit nor in what is counted, from this host neither."""
    forged = FORGERIES[header].format("203.0.113.66")
    client = Client(REMOTE_ADDR=peer, headers={header.partition(",")[0]: forged})
    client.force_login(acme.viewer)
    assert client.get("/users/").status_code == 403
    entry = AuditEntry.objects.filter(action=Action.ACCESS_DENIED).latest("sequence")
    assert entry.ip_address == peer
    if header in {"X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"}:
        assert client.get("/metrics").status_code == 404, "a proxy on this host speaks for strangers"


@pytest.mark.parametrize(
    ("said", "sender"),
    [
        ("198.51.100.1", "198.51.100.1"),
        ("203.0.113.66, 198.51.100.1", "198.51.100.1"),
        ("203.0.113.66, 198.51.100.1, 10.1.2.3", "198.51.100.1"),
        ("198.51.100.1, 10.1.2.3,10.9.9.9", "198.51.100.1"),
        ("10.1.2.3", "10.1.2.3"),
        ("", "10.0.0.1"),
        ("junk", "10.0.0.1"),
        ("junk, 10.1.2.3", "10.1.2.3"),
        ("198.51.100.1, junk", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:198.51.100.1", "198.51.100.1"),
    ],
)
def test_trusted_proxy_is_believed_up_to_the_first_stranger(said: str, sender: str) -> None:
    request = RequestFactory().get("/", REMOTE_ADDR="10.0.0.1", headers={"X-Forwarded-For": said})
    proxies.believe(request, proxies.parse(["10.0.0.0/8"]))
    assert request.META["REMOTE_ADDR"] == sender


@pytest.fixture
def _behind_a_proxy(settings: Any) -> Iterator[None]:
    settings.TRUSTED_PROXIES = proxies.parse(["10.0.0.1"])
    yield


@pytest.mark.usefixtures("_behind_a_proxy")
def test_scheme_is_the_trusted_proxys_word_and_nobody_elses(settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    for peer, said, code in (
        ("10.0.0.1", "https", 200),
        ("10.0.0.1", "http, https", 200),
        ("10.0.0.1", "https, http", 301),
        ("10.0.0.2", "https", 301),
        ("127.0.0.1", "https", 301),
    ):
        answer = Client(REMOTE_ADDR=peer).get("/login/", headers={"X-Forwarded-Proto": said})
        assert answer.status_code == code, (peer, said)


@pytest.mark.usefixtures("_behind_a_proxy")
def test_trusted_proxy_that_says_nothing_is_nobody_of_this_host(settings: Any) -> None:
    settings.TRUSTED_PROXIES = proxies.parse(["127.0.0.1"])
    assert Client(REMOTE_ADDR="127.0.0.1").get("/metrics").status_code == 404


@given(
    hops=st.lists(st.ip_addresses().map(str) | st.sampled_from(["10.0.0.9", "", "unknown", "_hidden", "[::1]:80"])),
    peer=st.sampled_from(["10.0.0.1", "192.0.2.1", "::1"]),
)
def test_address_is_always_one_that_somebody_trusted_has_seen(hops: list[str], peer: str) -> None:
    """HDR-11: whatever clients write before it, the result is the peer or the right-most untrusted hop."""
    trusted = proxies.parse(["10.0.0.0/24"])
    results = set()
    for forged in ([], ["127.0.0.1"], ["203.0.113.66", "10.0.0.2"]):
        chain = [*forged, "198.51.100.9", *hops]
        request = RequestFactory().get("/", REMOTE_ADDR=peer, headers={"X-Forwarded-For": ",".join(chain)})
        proxies.believe(request, trusted)
        results.add(request.META["REMOTE_ADDR"])
    assert len(results) == 1
    assert peer == "10.0.0.1" or results == {peer}


@pytest.mark.parametrize("wrong", ["0.0.0.0/0", "::/0", "*", "proxy.example", "10.0.0.1/8"])
def test_trusting_everybody_stops_the_start(wrong: str) -> None:
    with pytest.raises((ValueError, ImproperlyConfigured)):
        proxies.parse([wrong])


# What is refused leaves a trace, and a flood of it no flood.


def refused(client: Client, code: int) -> int:
    if code == 401:
        return client.get("/api/v1/workspaces/", headers={"Authorization": "Bearer nonsense"}).status_code
    if code == 403:
        return client.get("/users/").status_code
    raise AssertionError(code)


def denied() -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(outcome="denied").order_by("sequence"))


@pytest.mark.parametrize("path", ["page", "form", "dialog", "rest", "token", "session", "csrf", "sign-in", "limit"])
def test_every_refusal_is_an_event(path: str, acme: House) -> None:
    """GW13: 401, 403 and 429 of portal and REST, with who, from where and what, whatever the page's own status."""
    client, name, code, target = stranger(), acme.viewer.email, 403, ""
    address = client.defaults["REMOTE_ADDR"]
    viewer = signed_in(acme.viewer, REMOTE_ADDR=address)
    deletion = f"/workspaces/{acme.workspace.pk}/delete/"
    nonsense = {"Authorization": "Bearer nonsense"}
    if path == "page":
        answer, target = viewer.get("/users/"), "GET /users/"
    elif path == "form":
        answer, target = viewer.post(deletion, {"name": acme.workspace.name}), f"POST {deletion}"
    elif path == "dialog":
        headers = {"HX-Request": "true"}
        answer, target = viewer.post(deletion, {"name": acme.workspace.name}, headers=headers), f"POST {deletion}"
    elif path == "rest":
        answer, target = viewer.get("/api/v1/clusters/"), "GET /api/v1/clusters/"
    elif path == "token":
        answer, target = client.get("/api/v1/workspaces/", headers=nonsense), "GET /api/v1/workspaces/"
        name, code = "", 401
    elif path == "session":
        answer, target, name, code = client.get("/api/v1/workspaces/"), "GET /api/v1/workspaces/", "", 401
    elif path == "csrf":
        strict = signed_in(acme.owner, enforce_csrf_checks=True, REMOTE_ADDR=address)
        answer, target, name = strict.post("/logout/"), "POST /logout/", acme.owner.email
    elif path == "sign-in":
        answer = client.post("/login/", {"username": "eve@acme.test", "password": "x"})
        target, name, code = "session", "eve@acme.test", 401
    else:
        the_address(acme.owner, address)
        answer = client.post("/login/", {"username": "eve@acme.test", "password": "x"})
        target, name, code = "POST /login/", "", 429
    assert answer.status_code in ({code} if path not in {"form", "dialog"} else {422, 200})
    (entry,) = denied()
    assert (entry.actor, entry.detail["code"], entry.target) == (name, code, target)
    assert attempts.network_of(request_from(str(entry.ip_address))) == attempts.network_of(request_from(address))
    assert entry.request_id == answer.headers["X-Request-ID"]


def test_flood_of_one_sender_is_a_few_events_and_a_count(django_assert_num_queries: Any) -> None:
    """An attacker costs the chain nothing: no event, no lock, not one query more than the refusal itself."""
    refusals.counts_record()
    before = AuditEntry.objects.count()
    client = stranger()
    many = refusals.SENDER.burst + 30
    for _ in range(many):
        assert refused(client, 401) == 401
    assert AuditEntry.objects.count() - before == refusals.SENDER.burst
    with django_assert_num_queries(0):
        refused(client, 401)
    assert refusals.counts_record() == 1
    counted = denied()[-1]
    assert (counted.actor, counted.detail) == ("", {"code": 401, "count": many + 1 - refusals.SENDER.burst})
    assert refusals.counts_record() == 0


def test_flood_from_many_addresses_is_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "STRANGERS", actionlimits.Bucket(secrets.token_hex(4), burst=7, interval=1000))
    refusals.counts_record()
    before = AuditEntry.objects.count()
    for _ in range(20):
        refused(stranger(), 401)
    assert AuditEntry.objects.count() - before == 7
    refusals.counts_record()
    assert denied()[-1].detail == {"code": 401, "count": 13}


def test_counts_are_kept_apart_for_a_bounded_number_of_accounts(acme: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "KINDS", 3)
    monkeypatch.setattr(refusals, "SENDER", actionlimits.Bucket(secrets.token_hex(4), burst=1, interval=1000))
    refusals.counts_record()
    people = [factories.member(acme.tenant, "viewer") for _ in range(6)]
    for person in people:
        client = signed_in(person)
        refused(client, 403)
        refused(client, 403)
    before = AuditEntry.objects.count()
    assert refusals.counts_record() == 4
    assert AuditEntry.objects.count() - before == 4
    last = denied()[-4:]
    assert {entry.actor for entry in last} == {*(person.email for person in people[:3]), ""}
    assert sum(entry.detail["count"] for entry in last) == 6


def test_refusal_stays_one_without_redis(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actionlimits, "_away_until", float("inf"))
    monkeypatch.setattr(refusals, "SENDER", actionlimits.Bucket(secrets.token_hex(4), burst=1, interval=1000))
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    client = stranger()
    assert [refused(client, 401) for _ in range(3)] == [401] * 3
