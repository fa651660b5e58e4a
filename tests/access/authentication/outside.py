"""Outside services for tests: real HTTPS servers on this host, and tokens that providers could have signed."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import jwt
import trustme
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from access.authentication.base import Credentials

AUTHORITY = trustme.CA()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def trusting() -> ssl.SSLContext:
    """TLS that trusts the tests' authority alone."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


def bearer(token: str) -> Credentials:
    return Credentials(authorization=f"Bearer {token}")


@asynccontextmanager
async def serving(handler: Handler, *, client_authority: trustme.CA | None = None) -> AsyncIterator[str]:
    """An HTTPS server whose every path is ``handler``; yields its base URL."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    if client_authority is not None:
        client_authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
EC_384 = ec.generate_private_key(ec.SECP384R1())


def jwk(key: Any, **more: str) -> dict[str, Any]:
    """The public JSON Web Key."""
    algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), **more}


def signed(claims: dict[str, Any], key: Any = RSA, algorithm: str = "RS256", **header: Any) -> str:
    return jwt.encode(claims, key, algorithm=algorithm, headers=header)


def raw(header: bytes, claims: bytes, signature: bytes = b"") -> str:
    """A token of these very bytes."""
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (header, claims, signature))


class Provider:
    """An OpenID Connect provider that says whatever a test makes it say, and counts its questions."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: list[dict[str, Any]] = [jwk(RSA, kid="a", use="sig")]
        self.document: dict[str, Any] = {}
        self.asked = 0
        self.down = False
        self.hangs = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        if self.hangs:
            await asyncio.sleep(30)
        if self.down:
            return web.Response(status=503)
        if request.path == "/.well-known/openid-configuration":
            return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/jwks", **self.document})
        return web.json_response({"keys": self.keys})


@asynccontextmanager
async def providing() -> AsyncIterator[Provider]:
    provider = Provider()
    async with serving(provider.handle) as provider.url:
        yield provider


US = "https://us.example"
"""Who issues ``OURS``."""


def _ours(header: bytes = b'{"alg":"RS256"}', claims: bytes = b"") -> str:
    return raw(header, b'{"iss":"https://us.example"' + claims + b"}", b"signature")


OURS = {
    "as it is": _ours(),
    "an end of line": f"{_ours()}\n",
    "a blank before it": f" {_ours()}",
    "a blank inside": f"{_ours()} x",
    "a tabulator inside": f"{_ours()}\tx",
    "a long header": _ours(b'{"alg":"RS256","x5c":["' + b"x" * 3_000 + b'"]}'),
    "many claims": _ours(claims=b',"groups":"' + b"g" * 13_000 + b'"'),
    "too many claims": _ours(claims=b',"groups":"' + b"g" * 40_000 + b'"'),
    "one part more": f"{_ours()}.x",
    "a quotation mark": f'"{_ours()}"',
    "a letter before it": f"x{_ours()}",
    "padding": _ours(b'{"alg":"RS256" }').replace(".", "=.", 1),
    "no signature": _ours().rpartition(".")[0],
    "claims that nobody can read": raw(b'{"alg":"RS256"}', b'{"iss":"https://us.exa', b"signature"),
    "claims that are deep": raw(b'{"alg":"RS256"}', b"[" * 20_000, b"signature"),
}
"""Tokens of an issuer of the server's own, in forms that come into them on their way."""

OTHERS = {
    "another issuer's": raw(b'{"alg":"RS256"}', b'{"iss":"https://them.example"}', b"signature"),
    "nobody's": raw(b'{"alg":"RS256"}', b'{"iss":["https://us.example"]}', b"signature"),
    "opaque": "v4.public.b3BhcXVl",
    "dots": "." * 1_000,
    "a word": "good",
    "encrypted": raw(b'{"alg":"dir","enc":"A256GCM"}', b"", b"") + ".x.y",
}
"""Tokens that are none of ours, whatever they look like."""
