"""mozilla-django-oidc's backend with our verifier: it checks neither ``aud`` nor ``iss`` and links users by e-mail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.http import HttpRequest
from mozilla_django_oidc.auth import OIDCAuthenticationBackend

from access.authentication.base import Refused
from audit.recorder import Actor
from kube.authentication.oidcclaims import ClaimError, identify
from portal.http.actors import visitor_of
from portal.signin.oidc.mapping import rights_of
from portal.signin.oidc.people import person_of, user_admit
from portal.signin.oidc.provider import Provider, configured
from tenants.models import User


class OidcBackend(OIDCAuthenticationBackend):  # type: ignore[misc]
    """Gives the account of whoever comes back from the provider with a code.

    ``authenticate`` raises ``Refused``, ``Unreachable`` and ``SignInRefused``.
    """

    def __init__(self) -> None:
        # Made for every request of every session: what the code flow alone needs is looked up there.
        self.UserModel = get_user_model()

    def authenticate(self, request: HttpRequest, *, nonce: str, code_verifier: str) -> User | None:
        """The account behind the request's code; Django does not ask here for passwords, by the signature."""
        provider = configured()
        if provider is None or not nonce or not code_verifier:
            return None
        self._provider: Provider = provider
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID
        self.OIDC_RP_CLIENT_SECRET = settings.OIDC_RP_CLIENT_SECRET
        user: User | None = super().authenticate(request, nonce=nonce, code_verifier=code_verifier)
        return user

    def get_token(self, payload: Mapping[str, str]) -> dict[str, str]:
        """The tokens for the code."""
        id_token, access_token = self._provider.tokens(payload)
        return {"id_token": id_token, "access_token": access_token}

    def verify_token(self, token: str, **kwargs: Any) -> Mapping[str, Any]:
        """The claims of the ID token: issuer, audience, party, times, signature and nonce are right."""
        return self._provider.verify_nonce(token, kwargs["nonce"])

    def get_or_create_user(self, access_token: str, id_token: str, payload: Mapping[str, Any]) -> User:
        """The account of issuer and subject, with the rights of its groups."""
        claims = self._provider.complete(payload, access_token)
        try:
            identity = identify(claims, self._provider.rules)
        except ClaimError as error:
            raise Refused(str(error)) from None
        who = visitor_of(self.request, "system:oidc")
        actor = Actor(name=who.name, operator=True, ip=who.ip, user_agent=who.user_agent, request_id=who.request_id)
        rights = rights_of(settings.OIDC_GROUP_MAPPING, identity.groups)
        return user_admit(actor=actor, person=person_of(self._provider.issuer, claims), rights=rights)

    def get_user(self, user_id: Any) -> Any:
        """The account of a session, unless it is disabled: the library's own way lets those stay."""
        return ModelBackend.get_user(self, user_id)
