"""Tokens that a webhook judges (AN7), asked over real HTTPS."""

import asyncio
import json

import pytest
import trustme
import yaml
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from access.authentication.base import Refused
from access.authentication.webhook import WebhookAuthenticator, principal_of_user
from access.httpclient import webhook_of_file
from access.reloading import UnusableFile
from kube.authentication.identity import AUTHENTICATOR_EXTRA, TENANT_EXTRA
from tests.access.authentication.outside import AUTHORITY, OTHERS, OURS, US, bearer, serving

BOB = {"username": "bob", "uid": "7", "groups": ["dev"], "extra": {TENANT_EXTRA: ["t1"], "scopes": ["a", "b"]}}
YES = {"authenticated": True, "user": BOB}
REVIEW = {"kind": "TokenReview", "status": YES}


class Reviewer:
    """A webhook that knows some tokens, and remembers what it was asked."""

    def __init__(self):
        self.users = {"good": BOB}
        self.reviews = []
        self.authorization = []
        self.failures = 0
        self.status = {}
        self.answer = None

    async def handle(self, request):
        body = await request.json()
        self.reviews.append(body)
        self.authorization.append(request.headers.get("Authorization"))
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            return web.Response(status=503)
        if self.answer is not None:
            return self.answer()
        user = self.users.get(body["spec"]["token"])
        status = {"authenticated": True, "user": user} if user else {"authenticated": False}
        return web.json_response(
            {"apiVersion": body["apiVersion"], "kind": "TokenReview", "status": {**status, **self.status}}
        )


def config(path, url, **user):
    cluster = {"server": url, "certificate-authority-data": _b64(AUTHORITY.cert_pem.bytes())}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "hook", "cluster": cluster}],
                "users": [{"name": "us", "user": user}],
                "contexts": [{"name": "c", "context": {"cluster": "hook", "user": "us"}}],
                "current-context": "c",
            }
        )
    )
    return path


def _b64(data):
    import base64

    return base64.b64encode(data).decode()


@pytest.fixture
async def reviewer():
    return Reviewer()


@pytest.fixture
async def make(reviewer, tmp_path):
    made = []
    async with serving(reviewer.handle) as url:

        def make(**options):
            hook = webhook_of_file(config(tmp_path / "hook.yaml", f"{url}/review", token="ours"))
            authenticator = WebhookAuthenticator(hook, **{"pauses": (0.0, 0.0, 0.0, 0.0), **options})
            made.append(authenticator)
            return authenticator

        yield make
        for authenticator in made:
            await authenticator.close()


async def test_a_user_of_the_webhook_has_its_tenant_from_extra(reviewer, make):
    """AN7."""
    principal = await make().authenticate(bearer("good"), now=0)
    assert (principal.name, principal.uid, principal.tenant) == ("bob", "7", "t1")
    assert principal.groups == ("dev", "system:authenticated")
    assert principal.extra == {"scopes": ("a", "b")}
    assert principal.user_info()["extra"] == {
        TENANT_EXTRA: ["t1"],
        AUTHENTICATOR_EXTRA: ["webhook"],
        "scopes": ["a", "b"],
    }
    assert reviewer.reviews[0]["apiVersion"] == "authentication.k8s.io/v1"
    assert reviewer.reviews[0]["spec"] == {"token": "good"}
    assert reviewer.authorization == ["Bearer ours"]


async def test_the_older_version_is_spoken_where_configured(reviewer, make):
    """AN7."""
    assert await make(version="v1beta1").authenticate(bearer("good"), now=0) is not None
    assert reviewer.reviews[0]["apiVersion"] == "authentication.k8s.io/v1beta1"


async def test_answers_are_remembered_as_long_as_configured(reviewer, make):
    """AN7: success and failure have times of their own."""
    authenticator = make(success_ttl=60.0, failure_ttl=10.0)
    for now in (0, 30, 59.9):
        assert await authenticator.authenticate(bearer("good"), now=now) is not None
        assert await authenticator.authenticate(bearer("bad"), now=now / 10) is None
    assert len(reviewer.reviews) == 2
    reviewer.users = {"bad": BOB}
    assert await authenticator.authenticate(bearer("good"), now=60) is None
    assert await authenticator.authenticate(bearer("bad"), now=10) is not None


async def test_equal_looking_tokens_share_no_answer(reviewer, make):
    """KEY-05."""
    authenticator = make()
    assert await authenticator.authenticate(bearer("good"), now=0) is not None
    for other in ("Good", "good\u00a0", "goo", "good.", "x" * 40_000):
        assert await authenticator.authenticate(bearer(other), now=0) is None


async def test_many_requests_with_one_token_ask_once(reviewer, make):
    """AN7: single flight."""
    authenticator = make()
    known = await asyncio.gather(*(authenticator.authenticate(bearer("good"), now=0) for _ in range(50)))
    assert {principal.name for principal in known} == {"bob"}
    assert len(reviewer.reviews) == 1


async def test_a_caller_that_goes_away_ends_the_question_for_nobody_else(reviewer, make):
    """AN7."""
    authenticator = make()
    first = asyncio.ensure_future(authenticator.authenticate(bearer("good"), now=0))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(authenticator.authenticate(bearer("good"), now=0))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).name == "bob"
    assert len(reviewer.reviews) == 1


async def test_wrong_tokens_drive_out_no_right_answer_and_memory_is_bounded(reviewer, make):
    """AN7: a bound on size."""
    authenticator = make(capacity=5)
    await authenticator.authenticate(bearer("good"), now=0)
    for number in range(20):
        await authenticator.authenticate(bearer(f"bad{number}"), now=0)
    asked = len(reviewer.reviews)
    assert await authenticator.authenticate(bearer("good"), now=1) is not None
    assert len(reviewer.reviews) == asked
    assert len(authenticator._answers) == 6


async def test_a_webhook_that_stumbles_is_asked_again(reviewer, make):
    """AN7: five attempts, as kube-apiserver."""
    reviewer.failures = 4
    assert await make().authenticate(bearer("good"), now=0) is not None
    assert len(reviewer.reviews) == 5


async def test_a_webhook_that_is_away_refuses_and_is_not_remembered(reviewer, make):
    """AN9: an authenticator that fails says so."""
    authenticator = make()
    reviewer.failures = 5
    with pytest.raises(Refused, match="503"):
        await authenticator.authenticate(bearer("good"), now=0)
    assert await authenticator.authenticate(bearer("good"), now=0) is not None


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(text="<html>"),
        lambda: web.json_response([]),
        lambda: web.json_response({}),
        lambda: web.json_response({"status": []}),
        lambda: web.json_response({"status": YES}),
        lambda: web.json_response({"apiVersion": "authentication.k8s.io/v1", "kind": "Status", "status": YES}),
        lambda: web.json_response({"apiVersion": "authentication.k8s.io/v1beta1", **REVIEW}),
        lambda: web.Response(status=302, headers={"Location": "https://elsewhere.example/"}),
        lambda: web.Response(status=403),
        lambda: web.Response(body=b"x" * 3_000_000),
        lambda: web.Response(body=b"[" * 200_000),
        lambda: web.Response(body=b"{}", headers={"Content-Encoding": "gzip"}),
    ],
)
async def test_an_answer_that_is_no_review_refuses(reviewer, make, answer):
    """KEY, HDR-31."""
    reviewer.answer = answer
    with pytest.raises(Refused) as refusal:
        await make().authenticate(bearer("good"), now=0)
    assert "127.0.0.1" not in str(refusal.value)


@pytest.mark.parametrize(
    ("status", "known"),
    [
        ({"authenticated": False}, False),
        ({"authenticated": "true"}, False),
        ({"authenticated": 1}, False),
        ({"audiences": ["elsewhere"]}, False),
        ({"audiences": "tenantry"}, False),
        ({"audiences": [1]}, False),
        ({"audiences": ["elsewhere", "tenantry"]}, True),
        ({"audiences": []}, True),
    ],
)
async def test_only_a_yes_for_our_audience_counts(reviewer, make, status, known):
    """KEY-07, CVE-2023-48312."""
    reviewer.status = status
    principal = await make(audiences=("tenantry",)).authenticate(bearer("good"), now=0)
    assert (principal is not None) is known
    assert reviewer.reviews[0]["spec"]["audiences"] == ["tenantry"]


WRONG_USERS = [
    {},
    {"username": ""},
    {"username": 1},
    {"username": "system:admin"},
    {"username": "system:serviceaccount:a:b"},
    {"username": "apis.kcp.io:binding:bob"},
    {"username": "bob\nsystem:masters"},
    {"username": "x" * 2000},
    {"username": "bob", "groups": ["system:masters"]},
    {"username": "bob", "groups": "dev"},
    {"username": "bob", "groups": [["dev"]]},
    {"username": "bob", "groups": ["g"] * 1000},
    {"username": "bob", "uid": 1},
    {"username": "bob", "extra": []},
    {"username": "bob", "extra": {"a": "b"}},
    {"username": "bob", "extra": {str(number): [] for number in range(100)}},
    *(
        {"username": "bob", "extra": {TENANT_EXTRA: tenant}}
        for tenant in ("t1", [], ["t1", "t2"], [""], ["system"], ["all"], ["*"], ["a/b"], ["a:b"], [" t1"], [1])
    ),
]


@pytest.mark.parametrize("user", WRONG_USERS, ids=lambda user: json.dumps(user)[:60])
async def test_a_user_that_nobody_outside_may_name_is_not_known(reviewer, make, user):
    """AN7: reserved names, and a tenant that is none."""
    reviewer.users = {"good": user}
    assert await make().authenticate(bearer("good"), now=0) is None


async def test_a_trusted_webhook_names_operators(reviewer, make):
    """AN7: only where configured."""
    reviewer.users = {
        "good": {"username": "system:admin", "groups": ["system:masters"], "extra": {TENANT_EXTRA: ["system"]}}
    }
    assert await make().authenticate(bearer("good"), now=0) is None
    principal = await make(trusted=True).authenticate(bearer("good"), now=0)
    assert (principal.name, principal.tenant) == ("system:admin", "system")


async def test_a_user_without_tenant_belongs_to_none(reviewer, make):
    """TS7: never to the system."""
    reviewer.users = {"good": {"username": "t2:eve"}}
    principal = await make().authenticate(bearer("good"), now=0)
    assert principal.tenant is None
    assert not principal.is_system


async def test_our_own_keys_of_extra_are_not_taken(reviewer, make):
    """KEY-11, HDR-05."""
    reviewer.users = {
        "good": {
            "username": "bob",
            "extra": {
                "authentication.kubernetes.io/credential-id": ["JTI=1"],
                "multi-tenancy.k8s.io/x": ["y"],
                "a": [],
            },
        }
    }
    assert (await make().authenticate(bearer("good"), now=0)).extra == {"a": ()}


@pytest.mark.parametrize("token", OURS.values(), ids=OURS)
async def test_a_token_of_our_own_issuer_is_never_sent_out(reviewer, make, token):
    """KEY-08: in whatever form it comes."""
    assert await make(own_issuers=frozenset({US})).authenticate(bearer(token), now=0) is None
    assert reviewer.reviews == []


@pytest.mark.parametrize("token", OTHERS.values(), ids=OTHERS)
async def test_what_may_be_a_token_of_the_webhooks_is_sent(reviewer, make, token):
    """AN7."""
    reviewer.users = {token: BOB}
    assert await make(own_issuers=frozenset({US})).authenticate(bearer(token), now=0) is not None


async def test_we_show_our_certificate_where_the_file_has_one(tmp_path):
    """AN7: client certificates, from data and from files beside the configuration."""
    ours = trustme.CA()
    pair = ours.issue_cert("tenantry")
    (tmp_path / "client.crt").write_bytes(pair.cert_chain_pems[0].bytes())
    (tmp_path / "client.key").write_bytes(pair.private_key_pem.bytes())
    key = _b64(pair.private_key_pem.bytes())
    certificate = _b64(pair.cert_chain_pems[0].bytes())
    async with serving(Reviewer().handle, client_authority=ours) as url:
        for user in (
            {"client-certificate-data": certificate, "client-key-data": key},
            {"client-certificate": "client.crt", "client-key": "client.key"},
        ):
            authenticator = WebhookAuthenticator(webhook_of_file(config(tmp_path / "hook", url, **user)), pauses=())
            assert await authenticator.authenticate(bearer("good"), now=0) is not None
            await authenticator.close()
        anonymous = WebhookAuthenticator(webhook_of_file(config(tmp_path / "hook", url)), pauses=())
        with pytest.raises(Refused):
            await anonymous.authenticate(bearer("good"), now=0)
        await anonymous.close()


async def test_a_server_of_another_authority_gets_no_token(reviewer, tmp_path):
    """AN7: TLS is always verified."""
    async with serving(reviewer.handle) as url:
        path = config(tmp_path / "hook", url)
        path.write_text(path.read_text().replace(_b64(AUTHORITY.cert_pem.bytes()), _b64(trustme.CA().cert_pem.bytes())))
        authenticator = WebhookAuthenticator(webhook_of_file(path), pauses=())
        with pytest.raises(Refused, match="no answer"):
            await authenticator.authenticate(bearer("good"), now=0)
        await authenticator.close()
    assert reviewer.reviews == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"server": "http://hook.example"}, "must start with https"),
        ({"server": "https://user:pw@hook.example"}, "not the URL"),
        ({"server": ""}, "not the URL"),
        ({"server": "https://[::1"}, "not a URL"),
        ({"insecure-skip-tls-verify": True}, "insecure-skip-tls-verify is not supported"),
        ({"proxy-url": "http://proxy"}, "proxy-url is not supported"),
        ({"certificate-authority-data": "!"}, "is not base64"),
        ({"certificate-authority-data": "eA=="}, "certificates or key cannot be used"),
        ({"certificate-authority": "absent.crt", "certificate-authority-data": ""}, "No such file"),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_start(tmp_path, change, reason):
    """AN7."""
    path = config(tmp_path / "hook", "https://hook.example")
    content = yaml.safe_load(path.read_text())
    content["clusters"][0]["cluster"].update(change)
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(UnusableFile, match=reason):
        webhook_of_file(path)


@pytest.mark.parametrize("user", [{"exec": {"command": "sh"}}, {"auth-provider": {"name": "x"}}, {"client-key": "k"}])
def test_a_user_that_runs_programs_stops_the_start(tmp_path, user):
    """AN7."""
    with pytest.raises(UnusableFile):
        webhook_of_file(config(tmp_path / "hook", "https://hook.example", **user))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["t1", "system", "all", "system:x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["username", "uid", "groups", "extra", TENANT_EXTRA, "a"]), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "username": json_values,
            "uid": json_values,
            "groups": json_values,
            "extra": st.dictionaries(st.sampled_from([TENANT_EXTRA, "a"]), json_values, max_size=2),
        },
    )
)
def test_any_user_info_is_read_or_refused_and_gives_no_tenant_but_its_own(user):
    """No claim set yields a tenant that the rules don't give it."""
    try:
        principal = principal_of_user(user, "webhook", trusted=False)
    except ValueError:
        return
    said = (user.get("extra") or {}).get(TENANT_EXTRA)
    assert ([principal.tenant] == said) if said is not None else (principal.tenant is None)
    assert principal.tenant not in ("system", "all", "", "*")
    assert not principal.name.startswith("system:")
