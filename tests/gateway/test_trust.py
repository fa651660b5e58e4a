"""What the server trusts changes while it runs: client CAs, keys and token files (AN1, AN4, AN6, JWT-22, CT-07)."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.core.management import CommandError, call_command

from kube.authentication import pki
from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server, start, stop

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SELF = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
LINES = 'kept,kim,k1,"tenantry:owner",,trusting\n'


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def private_key() -> bytes:
    return pem_of(ec.generate_private_key(ec.SECP256R1()))


def authority(name: str) -> pki.KeyPair:
    return pki.make_authority(name, now=datetime.now(UTC))


def above_others(name: str, *, below: pki.KeyPair | None = None) -> pki.KeyPair:
    """An authority that lets others sign; ``below`` another one, or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key(below.key, None) if below is not None else key
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.load_pem_x509_certificate(below.certificate).subject if below is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return pki.KeyPair(made.public_bytes(serialization.Encoding.PEM), pem_of(key))


OLD, NEW = authority("old"), authority("new")


def replace(path: Path, content: bytes | str) -> None:
    """As an operator should: whole or not at all."""
    new = path.with_suffix(".new")
    new.write_bytes(content if isinstance(content, bytes) else content.encode())
    new.replace(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trust")
    (folder / "clients.crt").write_bytes(OLD.certificate)
    (folder / "tokens.csv").write_text(LINES)
    (folder / "signing.key").write_bytes(private_key())
    (folder / "verifying.pem").write_bytes((folder / "signing.key").read_bytes())
    return folder


@pytest.fixture(scope="module")
def trusting(place: Path, new_database: str) -> Iterator[Server]:
    server = start(
        place / "data",
        new_database,
        f"--client-ca-file={place}/clients.crt",
        f"--token-auth-file={place}/tokens.csv",
        f"--service-account-signing-key-file={place}/signing.key",
        f"--service-account-key-file={place}/verifying.pem",
    )
    made = server.admin.post(
        "/api/v1/tenants", {"apiVersion": "v1", "kind": "Tenant", "metadata": {"name": "trusting"}}
    )
    assert made.status == 201, made.body
    yield server
    stop(server)


def caller(server: Server, issuer: pki.KeyPair, name: str) -> Caller:
    made = pki.make_client_certificate(
        issuer,
        name,
        organizations=["tenant:trusting"],
        units=["tenantry:owner"],
        now=datetime.now(UTC),
        lifetime=timedelta(hours=1),
    )
    certificate, key = server.issued.write(made, f"{name}-{time.monotonic_ns()}")
    return Caller(server.url, server.folder / "pki" / "ca.crt", certificate=certificate, key=key)


def is_known(who: Caller, name: str) -> bool:
    """A certificate that is not trusted ends in the handshake, or as nobody."""
    try:
        answer = who.post(WHOAMI, SELF)
    except (ssl.SSLError, OSError):
        return False
    return answer.status == 201 and answer.body["status"]["userInfo"]["username"] == name


@contextmanager
def kept_open(who: Caller) -> Iterator[HTTPSConnection]:
    connection = HTTPSConnection(who.host, context=who.context, timeout=300)
    try:
        yield connection
    finally:
        connection.close()


def status(connection: HTTPSConnection) -> int:
    """0 when the connection has been cut."""
    try:
        connection.sock or connection.connect()
        connection.auto_open = 0
        connection.request("GET", "/version")
        answer = connection.getresponse()
        answer.read()
    except OSError:
        return 0
    return answer.status


SUBJECTS = yaml.safe_load((Path(__file__).parents[1] / "kube" / "certificate_subjects.yaml").read_text())
KINDS = {
    "CN": x509.NameOID.COMMON_NAME,
    "O": x509.NameOID.ORGANIZATION_NAME,
    "OU": x509.NameOID.ORGANIZATIONAL_UNIT_NAME,
}
KEY = ec.generate_private_key(ec.SECP256R1())
FOR_CLIENTS, FOR_SERVERS = x509.ExtendedKeyUsageOID.CLIENT_AUTH, x509.ExtendedKeyUsageOID.SERVER_AUTH


def issued(
    issuer: pki.KeyPair,
    subject: list[list[str]],
    *,
    begins: float = -300,
    ends: float = 3600,
    usage: x509.ObjectIdentifier | None = FOR_CLIENTS,
) -> pki.KeyPair:
    """A certificate with this subject, from ``begins`` to ``ends`` (seconds from now)."""
    signer = serialization.load_pem_private_key(issuer.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    now = datetime.now(UTC)
    draft = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(KINDS[kind], value) for kind, value in subject]))
        .issuer_name(x509.load_pem_x509_certificate(issuer.certificate).subject)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(now + timedelta(seconds=begins))
        .not_valid_after(now + timedelta(seconds=ends))
    )
    if usage is not None:
        draft = draft.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    return pki.KeyPair(draft.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), pem_of(KEY))


def who_is(server: Server, pair: pki.KeyPair) -> tuple[str, tuple[str, ...], str] | None:
    """The identity that the server sees; ``None`` when it is nobody, in the handshake or after it."""
    certificate, key = server.issued.write(pair, "somebody")
    who = Caller(server.url, server.folder / "pki" / "ca.crt", certificate=certificate, key=key)
    try:
        answer = who.post(WHOAMI, SELF)
    except (ssl.SSLError, OSError):
        return None
    assert answer.status in (201, 401), answer.body
    if answer.status == 401:
        return None
    info = answer.body["status"]["userInfo"]
    assert info["extra"]["multi-tenancy.k8s.io/authenticator"] == ["x509"]
    assert info["groups"][-1] == "system:authenticated"
    return info["username"], tuple(info["groups"][:-1]), info["extra"]["multi-tenancy.k8s.io/tenant"][0]


def test_every_certificate_of_the_table_is_who_it_says(trusting: Server) -> None:
    """AN1, AN2, AN3: over TLS, issued by the server's own authority or by one that an operator has configured."""
    folder = trusting.folder / "pki"
    own = pki.KeyPair((folder / "client-ca.crt").read_bytes(), (folder / "client-ca.key").read_bytes())
    wrong, impossible = [], []
    for row in SUBJECTS:
        try:
            pair = issued(own if row.get("system") else OLD, row["subject"])
        except ValueError:
            impossible.append(row["case"])
            continue
        wanted = None if "refused" in row else (row["user"], tuple(row["groups"]), row["tenant"])
        found = who_is(trusting, pair)
        if found != wanted:
            wrong.append(f"{row['case']}: {found}")
    assert not wrong, "\n".join(wrong)
    assert impossible == ["an empty CN"]


def test_certificate_must_be_of_its_time_for_clients_and_of_a_known_authority(trusting: Server) -> None:
    """X509-07, X509-08: no leeway; the same names from another key are nobody's."""
    subject = [["CN", "tim"], ["O", "tenant:trusting"]]
    tim = ("tim", (), "trusting")
    assert who_is(trusting, issued(OLD, subject)) == tim
    assert who_is(trusting, issued(OLD, subject, usage=None)) == tim
    stranger = authority("old")
    for pair in (
        issued(OLD, subject, begins=-60, ends=-1),
        issued(OLD, subject, begins=3600, ends=7200),
        issued(OLD, subject, usage=FOR_SERVERS),
        issued(stranger, subject),
        issued(NEW, subject),
        pki.KeyPair(issued(stranger, subject).certificate + stranger.certificate, pem_of(KEY)),
        # Whoever has a certificate of somebody, and not the key.
        pki.KeyPair(issued(OLD, [["CN", "eve"]], ends=-1).certificate + issued(OLD, subject).certificate, pem_of(KEY)),
    ):
        assert who_is(trusting, pair) is None
    # Long enough for a busy machine to use it twice.
    for seconds in (15, 60, 240):
        ending = issued(OLD, subject, ends=seconds)
        certificate, key = trusting.issued.write(ending, f"ending-{seconds}")
        who = Caller(trusting.url, trusting.folder / "pki" / "ca.crt", certificate=certificate, key=key)
        if who_is(trusting, ending) == tim:
            with kept_open(who) as connection:
                if status(connection) == 200:
                    assert eventually(lambda: status(connection) in (0, 401)), "no connection outlives its certificate"
                    break
    else:
        raise AssertionError("never used in time")


def test_client_authority_is_replaced_while_the_server_runs(trusting: Server, place: Path) -> None:
    """AN1: the new one's certificates work without a restart; the old one's end, on open connections and watches too."""
    before, after = caller(trusting, OLD, "olivia"), caller(trusting, NEW, "nora")
    operator = trusting.admin
    assert is_known(before, "olivia")
    assert not is_known(after, "nora")
    with kept_open(before) as old, kept_open(operator) as own, before.watch("/api/v1/configmaps") as watch:
        assert (status(old), status(own), watch.status) == (200, 200, 200)
        replace(place / "clients.crt", OLD.certificate + NEW.certificate)
        assert eventually(lambda: is_known(after, "nora"))
        assert is_known(before, "olivia")
        assert (status(old), watch.ended) == (200, False)

        replace(place / "clients.crt", b"-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
        time.sleep(1.5)
        assert is_known(before, "olivia")
        assert status(old) == 200

        replace(place / "clients.crt", NEW.certificate)
        assert eventually(lambda: not is_known(before, "olivia"))
        assert eventually(lambda: watch.ended)
        assert status(old) == 0
        assert status(own) == 200
        assert is_known(after, "nora")


def test_resumed_session_brings_no_certificate_of_a_removed_authority_back(trusting: Server, place: Path) -> None:
    """AN1: resuming a TLS session verifies nothing anew, so the server does."""
    replace(place / "clients.crt", OLD.certificate + NEW.certificate)
    before = caller(trusting, OLD, "rita")
    assert eventually(lambda: is_known(before, "rita"))
    before.context.maximum_version = ssl.TLSVersion.TLSv1_2
    host, port = before.host.split(":")

    def connected(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bytes]:
        with (
            socket.create_connection((host, int(port)), timeout=300) as raw,
            before.context.wrap_socket(raw, server_hostname=host, session=session) as connection,
        ):
            connection.sendall(f"GET /version HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            try:
                return connection.session, connection.recv(64)
            except OSError:
                return None, b""

    session, answer = connected(None)
    assert b"200 OK" in answer
    assert b"200 OK" in connected(session)[1]
    replace(place / "clients.crt", NEW.certificate)
    assert eventually(lambda: not is_known(before, "rita"))
    assert b"200 OK" not in connected(session)[1]


def test_certificate_with_an_intermediate_stays_while_no_authority_goes(trusting: Server, place: Path) -> None:
    """AN1: the chain that was shown then still holds when an authority is added, and must be shown again when one goes."""
    top = above_others("headquarters")
    middle = above_others("department", below=top)
    replace(place / "clients.crt", top.certificate)
    leaf = pki.make_client_certificate(
        middle, "ines", organizations=["tenant:trusting"], now=datetime.now(UTC), lifetime=timedelta(hours=1)
    )
    chain = pki.KeyPair(leaf.certificate + middle.certificate, leaf.key)
    certificate, key = trusting.issued.write(chain, "ines")
    ines = Caller(trusting.url, trusting.folder / "pki" / "ca.crt", certificate=certificate, key=key)
    assert eventually(lambda: is_known(ines, "ines"))
    with kept_open(ines) as open_:
        assert status(open_) == 200
        replace(place / "clients.crt", top.certificate + NEW.certificate)
        assert eventually(lambda: is_known(caller(trusting, NEW, "nils"), "nils"))
        assert status(open_) == 200
        replace(place / "clients.crt", NEW.certificate)
        assert eventually(lambda: not is_known(ines, "ines"))
        assert status(open_) == 0


def test_token_taken_out_of_the_file_ends_its_watches(trusting: Server, place: Path) -> None:
    """AN4, CT-07."""
    replace(place / "tokens.csv", LINES + 'leaving,lea,l1,"tenantry:owner",,trusting\n')
    leaving, staying = trusting.bearer("leaving"), trusting.bearer("kept")
    assert eventually(lambda: is_known(leaving, "lea"))
    with leaving.watch("/api/v1/configmaps") as gone, staying.watch("/api/v1/configmaps") as stays:
        assert (gone.status, stays.status) == (200, 200)
        replace(place / "tokens.csv", LINES)
        last = gone.until_end()[-1]
        assert (last["type"], last["object"]["code"]) == ("ERROR", 401)
        assert not is_known(leaving, "lea")
        assert not stays.ended


def test_keys_of_service_accounts_rotate_while_the_server_runs(trusting: Server, place: Path) -> None:
    """AN6, JWT-22: what others verify tokens by is served, and a key that is taken out verifies nothing more."""
    owner = trusting.bearer("kept")
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    assert owner.post(accounts, {"metadata": {"name": "robot"}}).status == 201
    token = owner.post(f"{accounts}/robot/token", {"spec": {"audiences": ["vault"]}}).body["status"]["token"]
    robot = trusting.bearer(owner.post(f"{accounts}/robot/token", {}).body["status"]["token"])
    name = "system:serviceaccount:default:robot"
    assert is_known(robot, name)

    described = robot.get("/.well-known/openid-configuration")
    assert described.status == 200, described.body
    assert described.body["jwks_uri"] == f"{trusting.url}/openid/v1/jwks"
    keys = robot.get("/openid/v1/jwks")
    assert keys.headers["content-type"] == "application/jwk-set+json"
    (public,) = keys.body["keys"]
    assert "d" not in public
    claims = jwt.decode(
        token, jwt.PyJWK(public).key, algorithms=["ES256"], audience="vault", issuer=described.body["issuer"]
    )
    assert claims["kubernetes.io"]["tenant"] == "trusting"
    assert trusting.nobody.get("/openid/v1/jwks").status == 401

    signing = (place / "signing.key").read_bytes()
    replace(place / "verifying.pem", private_key() + signing)
    assert eventually(lambda: len(trusting.admin.get("/openid/v1/jwks").body["keys"]) == 2)
    assert is_known(robot, name)
    with robot.watch("/api/v1/namespaces/default/secrets") as refused:
        assert refused.status == 403
    replace(place / "verifying.pem", private_key())
    assert eventually(lambda: not is_known(robot, name))
    replace(place / "verifying.pem", signing)
    assert eventually(lambda: is_known(robot, name))


def test_another_key_signs_without_a_restart(trusting: Server, place: Path) -> None:
    """AN6, JWT-22: it signs once its public key is listed, and tokens of the one before stay good while theirs is."""
    owner = trusting.bearer("kept")
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    assert owner.post(accounts, {"metadata": {"name": "signed"}}).status == 201

    def issued() -> str:
        return str(owner.post(f"{accounts}/signed/token", {}).body["status"]["token"])

    def kid(token: str) -> str:
        return str(jwt.get_unverified_header(token)["kid"])

    name = "system:serviceaccount:default:signed"
    before, old = (place / "signing.key").read_bytes(), issued()
    after = private_key()
    replace(place / "signing.key", after)
    time.sleep(1.5)
    assert kid(issued()) == kid(old), "a key that nobody verifies by signs nothing"
    replace(place / "verifying.pem", before + after)
    assert eventually(lambda: kid(issued()) != kid(old))
    new = issued()
    listed = {key["kid"] for key in trusting.admin.get("/openid/v1/jwks").body["keys"]}
    assert listed == {kid(old), kid(new)}
    assert is_known(trusting.bearer(old), name)
    assert is_known(trusting.bearer(new), name)

    replace(place / "signing.key", b"nothing")
    replace(place / "verifying.pem", after)
    assert eventually(lambda: not is_known(trusting.bearer(old), name))
    assert is_known(trusting.bearer(new), name)
    assert kid(issued()) == kid(new)
    replace(place / "signing.key", after)


@pytest.mark.parametrize("flag", ["client-ca-file", "service-account-key-file", "service-account-signing-key-file"])
def test_a_file_that_cannot_be_used_ends_the_start_with_its_name(tmp_path: Path, settings: Any, flag: str) -> None:
    """Bad configuration never starts half a server."""
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    settings.DATA_DIR = tmp_path
    with pytest.raises(CommandError, match=r"wrong\.pem"):
        call_command("apiserver", f"--{flag}={wrong}", "--secure-port=0")
