"""From flags to the authenticators in order (AN9)."""

import asyncio
from argparse import ArgumentError, ArgumentParser

import pytest
import yaml

from access.authentication.base import Refused
from access.authentication.build import UnusableOptions, build_authenticators
from access.authentication.chain import AuthenticationChain
from access.authentication.options import AuthenticationOptions, add_flags
from kube.authentication.identity import Principal
from kube.requests.status import Unauthorized
from tests.access.authentication.outside import bearer


def parse(*flags):
    parser = ArgumentParser(exit_on_error=False)
    add_flags(parser)
    return AuthenticationOptions.of_flags(vars(parser.parse_args(flags)))


class Named:
    """An authenticator that answers as it is told."""

    def __init__(self, name, answer=None):
        self.name = name
        self.answer = answer

    async def authenticate(self, credentials, *, now):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def files(tmp_path):
    (tmp_path / "tokens.csv").write_text("s,alice,1,,,t1\n")
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://hook.example"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "current-context": "x",
    }
    (tmp_path / "hook.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


def test_the_order_is_as_documented(files):
    """AN9."""
    options = parse(
        f"--token-auth-file={files}/tokens.csv",
        f"--basic-auth-file={files}/tokens.csv",
        "--oidc-issuer-url=https://idp.example",
        "--oidc-client-id=tenantry",
        f"--authentication-token-webhook-config-file={files}/hook.yaml",
        "--keystone-url=https://keystone.example/v3/",
    )
    made = build_authenticators(
        options, certificates=Named("x509"), service_accounts=Named("serviceaccount"), anonymous=True
    )
    assert [authenticator.name for authenticator in made.authenticators] == [
        "x509",
        "token-file",
        "basic-file",
        "serviceaccount",
        "oidc",
        "webhook",
        "keystone",
        "anonymous",
    ]
    assert made.keystone is not None


def test_without_flags_nobody_from_outside_is_known():
    """AN11."""
    made = build_authenticators(AuthenticationOptions())
    assert made.authenticators == ()
    assert made.keystone is None
    assert parse() == AuthenticationOptions()


def test_flags_have_their_meanings():
    """Durations as Go writes them, pairs, lists."""
    options = parse(
        "--keystone-cache-ttl=1m30s",
        "--authentication-token-webhook-cache-ttl=500ms",
        "--oidc-leeway=30",
        "--keystone-domain-tenant=default=system",
        "--keystone-domain-tenant=abc=t1",
        "--oidc-required-claim=hd=example.com",
        "--oidc-signing-algs=RS256,ES256",
    )
    assert (options.keystone_cache_ttl, options.authentication_token_webhook_cache_ttl) == (90.0, 0.5)
    assert options.oidc_leeway == 30.0
    assert options.keystone_domain_tenant == (("default", "system"), ("abc", "t1"))
    assert options.oidc_required_claim == (("hd", "example.com"),)
    assert options.oidc_signing_algs == ("RS256", "ES256")
    for wrong in ("--keystone-cache-ttl=x", "--oidc-leeway=-1s", "--oidc-required-claim=hd", "--oidc-leeway=1d"):
        with pytest.raises(ArgumentError):
            parse(wrong)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--token-auth-file={folder}/missing"], "/missing, No such file"),
        (["--oidc-issuer-url=http://idp.example", "--oidc-client-id=x"], "must start with https://"),
        (["--oidc-issuer-url=https://idp.example"], "needs the client id"),
        (["--oidc-issuer-url=https://idp.example", "--oidc-client-id=x", "--oidc-signing-algs=HS256"], "algorithms"),
        (["--oidc-issuer-url=https://us.example", "--oidc-client-id=x"], "service accounts' issuer"),
        (["--oidc-issuer-url=https://idp.example", "--oidc-client-id=x", "--oidc-ca-file=/etc/hosts"], "not a bundle"),
        (["--authentication-config=/etc/hosts"], "not of kind|not YAML"),
        (["--authentication-config={folder}/missing"], "/missing, No such file"),
        (["--keystone-url=http://keystone.example"], "must start with https://"),
        (["--keystone-url=https://k.example", "--keystone-domain-tenant=a=all"], "reserved"),
        (["--authentication-token-webhook-config-file=/etc/hosts"], "/etc/hosts, not"),
    ],
)
def test_a_wrong_option_ends_the_start_with_a_reason(flags, reason, tmp_path):
    """Bad configuration never starts half a server."""
    with pytest.raises(UnusableOptions, match=reason):
        build_authenticators(
            parse(*(flag.format(folder=tmp_path) for flag in flags)), service_account_issuers=["https://us.example"]
        )


async def test_an_authenticator_that_fails_never_stops_the_next():
    """AN9."""
    bob = Principal(name="bob", tenant="t1", authenticator="last")
    failing = [Named("a", Refused("no")), Named("b", RuntimeError("bug")), Named("c", None)]
    chain = AuthenticationChain([*failing, Named("last", bob)])
    assert (await chain.authenticate(bearer("x"), now=0)).authenticator == "last"
    with pytest.raises(Unauthorized):
        await AuthenticationChain(failing).authenticate(bearer("x"), now=0)


async def test_open_watches_are_told_when_somebody_may_be_known_no_longer(files):
    """CT-07, KEY-04: files when they change, outside services again and again while their answers live."""
    made = build_authenticators(
        parse(
            f"--token-auth-file={files}/tokens.csv",
            f"--basic-auth-file={files}/tokens.csv",
            f"--authentication-token-webhook-config-file={files}/hook.yaml",
            "--authentication-token-webhook-cache-ttl=1s",
            "--keystone-url=https://keystone.example/v3/",
            "--keystone-cache-ttl=1h",
        ),
        certificates=Named("x509"),
    )
    told = []
    async with made.running(told.append):
        async with asyncio.timeout(300):
            while not told:
                await asyncio.sleep(0.05)
        assert set(told) == {"webhook"}
        (files / "tokens.csv").write_text("new,alice,1,,,t1\n")
        async with asyncio.timeout(300):
            while not {"token-file", "basic-file"} <= set(told):
                await asyncio.sleep(0.05)
    assert "keystone" not in told
    before = len(told)
    await asyncio.sleep(1.2)
    assert len(told) == before
