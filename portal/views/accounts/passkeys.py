"""Passkeys: added, removed, and signed in by; each change asks for the present password (GW16)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from audit.actions import Action
from kube.requests.status import Conflict, StatusError, TooManyRequests
from portal.database.scopes import everything
from portal.http.actors import actor_of
from portal.http.targets import safe_target
from portal.pages.accountforms import NewPasskeyForm, PasskeyForm, PresentPasswordForm
from portal.pages.forms import add_status_error
from portal.signin import attempts, passkeys, proofs, refusals, steps
from portal.views.accounts.steps import go_on
from portal.views.actions import form_status, render_action


@sensitive_post_parameters("old", "passkey")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def passkey_new(request: HttpRequest) -> HttpResponse:
    """Add one: the browser makes it, the password says that it is its person who asks."""
    user: Any = request.user
    if not user.has_usable_password():
        raise Conflict("You sign in by single sign-on: its provider knows your passkeys.", kind="users")
    form = NewPasskeyForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        try:
            proofs.require_password(user, said["old"])
            passkeys.passkey_add(
                actor=actor_of(request),
                request=request,
                user=user,
                name=said["name"],
                answer=said["passkey"],
                now=timezone.now(),
            )
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            return redirect("profile")
    context = {"form": form, "options": passkeys.offer_new(request, user)}
    return render(request, "pages/accounts/passkey.html", context, status=form_status(request, form))


@sensitive_post_parameters("old")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def passkey_remove(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Remove one of one's own."""
    user: Any = request.user
    found = passkeys.passkey_of(user, pk)

    def remove(data: dict[str, Any]) -> None:
        proofs.require_password(user, data["old"])
        passkeys.passkey_remove(actor=actor_of(request), user=user, passkey_id=pk)

    return render_action(
        request,
        PresentPasswordForm(request.POST or None),
        remove,
        title=f"Remove the passkey {found.name}",
        submit="Remove",
        done="The passkey opens nothing any more.",
        back=reverse("profile"),
        texts=["Your device may go on offering it; delete it there as well."],
        crumbs=[{"text": "Profile", "url": reverse("profile")}],
        destroys=True,
    )


@sensitive_post_parameters("passkey")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """Come in by a passkey alone. Wrong answers are counted as wrong passwords are, and audited."""
    target = safe_target(request)
    if request.user.is_authenticated:
        return redirect(target)
    form, status, retry_after = PasskeyForm(request.POST or None), 200, None
    if request.method == "POST":
        status = 401
        try:
            attempt = attempts.present_passkey(request)
        except TooManyRequests as error:
            add_status_error(request, form, error)
            status, retry_after = 429, error.retry_after
        else:
            with everything():  # nobody is signed in yet: the passkey says whose rows these are
                answer = form.cleaned_data["passkey"] if form.is_valid() else ""
                user = passkeys.passkey_use(request=request, answer=answer, now=timezone.now())
                if user is not None and passkeys.opens_alone(user):
                    attempt.succeeded()
                    return go_on(request, steps.proven(request, steps.begin(request, user, target=target), "passkey"))
            form.add_error(None, "This passkey opens no account here, or it answered too late.")
            what = {"step": "passkey"}
            refusals.record(request, 401, Action.SIGN_IN, name="", target="session", detail=what)
    attempts.begin_passkey(request)
    with everything():
        context = {"form": form, "options": passkeys.offer_use(request)}
    response = render(request, "pages/sessions/passkey.html", context, status=status)
    if retry_after:
        response["Retry-After"] = str(retry_after)
    return response
