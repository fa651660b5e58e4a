"""Authentications per second of each method in one process, and what the whole chain costs when its last method answers.

Everything is as in a server: certificates and tokens are real, answers of the webhook come from its cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import uvloop
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from access.authentication.base import Authenticator, Credentials
from access.authentication.basicfile import BasicFileAuthenticator
from access.authentication.chain import AuthenticationChain
from access.authentication.keyfiles import KeyFiles
from access.authentication.keystone import KeystoneAuthenticator
from access.authentication.keystoneclient import Domains, Keystone
from access.authentication.oidc import OidcAuthenticator, OidcIssuer
from access.authentication.serviceaccount import ServiceAccountAuthenticator
from access.authentication.tokenfile import TokenFileAuthenticator
from access.authentication.webhook import WebhookAuthenticator
from access.authentication.x509 import X509Authenticator
from access.httpclient import HttpClient, webhook_of_file
from kube.authentication import pki
from kube.authentication.identity import TENANT_EXTRA
from kube.authentication.oidcclaims import ClaimRules
from kube.authentication.serviceaccounttokens import Reference, ServiceAccountClaims, load_signing_key, sign
from store.types import Key, Stored
from tests.access.authentication.outside import AUTHORITY, bearer, providing, serving, signed, trusting

SECONDS = 1.0
ISSUER = "https://tenantry.bench"
SECRET = "bench-password-0123456789"


class ResourceCache:
    """The one object that the service account's token names, as a store holds it in memory."""

    def __init__(self) -> None:
        body = {"metadata": {"name": "driver", "namespace": "default", "uid": "u-1"}}
        key = Key("root:bench", "", "serviceaccounts", "default", "driver")
        self._stored = Stored(key, 1, orjson.dumps(body))

    async def get(self, key: Key, *, cached: bool = False) -> Stored | None:
        """The object, from memory alone."""
        return self._stored if cached and key == self._stored.key else None


async def measure() -> None:
    """Print each method, alone and behind all the others."""
    with tempfile.TemporaryDirectory(prefix="tenantry-bench-") as folder:
        async with contextlib.AsyncExitStack() as stack:
            methods = await _methods(Path(folder), stack)
            for authenticator, credentials in methods:
                print(f"  {authenticator.name:<16} {await _rate(authenticator, credentials)}", flush=True)
            chain = AuthenticationChain([authenticator for authenticator, _ in methods])
            for authenticator, credentials in methods:
                print(f"  {authenticator.name + ' in the chain':<28} {await _rate(chain, credentials)}", flush=True)


async def _methods(folder: Path, stack: contextlib.AsyncExitStack) -> list[tuple[Authenticator, Credentials]]:
    """The methods in the order of a server, each with credentials that it knows."""
    moment = datetime.now(UTC)
    authority = pki.make_authority("bench", now=moment)
    pair = pki.make_client_certificate(
        authority, "jane", organizations=["tenant:bench"], now=moment, lifetime=timedelta(hours=1)
    )
    der = x509.load_pem_x509_certificate(pair.certificate).public_bytes(serialization.Encoding.DER)
    certificates = X509Authenticator([x509.load_pem_x509_certificate(authority.certificate)])

    tokens, passwords = folder / "tokens.csv", folder / "passwords.csv"
    users = "".join(f"secret-of-user-{number:06},user-{number},{number},dev,,bench\n" for number in range(1000))
    tokens.write_text(users)
    passwords.write_text(f"{SECRET},jane,1,dev,,bench\n")
    basic = "Basic " + b64encode(f"jane:{SECRET}".encode()).decode()

    pem = folder / "service-account.key"
    pem.write_bytes(_new_key())
    key = load_signing_key(pem.read_bytes())
    now = int(time.time())
    claims = ServiceAccountClaims(
        issuer=ISSUER,
        audiences=(ISSUER,),
        issued_at=now,
        not_before=now,
        expires_at=now + 3600,
        token_id="bench",
        tenant="bench",
        cluster="root:bench",
        namespace="default",
        account=Reference("driver", "u-1"),
    )
    store: Any = ResourceCache()
    accounts = ServiceAccountAuthenticator(store, keys=KeyFiles([pem], pem), issuers=(ISSUER,), audiences=(ISSUER,))

    provider = await stack.enter_async_context(providing())
    rules = ClaimRules(issuer=provider.url, username_claim="sub", username_prefix="oidc:", tenant_claim="tenant")
    oidc = OidcAuthenticator(OidcIssuer(rules=rules, audiences=("bench",)), HttpClient(tls=trusting()))
    stack.push_async_callback(oidc.close)
    said = {"iss": provider.url, "aud": "bench", "sub": "jane", "tenant": "bench", "exp": now + 600, "iat": now}

    webhook = await stack.enter_async_context(_webhook(folder))
    keystone = await stack.enter_async_context(_keystone())
    return [
        (certificates, Credentials(certificate=der)),
        (TokenFileAuthenticator(tokens), bearer("secret-of-user-000500")),
        (BasicFileAuthenticator(passwords), Credentials(authorization=basic)),
        (accounts, bearer(sign(claims, key))),
        (oidc, bearer(signed(said, kid="a"))),
        (webhook, bearer("known-to-the-webhook")),
        (keystone, bearer("known-to-keystone")),
    ]


@contextlib.asynccontextmanager
async def _webhook(folder: Path) -> AsyncIterator[WebhookAuthenticator]:
    async def review(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        user = {"username": "jane", "groups": ["dev"], "extra": {TENANT_EXTRA: ["bench"]}}
        known = body["spec"]["token"] == "known-to-the-webhook"
        return web.json_response({**body, "status": {"authenticated": known, "user": user if known else {}}})

    async with serving(review) as url:
        authority = b64encode(AUTHORITY.cert_pem.bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "hook", "cluster": {"server": url, "certificate-authority-data": authority}}],
            "users": [{"name": "us", "user": {"token": "ours"}}],
            "contexts": [{"name": "c", "context": {"cluster": "hook", "user": "us"}}],
            "current-context": "c",
        }
        file = folder / "webhook.yaml"
        file.write_bytes(orjson.dumps(config))
        authenticator = WebhookAuthenticator(webhook_of_file(file))
        try:
            yield authenticator
        finally:
            await authenticator.close()


@contextlib.asynccontextmanager
async def _keystone() -> AsyncIterator[KeystoneAuthenticator]:
    domain = {"id": "d-1", "name": "bench"}
    token = {
        "user": {"id": "u-1", "name": "jane", "domain": domain},
        "audit_ids": ["a-1"],
        "expires_at": (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }

    async def validate(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"token": token})

    async with serving(validate) as url:
        authenticator = KeystoneAuthenticator(Keystone(url, HttpClient(tls=trusting())), Domains({"d-1": "bench"}))
        try:
            yield authenticator
        finally:
            await authenticator.close()


def _new_key() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, pkcs8, plain)


async def _rate(subject: Authenticator | AuthenticationChain, credentials: Credentials) -> str:
    """Authentications per second of processor time, after the first."""
    now = time.time()
    if await subject.authenticate(credentials, now=now) is None:
        raise RuntimeError("the credentials are not known")
    count, begun, end = 0, time.process_time(), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for _ in range(20):
            await subject.authenticate(credentials, now=now)
        count += 20
    spent = time.process_time() - begun
    return f"{count / spent:>10,.0f}/s of a core   {spent / count * 1e6:8.1f} µs"


def main() -> None:
    """Measure each authenticator, and print what a request costs."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure())


if __name__ == "__main__":
    main()
