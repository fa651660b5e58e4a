"""The webhook authorizer: what it asks, what it remembers and for how long, and what silence comes to (AZ5, AZ-20)."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from access.authorization.modes.webhook import WebhookAuthorizer
from access.authorization.options import AuthorizationOptions, add_flags
from access.httpclient import REST_SECONDS, HttpClient, Webhook
from kube.authentication.identity import TENANT_EXTRA, Principal
from kube.authorization.decisions import Verdict
from kube.requests.requestinfo import RequestInfo, parse, resolve
from tests.access.authentication.outside import serving, trusting


class Oracle:
    """A webhook that says what a test makes it say, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer: Callable[[], web.Response] = lambda: said(allowed=True)
        self.pause = 0.0
        self.now = 1000.0

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((await request.json())["spec"])
        await asyncio.sleep(self.pause)
        return self.answer()


def said(*, version: str = "authorization.k8s.io/v1", kind: str = "SubjectAccessReview", **status: Any) -> web.Response:
    return web.json_response({"apiVersion": version, "kind": kind, "status": status})


Make = Callable[..., WebhookAuthorizer]


@pytest.fixture
def oracle() -> Oracle:
    return Oracle()


@pytest.fixture
async def make(oracle: Oracle) -> AsyncIterator[Make]:
    made: list[WebhookAuthorizer] = []
    async with serving(oracle.handle) as url:

        def make(*, patience: float = 300.0, **options: Any) -> WebhookAuthorizer:
            hook = Webhook(f"{url}/", HttpClient(tls=trusting()), budget=patience, clock=lambda: oracle.now)
            made.append(WebhookAuthorizer(hook, clock=lambda: oracle.now, **options))
            return made[-1]

        yield make
        for authorizer in made:
            await authorizer.close()


def person(name: str = "ann", tenant: str = "t1") -> Principal:
    return Principal(name=name, tenant=tenant, groups=("dev",), authenticator="test")


def getting(name: str = "p", tenant: str = "t1") -> RequestInfo:
    return resolve(parse("GET", f"/api/v1/namespaces/a/pods/{name}/log".encode()), tenant)


async def test_the_question_names_the_user_its_tenant_and_where(oracle: Oracle, make: Make) -> None:
    decision = await make().authorize(person(), getting())
    assert decision.verdict is Verdict.ALLOW
    (spec,) = oracle.asked
    assert (spec["user"], spec["groups"]) == ("ann", ["dev"])
    assert spec["extra"] == {TENANT_EXTRA: ["t1"], "multi-tenancy.k8s.io/cluster": ["root:t1"]}
    assert spec["resourceAttributes"] == {
        "verb": "get",
        "version": "v1",
        "resource": "pods",
        "subresource": "log",
        "namespace": "a",
        "name": "p",
    }


FIELDS = {"fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]}}
LABELS = {"labelSelector": {"requirements": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}}


@pytest.mark.parametrize(
    ("method", "path", "query", "selectors"),
    [
        ("GET", "/api/v1/pods", "fieldSelector=spec.nodeName%3Dn1&labelSelector=team+in+(b,a)", {**FIELDS, **LABELS}),
        ("GET", "/api/v1/pods", "watch=1&labelSelector=team+in+(b,a)&labelSelector=x", LABELS),
        ("GET", "/api/v1/watch/pods", "fieldSelector=spec.nodeName%3Dn1", FIELDS),
        ("DELETE", "/api/v1/namespaces/a/pods", "fieldSelector=spec.nodeName%3Dn1", FIELDS),
        # What heeds no selector is asked about whole, and so is what cannot be read, which is refused later.
        ("GET", "/api/v1/namespaces/a/pods/p", "fieldSelector=spec.nodeName%3Dn1&labelSelector=team", {}),
        ("DELETE", "/api/v1/namespaces/a/pods/p", "labelSelector=team", {}),
        ("POST", "/api/v1/namespaces/a/pods", "labelSelector=team", {}),
        ("GET", "/api/v1/pods", "fieldSelector=%26%26&labelSelector=%26%26", {}),
        ("GET", "/api/v1/pods", "fieldSelector=&labelSelector=", {}),
        ("GET", "/version", "labelSelector=team", {}),
        ("GET", "/services/apiexport/root:t1/e/clusters/*/api/v1/configmaps", "labelSelector=team", {}),
    ],
)
async def test_the_question_is_limited_as_the_request_is(
    oracle: Oracle, make: Make, method: str, path: str, query: str, selectors: dict[str, Any]
) -> None:
    authorizer = make()
    for asked in (query, ""):
        await authorizer.authorize(person(), resolve(parse(method, path.encode(), asked.encode()), "t1"))
    # Another selector is another question: what was said of a part is no answer about the whole.
    told = [
        {name: part for name, part in spec.get("resourceAttributes", {}).items() if name.endswith("Selector")}
        for spec in oracle.asked
    ]
    assert told[0] == selectors
    assert told[1:] == ([{}] if selectors or "watch" in query else [])


async def test_allows_and_other_answers_are_remembered_each_for_their_own_time(oracle: Oracle, make: Make) -> None:
    authorizer = make(authorized_ttl=20, unauthorized_ttl=5)
    for status, seconds in (({"allowed": True}, 20), ({"allowed": False}, 5), ({"allowed": False, "denied": True}, 5)):
        oracle.answer = lambda status=status: said(**status)  # type: ignore[misc]
        who = person(f"user-{seconds}-{len(status)}")
        before = len(oracle.asked)
        first = await authorizer.authorize(who, getting())
        oracle.answer = lambda: said(allowed=True)
        oracle.now += seconds - 0.1
        assert await authorizer.authorize(who, getting()) == first
        assert len(oracle.asked) == before + 1
        oracle.now += 0.2
        assert (await authorizer.authorize(who, getting())).verdict is Verdict.ALLOW
        assert len(oracle.asked) == before + 2


async def test_no_answer_serves_another_question(oracle: Oracle, make: Make) -> None:
    authorizer = make()
    questions = [
        (person(), getting()),
        (person(), getting("q")),
        (person(tenant="t2"), getting(tenant="t2")),
        (person("ben"), getting()),
    ]
    for who, request in questions * 2:
        await authorizer.authorize(who, request)
    assert len(oracle.asked) == len(questions)


async def test_refusals_drive_out_no_allow_and_memory_is_bounded(oracle: Oracle, make: Make) -> None:
    authorizer = make(capacity=8)
    await authorizer.authorize(person(), getting())
    oracle.answer = lambda: said(allowed=False)
    for number in range(20):
        await authorizer.authorize(person(f"u{number}"), getting())
    assert len(authorizer._answers) <= 9
    assert (await authorizer.authorize(person(), getting())).verdict is Verdict.ALLOW
    assert len(oracle.asked) == 21


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(status=500),
        lambda: web.Response(status=403),
        lambda: web.Response(text="<html>yes</html>", content_type="text/html"),
        lambda: web.json_response([]),
        lambda: web.json_response({}),
        lambda: said(allowed=0),
        lambda: web.json_response({"status": {"allowed": True}}),
        lambda: said(kind="SelfSubjectAccessReview", allowed=True),
        lambda: said(version="authorization.k8s.io/v1beta1", allowed=True),
        lambda: said(allowed="true"),
        lambda: said(allowed=1),
        lambda: said(allowed=True, denied="no"),
        lambda: web.Response(status=307, headers={"Location": "https://evil.test/"}),
    ],
)
@pytest.mark.parametrize("fails_open", [False, True])
async def test_what_is_no_answer_comes_to_the_failure_policy_and_is_not_remembered(
    oracle: Oracle, make: Make, answer: Callable[[], web.Response], fails_open: bool
) -> None:
    """A denial unless the operator chose otherwise; and never an ALLOW."""
    authorizer = make(fails_open=fails_open)
    oracle.answer = answer
    wanted = Verdict.NO_OPINION if fails_open else Verdict.DENY
    assert (await authorizer.authorize(person(), getting())).verdict is wanted
    oracle.answer = lambda: said(allowed=True)
    assert (await authorizer.authorize(person(), getting())).verdict is Verdict.ALLOW


def test_there_is_one_webhook_and_it_denies_unless_it_is_told_otherwise() -> None:
    """Where kube-apiserver has ``--authorization-config``, and by the flag for one webhook no opinion."""
    parser = ArgumentParser()
    add_flags(parser, AuthorizationOptions())
    given, unknown = parser.parse_known_args(["--authorization-config=x"])
    assert unknown == ["--authorization-config=x"]
    assert given.authorization_webhook_failure_policy == "Deny"


async def test_a_slow_webhook_holds_nobody_longer_than_its_patience(oracle: Oracle, make: Make) -> None:
    authorizer = make(patience=0.2)
    oracle.pause = 1000.0
    async with asyncio.timeout(300):
        assert (await authorizer.authorize(person(), getting())).verdict is Verdict.DENY


async def test_who_comes_after_one_that_waited_does_not_wait(oracle: Oracle, make: Make) -> None:
    """One question at a time tries a webhook that hangs or fails, until it answers again."""
    authorizer = make(patience=1.0)
    oracle.pause = 1000.0
    await authorizer.authorize(person(), getting())
    asked = len(oracle.asked)
    for number in range(20):
        assert (await authorizer.authorize(person(f"u{number}"), getting())).verdict is Verdict.DENY
    assert len(oracle.asked) == asked
    oracle.now += REST_SECONDS
    both = (authorizer.authorize(person("ben"), getting()), authorizer.authorize(person("cat"), getting()))
    assert {found.verdict for found in await asyncio.gather(*both)} == {Verdict.DENY}
    assert len(oracle.asked) == asked + 1
    oracle.pause, authorizer._webhook._budget = 0.0, 60.0
    oracle.now += REST_SECONDS
    for number in range(20):
        assert (await authorizer.authorize(person(f"v{number}"), getting())).allowed


async def test_a_question_that_is_refused_silences_the_webhook_for_nobody(oracle: Oracle, make: Make) -> None:
    authorizer = make()
    oracle.answer = lambda: web.Response(status=400)
    for number in range(20):
        assert not (await authorizer.authorize(person(f"u{number}"), getting())).allowed
    assert len(oracle.asked) == 20


@pytest.mark.parametrize(
    ("status", "verdict", "reason"),
    [
        ({}, Verdict.NO_OPINION, ""),
        ({"allowed": None, "denied": None}, Verdict.NO_OPINION, ""),
        ({"reason": "x"}, Verdict.NO_OPINION, "x"),
        ({"denied": True, "reason": "x"}, Verdict.DENY, "x"),
    ],
)
async def test_what_an_answer_does_not_say_is_no(
    oracle: Oracle, make: Make, status: dict[str, Any], verdict: Verdict, reason: str
) -> None:
    """As in Kubernetes, where a field that is left out is false; and it is remembered like any other answer."""
    authorizer = make()
    oracle.answer = lambda: said(**status)
    for _ in range(2):
        decision = await authorizer.authorize(person(), getting())
        assert (decision.verdict, "" if decision.aside else decision.reason) == (verdict, reason)
    assert len(oracle.asked) == 1


async def test_denied_beats_allowed(oracle: Oracle, make: Make) -> None:
    oracle.answer = lambda: said(allowed=True, denied=True, reason="no")
    decision = await make().authorize(person(), getting())
    assert (decision.verdict, decision.reason) == (Verdict.DENY, "no")
