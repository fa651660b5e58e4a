"""Sign-in by a real OpenID Connect provider (GW16)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client
from django.utils import timezone

from audit.actions import Action
from audit.models import AuditEntry
from portal.backup.closing import credentials_end_all
from portal.signin.accounts import access_end, user_change
from portal.signin.oidc import mapping
from portal.signin.oidc.provider import LEEWAY_SECONDS, configured
from tenants.models import Membership, Role, User
from tests import factories
from tests.portal.conftest import House, signed_in, stranger
from tests.portal.providers import ELSEWHERE, Provider, begin, come_back, providing, query
from tests.portal.test_downloads import cut_off
from tests.tenants.conftest import OPERATOR


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with providing(tmp_path_factory.mktemp("provider")) as provider:
        yield provider


@pytest.fixture
def provider(running: Provider, settings: Any) -> Iterator[Provider]:
    yield from using(running, settings)


def using(provider: Provider, settings: Any) -> Iterator[Provider]:
    """The settings of this provider, and nothing of the test before."""
    settings.OIDC_OP_ISSUER = provider.url
    settings.OIDC_OP_CA_FILE = provider.ca
    settings.OIDC_RP_CLIENT_ID = "tenantry"
    settings.OIDC_RP_CLIENT_SECRET = "s3cret/+&"
    settings.OIDC_PROVIDER_NAME = "Acme SSO"
    provider.down, provider.describe, provider.change = False, {}, None
    provider.asked.clear()
    provider.person("u-1", email="ada@acme.test", email_verified=True, name="Ada")
    made = configured()
    assert made is not None
    made._description = None
    yield provider
    made.close()


def sign_in(provider: Provider, subject: str = "u-1", client: Client | None = None) -> Any:
    client = client or stranger()
    response = come_back(client, provider.consent(begin(client), subject))
    response.browser = client
    return response


def denied(reason: str) -> bool:
    """Whether the last event is a refused sign-in for this reason."""
    entry = AuditEntry.objects.filter(action=Action.SIGN_IN).order_by("-sequence").first()
    return entry is not None and entry.outcome == "denied" and reason in entry.detail["reason"]


def test_first_sign_in_makes_an_account_by_issuer_and_subject(provider: Provider) -> None:
    response = sign_in(provider)
    assert (response.status_code, response.headers["Location"]) == (302, "/")
    user = User.objects.get(issuer=provider.url, subject="u-1")
    assert (user.email, user.name, user.is_staff, user.has_usable_password()) == ("ada@acme.test", "Ada", False, False)
    assert response.browser.get("/").context["user"] == user
    entry = AuditEntry.objects.get(action=Action.SIGN_IN)
    assert (entry.outcome, entry.actor, entry.detail) == ("success", user.email, {"by": provider.url})
    assert AuditEntry.objects.get(action=Action.USER_CREATED).actor == "system:oidc"
    assert sign_in(provider).status_code == 302
    assert User.objects.count() == 1


def test_request_carries_state_nonce_and_a_challenge(provider: Provider) -> None:
    """OIDC-02."""
    sent = query(begin(stranger()))
    assert sent["code_challenge_method"] == "S256"
    assert min(len(sent[name]) for name in ("state", "nonce", "code_challenge")) >= 32
    assert sent["redirect_uri"] == "http://testserver/oidc/callback/"
    assert sent["client_id"] == "tenantry"
    assert "secret" not in str(sent)


def test_button_is_there_only_when_a_provider_is_configured(provider: Provider, settings: Any) -> None:
    assert "Sign in with Acme SSO" in stranger().get("/login/").content.decode()
    settings.OIDC_OP_ISSUER = ""
    assert "Acme SSO" not in stranger().get("/login/").content.decode()
    assert stranger().get("/oidc/authenticate/").status_code == 404
    assert stranger().get("/oidc/callback/?state=x&code=y").status_code == 404


def test_session_key_changes_with_sign_in(provider: Provider) -> None:
    """OIDC-05."""
    client = stranger()
    address = begin(client)
    before = client.cookies[django_settings.SESSION_COOKIE_NAME].value
    come_back(client, provider.consent(address, "u-1"))
    assert client.cookies[django_settings.SESSION_COOKIE_NAME].value != before


@pytest.mark.parametrize("target", ELSEWHERE)
def test_target_elsewhere_is_not_followed(provider: Provider, target: str) -> None:
    client = stranger()
    response = come_back(client, provider.consent(begin(client, target), "u-1"))
    assert response.headers["Location"] == "/"


def test_target_here_is_followed(provider: Provider) -> None:
    client = stranger()
    assert "next=%2Fworkspaces%2F" in client.get("/login/?next=/workspaces/").content.decode()
    response = come_back(client, provider.consent(begin(client, "/workspaces/"), "u-1"))
    assert response.headers["Location"] == "/workspaces/"


def test_state_of_another_browser_missing_or_used_is_refused(provider: Provider) -> None:
    """OIDC-01."""
    client = stranger()
    back = provider.consent(begin(client), "u-1")
    for browser, address in ((stranger(), back), (client, "/oidc/callback/?code=x"), (client, "/oidc/callback/")):
        response = come_back(browser, address)
        assert response.status_code == 403
        assert "Begin again" in response.content.decode()
        assert denied("state is unknown")
    assert come_back(client, back).status_code == 302
    client.logout()
    assert come_back(client, back).status_code == 403
    assert not AuditEntry.objects.filter(actor="", outcome="success").exists()


def test_state_ends_after_ten_minutes(provider: Provider) -> None:
    client = stranger()
    back = provider.consent(begin(client), "u-1")
    session = client.session
    for begun in session["oidc_states"].values():
        begun["added_on"] = time.time() - 601
    session.save()
    assert come_back(client, back).status_code == 403
    assert denied("too old")


def test_code_of_another_sign_in_is_refused(provider: Provider) -> None:
    """OIDC-02: a code that was used, or that was injected into another browser's sign-in."""
    client = stranger()
    back = provider.consent(begin(client), "u-1")
    come_back(client, back)
    used = query(back)["code"]
    other = stranger()
    state = query(begin(other))["state"]
    assert come_back(other, f"/oidc/callback/?state={state}&code={used}").status_code == 403
    assert denied("did not take the code")
    third = stranger()
    state = query(begin(third))["state"]
    fresh = query(provider.consent(begin(stranger()), "u-1"))["code"]
    assert come_back(third, f"/oidc/callback/?state={state}&code={fresh}").status_code == 403
    assert denied("not of this sign-in")


WRONG = {
    "another issuer": (lambda c: {**c, "iss": "https://evil.test"}, "another issuer"),
    "another audience": (lambda c: {**c, "aud": "elsewhere"}, "another audience"),
    "another party": (lambda c: {**c, "azp": "elsewhere"}, "another party"),
    "several audiences without a party": (lambda c: {**c, "aud": ["tenantry", "x"]}, "several audiences"),
    "expired": (lambda c: {**c, "exp": int(time.time()) - 60}, "expired"),
    "no end": (lambda c: {k: v for k, v in c.items() if k != "exp"}, "exp is not a time"),
    "issued in the future": (lambda c: {**c, "iat": int(time.time()) + 600}, "issued in the future"),
    "another nonce": (lambda c: {**c, "nonce": "x"}, "not of this sign-in"),
    "no nonce": (lambda c: {k: v for k, v in c.items() if k != "nonce"}, "not of this sign-in"),
    "nonce as a list": (lambda c: {**c, "nonce": [c["nonce"]]}, "not of this sign-in"),
    "no subject": (lambda c: {k: v for k, v in c.items() if k != "sub"}, "somebody else"),
    "subject as a number": (lambda c: {**c, "sub": 1}, "somebody else"),
    "groups nested": (lambda c: {**c, "groups": [["x"]]}, "neither text nor a list"),
    "endless subject": (lambda c: {**c, "sub": "x" * 300}, "somebody else"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_token_is_refused_with_a_page(provider: Provider, case: str) -> None:
    """JWT-05 to JWT-10, OIDC-04."""
    provider.change, reason = WRONG[case]
    response = sign_in(provider)
    assert response.status_code == 403
    assert "You are not signed in" in response.content.decode()
    assert denied(reason)
    assert not User.objects.exists()


def test_expired_token_of_the_provider_itself_is_refused(tmp_path: Path, settings: Any) -> None:
    """The library lets this one escape as a 500."""
    with providing(tmp_path, timedelta(seconds=-60)) as running:
        for provider in using(running, settings):
            assert sign_in(provider).status_code == 403
            assert denied("expired")


def test_answer_of_another_provider_is_refused(provider: Provider) -> None:
    """OIDC-04; RFC 9207."""
    client = stranger()
    back = provider.consent(begin(client), "u-1")
    assert come_back(client, f"{back}&iss=https://evil.test").status_code == 403
    assert denied("another provider")


def test_refusal_at_the_provider_is_a_page_and_ends_the_state(provider: Provider, acme: House) -> None:
    client = signed_in(acme.owner)
    state = query(begin(client))["state"]
    assert come_back(client, f"/oidc/callback/?error=access_denied&state={state}").status_code == 403
    assert denied("the provider refused")
    assert come_back(client, f"/oidc/callback/?code=x&state={state}").status_code == 403
    assert denied("state is unknown")
    assert client.get("/").status_code == 200, "a stranger's link must not sign people out"


def test_address_of_another_account_gives_no_way_into_it(provider: Provider) -> None:
    """OIDC-07: neither with the first sign-in nor by a change later."""
    owner = factories.user("ada@acme.test")
    response = sign_in(provider)
    assert response.status_code == 403
    assert "u-1" in response.content.decode()
    assert denied("another account")
    provider.person("u-2", email="bob@acme.test", email_verified=True)
    assert sign_in(provider, "u-2").status_code == 302
    provider.person("u-2", email="ADA@acme.test", email_verified=True)
    assert sign_in(provider, "u-2").status_code == 302
    assert User.objects.get(subject="u-2").email == "bob@acme.test"
    owner.refresh_from_db()
    assert (owner.subject, owner.email) == ("", "ada@acme.test")


def test_changed_address_is_taken_over_when_it_is_verified_and_free(provider: Provider) -> None:
    sign_in(provider)
    provider.person("u-1", email="lovelace@acme.test", email_verified=False)
    sign_in(provider)
    assert User.objects.get().email == "ada@acme.test"
    provider.person("u-1", email="lovelace@acme.test", email_verified=True)
    sign_in(provider)
    assert User.objects.get().email == "lovelace@acme.test"


@pytest.mark.parametrize(
    "claims",
    [
        {"email": "eve@acme.test"},
        {"email": "eve@acme.test", "email_verified": "true"},
        {"email": "eve@acme.test", "email_verified": False},
        {"email": ["eve@acme.test"], "email_verified": True},
        {"email_verified": True},
    ],
)
def test_new_account_needs_a_verified_address(provider: Provider, claims: dict[str, object]) -> None:
    """JWT-16."""
    provider.person("u-9", **claims)
    assert sign_in(provider, "u-9").status_code == 403
    assert denied("not verified")


@pytest.mark.parametrize("email", ["no address", "x" * 250 + "@acme.test"])
def test_malformed_address_is_refused(provider: Provider, email: str) -> None:
    provider.person("u-9", email=email, email_verified=True)
    assert sign_in(provider, "u-9").status_code == 403
    assert denied("malformed")


def test_disabled_account_is_refused_and_loses_its_session(provider: Provider) -> None:
    client = sign_in(provider).browser
    User.objects.update(status=User.Status.DISABLED)
    assert client.get("/").status_code == 302
    assert sign_in(provider).status_code == 403
    assert denied("disabled")


def test_groups_give_roles_and_the_operators_rights(provider: Provider, acme: House, settings: Any) -> None:
    """Applied at each sign-in, by the services, and taken away with the group."""
    settings.OIDC_GROUP_MAPPING = mapping.parse(
        {
            "acme-dev": {"tenant": "acme", "role": "editor"},
            "acme-lead": {"tenant": "acme", "role": "admin"},
            "ops": {"operator": True},
            "ghosts": {"tenant": "nowhere", "role": "viewer"},
        }
    )

    def rights(*groups: str) -> tuple[list[str], bool]:
        provider.person("u-1", email="ada@acme.test", email_verified=True, groups=list(groups))
        assert sign_in(provider).status_code == 302
        user = User.objects.get(subject="u-1")
        return [member.role for member in Membership.objects.filter(user=user)], user.is_staff

    assert rights("acme-dev", "ghosts", "unknown") == (["editor"], False)
    assert rights("acme-dev", "acme-lead", "ops") == (["admin"], True)
    event = AuditEntry.objects.filter(action=Action.MEMBERSHIP_SET, chain="acme").latest("sequence")
    assert (event.actor, event.detail["before"], event.detail["role"]) == ("system:oidc", "editor", "admin")
    assert rights() == ([], False)
    assert AuditEntry.objects.filter(action=Action.MEMBERSHIP_REMOVED, chain="acme").exists()


def test_last_owner_and_superusers_keep_what_they_have(provider: Provider, settings: Any) -> None:
    tenant = factories.tenant("solo")
    sign_in(provider)
    user = User.objects.get()
    Membership.objects.create(tenant=tenant, user=user, role=Role.OWNER)
    User.objects.update(is_staff=True, is_superuser=True)
    settings.OIDC_GROUP_MAPPING = mapping.parse(
        {"solo-view": {"tenant": "solo", "role": "viewer"}, "ops": {"operator": True}}
    )
    assert sign_in(provider).status_code == 302
    assert Membership.objects.get().role == Role.OWNER
    assert User.objects.get().is_staff
    assert AuditEntry.objects.get(action=Action.MEMBERSHIP_REMOVED).outcome == "denied"


def test_unmapped_memberships_stay(provider: Provider, acme: House) -> None:
    sign_in(provider)
    Membership.objects.create(tenant=acme.tenant, user=User.objects.get(subject="u-1"), role=Role.VIEWER)
    sign_in(provider)
    assert Membership.objects.filter(user__subject="u-1", role=Role.VIEWER).exists()


@pytest.mark.parametrize("when", ["at the start", "on the way back"])
def test_provider_that_is_away_is_a_page(provider: Provider, when: str) -> None:
    client = stranger()
    back = ""
    if when == "on the way back":
        back = provider.consent(begin(client), "u-1")
    provider.down = True
    response = come_back(client, back) if back else client.get("/oidc/authenticate/")
    assert response.status_code == 503
    assert "Acme SSO does not answer" in response.content.decode()
    assert "localhost" not in response.content.decode()
    assert denied("answered with 503")
    assert stranger().get("/login/").status_code == 200


@pytest.mark.parametrize(
    "described",
    [
        {"issuer": "https://evil.test"},
        {"authorization_endpoint": "http://evil.test/"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
    ],
)
def test_description_that_leads_elsewhere_is_refused(provider: Provider, described: dict[str, Any]) -> None:
    """OIDC-08."""
    provider.describe = described
    assert stranger().get("/oidc/authenticate/").status_code == 503


def test_secret_is_sent_as_the_provider_asks(provider: Provider) -> None:
    provider.describe = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    assert sign_in(provider).status_code == 302


def test_userinfo_completes_a_thin_token(provider: Provider) -> None:
    provider.change = lambda c: {k: v for k, v in c.items() if k not in ("email", "email_verified", "name")}
    assert sign_in(provider).status_code == 302
    assert "/userinfo" in provider.asked
    assert User.objects.get().email == "ada@acme.test"


def test_address_and_its_verification_come_from_one_place(provider: Provider) -> None:
    """JWT-16: an address in the token is not verified by a word about another one."""
    provider.change = lambda c: {k: v for k, v in c.items() if k != "email_verified"} | {"email": "eve@acme.test"}
    assert sign_in(provider).status_code == 403
    assert denied("not verified")


def test_sign_out_ends_the_session_at_the_provider(provider: Provider, acme: House) -> None:
    client = sign_in(provider).browser
    response = client.post("/logout/")
    assert f'content="0; url={provider.url}/oauth2/end_session?client_id=tenantry&amp;' in response.content.decode()
    assert client.get("/").status_code == 302
    assert signed_in(acme.owner).post("/logout/").status_code == 302
    client = sign_in(provider).browser
    provider.describe = {"end_session_endpoint": None}
    made = configured()
    assert made is not None
    made._description = None
    assert client.post("/logout/").headers["Location"] == "/login/"


def test_password_form_never_takes_a_code(provider: Provider) -> None:
    response = stranger().post("/login/?code=x&state=y", {"username": "ada@acme.test", "password": "wrong wrong wrong"})
    assert response.status_code == 401
    assert "/oauth2/token" not in provider.asked


def call(token: str, path: str = "/api/v1/workspaces/", method: str = "get", **options: Any) -> Any:
    return getattr(stranger(), method)(path, headers={"Authorization": f"Bearer {token}"}, **options)


def test_token_of_the_provider_opens_the_api(provider: Provider) -> None:
    """An OIDC bearer token."""
    token = provider.token("u-1")
    assert call(token).status_code == 401, "nobody has signed in as u-1 yet"
    sign_in(provider)
    assert call(token).status_code == 200
    kubeconfig = call(token, "/api/v1/workspaces/credentials/kubeconfig")
    assert kubeconfig.status_code == 404, "an Authorization header is no cookie: there is just no workspace yet"
    body = {"name": "x", "scope": "read", "expires_at": "2099-01-01T00:00:00Z"}
    assert call(token, "/api/v1/tokens/", "post", data=body, content_type="application/json").status_code == 403
    User.objects.update(status=User.Status.DISABLED)
    assert call(token).status_code == 401


def ended_and_enabled(user: User) -> None:
    access_end(actor=OPERATOR, user_id=user.pk)
    user_change(actor=OPERATOR, user_id=user.pk, status=User.Status.ACTIVE)


def disabled_and_enabled(user: User) -> None:
    for status in (User.Status.DISABLED, User.Status.ACTIVE):
        user_change(actor=OPERATOR, user_id=user.pk, status=status)


def restored(_: User) -> None:
    list(credentials_end_all(now=timezone.now()))


@pytest.mark.parametrize("end", [ended_and_enabled, disabled_and_enabled, restored])
def test_a_token_from_before_all_access_was_ended_opens_nothing(
    provider: Provider, acme: House, monkeypatch: pytest.MonkeyPatch, end: Callable[[User], None]
) -> None:
    """RV-11, P12: enabled again, all stays ended; a file that is being read by it as well."""
    monkeypatch.setattr("portal.http.standing.ASKED_EVERY", 1)
    sign_in(provider)
    user, ends = User.objects.get(subject="u-1"), int(time.time()) + 3600
    factories.member(acme.tenant, Role.OWNER, user)
    for _ in range(3):
        factories.event("acme", Action.WORKSPACE_READY, user, of=acme.workspace)
    claims = {"iss": provider.url, "aud": "tenantry", "sub": "u-1", "exp": ends}
    before = [provider.token("u-1"), provider.signed(claims | {"iat": int(time.time())}), provider.signed(claims)]
    assert [call(token).status_code for token in before] == [200] * 3
    end(user)
    assert [call(token).status_code for token in before] == [401] * 3
    user.refresh_from_db()
    assert user.is_active
    leeway = int(LEEWAY_SECONDS)
    moment = next(second for second in range(ends - 7200, ends) if not user.has_ended_since(second))
    anew = [provider.signed(claims | {"iat": moment + beside}) for beside in (-1, leeway - 1, leeway)]
    assert [call(token).status_code for token in anew] == [401, 401, 200]
    cut_off(call(anew[-1], "/api/v1/audit-logs/export?tenant=acme"), lambda: end(user))


@pytest.mark.parametrize(
    "change",
    [{"aud": "elsewhere"}, {"azp": "elsewhere"}, {"iss": "https://evil.test"}, {"exp": 1}, {"sub": "u-2"}, {"sub": 1}],
)
def test_wrong_token_does_not_open_the_api(provider: Provider, change: dict[str, Any]) -> None:
    sign_in(provider)
    claims = {"iss": provider.url, "aud": "tenantry", "sub": "u-1", "exp": int(time.time()) + 60}
    assert call(provider.signed(claims)).status_code == 200
    response = call(provider.signed(claims | change))
    assert response.status_code == 401
    assert "eyJ" not in response.content.decode()
    head, body, _ = provider.signed(claims).split(".")
    assert call(f"{head}.{body}.AAAA").status_code == 401


def test_superuser_links_an_account_that_was_there_before(provider: Provider, operator: User) -> None:
    owner = factories.user("ada@acme.test")
    path = f"/admin/tenants/user/{owner.pk}/change/"
    fields = {"name": "", "status": "active", "issuer": provider.url, "subject": "u-1"}
    signed_in(factories.user(is_staff=True)).post(path, fields)
    assert sign_in(provider).status_code == 403
    signed_in(operator).post(path, fields)
    assert sign_in(provider).status_code == 302
    assert User.objects.get(subject="u-1") == owner


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"g": {}},
        {"g": {"operator": False}},
        {"g": {"operator": True, "tenant": "acme", "role": "owner"}},
        {"g": {"tenant": "acme", "role": "king"}},
        {"g": {"tenant": "acme", "role": ["owner"]}},
        {"g": {"tenant": "Acme!", "role": "owner"}},
        {"g": {"tenant": "system", "role": "owner"}},
    ],
)
def test_wrong_mapping_stops_the_start(value: Any) -> None:
    with pytest.raises(ValueError, match="OIDC_GROUP_MAPPING"):
        mapping.parse(value)


def test_mapping_knows_the_roles_there_are() -> None:
    assert list(mapping.ROLES) == Role.values
