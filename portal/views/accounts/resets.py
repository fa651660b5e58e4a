"""A new password for whoever has lost theirs: asked for by e-mail, or given by an operator (``portal.signin.resets``)."""

from __future__ import annotations

import logging
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.contrib import auth, messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods
from kombu.exceptions import OperationalError as BrokerAway

from kube.requests.status import ServiceUnavailable, StatusError
from portal.database.scopes import everything
from portal.http.actors import actor_of, visitor_of
from portal.pages.accountforms import AskForm, NewPasswordForm, ResetForm
from portal.pages.forms import add_status_error
from portal.signin import attempts, resets
from portal.signin.ranks import person_named
from portal.tasks import password_link_ask
from portal.views.actions import form_status

logger = logging.getLogger(__name__)

_OPENED: Final = "password-link"
"""Where a session keeps the digest of the link that was opened in it."""


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def ask(request: HttpRequest) -> HttpResponse:
    """Ask for a link by e-mail. The answer is the same, and takes as long, whether there is an account or not."""
    if not settings.EMAIL_URL:
        raise Http404
    form, asked = AskForm(request.POST or None), False
    if request.method == "POST" and form.is_valid():
        email = form.cleaned_data["email"]
        try:
            if attempts.ask_for_link(request, email=email):
                password_link_ask.apply_async((email,), retry=False)
            asked = True
        except BrokerAway:
            add_status_error(request, form, ServiceUnavailable("No mail can be sent right now. Try again in a minute."))
        except StatusError as error:
            add_status_error(request, form, error)
    return render(
        request, "pages/sessions/forgotten.html", {"form": form, "asked": asked}, status=form_status(request, form)
    )


@sensitive_variables("secret")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@everything()  # whoever has lost a password is nobody yet: the link says whose rows these are
def reset_by(request: HttpRequest, secret: str) -> HttpResponse:
    """Open a link: the session remembers its digest, so that no address that is followed from there has the secret.

    Whoever is signed in is asked before: anybody may send anybody a link, and to open it must end nothing.
    """
    digest = resets.digest_of(secret)
    person = resets.password_link_that_counts(digest, now=timezone.now()).user
    if request.user.is_authenticated and request.method != "POST":
        response = render(request, "pages/sessions/reset-signed-in.html", {"person": person})
        # What is followed from here is not told the secret; the form still says where it comes from.
        response["Referrer-Policy"] = "strict-origin"
        return response
    # A session that somebody has planted must not be the one that may use the link.
    auth.logout(request)
    request.session[_OPENED] = digest
    return redirect("reset")


@sensitive_variables("digest")
@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@everything()
def reset(request: HttpRequest) -> HttpResponse:
    """Choose the new password; then the way in is the sign-in page, with the second factor that there may be.

    ``NotFound`` for a link that counts no more, whoever comes with it.
    """
    now, digest = timezone.now(), str(request.session.get(_OPENED, ""))
    user = resets.password_link_that_counts(digest, now=now).user
    form = NewPasswordForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        actor = visitor_of(request, user.email, user)
        try:
            resets.password_link_use(actor=actor, digest=digest, password=form.cleaned_data["password"], now=now)
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            request.session.flush()
            messages.success(request, "The password is set. Sign in with it.", extra_tags="allow")
            return redirect("login")
    return render(
        request, "pages/sessions/reset.html", {"form": form, "person": user}, status=form_status(request, form)
    )


@sensitive_variables("link", "shown")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def user_reset(request: HttpRequest, pk: UUID) -> HttpResponse:
    """A link, or a given password, for somebody else; either is shown this once. Operators only."""
    actor, now = actor_of(request), timezone.now()
    person = person_named(actor, pk)
    form = ResetForm(request.POST or None, mail=bool(settings.EMAIL_URL))
    context: dict[str, Any] = {
        "title": f"New password for {person.email}",
        "back": reverse("user", args=[pk]),
        "crumbs": [
            {"text": "Users", "url": reverse("users")},
            {"text": person.email, "url": reverse("user", args=[pk])},
        ],
        "person": person,
    }
    if request.method == "POST" and form.is_valid():
        try:
            way, keep = form.cleaned_data["way"], form.cleaned_data["keep_factors"]
            if way == "password":
                shown = resets.password_give(actor=actor, user_id=pk, now=now, keep_factors=keep)
            else:
                made = resets.password_link_create(actor=actor, user_id=pk, now=now, keep_factors=keep)
                shown = request.build_absolute_uri(reverse("reset-by", args=[made.secret]))
                if way == "mail":
                    _sent(person, shown)
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            return render(request, "pages/accounts/reset-made.html", {**context, "way": way, "shown": shown})
    points = [
        "A link leaves the present password and the sessions alone until it is used.",
        "A password that is made up takes its place at once, and ends the person's sessions.",
        "Passkeys, second factor and access tokens go with the password that is replaced, unless you keep them.",
    ]
    context |= {"form": form, "points": points, "submit": "Make it"}
    return render(request, "pages/action.html", context, status=form_status(request, form))


def _sent(person: Any, link: str) -> None:
    try:
        resets.send(person, link, hours=24)
    except OSError as error:
        logger.warning("a link for a new password could not be sent: %s", type(error).__name__)
        raise ServiceUnavailable("The mail server did not take it. Choose a link to copy.") from None
