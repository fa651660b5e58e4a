"""Who calls: a session with its CSRF token, or a personal access token. An OIDC bearer joins by another class."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import authentication, exceptions
from rest_framework.request import Request

from access.credentials import token_authenticate
from access.models import PersonalAccessToken
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
        token = token_authenticate(text.strip(), now=timezone.now())
        if token is None:
            raise exceptions.AuthenticationFailed("The token does not work: it is wrong, has ended or was revoked.")
        return token.user, token

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


class _SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "portal.api.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        from django.conf import settings

        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}
