"""The flags of ``manage.py apiserver`` are read as kube-apiserver reads its own, and each may stand in a setting."""

from __future__ import annotations

from argparse import Action
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from access.flags import FlagParser
from gateway.management.commands.apiserver import Command, declare
from gateway.options import DEFAULT_ISSUER
from tests.gateway.callers import Caller
from tests.gateway.conftest import Server, another
from tests.gateway.test_tokens import ACCOUNTS, SELF, WHOAMI, claims_of

BEFORE, AFTER = "https://before.example", "https://after.example"


def read(*flags: str) -> dict[str, Any]:
    return vars(Command().create_parser("manage.py", "apiserver").parse_args(flags))


def declared() -> dict[str, Action]:
    parser = FlagParser()
    declare(parser)
    return {action.option_strings[0]: action for action in parser._actions}


OWN = declared()
FLAGS = sorted(OWN)
SWITCHES = [flag for flag in FLAGS if isinstance(OWN[flag].default, bool)]
GROWING = [flag for flag in FLAGS if isinstance(OWN[flag].default, tuple)]


def sample(flag: str) -> tuple[str, ...]:
    """Two values that the flag takes; neither is its default."""
    action = OWN[flag]
    if flag == "--authorization-mode":
        return "RBAC", "ABAC"
    if action.choices is not None:
        first, *_, last = action.choices
        return str(first), str(last)
    if flag in SWITCHES:
        return "true", "false"
    if flag in ("--oidc-required-claim", "--keystone-domain-tenant"):
        return "a=b", "c=d"
    return ("7", "9") if isinstance(action.default, int | float) else ("/some", "/others")


def test_all_kinds_of_flags_are_looked_at() -> None:
    """Else the generated tests below would prove nothing."""
    assert {"--anonymous-auth", "--permit-port-sharing", "--authentication-token-webhook-trusted"} == set(SWITCHES)
    lists = {"--authorization-mode", "--api-audiences", "--service-account-issuer", "--service-account-key-file"}
    lists |= {"--enable-admission-plugins", "--disable-admission-plugins", "--oidc-signing-algs"}
    lists |= {"--webhook-service-accounts", "--oidc-required-claim", "--keystone-domain-tenant"}
    assert lists == set(GROWING)
    assert len(FLAGS) > 50


@pytest.mark.parametrize("flag", SWITCHES)
def test_a_switch_takes_what_go_takes_for_true_and_false(flag: str) -> None:
    name = OWN[flag].dest
    assert read()[name] is False
    assert read(flag)[name] is True
    assert read(flag, "--workers=2")[name] is True
    for text in ("true", "True", "TRUE", "t", "T", "1"):
        assert read(f"{flag}={text}")[name] is True
    for text in ("false", "False", "FALSE", "f", "F", "0"):
        assert read(f"{flag}={text}")[name] is False
    assert read(flag, f"{flag}=false")[name] is False
    assert read(f"{flag}=false", flag)[name] is True
    for text in ("", "maybe", "yes", "tRUE", "2"):
        with pytest.raises(CommandError, match=f"{flag}: '{text}' is neither true nor false"):
            read(f"{flag}={text}")


@pytest.mark.parametrize("flag", GROWING)
def test_a_list_grows_with_each_time_that_it_is_given(flag: str) -> None:
    name, (first, second) = OWN[flag].dest, sample(flag)
    alone = read(f"{flag}={first}")[name]
    assert len(alone) == 1
    assert read(f"{flag}={first}", f"{flag}={second}")[name] == (*alone, *read(f"{flag}={second}")[name])


@pytest.mark.parametrize("flag", ["--api-audiences", "--disable-admission-plugins", "--oidc-signing-algs"])
def test_a_list_of_names_is_read_at_its_commas_too(flag: str) -> None:
    assert read(f"{flag}=a,b", f"{flag}=c")[OWN[flag].dest] == ("a", "b", "c")


@pytest.mark.parametrize("flag", sorted(set(FLAGS) - set(GROWING)))
def test_of_any_other_flag_the_last_one_counts(flag: str) -> None:
    name, (first, second) = OWN[flag].dest, sample(flag)
    assert read(f"{flag}={first}", f"{flag}={second}")[name] == read(f"{flag}={second}")[name]


@pytest.mark.parametrize("flag", FLAGS)
def test_each_flag_may_stand_in_the_setting_and_the_command_line_wins(settings: Any, flag: str) -> None:
    name, (first, second) = OWN[flag].dest, sample(flag)
    wanted, other = read(f"{flag}={first}"), read(f"{flag}={second}")
    assert wanted[name] != other[name]
    settings.APISERVER_FLAGS = [f"{flag}={first}"]
    assert read() == wanted
    assert read(f"{flag}={second}") == other


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--anonymous-auth=maybe"], "APISERVER_FLAGS: argument --anonymous-auth: 'maybe' is neither true nor false"),
        (["--no-such-flag"], "APISERVER_FLAGS: unrecognized arguments: --no-such-flag"),
        (["--tenant-read-qps=many"], "APISERVER_FLAGS: argument --tenant-read-qps: a number from 0 is expected"),
    ],
)
def test_a_setting_that_cannot_be_read_stops_the_start(settings: Any, flags: list[str], said: str) -> None:
    settings.APISERVER_FLAGS = flags
    with pytest.raises(CommandError, match=said):
        call_command("apiserver")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--authorization-mode=RBAC", "--authorization-mode=RBAC"], "a mode is named twice"),
        (["--authorization-mode=RBAC,Bad"], "'Bad' is none of RBAC, ABAC"),
        (["--service-account-issuer=a", "--service-account-issuer=a"], "is given once"),
        (["--service-account-issuer="], "every issuer has a name"),
        (["--anonymous-auth=true", "--authorization-mode=AlwaysAllow"], "exclude each other"),
        (["--disable-admission-plugins=LimitRanger", "--disable-admission-plugins=Nope"], "Nope is unknown"),
    ],
)
def test_what_means_nothing_stops_the_start(flags: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        call_command("apiserver", *flags)


def test_a_file_that_is_named_by_nothing_is_none() -> None:
    """As in scripts that write ``--client-ca-file=$FILE``."""
    assert read("--client-ca-file=", "--audit-log-path=-")["client_ca_file"] is None
    assert read("--audit-log-path=-")["audit_log_path"] == Path("-")


def test_a_server_goes_by_the_setting_and_accepts_all_of_its_issuers(
    server: Server, alice: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AN6, AN11: an issuer is changed without ending what was issued; the first is that of new tokens."""
    alice.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "renamed"}})

    def token(who: Caller) -> str:
        return str(who.post(f"{ACCOUNTS}/renamed/token", {"spec": {}}).body["status"]["token"])

    old = token(alice)
    issuers = (f"--service-account-issuer={AFTER}", f"--service-account-issuer={BEFORE}")
    monkeypatch.setenv("APISERVER_FLAGS", f"--anonymous-auth {' '.join(issuers)} --audit-log-path=/none/such")
    keys = f"--service-account-key-file={server.folder / 'pki' / 'service-account.key'}"
    own = f"--service-account-signing-key-file={server.folder / 'pki' / 'service-account.key'}"
    shared = (keys, own, f"--client-ca-file={server.folder / 'pki' / 'client-ca.crt'}", "--audit-log-path=")
    with another(server, tmp_path / "first", *shared) as first:
        assert first.nobody.get("/api/v1/namespaces").status == 403, "the setting lets anonymous users in"
        mine = Caller(first.url, first.folder / "pki" / "ca.crt", certificate=alice.certificate, key=alice.key)
        new = token(mine)
        assert (claims_of(old)["iss"], claims_of(new)["iss"]) == (DEFAULT_ISSUER, AFTER)
        assert claims_of(new)["aud"] == [AFTER, BEFORE]
        assert first.bearer(new).post(WHOAMI, SELF).status == 201
        assert first.bearer(old).post(WHOAMI, SELF).status == 401
        document = first.admin.get("/.well-known/openid-configuration").body
        assert document["issuer"] == AFTER
    accepted = (f"--service-account-issuer={DEFAULT_ISSUER}", f"--service-account-issuer={AFTER}")
    with another(server, tmp_path / "second", *shared, *accepted, "--anonymous-auth=false") as second:
        assert second.nobody.get("/api/v1/namespaces").status == 401, "the command line wins"
        for known in (old, new):
            assert second.bearer(known).post(WHOAMI, SELF).status == 201
            review = {"spec": {"token": known, "audiences": claims_of(known)["aud"][:1]}}
            reviewed = second.admin.post("/apis/authentication.k8s.io/v1/tokenreviews", review).body["status"]
            assert reviewed["authenticated"] is True
        mine = Caller(second.url, second.folder / "pki" / "ca.crt", certificate=alice.certificate, key=alice.key)
        assert claims_of(token(mine))["iss"] == DEFAULT_ISSUER
