"""Signing in by token file and basic-auth file (AN4, AN5)."""

import base64
import logging
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from access.authentication.base import Credentials, Refused
from access.authentication.basicfile import BasicFileAuthenticator
from access.authentication.keyfiles import KeyFiles
from access.authentication.tokenfile import TokenFileAuthenticator
from access.httpclient import webhook_of_file
from access.reloading import UnusableFile
from gateway.http.certificates import Certificates
from gateway.http.tls import ServerTls
from kube.authentication import pki

AUTHORITY = pki.make_authority("test", now=datetime.now(UTC))


def bearer(token):
    return Credentials(authorization=f"Bearer {token}")


def basic(user, password):
    return Credentials(authorization="Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens.csv"
    path.touch(mode=0o600)
    path.write_text('s1,alice,1,"dev,ops",,t1\ns2,root,2,system:masters\nschlüssel,bob,3,,,t2\n')
    return path


async def test_a_known_token_is_its_user(tokens):
    """AN4."""
    principal = await TokenFileAuthenticator(tokens).authenticate(bearer("s1"), now=0)
    assert (principal.name, principal.uid, principal.tenant) == ("alice", "1", "t1")
    assert principal.groups == ("dev", "ops", "system:authenticated")
    assert principal.authenticator == "token-file"


async def test_a_token_without_tenant_is_an_operator_and_is_named_in_the_log(tokens, caplog):
    """AN4; FILE-01: never silently."""
    with caplog.at_level(logging.WARNING):
        authenticator = TokenFileAuthenticator(tokens)
    assert (await authenticator.authenticate(bearer("s2"), now=0)).tenant == "system"
    words = "no tenant, so user 'root' belongs to the tenant 'system'; end the line with ',,system' to say so"
    assert [record.getMessage() for record in caplog.records] == [f"{tokens}, line 2: {words}"]


@pytest.mark.parametrize("token", ["s", " s1", "S1", "s1\n1", "é", "\u2603", "x" * 100_000, "s1,alice"])
async def test_an_unknown_token_is_nobodys(tokens, token):
    """FILE-10."""
    assert await TokenFileAuthenticator(tokens).authenticate(bearer(token), now=0) is None


async def test_a_token_that_is_not_ascii_is_found_by_its_bytes(tokens):
    """FILE-10: the server hands headers on as Latin-1."""
    sent = "schlüssel".encode().decode("latin-1")
    assert (await TokenFileAuthenticator(tokens).authenticate(bearer(sent), now=0)).name == "bob"


async def test_of_two_lines_with_one_token_the_last_counts_with_a_warning(tmp_path, caplog):
    """AN4."""
    path = tmp_path / "tokens.csv"
    path.write_text("s,alice,1,,,t1\ns,bob,2,,,t2\n")
    with caplog.at_level(logging.WARNING):
        authenticator = TokenFileAuthenticator(path)
    assert (await authenticator.authenticate(bearer("s"), now=0)).name == "bob"
    assert "line 2: the token of line 1 again" in caplog.text


@pytest.mark.parametrize("kind", [TokenFileAuthenticator, BasicFileAuthenticator])
def test_a_malformed_line_stops_the_start_with_file_and_line(tmp_path, kind):
    """AN4, AN5."""
    path = tmp_path / "users.csv"
    path.write_text("s,alice,1,,,t1\n\ns2,bob,2,dev,,t2,note\n")
    with pytest.raises(UnusableFile, match=rf"{path}, line 3: a column before the last is empty"):
        kind(path)
    with pytest.raises(UnusableFile, match="No such file"):
        kind(tmp_path / "absent.csv")


async def test_a_changed_file_counts_within_a_second(tokens):
    """AN4."""
    authenticator = TokenFileAuthenticator(tokens)
    await authenticator.authenticate(bearer("s1"), now=100.0)
    new = tokens.with_suffix(".new")
    new.write_text("s9,zoe,9,,,t9\n")
    new.replace(tokens)
    assert (await authenticator.authenticate(bearer("s1"), now=100.5)).name == "alice"
    assert await authenticator.authenticate(bearer("s1"), now=101.0) is None
    assert (await authenticator.authenticate(bearer("s9"), now=101.1)).tenant == "t9"


async def test_a_broken_change_keeps_what_was_read(tokens, caplog):
    """FILE-08: the previous set is kept, with an alarm."""
    authenticator = TokenFileAuthenticator(tokens)
    tokens.write_text("s9,zoe\n")
    with caplog.at_level(logging.ERROR):
        assert (await authenticator.authenticate(bearer("s1"), now=10.0)).name == "alice"
        assert (await authenticator.authenticate(bearer("s1"), now=12.0)).name == "alice"
    assert [record.levelname for record in caplog.records if record.name == "access.reloading"] == ["ERROR"]
    assert "line 1: at least 3 columns" in caplog.text
    tokens.unlink()
    assert (await authenticator.authenticate(bearer("s1"), now=14.0)).name == "alice"
    tokens.write_text("s9,zoe,9,,,t9\n")
    assert (await authenticator.authenticate(bearer("s9"), now=16.0)).name == "zoe"


@pytest.fixture
def passwords(tmp_path):
    path = tmp_path / "users.csv"
    path.write_text('pw1,admin,1,"dev,ops",,t1\npw2,admin,2,dev,,t2\np:w,alice,3,,,t1\n')
    return path


async def test_a_password_tells_users_of_one_name_in_two_tenants_apart(passwords):
    """AN5."""
    authenticator = BasicFileAuthenticator(passwords)
    assert (await authenticator.authenticate(basic("admin", "pw1"), now=0)).tenant == "t1"
    second = await authenticator.authenticate(basic("admin", "pw2"), now=0)
    assert (second.tenant, second.uid, second.groups) == ("t2", "2", ("dev", "system:authenticated"))
    assert (await authenticator.authenticate(basic("alice", "p:w"), now=0)).name == "alice"


def test_one_user_and_password_in_two_tenants_stop_the_start(tmp_path):
    """AN5: nobody may end in another's tenant."""
    path = tmp_path / "users.csv"
    path.write_text("pw,admin,1,,,t1\npw,admin,2,,,t2\n")
    with pytest.raises(UnusableFile, match="line 2: the same user and password are in tenant 't1' too"):
        BasicFileAuthenticator(path)


async def test_of_two_lines_of_one_user_the_last_counts(tmp_path, caplog):
    """AN5."""
    path = tmp_path / "users.csv"
    path.write_text("old,admin,1,,,t1\nnew,admin,2,,,t1\n")
    authenticator = BasicFileAuthenticator(path)
    assert (await authenticator.authenticate(basic("admin", "new"), now=0)).uid == "2"
    with pytest.raises(Refused):
        await authenticator.authenticate(basic("admin", "old"), now=0)
    assert "line 2: the user of line 1 again" in caplog.text


@pytest.mark.parametrize(
    "header",
    [
        "Basic",
        "Basic ",
        "Basic !!!",
        "Basic é",
        "Basic \u2603",
        "basic " + base64.b64encode(b"admin").decode(),
        "Basic " + base64.b64encode(b":pw1").decode(),
        "Basic " + base64.b64encode(b"admin:").decode(),
        "Basic " + base64.b64encode(b"admin:\xff").decode(),
        "Basic " + base64.b64encode(b"admin:pw1\n").decode(),
        "Basic " + base64.b64encode(b"nobody:pw1").decode(),
        "Basic " + base64.b64encode(b"x" * 2**20).decode(),
    ],
)
async def test_wrong_basic_credentials_are_refused(passwords, header):
    """FILE-10."""
    with pytest.raises(Refused):
        await BasicFileAuthenticator(passwords).authenticate(Credentials(authorization=header), now=0)


async def test_other_credentials_are_not_the_basic_files_business(passwords):
    """AN9."""
    authenticator = BasicFileAuthenticator(passwords)
    assert await authenticator.authenticate(Credentials(), now=0) is None
    assert await authenticator.authenticate(bearer("pw1"), now=0) is None


def webhook_with_token(path):
    path.with_name("webhook.yaml").touch(mode=0o600)
    path.with_name("webhook.yaml").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
        "clusters: [{name: c, cluster: {server: 'https://hook.test'}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
        f"users: [{{name: u, user: {{tokenFile: {path.name}}}}}]\n"
    )
    webhook_of_file(path.with_name("webhook.yaml"))


def signing_key(path):
    path.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    KeyFiles([path], path)


def server_key(path):
    pair = pki.make_server_certificate(AUTHORITY, ["localhost"], now=datetime.now(UTC))
    path.write_bytes(pair.key)
    certificate = path.with_name("server.crt")
    certificate.write_bytes(pair.certificate)
    ServerTls(Certificates(certificate, path, certificate, (certificate,), certificate, path, (), path, path)).check()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o604, 0o602, 0o644])
@pytest.mark.parametrize(
    "read",
    [TokenFileAuthenticator, BasicFileAuthenticator, webhook_with_token, signing_key, server_key],
    ids=lambda read: read.__name__,
)
def test_secrets_that_everybody_may_read_are_named_in_the_log(read, mode, tmp_path, caplog):
    """GW9: every file with secrets, whoever reads it; a group of its own is the operator's choice."""
    path = tmp_path / "secrets"
    path.write_text("s3cret,alice,1,,t1\n")
    path.chmod(mode)
    with caplog.at_level(logging.WARNING):
        read(path)
    named = [record.getMessage() for record in caplog.records if record.name == "access.reloading"]
    assert named == ([f"{path} holds secrets and is open to everybody on this host: chmod o= it"] if mode & 0o6 else [])
    assert "s3cret" not in caplog.text


async def test_old_lines_and_the_documents_form_load(tmp_path):
    """AN4: what Kubernetes takes, and the form of the access-control document."""
    path = tmp_path / "tokens.csv"
    path.write_text('s1,alice,1,"dev",note,more,most\ns2,bob,2,,t1\ns3,root,3\n')
    authenticator = TokenFileAuthenticator(path)
    tenants = [(await authenticator.authenticate(bearer(token), now=0)).tenant for token in ("s1", "s2", "s3")]
    assert tenants == ["system", "t1", "system"]
