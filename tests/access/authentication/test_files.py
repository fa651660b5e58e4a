"""Signing in by token file and basic-auth file (AN4, AN5)."""

import base64
import logging

import pytest

from access.authentication.base import Credentials, Refused
from access.authentication.basicfile import BasicFileAuthenticator
from access.authentication.tokenfile import TokenFileAuthenticator
from access.reloading import UnusableFile


def bearer(token):
    return Credentials(authorization=f"Bearer {token}")


def basic(user, password):
    return Credentials(authorization="Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens.csv"
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


@pytest.mark.parametrize("token", ["s", " s1", "S1", "s1\n", "é", "\u2603", "x" * 100_000, "s1,alice"])
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
    path.write_text("s,alice,1,,,t1\n\ns2,bob,2,dev,note,t2\n")
    with pytest.raises(UnusableFile, match=rf"{path}, line 3: several columns"):
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
