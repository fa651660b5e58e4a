"""Failures as people and programs read them: a page in the look, or ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Sequence
from typing import Any, Final

import redis
from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django_htmx.http import trigger_client_event

PROBLEM: Final = "application/problem+json"

_WORDS: Final = {
    400: (
        "That request makes no sense",
        "The browser sent something that could not be understood.",
        "Go back and try again; if you followed a link, it may be damaged.",
    ),
    401: ("Sign in first", "This page needs to know who you are.", "Sign in and try again."),
    403: (
        "You may not do this",
        "You are signed in, but your role does not allow it.",
        "Ask an owner of the tenant for a bigger role, or an operator of the platform.",
    ),
    404: (
        "There is nothing here",
        "The page does not exist, or it is not yours to see.",
        "Check the address, or look for it from the overview.",
    ),
    405: ("That does not work here", "The page does not take this kind of request.", "Go back and use the buttons."),
    409: ("Not at this moment", "The state of things does not allow it.", "Reload to see how things are now."),
    413: ("Too large", "What was sent is larger than this page takes.", "Send less."),
    422: ("Something is not right yet", "A value cannot be accepted.", "Go back and correct it."),
    429: ("Too fast", "There were too many requests in a short time.", "Wait a moment and try again."),
    500: (
        "Something broke on our side",
        "The request could not be finished; nothing was half done.",
        "Try again. If it stays, tell an operator the request number below.",
    ),
    503: (
        "Not available right now",
        "Something that this page needs cannot be reached.",
        "Nothing is lost. Try again in a minute.",
    ),
}

_SAID_MAX: Final = 500
"""Characters of a failure that go into a header."""

_PROBLEMS: Final = {
    400: "The request cannot be understood.",
    404: "There is nothing at this path, or it is not the caller's to know of.",
}
"""For programs, which see no page."""


def is_of_api(path: str) -> bool:
    """Whether what is asked for is the REST API's, whose failures are problems."""
    return path.startswith("/api/v1/")


def answer(request: HttpRequest, code: int, detail: str = "", *, retry_after: int | None = None) -> HttpResponse:
    """The failure in the form that fits the path: problems under ``/api/``, pages everywhere else."""
    if is_of_api(request.path):
        response = problem(request, code, detail)
    else:
        title, text, remedy = _WORDS.get(code, _WORDS[500 if code >= 500 else 400])
        context = {
            "code": code,
            "title": title,
            "text": detail or text,
            "remedy": remedy,
            "retry": request.get_full_path() if code in {429, 500, 503} and request.method == "GET" else "",
            "request_id": getattr(request, "request_id", ""),
        }
        response = render(request, "pages/error.html", context, status=code)
        if request.headers.get("HX-Request"):
            # htmx draws no failure: what stands where it was asked for stays, and the words come beside it.
            said = detail or f"{text} {remedy}" + (f" ({context['request_id']})" if code == 500 else "")
            trigger_client_event(response, "toast", {"verdict": "deny", "text": said[:_SAID_MAX]})
    if retry_after is not None:
        response["Retry-After"] = str(retry_after)
    return response


def without_page(request: HttpRequest, code: int, detail: str, *, retry_after: int) -> HttpResponse:
    """The same in words alone, for what is refused where nothing may be looked up, and no template drawn."""
    if is_of_api(request.path):
        response = problem(request, code, detail)
    else:
        response = HttpResponse(detail, status=code, content_type="text/plain; charset=utf-8")
        if request.headers.get("HX-Request"):
            trigger_client_event(response, "toast", {"verdict": "deny", "text": detail[:_SAID_MAX]})
    response["Retry-After"] = str(retry_after)
    response["Cache-Control"] = "no-store"
    response["X-Content-Type-Options"] = "nosniff"
    return response


def problem_body(path: str, code: int, detail: str, *, reason: str = "", request_id: str = "") -> dict[str, Any]:
    """The members of a problem (RFC 9457), with the request's number where it has got one."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": http.client.responses.get(code, "Error"),
        "status": code,
        "detail": detail or _PROBLEMS.get(code) or _WORDS.get(code, _WORDS[500])[1],
        "instance": path,
        "request_id": request_id,
    }
    if reason:
        body["reason"] = reason
    return body


def problem(
    request: HttpRequest, code: int, detail: str = "", *, reason: str = "", fields: Sequence[dict[str, str]] = ()
) -> HttpResponse:
    """A problem as a response; ``fields`` says which members of the body are wrong, and why."""
    number = getattr(request, "request_id", "")
    body = problem_body(request.path, code, detail, reason=reason, request_id=number)
    if fields:
        body["errors"] = list(fields)
    return HttpResponse(json.dumps(body), status=code, content_type=PROBLEM)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler of 400, as a page or a problem (RFC 9457)."""
    return answer(request, 400)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's 403; an exception's own words are kept when there are any."""
    return answer(request, 403, str(exception)[:300])


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's 404, which never says which of the two it is: not there, or not yours."""
    return answer(request, 404)


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's 500, without detail; 503 with a time to come back when the database or Redis is away."""
    if isinstance(sys.exc_info()[1], (OperationalError, InterfaceError, redis.ConnectionError, redis.TimeoutError)):
        return answer(request, 503, retry_after=2)
    return answer(request, 500)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form that did not come from our own page, or from one whose session is over."""
    if not request.user.is_authenticated and request.path != reverse(settings.LOGIN_URL):
        if request.headers.get("HX-Request"):
            return redirect_to_login(request.get_full_path())
        return answer(request, 403, "You are not signed in any more, so nothing was changed. Sign in and do it again.")
    if (
        not request.user.is_authenticated
        and not request.is_secure()
        and settings.CSRF_COOKIE_NAME not in request.COOKIES
    ):
        return answer(
            request,
            403,
            "Your browser has not kept this site's cookie. Over plain HTTP only Chromium and Firefox do, and only on this"
            " machine: use one of them, or TLS. Programs use the REST API with an access token.",
        )
    return answer(
        request, 403, "This form is too old, or it did not come from this site. Reload the page and send it again."
    )
