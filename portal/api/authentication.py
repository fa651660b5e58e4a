"""Who calls: a session with its CSRF token, a personal access token, or a token of the OpenID Connect provider."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import authentication, exceptions
from rest_framework.request import Request

from access.authentication.base import Refused
from access.credentials import token_authenticate
from access.models import PersonalAccessToken
from kube.authentication import idtokens
from portal.database.scopes import Scope, become, everything
from portal.http.actors import scope_of
from portal.signin.oidc.people import user_of
from portal.signin.oidc.provider import LEEWAY_SECONDS, configured
from tenants.models import User


class AccessTokenAuthentication(authentication.BaseAuthentication):
    """``Authorization: Bearer tnt_…``. Wrong, ended and revoked tokens all read alike."""

    def authenticate(self, request: Request) -> tuple[User, PersonalAccessToken] | None:
        """The token's user and the token; ``None`` when the header is of another kind."""
        header = request.META.get("HTTP_AUTHORIZATION", "")
        if not header:
            return None
        kind, _, text = header.partition(" ")
        if kind.lower() != "bearer":
            raise exceptions.AuthenticationFailed("Only bearer tokens are accepted here.")
        with everything():
            token = token_authenticate(text.strip(), now=timezone.now())
        if token is None:
            raise exceptions.AuthenticationFailed("The token does not work: it is wrong, has ended or was revoked.")
        whole = (token.user.is_auditor or token.scope == PersonalAccessToken.Scope.OPERATE) and not token.tenant_id
        become(scope_of(token.user) if whole else Scope(token.user_id, token.tenant_id or ""))
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """What a 401 asks for."""
        return 'Bearer realm="tenantry"'


class OidcAuthentication(authentication.BaseAuthentication):
    """``Authorization: Bearer <ID token>`` for our own client, by the verifier that sign-in has.

    Opens the account that the subject has signed in to the portal with, unless all access of it was ended since the token
    was issued (RV-11, P12); rights follow groups at sign-in alone.
    """

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        """The token's user; ``None`` for what is no token of the provider."""
        kind, _, text = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        provider = configured() if kind.lower() == "bearer" else None
        said = idtokens.parse_unverified(text.strip())
        if provider is None or said is None or said.issuer != provider.issuer:
            return None
        try:
            claims = provider.verify(text.strip())
        except Refused as refusal:
            raise exceptions.AuthenticationFailed(f"The token does not work: {refusal}.") from None
        with everything():
            user = user_of(provider.issuer, claims.get("sub"))
        if user is None or not user.is_active:
            raise exceptions.AuthenticationFailed(
                "The token opens no account: sign in to the portal once, or ask an operator."
            )
        if user.has_ended_since((claims.get("iat") or 0) - LEEWAY_SECONDS):
            raise exceptions.AuthenticationFailed(
                "The token is from before all access of the account was ended: get another one from the provider."
            )
        become(scope_of(user))
        return user, None

    def authenticate_header(self, request: Request) -> str:
        """What a 401 asks for."""
        return 'Bearer realm="tenantry"'


class SessionAuthentication(authentication.SessionAuthentication):
    """The portal's own session; unsafe methods need the CSRF token."""

    def enforce_csrf(self, request: Request) -> None:
        """Refuse with a problem that says what is missing."""
        try:
            super().enforce_csrf(request)
        except exceptions.PermissionDenied:
            raise exceptions.PermissionDenied("The CSRF token is missing or wrong.") from None


class _AccessTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "portal.api.authentication.AccessTokenAuthentication"
    name = "accessToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A personal access token (tnt_…)."}


class _OidcScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "portal.api.authentication.OidcAuthentication"
    name = "oidc"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        description = "An ID token of the OpenID Connect provider, issued to the portal's client."
        return {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": description}


class _SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "portal.api.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        from django.conf import settings

        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}
