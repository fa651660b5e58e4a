"""The sign-in of kubectl: who may let which machine in, what that gives, and when it ends (D9; RFC 7636, 8252, 8628)."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import secrets
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.conf import settings as django_settings
from django.test import Client
from django.utils import timezone

from access.credentials import credential_revoke
from access.models import Credential, Login
from audit.models import AuditEntry
from portal.signin.accounts import password_change
from tenants import actionlimits
from tenants.models import Cluster, CredentialKind, User
from tenants.services import membership_remove, workspace_suspend
from tests import factories
from tests.portal.conftest import House, signed_in, stranger
from tests.tenants.conftest import OPERATOR, actor_of

HERE = {"SERVER_NAME": "127.0.0.1"}
"""Of a portal without TLS the library takes what is of this machine alone."""

REDIRECT = "http://127.0.0.1:40123/callback"
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


@pytest.fixture(autouse=True)
def _ready(acme: House, settings: Any, tmp_path: Path) -> None:
    """The portal has its key, and the cluster offers the sign-in."""
    key = ec.generate_private_key(ec.SECP256R1())
    settings.PORTAL_TOKEN_KEY_FILE = tmp_path / "key"
    settings.PORTAL_TOKEN_KEY_FILE.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    Cluster.objects.update(credential_kinds=CredentialKind.values, kind=Cluster.Kind.EMBEDDED, ca_data="")


class Machine:
    """A machine with the plugin: it knows what it has asked for, and nothing of the browser's session."""

    def __init__(self) -> None:
        self.http = stranger(**HERE)
        self.verifier, self.state = secrets.token_urlsafe(48), secrets.token_urlsafe(16)
        self.secret = ""

    def query(self, **changes: str) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": "tenantry-login",
            "redirect_uri": REDIRECT,
            "state": self.state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "machine": "laptop",
            **changes,
        }
        return "/oauth/authorize/?" + urlencode({name: value for name, value in asked.items() if value})

    def token(self, resource: str, **fields: str) -> Any:
        answer = self.http.post("/oauth/token/", {"client_id": "tenantry-login", "resource": resource, **fields})
        if answer.status_code == 200:
            self.secret = answer.json()["refresh_token"]
        return answer

    def redeem(self, code: str, resource: str, **changes: str) -> Any:
        fields = {"code": code, "redirect_uri": REDIRECT, "code_verifier": self.verifier, **changes}
        return self.token(resource, grant_type="authorization_code", **fields)

    def refresh(self, resource: str, secret: str = "", **fields: str) -> Any:
        return self.token(resource, grant_type="refresh_token", refresh_token=secret or self.secret, **fields)


def allowed(browser: Client, machine: Machine, decision: str = "allow", **changes: str) -> dict[str, str]:
    """What the browser brings back to the machine after the person has decided."""
    page = browser.post(machine.query(**changes), {"decision": decision})
    assert page.status_code == 200, page.content.decode()
    found = re.search(r'content="0; url=([^"]+)"', page.content.decode())
    assert found is not None
    parts = urlsplit(html.unescape(found[1]))
    assert f"{parts.scheme}://{parts.netloc}{parts.path}" == REDIRECT
    return {name: values[0] for name, values in parse_qs(parts.query).items()}


def place(house: House) -> str:
    return f"{django_settings.PORTAL_URL}/workspaces/{house.workspace.pk}"


@pytest.fixture
def browser(acme: House) -> Client:
    return signed_in(acme.editor, **HERE)


@pytest.fixture
def machine(acme: House, browser: Client) -> Iterator[Machine]:
    """One on which acme's editor is signed in."""
    made = Machine()
    said = allowed(browser, made)
    assert said["state"] == made.state
    assert made.redeem(said["code"], place(acme)).status_code == 200
    yield made


def claims_of(answer: Any) -> dict[str, Any]:
    return jwt.decode(answer.json()["access_token"], options={"verify_signature": False})


def test_a_machine_gets_short_tokens_for_as_long_as_the_browser_is_signed_in(
    acme: House, browser: Client, machine: Machine
) -> None:
    """The credential is one row that names the login; each token lives ten minutes, each secret opens once."""
    answer = machine.refresh(place(acme))
    said = claims_of(answer)
    assert said["exp"] - said["iat"] == 600
    assert answer.headers["Cache-Control"] == "no-store"
    credential = Credential.objects.get()
    assert (credential.kind, credential.role, str(credential.jti)) == ("exec", "editor", said["jti"])
    assert credential.expires_at == Login.objects.get().session.expire_date
    tenant = machine.refresh(f"{django_settings.PORTAL_URL}/tenants/acme", scope="viewer")
    assert tenant.status_code == 200, tenant.content
    assert Credential.objects.get(workspace=None).role == "viewer"
    assert AuditEntry.objects.filter(action="IssueKubeconfig", outcome="success").count() == 2
    page = browser.get("/credentials/").content.decode()
    assert "laptop" in page
    assert "Signed in" in page
    browser.post("/logout/")
    ended = machine.refresh(place(acme))
    assert (ended.status_code, ended.json()["error_description"]) == (400, "The session has ended, sign in again.")
    assert Login.objects.get().session_id is None


@pytest.mark.parametrize(
    "how", ["revoked", "revoked credential", "password", "disabled", "removed", "suspended", "expired"]
)
def test_it_ends_with_what_it_rests_on(how: str, acme: House, browser: Client, machine: Machine) -> None:
    """Whatever ends the right, the next token is refused, in words."""
    now, user = timezone.now(), User.objects.get(pk=acme.editor.pk)
    if how == "revoked":
        assert browser.post(f"/logins/{Login.objects.get().pk}/revoke/").status_code == 302
    elif how == "revoked credential":
        credential_revoke(actor=actor_of(user), jti=str(Credential.objects.get().jti), now=now)
    elif how == "password":
        password_change(actor=actor_of(user), user=user, password="another good password")
    elif how == "disabled":
        User.objects.filter(pk=user.pk).update(status="disabled")
    elif how == "removed":
        membership_remove(actor=actor_of(acme.owner), tenant="acme", user=user)
    elif how == "suspended":
        workspace_suspend(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="mining")
    else:
        login = Login.objects.get()
        login.session.expire_date = now - timedelta(seconds=1)
        login.session.save()
    answer = machine.refresh(place(acme))
    words = {
        "revoked credential": "This credential was revoked; tenantry-login logout, then sign in again for another.",
        "removed": f"workspaces '{acme.workspace.pk}' not found",
        "suspended": "The workspace is suspended: mining",
    }
    assert answer.json()["error_description"] == words.get(how, "The session has ended, sign in again.")
    assert answer.status_code == (403 if how in words else 400)


def test_a_secret_opens_once_and_two_hands_end_the_login(acme: House, machine: Machine) -> None:
    """RFC 9700, 4.14: a lost answer costs nothing, a stolen secret ends everything."""
    first = machine.secret
    lost = machine.refresh(place(acme)).json()["refresh_token"]
    assert machine.refresh(place(acme), first).status_code == 200, "the answer was lost, nobody has used it"
    second = machine.secret
    assert machine.refresh(place(acme), second).status_code == 200
    living = machine.secret
    assert machine.refresh(place(acme), lost).status_code == 400, "somebody else has it"
    assert machine.refresh(place(acme), living).status_code == 400, "so nobody has"
    assert AuditEntry.objects.get(action="login.revoke").detail["way"] == "a secret that was used twice"


def test_a_code_is_good_once_for_who_asked_and_for_a_minute(acme: House, browser: Client) -> None:
    """Another's verifier or redirect, a second use, too late: nothing; and a second use ends what came of the first."""
    asking, other = Machine(), Machine()
    code = allowed(browser, asking)["code"]
    for fields in (
        {"code_verifier": other.verifier},
        {"code_verifier": ""},
        {"redirect_uri": "http://127.0.0.1:40124/callback"},
        {"redirect_uri": ""},
        {"client_id": "another"},
        {"code": other.state},
        {"code": 'x"\\'},
    ):
        answer = asking.redeem(**{"code": code, "resource": place(acme), **fields})
        assert answer.status_code in {400, 401}, fields
        assert "access_token" not in answer.json()
    assert asking.redeem(code, place(acme)).status_code == 200
    assert other.redeem(code, place(acme), code_verifier=asking.verifier).status_code == 400
    assert asking.refresh(place(acme)).status_code == 400, "the code was in two hands"
    late = allowed(browser, asking)["code"]
    Login.objects.filter(redeemed_at=None).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert asking.redeem(late, place(acme)).status_code == 400


@pytest.mark.parametrize(
    "change",
    [
        {"redirect_uri": "https://evil.example/callback"},
        {"redirect_uri": "http://127.0.0.1.evil.example:40123/callback"},
        {"redirect_uri": "http://127.0.0.1:40123/callback/../x"},
        {"redirect_uri": "http://127.0.0.1:80/callback"},
        {"redirect_uri": "http://127.0.0.1:99999/callback"},
        {"redirect_uri": "http://user@127.0.0.1:40123/callback"},
        {"redirect_uri": "http://localhost:40123/callback"},
        {"redirect_uri": 'http://127.0.0.1:40123/callback"'},
        {"redirect_uri": ""},
        {"client_id": "another"},
        {"client_id": ""},
        {"response_type": "token"},
        {"code_challenge": ""},
        {"code_challenge": "short"},
        {"code_challenge_method": "plain"},
        {"code_challenge_method": ""},
        {"state": ""},
    ],
)
def test_the_page_asks_for_nothing_that_could_go_elsewhere(change: dict[str, str], browser: Client) -> None:
    """RFC 8252, 9700: an exact loopback redirect, S256 and a state, or no question at all."""
    path = Machine().query(**change)
    for answer in (browser.get(path), browser.post(path, {"decision": "allow"})):
        assert answer.status_code == 400
        assert "Allow</button>" not in answer.content.decode()
    assert not Login.objects.exists()


def test_consent_is_the_persons_own(acme: House) -> None:
    """No session, no question; no token of the form, no consent; refused is refused."""
    machine = Machine()
    assert Client(**HERE).get(machine.query()).status_code == 302
    strict = signed_in(acme.editor, enforce_csrf_checks=True, **HERE)
    page = strict.get(machine.query())
    assert acme.editor.email in page.content.decode()
    assert page.headers["X-Frame-Options"] == "DENY"
    assert strict.post(machine.query(), {"decision": "allow"}).status_code == 403
    assert not Login.objects.exists()
    said = allowed(signed_in(acme.editor, **HERE), machine, "deny")
    assert (said["error"], said["state"]) == ("access_denied", machine.state)


def asked_by_device(machine: Machine) -> dict[str, Any]:
    answer = machine.http.post("/oauth/device/", {"client_id": "tenantry-login", "machine": "build-7"})
    assert answer.status_code == 200
    return dict(answer.json())


def test_a_device_is_let_in_by_whoever_enters_its_code(acme: House, browser: Client) -> None:
    """RFC 8628: asking too often slows down, the page says which machine asks, and warns of codes that others sent."""
    machine = Machine()
    asked = asked_by_device(machine)
    fields = {"grant_type": DEVICE, "device_code": asked["device_code"]}
    assert machine.token(place(acme), **fields).json()["error"] == "authorization_pending"
    assert machine.token(place(acme), **fields).json()["error"] == "slow_down"
    page = browser.post("/device/", {"user_code": asked["user_code"].lower().replace("-", "")}).content.decode()
    assert "build-7" in page
    assert "Has somebody sent you this code?" in page
    assert not Login.objects.exclude(user=None).exists(), "the code alone lets nobody in"
    browser.post("/device/", {"user_code": asked["user_code"], "decision": "allow"})
    assert machine.token(place(acme), **fields).status_code == 200
    assert machine.token(place(acme), **fields).status_code == 400, "good once"
    assert machine.refresh(place(acme)).status_code == 200
    actions = list(AuditEntry.objects.filter(action__startswith="login.").values_list("action", "actor"))
    assert actions == [("login.allow", acme.editor.email)]
    refused = Machine()
    asked = asked_by_device(refused)
    browser.post("/device/", {"user_code": asked["user_code"], "decision": "deny"})
    answer = refused.token(place(acme), grant_type=DEVICE, device_code=asked["device_code"])
    assert answer.json()["error"] == "access_denied"


def test_codes_of_devices_are_not_guessed(acme: House, browser: Client) -> None:
    """Five at once, then one a minute, right or wrong; a code is over after ten minutes."""
    machine = Machine()
    asked = asked_by_device(machine)
    answers = [browser.post("/device/", {"user_code": f"BCDF-GHJ{letter}"}) for letter in "BCDFG"]
    assert all("No device waits" in answer.content.decode() for answer in answers)
    late = browser.post("/device/", {"user_code": asked["user_code"], "decision": "allow"})
    assert "Too many" in late.content.decode() or late.status_code == 422
    assert Login.objects.get().user is None
    Login.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    other = signed_in(acme.viewer, **HERE)
    assert "No device waits" in other.post("/device/", {"user_code": asked["user_code"]}).content.decode()
    said = machine.token(place(acme), grant_type=DEVICE, device_code=asked["device_code"]).json()
    assert said["error"] == "expired_token"


def test_tokens_are_for_ones_own_places_and_roles(acme: House, globex: House, machine: Machine) -> None:
    """Another tenant's workspace, more than one's role, no place of this portal: refused, in words that tell nothing."""
    portal = django_settings.PORTAL_URL
    for resource, scope, status, error in (
        (f"{portal}/workspaces/{globex.workspace.pk}", "", 403, "access_denied"),
        (f"{portal}/tenants/globex", "", 403, "access_denied"),
        (f"{portal}/tenants/nowhere", "", 403, "access_denied"),
        (place(acme), "admin", 403, "access_denied"),
        (f"{portal}/tenants/acme", "owner", 403, "access_denied"),
        (place(acme), "god", 400, "invalid_scope"),
        (f"https://evil.example/workspaces/{acme.workspace.pk}", "", 400, "invalid_target"),
        (f"{portal}/workspaces/x", "", 400, "invalid_target"),
        ("", "", 400, "invalid_target"),
    ):
        answer = machine.refresh(resource, **({"scope": scope} if scope else {}))
        assert (answer.status_code, answer.json()["error"]) == (status, error), resource
        assert "globex-web" not in answer.content.decode()
    assert machine.refresh(place(acme)).status_code == 200


def api(user: User, path: str, body: dict[str, str]) -> Any:
    client = signed_in(user, **HERE)
    return client.post(f"/api/v1/{path}", body, content_type="application/json", headers={"X-Requested-With": "test"})


def test_files_for_it_hold_no_secret_and_are_made_by_the_api(acme: House, globex: House) -> None:
    """``"via": "exec"`` for a workspace and for a tenant: a command for kubectl, and nothing that ends or was issued."""
    workspace = api(acme.editor, f"workspaces/{acme.workspace.pk}/credentials", {"via": "exec"})
    assert workspace.status_code == 201, workspace.content
    said = workspace.json()
    assert (said["via"], said["expires_at"], said["jti"]) == ("exec", None, None)
    assert workspace.headers["Cache-Control"] == "no-store"
    tenant = api(acme.editor, "tenants/acme/kubeconfig", {"via": "exec", "role": "viewer"})
    assert (tenant.status_code, tenant.json()["via"], tenant.json()["credentials"]) == (201, "exec", [])
    portal = django_settings.PORTAL_URL
    for answer, names, arguments in (
        (said, ["acme.acme-web.exec"], ["--resource", f"{portal}/workspaces/{acme.workspace.pk}"]),
        (
            tenant.json(),
            ["acme.viewer.exec", "acme.acme-web.viewer.exec"],
            ["--resource", f"{portal}/tenants/acme", "--role", "viewer"],
        ),
    ):
        config = yaml.safe_load(answer["kubeconfig"])
        assert [context["name"].partition("@")[0] for context in config["contexts"]] == names
        for entry in config["users"]:
            assert list(entry["user"]) == ["exec"]
            assert entry["user"]["exec"]["args"] == ["--portal", portal, *arguments]
    assert not Credential.objects.exists()
    for path, body, status in (
        (f"workspaces/{acme.workspace.pk}/credentials", {"via": "exec", "role": "admin"}, 403),
        (f"workspaces/{acme.workspace.pk}/credentials", {"via": "carrier pigeon"}, 400),
        (f"workspaces/{globex.workspace.pk}/credentials", {"via": "exec"}, 404),
        ("tenants/acme/kubeconfig", {"via": "exec", "role": "admin"}, 403),
        ("tenants/acme/kubeconfig", {"via": "direct"}, 400),
        ("tenants/globex/kubeconfig", {"via": "exec"}, 404),
    ):
        assert api(acme.editor, path, body).status_code == status, path
    Cluster.objects.update(credential_kinds=["gateway", "direct"])
    refused = api(acme.editor, f"workspaces/{acme.workspace.pk}/credentials", {"via": "exec"})
    assert (refused.status_code, "offers other credentials: gateway, direct" in refused.json()["detail"]) == (409, True)


def test_what_goes_wrong_is_told_in_oauths_words(acme: House, machine: Machine) -> None:
    """No request answers 500: another host without TLS, no client, no grant, what is no form at all."""
    plain = stranger()
    for path, fields, error in (
        ("token", {"client_id": "tenantry-login"}, "insecure_transport"),
        ("device", {"client_id": "tenantry-login"}, "insecure_transport"),
        ("revoke", {"client_id": "tenantry-login", "token": "x"}, "insecure_transport"),
    ):
        answer = plain.post(f"/oauth/{path}/", fields)
        assert (answer.status_code, answer.json()["error"]) == (400, error)
    for path, fields in (
        ("token", {}),
        ("token", {"client_id": "tenantry-login", "grant_type": "password", "username": "a", "password": "b"}),
        ("token", {"client_id": "tenantry-login", "grant_type": DEVICE, "device_code": "x"}),
        ("token", {"client_id": "tenantry-login", "grant_type": "refresh_token", "refresh_token": "\x00."}),
        ("device", {}),
        ("device", {"client_id": "another"}),
        ("revoke", {"client_id": "tenantry-login"}),
    ):
        answer = machine.http.post(f"/oauth/{path}/", fields)
        assert answer.status_code == 400, (path, fields)
        assert answer.json()["error"]
    assert machine.refresh(place(acme), f"{Login.objects.get().pk.hex}.guessed").status_code == 400
    assert machine.refresh(place(acme)).status_code == 200, "a guess ends nobody's login"


def test_a_machine_that_asks_without_end_waits(acme: House, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own uses are counted, not its address': others behind it are not kept out."""
    monkeypatch.setattr(actionlimits, "LOGIN_USES", actionlimits.Bucket("login-uses", burst=2, interval=3600))
    answers = [machine.refresh(place(acme)).status_code for _ in range(2)]
    assert answers == [200] * 2
    late = machine.refresh(place(acme))
    assert (late.status_code, late.json()["error"]) == (429, "slow_down")
    other = Machine()
    other.http = machine.http
    code = allowed(signed_in(acme.viewer, **HERE), other)["code"]
    assert other.redeem(code, place(acme)).status_code == 200


def test_a_machine_signs_itself_out(acme: House, machine: Machine) -> None:
    """RFC 7009."""
    answer = machine.http.post("/oauth/revoke/", {"client_id": "tenantry-login", "token": machine.secret})
    assert answer.status_code == 200
    assert machine.refresh(place(acme)).status_code == 400


def test_no_secret_of_a_login_is_kept(acme: House, browser: Client, caplog: pytest.LogCaptureFixture) -> None:
    """GW9: digests alone, and nothing in the log, though the library would write tokens there."""
    caplog.set_level("DEBUG", "portal")
    machine = Machine()
    code = allowed(browser, machine)["code"]
    token = machine.redeem(code, place(acme)).json()["access_token"]
    kept = repr(list(Login.objects.values_list())) + repr(list(AuditEntry.objects.values_list())) + caplog.text
    kept += repr(list(Credential.objects.values_list()))
    for secret in (code, token, machine.secret, machine.secret.partition(".")[2]):
        assert secret not in kept


def test_logins_of_others_are_nobodys_to_end(acme: House, globex: House, machine: Machine) -> None:
    path = f"/logins/{Login.objects.get().pk}/revoke/"
    assert "There is no such login." in signed_in(globex.owner).post(path).content.decode()
    assert machine.refresh(place(acme)).status_code == 200
    assert signed_in(factories.operator()).post(path).status_code == 302
    assert machine.refresh(place(acme)).status_code == 400


def test_the_plugin_is_served_as_one_file() -> None:
    answer = Client().get("/tenantry-login")
    text = b"".join(answer.streaming_content)  # type: ignore[arg-type]
    assert text.startswith(b"#!/usr/bin/env python3")
    compile(text, "tenantry-login", "exec")


@pytest.mark.parametrize(
    ("path", "limit"),
    [("/oauth/device/", "LOGIN_ASKED"), ("/oauth/token/", "LOGIN_TOKENS"), ("/oauth/revoke/", "LOGIN_TOKENS")],
)
def test_a_stranger_with_a_network_of_addresses_has_one_strangers_tries(
    path: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """API-34: each wish of a device is a row, and each code a guess."""
    monkeypatch.setattr(actionlimits, limit, actionlimits.Bucket(limit.lower(), burst=2, interval=3600))
    network = f"2001:db8:{secrets.token_hex(2)}:{secrets.token_hex(2)}"
    codes = [
        Client(REMOTE_ADDR=f"{network}::{number}").post(path, {"client_id": "tenantry-login", "token": "x"}).status_code
        for number in (1, 2, 3)
    ]
    assert (429 in codes[:2], codes[2]) == (False, 429)
