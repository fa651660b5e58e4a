"""What every answer of the portal has in common: a request id, no caching of personal pages, errors in one voice."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote_to_bytes, urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect, StreamingHttpResponse
from django.middleware.gzip import GZipMiddleware
from django.urls import Resolver404, resolve, reverse
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django_htmx.http import HttpResponseClientRedirect

from audit.requestnames import request_name
from kube.requests.status import StatusError, TooManyRequests
from portal.database import scopes
from portal.database.connections import give_back
from portal.database.scopes import Scope
from portal.http import errors, metrics, secretkeys
from portal.http.actors import pace_headers, require_pace, scope_of
from portal.http.pages import page_behind
from portal.http.proxies import believe
from portal.http.standing import while_it_lasts
from portal.signin import refusals
from portal.signin.sessions import session_seen
from portal.signin.viewing import PAGES, viewing_of
from tenants.suspensions import installation_closed

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN = frozenset(
    {
        *("login", "logout", "forgotten", "reset", "reset-by"),
        *("appearance", "password", "factor", "factor-remove", "factor-codes"),
        *("passkey-new", "passkey-remove", "login-passkey"),
        *("session-end", "sessions-end", "token-new", "token-revoke", "notifications-read", "notification-choices"),
        "announcement-dismiss",
    }
)
"""The pages by which people change what is their own account's."""

_CORS_METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
_CORS_EXPOSED = "ETag, Location, RateLimit, RateLimit-Policy, Retry-After, X-Request-ID"
_CORS_HEADERS = "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, X-CSRFToken, X-Requested-With"


class ProxyMiddleware:
    """Takes address and scheme from the proxies that are trusted, and from nobody else. Comes first, with the newest keys."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer to the request as its sender made it."""
        secretkeys.follow()
        believe(request, settings.TRUSTED_PROXIES)
        return self.get_response(request)


class PageCompressionMiddleware(GZipMiddleware):
    """Compresses pages for who takes it, padded at random so that lengths tell little (BREACH).

    Those that show a secret are left as they are: answers to anything but GET, which show theirs once, and pages that
    are marked (``portal.http.secretpages``).
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """The page, smaller."""
        page = request.method == "GET" and response.get("Content-Type", "").startswith("text/html")
        if not page or getattr(response, "shows_secret", False):
            return response
        return super().process_response(request, response)


class RequestMiddleware:
    """Names each request, refuses NUL characters in its target, and turns domain errors into pages.

    What has been made needs no connection of the database while it is sent.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer with what all of them have."""
        clock = metrics.Clock()
        request.request_id = uuid.uuid4().hex  # type: ignore[attr-defined]
        request_name.set(request.request_id)  # type: ignore[attr-defined]
        target = request.META.get("QUERY_STRING", "").encode("latin-1", "replace")
        if "\x00" in request.path or b"\x00" in unquote_to_bytes(target):
            response: HttpResponseBase = errors.answer(request, 400, "The address contains a NUL character.")
        elif request.path.startswith(settings.STATIC_URL):
            # No file, and nothing that needs to know who asks: no place is counted for it (``portal.http.handler``).
            response = errors.answer(request, 404)
        else:
            response = _readable(request, self.get_response(request))
        refusals.record_answer(request, response)
        response["X-Request-ID"] = request.request_id  # type: ignore[attr-defined]
        response["Permissions-Policy"] = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"
        if not response.has_header("Cache-Control"):
            # Pages and answers are about one person; static files have passed before this middleware.
            response["Cache-Control"] = "no-store"
        metrics.observe(request, response, clock.seconds())
        if not isinstance(response, StreamingHttpResponse):
            # From here on it is the client's choice how long it takes.
            give_back()
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """A domain error that no view caught, as a page or as a problem."""
        if isinstance(exception, StatusError):
            return errors.answer(request, exception.code, exception.message, retry_after=exception.retry_after)
        return None


def _readable(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Django's bare refusal of a method, as a page or a problem that keeps its ``Allow``."""
    if not isinstance(response, HttpResponse) or response.status_code != 405 or response.content:
        return response
    page = errors.answer(request, 405)
    page["Allow"] = response["Allow"]
    return page


class SignInMiddleware:
    """Sends whoever has to sign in first to a page that can be come back to, and out of a dialog (GW14).

    A form cannot be sent again after the sign-in, and a part of a page is none: both lead back to the page they stood on.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer, or the way to the sign-in page."""
        response = self.get_response(request)
        login = reverse(settings.LOGIN_URL)
        if not isinstance(response, HttpResponseRedirect) or not response.url.startswith(f"{login}?"):
            return response
        htmx = bool(request.headers.get("HX-Request"))
        if not htmx and request.method in ("GET", "HEAD"):
            return response
        sent = {} if request.method in ("GET", "HEAD") else {"ended": "1"}
        url = f"{login}?{urlencode({'next': page_behind(request) or reverse('overview'), **sent})}"
        return HttpResponseClientRedirect(url) if htmx else HttpResponseRedirect(url)


class ClosedMiddleware:
    """Serves nobody but operators while the platform is closed after a restore; everybody may sign out (P12).

    Whoever comes with a token is known only later: ``portal.api.permissions``.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer, or why there is none."""
        user: Any = request.user
        if user.is_authenticated:
            closed = request.closed = installation_closed()  # type: ignore[attr-defined] # operators' pages say so
            if closed and not user.is_staff and request.path != reverse("logout"):
                return errors.answer(request, 503, closed)
        return self.get_response(request)


class ViewingMiddleware:
    """Answers an operator who looks at the portal as somebody else with that person's pages, and refuses all else (GW28).

    Whoever is looked at is the request's user from here inwards; outside of it, and in every record, it is the operator.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer, or the refusal."""
        viewing = viewing_of(request, now=timezone.now())
        if viewing is None or request.path in {reverse("view-as-end"), reverse("logout")}:
            return self.get_response(request)
        request.viewing = viewing  # type: ignore[attr-defined]
        request.user = viewing.person
        try:
            if request.method not in _SAFE:
                return errors.answer(request, 403, "You look at the portal as somebody else: nothing can be done here.")
            if _page_of(request) not in PAGES:
                return errors.answer(request, 403, "This is not shown while you look at the portal as somebody else.")
            return self.get_response(request)
        finally:
            request.user = viewing.viewer


def _page_of(request: HttpRequest) -> str:
    """The name of the page that is asked for; empty where there is none."""
    try:
        return resolve(request.path_info).view_name
    except Resolver404:
        return ""


class AuditorMiddleware:
    """Lets auditors look at every page and send none but what concerns their own account (GW8).

    The first of three walls: no service takes anything from them (``tenants.rights``), and every route of the REST API
    asks by itself (``portal.api.permissions``), for tokens too.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer."""
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: object, args: object, kwargs: object) -> HttpResponse | None:
        """The refusal, if there is one."""
        user: Any = request.user
        if not user.is_authenticated or not user.is_auditor or request.method in _SAFE:
            return None
        if errors.is_of_api(request.path) or request.resolver_match.view_name in _OWN:  # type: ignore[union-attr]
            return None
        return errors.answer(request, 403, "Auditors see everything and change nothing.")


class PaceMiddleware:
    """Takes no more from one person, or tenant, than ``actionlimits`` says, so that nobody fills what all share (AD6, AD8).

    Whoever comes with a token is known only later: ``portal.api.permissions``. Signing out is free. To programs it is said
    how much is left.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer, or when to come again."""
        try:
            if request.path != reverse("logout"):
                require_pace(request, request.user)
        except TooManyRequests as refusal:
            answer: HttpResponseBase = errors.answer(
                request, refusal.code, refusal.message, retry_after=refusal.retry_after
            )
        else:
            answer = self.get_response(request)
        if request.path.startswith("/api/"):
            for name, value in pace_headers(request).items():
                answer[name] = value
        return answer


class SessionsMiddleware:
    """Notes which sessions are in use, from where, for their people to see and to end (``portal.signin.sessions``)."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer; a session that it has begun is noted too."""
        response = self.get_response(request)
        session_seen(request)
        return response


class ScopeMiddleware:
    """Lets PostgreSQL leave out what is not of the person's tenants, whatever the views ask for (TS3).

    What is read while it is sent is read so too, and no longer than whoever asked may. Who signs in, and who comes with
    a token, is known only later: until then there is nobody.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer with what all of them have."""
        viewing = getattr(request, "viewing", None)
        with scopes.scoped(scope_of(request.user, viewing.tenant if viewing else "")):
            response = self.get_response(request)
            seen = scopes.current()
        if isinstance(response, StreamingHttpResponse):
            response.streaming_content = _under(seen, while_it_lasts(request, iter(response)))
        return response


def _under(scope: Scope | None, lines: Iterator[bytes]) -> Iterator[bytes]:
    """The same lines, each read in the scope of the request that they answer."""
    while True:
        with scopes.scoped(scope):
            line = next(lines, None)
        if line is None:
            return
        yield line


class CorsMiddleware:
    """Lets the named origins, and no others, use the REST API from a browser (GW11).

    Cookies never cross origins: credentials are not allowed, a front-end elsewhere sends a bearer token.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer with what all of them have."""
        if not request.path.startswith("/api/"):
            return self.get_response(request)
        origin = request.headers.get("Origin", "")
        allowed = origin in settings.CORS_ALLOWED_ORIGINS
        preflight = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        if preflight:
            response: HttpResponseBase = HttpResponse(status=204)
        else:
            response = self.get_response(request)
        patch_vary_headers(response, ["Origin"])
        if allowed:
            response["Access-Control-Allow-Origin"] = origin
            response["Access-Control-Expose-Headers"] = _CORS_EXPOSED
            if preflight:
                response["Access-Control-Allow-Methods"] = _CORS_METHODS
                response["Access-Control-Allow-Headers"] = _CORS_HEADERS
                response["Access-Control-Max-Age"] = "600"
        return response
