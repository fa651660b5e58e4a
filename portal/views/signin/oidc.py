"""Single sign-on: to the provider and back (GW16; OpenID Connect Core, 3.1)."""

from __future__ import annotations

import logging
import time
from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import auth
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render, resolve_url
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.generic import View
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from access.authentication.base import Refused
from access.outsidebudget import Unreachable
from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN
from portal.database.scopes import everything
from portal.http.actors import visitor_of
from portal.signin import attempts, refusals
from portal.signin.oidc.people import SignInRefused
from portal.signin.oidc.provider import Provider, configured, provider_name
from tenants.models import User

logger = logging.getLogger(__name__)

STATE_SECONDS: Final = 600.0
"""How long a person may take at the provider."""

_SESSION_KEY: Final = "signed-in-by-oidc"
_STATES: Final = "oidc_states"


@method_decorator(never_cache, name="dispatch")
class OidcLogin(OIDCAuthenticationRequestView):  # type: ignore[misc]
    """Sends the browser to the provider with state, nonce and PKCE challenge."""

    def __init__(self, **kwargs: Any) -> None:
        # Past the library's own, which needs endpoints that only the provider knows.
        View.__init__(self, **kwargs)

    def get(self, request: HttpRequest) -> HttpResponse:
        """The redirect, or a page that says what is wrong."""
        provider = _provider()
        attempts.begin_single_sign_on(request)
        try:
            self.OIDC_OP_AUTH_ENDPOINT = provider.authorization_endpoint()
        except Unreachable as error:
            return _unavailable(request, error)
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID
        response: HttpResponse = super().get(request)
        return response


@method_decorator(never_cache, name="dispatch")
class OidcCallback(OIDCAuthenticationCallbackView):  # type: ignore[misc]
    """Takes the browser back from the provider; every failure is a page, and in the audit log."""

    @method_decorator(sensitive_variables())
    @everything()
    def get(self, request: HttpRequest) -> HttpResponse:
        """Check what can be checked here, then let the library exchange the code."""
        provider = _provider()
        self._attempt = attempts.return_from_single_sign_on(request)
        states = request.session.get(_STATES, {})
        state = request.GET.get("state", "")
        started = states.get(state) if isinstance(states, dict) else None
        if started is None:
            return _failed(
                request,
                "the state is unknown or used",
                "This sign-in was not started in this browser, or it is finished already.",
                "Begin again from the sign-in page, in one window, with cookies allowed.",
            )
        fresh = 0 <= time.time() - started["added_on"] <= STATE_SECONDS
        named = request.GET.get("iss", provider.issuer) == provider.issuer
        if not fresh or not named or request.GET.get("error") or not request.GET.get("code"):
            del states[state]
            request.session.modified = True
            if not fresh:
                return _failed(request, "the state is too old", "Signing in took too long.", "Begin again.")
            if not named:
                return _refused(request, Refused("the answer is of another provider"))
            return _failed(
                request,
                "the provider refused",
                "The provider did not let you in, or you cancelled there.",
                "Try again. If it stays, ask whoever runs the provider to give you this application.",
            )
        try:
            response: HttpResponse = super().get(request)
        except Unreachable as error:
            return _unavailable(request, error)
        except Refused as error:
            return _refused(request, error)
        except SignInRefused as error:
            return _failed(request, error.reason, error.text, error.remedy)
        return response

    def login_success(self) -> HttpResponse:
        """Open a session under a new key, and go where the person wanted to go."""
        target = self.request.session.pop("oidc_login_next", None)
        user: User = self.user
        auth.login(self.request, user)
        self.request.session.cycle_key()
        self.request.session[_SESSION_KEY] = True
        visitor_of(self.request, user.email, user).record(
            Action.SIGN_IN, chain=SYSTEM_CHAIN, target="session", detail={"by": user.issuer}
        )
        self._attempt.succeeded()
        response = HttpResponseRedirect(target or resolve_url(settings.LOGIN_REDIRECT_URL))
        attempts.remember_device(self.request, response, user)
        return response

    def login_failure(self) -> HttpResponse:
        """The library's own words for what our checks have left: nothing that we know of."""
        return _refused(self.request, Refused("nobody was recognised"))


def end_session_url(request: HttpRequest) -> str:
    """Where the person's session at the provider ends (RP-Initiated Logout); empty for those who came otherwise.

    The ID token is not kept for it: the client's id says as much, and is no secret.
    """
    provider = configured()
    address = provider.end_session_endpoint() if provider and request.session.get(_SESSION_KEY) else ""
    if not address:
        return ""
    back = request.build_absolute_uri(reverse("login"))
    query = urlencode({"client_id": settings.OIDC_RP_CLIENT_ID, "post_logout_redirect_uri": back})
    return f"{address}{'&' if '?' in address else '?'}{query}"


def _provider() -> Provider:
    provider = configured()
    if provider is None:
        raise Http404
    return provider


def _unavailable(request: HttpRequest, error: Unreachable) -> HttpResponse:
    logger.warning("the OpenID Connect provider cannot be used: %s", error)
    return _failed(
        request,
        str(error),
        f"{provider_name()} does not answer as it should, so it cannot say who you are.",
        "Try again in a minute. If it stays, tell an operator the request number below.",
        status=503,
    )


def _refused(request: HttpRequest, error: Refused) -> HttpResponse:
    return _failed(
        request,
        str(error),
        f"What {provider_name()} sent could not be accepted: {error}.",
        "Begin again from the sign-in page. If it stays, tell an operator the request number below.",
    )


def _failed(request: HttpRequest, reason: str, text: str, remedy: str, *, status: int = 403) -> HttpResponse:
    detail = {"by": settings.OIDC_OP_ISSUER, "reason": reason}
    refusals.record(request, status, Action.SIGN_IN, target="session", detail=detail)
    context = {"text": text, "remedy": remedy, "request_id": getattr(request, "request_id", "")}
    return render(request, "pages/sessions/failed.html", context, status=status)
