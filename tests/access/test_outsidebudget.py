"""A request waits for outside services 3 s in all, not for each question; and nobody waits for one that is away."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from aiohttp import web

from access import outsidebudget
from access.authentication import oidc
from access.authentication.base import Refused
from access.authentication.impersonation import impersonate
from access.authentication.keystone import KeystoneAuthenticator
from access.authentication.keystoneclient import Domains, Keystone
from access.authentication.oidc import OidcAuthenticator, OidcIssuer
from access.authorization.modes.webhook import WebhookAuthorizer
from access.httpclient import FAILURES_MAX, HttpClient, Webhook
from access.outsidebudget import Unreachable, begin_budget, within_budget
from access.ttlcache import TTLCache
from kube.authentication.identity import Principal
from kube.authentication.oidcclaims import ClaimRules
from kube.requests.requestinfo import parse, resolve
from kube.requests.status import Forbidden
from tests.access.authentication.outside import bearer, providing, serving, signed, trusting

NOW = 1_800_000_000


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outsidebudget, "BUDGET_SECONDS", 0.5)


async def test_all_questions_of_a_request_share_one_budget() -> None:
    """Impersonation with groups asks about each of them: counted in questions (AZ-20)."""
    asked = 0

    async def slow(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.2)
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": {"allowed": True}}
        return web.json_response(review)

    caller = Principal(name="ann", tenant="t1", authenticator="test")
    headers = [(b"Impersonate-User", b"ben"), *((b"Impersonate-Group", b"g%d" % number) for number in range(12))]

    async with serving(slow) as url:
        authorizer = WebhookAuthorizer(Webhook(f"{url}/", HttpClient(tls=trusting())))

        async def request() -> None:
            begin_budget()
            await impersonate(
                caller,
                headers,
                lambda tenant: resolve(parse("GET", b"/api/v1/pods"), tenant),
                authorizer.authorize,
            )

        with pytest.raises(Forbidden):
            await asyncio.create_task(request())
        assert asked <= 3
        # What was answered is known: the next request has time for more.
        before = asked
        async with asyncio.timeout(300):
            while asked == before:
                with pytest.raises(Forbidden):
                    await asyncio.create_task(request())
        assert asked <= before + 4
        await authorizer.close()


async def test_who_has_no_time_left_ends_the_question_for_nobody_else() -> None:
    cache: TTLCache[str] = TTLCache(success=10, failure=10)
    go_on, asked = asyncio.Event(), []

    async def question() -> str:
        asked.append(True)
        await go_on.wait()
        return "yes"

    async def request() -> str | None:
        begin_budget()
        return await cache.ask(b"key", 0, question)

    async def tired() -> None:
        begin_budget()
        with pytest.raises(Unreachable):
            await within_budget(asyncio.sleep(60))
        with pytest.raises(Unreachable):
            await cache.ask(b"key", 0, question)

    await asyncio.create_task(tired())
    patient = asyncio.create_task(request())
    await asyncio.sleep(0)
    go_on.set()
    assert await patient == "yes"
    assert len(asked) == 1


async def test_a_time_out_of_the_answer_itself_is_not_the_requests() -> None:
    async def fails() -> None:
        raise TimeoutError

    begin_budget()
    with pytest.raises(TimeoutError):
        await within_budget(fails())


@pytest.mark.parametrize("status", [500, 503, 0])
async def test_a_keystone_that_fails_is_not_asked_by_everybody(status: int) -> None:
    """As a webhook: after ``FAILURES_MAX`` failures it rests; one that hangs rests at once."""
    asked = 0

    async def failing(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        if not status:
            await asyncio.sleep(30)
        return web.Response(status=status)

    async with serving(failing) as url:
        keystone = Keystone(url, HttpClient(tls=trusting()), budget=0.3)
        authenticator = KeystoneAuthenticator(keystone, Domains({}))
        for number in range(20):
            with pytest.raises(Refused):
                await authenticator.authenticate(bearer(f"token-{number}"), now=NOW)
        assert asked <= (FAILURES_MAX if status else 1)
        await keystone.close()


async def test_a_provider_that_hangs_leaves_the_keys_that_are_known() -> None:
    """AN8: requests go on with them when they have no more time, and one question is asked."""
    async with providing() as provider:
        rules = ClaimRules(issuer=provider.url, username_claim="sub", username_prefix="-", tenant_claim="tenant")
        issuer = OidcIssuer(rules=replace(rules), audiences=("us",))
        authenticator = OidcAuthenticator(issuer, HttpClient(tls=trusting()))
        claims = {"iss": provider.url, "aud": "us", "sub": "u", "tenant": "t1", "iat": NOW, "exp": NOW + 10_000}
        token = bearer(signed(claims, kid="a"))
        assert await authenticator.authenticate(token, now=NOW) is not None, "with all the time that it takes"
        asked, provider.hangs = provider.asked, True
        for number in range(5):
            begin_budget()
            assert await authenticator.authenticate(token, now=NOW + oidc.FRESH_SECONDS + 1 + number / 10) is not None
        assert provider.asked == asked + 1
        await authenticator.close()
