"""Certificates and ID tokens of every shape, and tokens beside certificates: decided as kube-apiserver decides (AN1, AN8)."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import RSAAlgorithm

from tests import kubeapiserver
from tests.gateway.callers import Answer, Caller
from tests.gateway.conftest import start, stop

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SELF = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
NOBODY, CERT, BESIDE = "nobody", "the certificate", "the token"
EKU = x509.ExtendedKeyUsageOID


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@dataclass
class Issuer:
    """An authority, and what it signs."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    pem: bytes = b""


def name_of(common: str) -> x509.Name:
    oid = x509.NameOID
    attributes = [x509.NameAttribute(oid.ORGANIZATION_NAME, "tenant:shapes")]
    return x509.Name([*attributes, *([x509.NameAttribute(oid.COMMON_NAME, common)] if common else [])])


def made(
    common: str,
    issuer: Issuer | None,
    *,
    ca: bool | None = False,
    path_length: int | None = None,
    usages: tuple[x509.ObjectIdentifier, ...] | None = (EKU.CLIENT_AUTH,),
    critical: bool = False,
    key_usage: tuple[str, ...] | None = ("digital_signature",),
    begins: float = -300,
    ends: float = 86400,
    unknown: bool = False,
) -> Issuer:
    """A certificate of this shape, self-signed without ``issuer``; for a day, for a whole run makes some at its beginning."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = name_of(common), datetime.now(UTC)
    draft = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.name if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(seconds=begins))
        .not_valid_after(now + timedelta(seconds=ends))
    )
    if ca is not None:
        draft = draft.add_extension(x509.BasicConstraints(ca=ca, path_length=path_length), critical=True)
    if usages is not None:
        draft = draft.add_extension(x509.ExtendedKeyUsage(usages), critical=critical)
    if key_usage is not None:
        names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
        names += ("key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
        draft = draft.add_extension(x509.KeyUsage(**{name: name in key_usage for name in names}), critical=True)
    if unknown:
        draft = draft.add_extension(
            x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00"), critical=True
        )
    signed = draft.sign(issuer.key if issuer else key, hashes.SHA256())
    return Issuer(name, key, signed.public_bytes(serialization.Encoding.PEM))


SIGNS = ("key_cert_sign", "crl_sign", "digital_signature")
ROOT = made("root", None, ca=True, usages=None, key_usage=SIGNS)
STRANGER = made("root", None, ca=True, usages=None, key_usage=SIGNS)
BELOW = made("below", ROOT, ca=True, usages=None, key_usage=SIGNS)
ENDED = made("ended", ROOT, ca=True, usages=None, key_usage=SIGNS, begins=-600, ends=-60)
NARROW = made("narrow", ROOT, ca=True, path_length=0, usages=None, key_usage=SIGNS)
BELOW_NARROW = made("below-narrow", NARROW, ca=True, usages=None, key_usage=SIGNS)
FOR_SERVERS = made("for-servers", ROOT, ca=True, usages=(EKU.SERVER_AUTH,), key_usage=SIGNS)
NO_AUTHORITY = made("no-authority", ROOT, ca=False)


def below(issuer: Issuer, *between: Issuer) -> Issuer:
    leaf = made("bob", issuer)
    return Issuer(leaf.name, leaf.key, leaf.pem + b"".join(each.pem for each in between))


SHAPES: dict[str, tuple[Callable[[], Issuer], bool]] = {
    "as it should be": (lambda: made("bob", ROOT), True),
    "no extended key usage": (lambda: made("bob", ROOT, usages=None), True),
    "no extensions at all": (lambda: made("bob", ROOT, ca=None, usages=None, key_usage=None), True),
    "any extended key usage": (lambda: made("bob", ROOT, usages=(EKU.ANY_EXTENDED_KEY_USAGE,)), True),
    "extended key usage critical": (lambda: made("bob", ROOT, critical=True), True),
    "for clients and servers": (lambda: made("bob", ROOT, usages=(EKU.SERVER_AUTH, EKU.CLIENT_AUTH)), True),
    "for servers": (lambda: made("bob", ROOT, usages=(EKU.SERVER_AUTH,)), False),
    "for code": (lambda: made("bob", ROOT, usages=(EKU.CODE_SIGNING,)), False),
    "for servers, and an authority": (lambda: made("bob", ROOT, ca=True, usages=(EKU.SERVER_AUTH,)), False),
    "an authority": (lambda: made("bob", ROOT, ca=True, usages=None, key_usage=SIGNS), True),
    "an authority for clients": (lambda: made("bob", ROOT, ca=True, key_usage=SIGNS), True),
    "an authority that only signs": (lambda: made("bob", ROOT, ca=True, usages=None, key_usage=SIGNS[:2]), True),
    "key usage without signatures": (lambda: made("bob", ROOT, key_usage=("key_encipherment",)), True),
    "no key usage": (lambda: made("bob", ROOT, key_usage=None), True),
    "the client authority itself": (lambda: ROOT, True),
    "expired": (lambda: made("bob", ROOT, begins=-600, ends=-5), False),
    "not valid yet": (lambda: made("bob", ROOT, begins=600), False),
    "of an unknown authority of the same name": (lambda: made("bob", STRANGER), False),
    "self-signed": (lambda: made("bob", None), False),
    "an unknown critical extension": (lambda: made("bob", ROOT, unknown=True), False),
    "below an intermediate": (lambda: below(BELOW, BELOW), True),
    "below an intermediate that is not sent": (lambda: below(BELOW), False),
    "below an intermediate that has ended": (lambda: below(ENDED, ENDED), False),
    "below an intermediate for servers": (lambda: below(FOR_SERVERS, FOR_SERVERS), False),
    "below what is no authority": (lambda: below(NO_AUTHORITY, NO_AUTHORITY), False),
    "below a path too long": (lambda: below(BELOW_NARROW, BELOW_NARROW, NARROW), False),
    "no name": (lambda: made("", ROOT), False),
}
TOKENS = {"nothing": "", "a valid token": "good-token", "a wrong token": "wrong-token"}


# An OpenID Connect provider.

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PROVIDER_CA = trustme.CA()


@contextmanager
def providing() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body: dict[str, Any] = {"issuer": url, "jwks_uri": f"{url}/jwks"}
            if self.path == "/jwks":
                public: Any = RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
                body = {"keys": [{**public, "kid": "a", "use": "sig", "alg": "RS256"}]}
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    PROVIDER_CA.issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = f"https://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()


def of_text(claims: str, header: str = '{"alg":"RS256","kid":"a"}') -> str:
    """A signed token of these very bytes."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    signed = f"{part(header.encode())}.{part(claims.encode())}"
    return (
        f"{signed}.{part(jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(signed.encode(), KEY))}"
    )


def id_token(issuer: str, *, header: str = '"alg":"RS256","kid":"a"', **changes: Any) -> str:
    now = int(time.time())
    claims = {"iss": issuer, "aud": "shapes", "sub": "bob", "exp": now + 600, "iat": now - 10, "tenant": "shapes"}
    claims |= changes
    return of_text(json.dumps({name: value for name, value in claims.items() if value is not None}), f"{{{header}}}")


def with_text(issuer: str, more: str) -> str:
    """A token with more members at its end, as they are."""
    now = int(time.time())
    plain = json.dumps({"iss": issuer, "aud": "shapes", "sub": "bob", "exp": now + 600, "tenant": "shapes"})
    return of_text(plain[:-1] + "," + more + "}")


def headed(more: str) -> str:
    return f'"alg":"RS256","kid":"a",{more}'


NOW = time.time
ID_TOKENS: dict[str, tuple[Callable[[str], str], bool]] = {
    "as it should be": (lambda i: id_token(i), True),
    "typ JWT": (lambda i: id_token(i, header=headed('"typ":"JWT"')), True),
    "typ of an access token": (lambda i: id_token(i, header=headed('"typ":"at+jwt"')), True),
    "typ of a logout token": (lambda i: id_token(i, header=headed('"typ":"logout+jwt"')), True),
    "typ is a number": (lambda i: id_token(i, header=headed('"typ":7')), True),
    "cty": (lambda i: id_token(i, header=headed('"cty":"x"')), True),
    "alg twice": (lambda i: id_token(i, header=headed('"alg":"RS256"')), False),
    "typ twice": (lambda i: id_token(i, header=headed('"typ":"JWT","typ":"JWT"')), False),
    "an unknown header twice": (lambda i: id_token(i, header=headed('"x":1,"x":2')), False),
    "issued in the future": (lambda i: id_token(i, iat=int(NOW()) + 3600), True),
    "no iat": (lambda i: id_token(i, iat=None), True),
    "iat is text": (lambda i: id_token(i, iat="now"), False),
    "iat is a broken number": (lambda i: id_token(i, iat=NOW() - 10), True),
    "exp is a broken number": (lambda i: id_token(i, exp=NOW() + 600.5), True),
    "exp is text": (lambda i: id_token(i, exp="later"), False),
    "exp is a number as text": (lambda i: id_token(i, exp=str(int(NOW()) + 600)), True),
    "no exp": (lambda i: id_token(i, exp=None), False),
    "expired": (lambda i: id_token(i, exp=int(NOW()) - 5), False),
    "nbf in half a minute": (lambda i: id_token(i, nbf=int(NOW()) + 30), True),
    "nbf in an hour": (lambda i: id_token(i, nbf=int(NOW()) + 3600), False),
    "sub twice, the same": (lambda i: with_text(i, '"sub":"bob"'), True),
    "sub twice, the last another": (lambda i: with_text(i, '"sub":"eve"'), True),
    "aud twice, the last another": (lambda i: with_text(i, '"aud":"x"'), False),
    "iss twice, the last another": (lambda i: with_text(i, '"iss":"https://x.test"'), False),
    "exp twice, the last over": (lambda i: with_text(i, '"exp":1'), False),
    "aud in capitals, another": (lambda i: with_text(i, '"AUD":"x"'), False),
    "iss in capitals, another": (lambda i: with_text(i, '"ISS":"https://x.test"'), False),
    "exp in capitals, over": (lambda i: with_text(i, '"Exp":1'), False),
    "an unknown claim twice": (lambda i: with_text(i, '"x":1,"x":2'), True),
    "aud is a list": (lambda i: id_token(i, aud=["x", "shapes"]), True),
    "aud is another": (lambda i: id_token(i, aud="x"), False),
    "azp is another": (lambda i: id_token(i, aud=["x", "shapes"], azp="x"), True),
    "no sub": (lambda i: id_token(i, sub=None), False),
    "crit": (lambda i: id_token(i, header=headed('"crit":["x"],"x":1')), False),
}


@dataclass
class Peer:
    """A server that is asked, and where."""

    url: str
    ca: Path
    folder: Path

    def whoami(self, shown: Issuer | None, token: str) -> Answer:
        certificate = key = None
        if shown is not None:
            certificate, key = self.folder / "shown.crt", self.folder / "shown.key"
            certificate.write_bytes(shown.pem)
            key.write_bytes(pem_of(shown.key))
        return Caller(self.url, self.ca, certificate=certificate, key=key, token=token).post(WHOAMI, SELF)

    def verdict(self, shown: Issuer | None, token: str) -> str:
        """Whom the server takes the sender for. A connection that is cut is an error of the test."""
        answer = self.whoami(shown, token)
        if answer.status == 401:
            assert answer.headers["content-type"].startswith("application/json")
            assert (answer.body["kind"], answer.body["code"], answer.reason) == ("Status", 401, "Unauthorized")
            return NOBODY
        if answer.status == 403 and "system:anonymous" in answer.body["message"]:
            return NOBODY
        assert answer.status == 201, answer.raw
        user = answer.body["status"]["userInfo"]["username"]
        return BESIDE if user == "tom" else CERT if user in {"bob", "root"} else user


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with providing() as url:
        yield url


def oidc_flags(provider: str, folder: Path) -> list[str]:
    PROVIDER_CA.cert_pem.write_to_path(str(folder / "provider.pem"))
    return [
        f"--oidc-issuer-url={provider}",
        "--oidc-client-id=shapes",
        f"--oidc-ca-file={folder / 'provider.pem'}",
        "--oidc-username-claim=sub",
        "--oidc-username-prefix=-",
    ]


@pytest.fixture(scope="module")
def ours(new_database: str, provider: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    place = tmp_path_factory.mktemp("shapes")
    (place / "clients.crt").write_bytes(ROOT.pem)
    (place / "tokens.csv").write_text("good-token,tom,1,,shapes\n")
    server = start(
        place / "data",
        new_database,
        f"--client-ca-file={place}/clients.crt",
        f"--token-auth-file={place}/tokens.csv",
        "--oidc-tenant-claim=tenant",
        *oidc_flags(provider, place),
    )
    yield Peer(server.url, server.folder / "pki" / "ca.crt", place)
    stop(server)
    assert "Traceback" not in (place / "data.log").read_text()


@pytest.fixture(scope="module")
def theirs(provider: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    if not kubeapiserver.PRESENT:
        pytest.skip(kubeapiserver.REASON)
    place = tmp_path_factory.mktemp("theirs")
    (place / "more.csv").write_text("good-token,tom,1\n")
    flags = [f"--token-auth-file={place}/more.csv", *oidc_flags(provider, place)]
    with kubeapiserver.running(client_cas=ROOT.pem, flags=flags) as server:
        peer = Peer(server.url, server.folder / "ca.pem", place)
        end = time.monotonic() + 300
        while peer.verdict(None, id_token(provider)) == NOBODY and time.monotonic() < end:
            time.sleep(0.2)
        yield peer


STRICTER = {
    "azp is another",
    "exp is a broken number",
    "exp is a number as text",
    "iat is a broken number",
    "nbf in half a minute",
}
"""What kube-apiserver takes and this server does not: docs/access/authentication.md."""

CERTIFICATES = [(shape, beside) for shape in SHAPES for beside in TOKENS]


def wanted(shape: str, beside: str) -> str:
    return CERT if SHAPES[shape][1] else BESIDE if beside == "a valid token" else NOBODY


def test_certificate_of_every_shape_beside_every_token(ours: Peer) -> None:
    """AN1, X509-07, X509-08: a body says no, and a valid token beside a certificate that is not counts."""
    found = {case: ours.verdict(SHAPES[case[0]][0](), TOKENS[case[1]]) for case in CERTIFICATES}
    assert {case: verdict for case, verdict in found.items() if verdict != wanted(*case)} == {}


def test_real_server_decides_certificates_so(theirs: Peer) -> None:
    found = {case: theirs.verdict(SHAPES[case[0]][0](), TOKENS[case[1]]) for case in CERTIFICATES}
    assert {case: verdict for case, verdict in found.items() if verdict != wanted(*case)} == {}


def test_id_token_of_every_shape(ours: Peer, provider: str) -> None:
    """AN8: everything but what is stricter on purpose as kube-apiserver has it."""
    found = {name: ours.whoami(None, make(provider)).status for name, (make, _) in ID_TOKENS.items()}
    assert {name for name, code in found.items() if (code == 201) is not ID_TOKENS[name][1]} == STRICTER
    assert all(found[name] == 401 for name in STRICTER)


def test_real_server_decides_id_tokens_so(theirs: Peer, provider: str) -> None:
    found = {name: theirs.whoami(None, make(provider)).status for name, (make, _) in ID_TOKENS.items()}
    assert {name: code for name, code in found.items() if (code == 201) is not ID_TOKENS[name][1]} == {}
