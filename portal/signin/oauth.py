"""The authorization server for ``tenantry-login``: code with PKCE, device code, refresh, revocation (D9).

One public client, known by its name alone (RFC 8252): what protects the person is the loopback redirect, PKCE, the page
that asks, and that every secret opens once. ``resource`` (RFC 8707) is the URL of the workspace or tenant that a token
shall be for, ``scope`` the role.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from authlib.integrations.django_oauth2 import AuthorizationServer
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import ClientMixin, InvalidGrantError, InvalidRequestError, InvalidScopeError, grants
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc8628 import DEVICE_CODE_GRANT_TYPE, DeviceAuthorizationEndpoint, DeviceCodeGrant
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from access.credentials import login_token_issue, logins
from access.models import Login
from audit.recorder import Actor
from kube.requests.status import StatusError
from portal.database.scopes import everything
from portal.http.actors import actor_of, visitor_of
from portal.signin.attempts import network_of
from tenants import actionlimits

CLIENT: Final = "tenantry-login"
_REDIRECT: Final = re.compile(r"http://127\.0\.0\.1:([1-9][0-9]{3,4})/callback")
_PLACE: Final = re.compile(r"/(workspaces|tenants)/([0-9a-z-]{1,63})")
_ROLES: Final = "owner admin editor viewer"
_GRANTS: Final = frozenset({"authorization_code", "refresh_token", DEVICE_CODE_GRANT_TYPE})
_ENDED: Final = "The session has ended, sign in again."
_TOO_MANY: Final = "Too many requests, try again later."
_FORBIDDEN: Final = re.compile(r"[^\x20-\x21\x23-\x5b\x5d-\x7e]")


class _Client(ClientMixin):  # type: ignore[misc]
    """The plugin. It keeps no secret of its own, so it has none."""

    def get_client_id(self) -> str:
        return CLIENT

    def get_default_redirect_uri(self) -> str:
        return ""

    def get_allowed_scope(self, scope: str) -> str:
        return scope or ""

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return is_loopback(redirect_uri)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "none"

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in _GRANTS


class _Opened:
    """A login as the library's grants ask about it, and the secret that has opened it."""

    def __init__(self, login: Login, secret: str = "") -> None:
        self.login, self.secret = login, secret
        self.code_challenge = login.code_challenge
        self.code_challenge_method = "S256"

    def get_client_id(self) -> str:
        return CLIENT

    def check_client(self, client: ClientMixin) -> bool:
        return bool(client.get_client_id() == CLIENT)

    def get_scope(self) -> str:
        return _ROLES

    def get_redirect_uri(self) -> str:
        return self.login.redirect_uri

    def get_user_code(self) -> Login:
        return self.login

    def is_expired(self) -> bool:
        return self.login.user_id is None and self.login.expires_at <= timezone.now()


class _CodeGrant(grants.AuthorizationCodeGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = ["none"]

    def save_authorization_code(self, code: str, request: Any) -> None:
        logins.login_allow_browser(
            actor=actor_of(self.server.asking),
            user=request.user,
            session_key=self.server.asking.session.session_key,
            machine=machine_of(request.payload.data),
            code=code,
            redirect_uri=request.payload.redirect_uri,
            challenge=request.payload.data["code_challenge"],
            now=timezone.now(),
        )

    def query_authorization_code(self, code: str, client: ClientMixin) -> _Opened | None:
        found = logins.login_of_code(code, now=timezone.now())
        return _Opened(found) if found is not None else None

    def delete_authorization_code(self, authorization_code: _Opened) -> None:
        """It is marked as used, so that a second use shows."""

    def authenticate_user(self, authorization_code: _Opened) -> Any:
        return authorization_code.login.user


class _S256(CodeChallenge):  # type: ignore[misc]
    """PKCE, always, and never in the clear."""

    SUPPORTED_CODE_CHALLENGE_METHOD = ["S256"]

    def validate_code_challenge(self, grant: Any, redirect_uri: str) -> None:
        data = grant.request.payload.data
        if not data.get("code_challenge") or data.get("code_challenge_method") != "S256" or not data.get("state"):
            raise InvalidRequestError("state and an S256 code_challenge are needed")
        super().validate_code_challenge(grant, redirect_uri)


class _DeviceGrant(DeviceCodeGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = ["none"]

    def query_device_credential(self, device_code: str) -> _Opened | None:
        found = logins.login_of_device(device_code)
        return _Opened(found) if found is not None else None

    def query_user_grant(self, user_code: Login) -> tuple[Any, bool] | None:
        if user_code.user is None:
            return None
        if user_code.denied_at is None and not logins.login_lives(user_code, now=timezone.now()):
            raise InvalidGrantError(_ENDED)
        return user_code.user, user_code.denied_at is None

    def should_slow_down(self, credential: _Opened) -> bool:
        return logins.login_polled(credential.login, now=timezone.now())


class _RefreshGrant(grants.RefreshTokenGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = ["none"]
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token: str) -> _Opened:
        found = logins.login_of_secret(refresh_token, now=timezone.now())
        if found is None:
            raise InvalidGrantError(_ENDED)
        if actionlimits.wait_for(actionlimits.LOGIN_USES, found.pk):
            raise OAuth2Error(description=_TOO_MANY, error="slow_down", status_code=429)
        return _Opened(found, refresh_token)

    def authenticate_user(self, refresh_token: _Opened) -> Any:
        return refresh_token.login.user

    def revoke_old_credential(self, refresh_token: _Opened) -> None:
        """The next secret has taken its place."""


class _DeviceEndpoint(DeviceAuthorizationEndpoint):  # type: ignore[misc]
    CLIENT_AUTH_METHODS = ["none"]
    EXPIRES_IN = logins.DEVICE_SECONDS
    INTERVAL = logins.DEVICE_INTERVAL

    def get_verification_uri(self) -> str:
        return f"{settings.PORTAL_URL}/device/"

    def save_device_credential(self, client_id: str, scope: str, data: dict[str, Any]) -> None:
        asking = self.server.asking
        logins.login_ask_by_device(
            machine=machine_of(asking.POST),
            device_code=data["device_code"],
            user_code=data["user_code"],
            ip=asking.META.get("REMOTE_ADDR", ""),
            user_agent=asking.headers.get("User-Agent", ""),
            now=timezone.now(),
        )


class _Revocation(RevocationEndpoint):  # type: ignore[misc]
    CLIENT_AUTH_METHODS = ["none"]

    def query_token(self, token_string: str, token_type_hint: str | None) -> _Opened | None:
        found = logins.login_of_secret(token_string, now=timezone.now())
        return _Opened(found) if found is not None else None

    def revoke_token(self, token: _Opened, request: Any) -> None:
        login = token.login
        logins.login_revoke(actor=_actor(self.server.asking, login), login_id=login.pk, now=timezone.now())


class _Server(AuthorizationServer):  # type: ignore[misc]
    """The library's server, on the product's logins, for one request."""

    def __init__(self, asking: HttpRequest) -> None:
        super().__init__(None, None)
        self.asking = asking
        self.register_token_generator("default", lambda **_: {"token_type": "Bearer"})
        self.register_grant(_CodeGrant, [_S256(required=True)])
        self.register_grant(_RefreshGrant)
        self.register_grant(_DeviceGrant)
        self.register_endpoint(_DeviceEndpoint(self))
        self.register_endpoint(_Revocation(self))

    def query_client(self, client_id: str) -> _Client | None:
        return _Client() if client_id == CLIENT else None

    @sensitive_variables()
    def save_token(self, token: dict[str, Any], request: Any) -> None:
        """Fill the answer: the token for the API server, and what opens the login next."""
        opened = getattr(request, "authorization_code", None) or request.credential or request.refresh_token
        resource, role = str(request.form.get("resource", "")), str(request.form.get("scope", ""))
        if role and role not in _ROLES.split():
            raise InvalidScopeError
        tenant, workspace_id = _place(resource)
        now, login = timezone.now(), opened.login
        try:
            text, ends = login_token_issue(
                actor=_actor(self.asking, login),
                login=login,
                tenant=tenant,
                workspace_id=workspace_id,
                role=role,
                now=now,
            )
        except StatusError as error:
            # What opens the login stays as it was: whoever is refused one place is not signed out.
            raise OAuth2Error(description=_ascii(error.message), error="access_denied", status_code=403) from None
        token["access_token"], token["expires_in"] = text, int((ends - now).total_seconds())
        token["refresh_token"] = logins.login_next_secret(login, opened.secret, now=now)


@sensitive_variables()
def token_answer(request: HttpRequest) -> HttpResponse:
    """The answer of the token endpoint: a token, or OAuth's word for why not."""
    answer = _answered(request, lambda server: server.create_token_response(request), actionlimits.LOGIN_TOKENS)
    if answer.status_code == 200:
        # What an address may do is limited where it guesses; what a login may do, by itself.
        actionlimits.refund(actionlimits.LOGIN_TOKENS, network_of(request))
    return answer


@sensitive_variables()
def device_answer(request: HttpRequest) -> HttpResponse:
    """The answer to a device that wants to be let in."""
    name = _DeviceEndpoint.ENDPOINT_NAME
    return _answered(request, lambda server: server.create_endpoint_response(name, request), actionlimits.LOGIN_ASKED)


@sensitive_variables()
def revocation_answer(request: HttpRequest) -> HttpResponse:
    """The answer to a machine that signs out."""
    name = _Revocation.ENDPOINT_NAME
    return _answered(request, lambda server: server.create_endpoint_response(name, request), actionlimits.LOGIN_TOKENS)


def consent_flaw(request: HttpRequest) -> str:
    """What is wrong with a request for the consent page; empty when it may be shown."""
    redirect = request.GET.get("redirect_uri", "")
    if not is_loopback(redirect):
        return "The answer may only go to a program on the machine of this browser."
    try:
        grant = _Server(request).get_consent_grant(request, end_user=request.user)
    except (OAuth2Error, ValueError) as error:
        return str(getattr(error, "description", "") or "The request is malformed.")
    return "" if grant.request.client is not None else "The program is not known."


@sensitive_variables()
def consent_redirect(request: HttpRequest, *, allow: bool) -> str:
    """Where the browser goes after the person has decided: to the program, with a code or with the refusal.

    Call it for a request without a ``consent_flaw``.
    """
    server = _Server(request)
    grant = server.get_consent_grant(request, end_user=request.user)
    answer = server.create_authorization_response(request, grant_user=request.user if allow else None, grant=grant)
    return str(answer["Location"])


def is_loopback(address: str) -> bool:
    """Whether this is the plugin's own address on the browser's machine, whatever its port (RFC 8252, 7.3)."""
    match = _REDIRECT.fullmatch(address)
    return match is not None and 1024 <= int(match[1]) <= 65535


def machine_of(data: Any) -> str:
    """What the plugin calls its machine: shown to the person, and believed by nobody."""
    return "".join(letter for letter in str(data.get("machine", ""))[:64] if letter.isprintable())


@everything()  # whoever comes with a code or a secret is known by it alone
@sensitive_variables()
def _answered(request: HttpRequest, answer: Any, limit: actionlimits.Bucket) -> HttpResponse:
    wait = actionlimits.wait_for(limit, network_of(request))
    if wait:
        said = {"error": "slow_down", "error_description": _TOO_MANY}
        return JsonResponse(said, status=429, headers={"Retry-After": str(max(1, int(wait)))})
    try:
        # What a second use of a code or secret ends is committed, though it is refused.
        with transaction.atomic():
            answered: HttpResponse = answer(_Server(request))
    except OAuth2Error as error:
        # A request that the library does not even take: one over plain HTTP that is not of this machine.
        return JsonResponse(dict(error.get_body()), status=400)
    except ValueError:
        # The library finds its own words about what was sent unfit to be sent back.
        return JsonResponse({"error": "invalid_request"}, status=400)
    return answered


def _actor(request: HttpRequest, login: Login) -> Actor:
    """The person of a login, from where the plugin asks."""
    user = login.user
    actor = visitor_of(request, user.email if user is not None else "", user)
    return actor if user is None else replace(actor, operator=user.is_staff, auditor=user.is_auditor)


def _place(resource: str) -> tuple[str, UUID | None]:
    """The tenant, or the workspace, that a token is asked for."""
    match = _PLACE.fullmatch(resource.removeprefix(settings.PORTAL_URL))
    if match is None or not resource.startswith(settings.PORTAL_URL):
        raise OAuth2Error(description="The resource is no workspace or tenant of this portal.", error="invalid_target")
    if match[1] == "tenants":
        return match[2], None
    try:
        return "", UUID(match[2])
    except ValueError:
        raise OAuth2Error(description="The resource is no workspace.", error="invalid_target") from None


def _ascii(text: str) -> str:
    return _FORBIDDEN.sub(lambda found: "'" if found[0] == '"' else "?", text)
