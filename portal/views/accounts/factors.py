"""One's own second factor: set up, other recovery codes, turned off; each asks for the present password (GW16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods

from kube.requests.status import Conflict, StatusError
from portal.http.actors import actor_of
from portal.http.secretpages import shows_secret
from portal.pages.accountforms import OwnEnrolForm, PresentPasswordForm
from portal.pages.forms import add_status_error
from portal.signin import factors, proofs
from portal.views.accounts.enrolling import app_context, forget_secret, offered_secret
from portal.views.actions import form_status, render_action
from tenants.models import User


@sensitive_variables("secret", "codes")
@sensitive_post_parameters("old", "code")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@shows_secret
def factor(request: HttpRequest) -> HttpResponse:
    """Set an app up, or another in place of it, confirmed by a code; then the recovery codes, this once."""
    user: Any = request.user
    if not user.has_usable_password():
        raise Conflict("You sign in by single sign-on: its provider asks for a second factor.", kind="users")
    secret, form = offered_secret(request), OwnEnrolForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            proofs.require_password(user, form.cleaned_data["old"])
            codes = factors.factor_add(
                actor=actor_of(request), user=user, secret=secret, code=form.cleaned_data["code"], now=timezone.now()
            )
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            forget_secret(request)
            return _codes(request, codes)
    context = {"form": form, "again": factors.factor_of(user) is not None, **app_context(user, secret)}
    return render(request, "pages/accounts/factor.html", context, status=form_status(request, form))


@sensitive_variables("codes")
@sensitive_post_parameters("old")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def recovery_codes(request: HttpRequest) -> HttpResponse:
    """Other recovery codes in place of all from before, shown this once."""
    user: Any = request.user
    form = PresentPasswordForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            proofs.require_password(user, form.cleaned_data["old"])
            codes = factors.recovery_codes_renew(actor=actor_of(request), user=user)
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            return _codes(request, codes)
    context = {
        "form": form,
        "title": "New recovery codes",
        "submit": "Make new codes",
        "back": reverse("profile"),
        "texts": ["The codes from before stop working."],
        "crumbs": _crumbs(),
    }
    return render(request, "pages/action.html", context, status=form_status(request, form))


@sensitive_post_parameters("old")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def factor_remove(request: HttpRequest) -> HttpResponse:
    """Turn one's own off."""
    user: Any = request.user
    return render_action(
        request,
        PresentPasswordForm(request.POST or None),
        _removing(request, user),
        title="Turn the second factor off",
        submit="Turn off",
        done="No code is asked for any more.",
        back=reverse("profile"),
        texts=["The password alone opens your account then."],
        crumbs=_crumbs(),
        destroys=True,
    )


def _removing(request: HttpRequest, user: User) -> Callable[[dict[str, Any]], None]:
    def remove(data: dict[str, Any]) -> None:
        proofs.require_password(user, data["old"])
        factors.factor_remove(actor=actor_of(request), user_id=user.pk)

    return remove


@sensitive_variables("codes")
def _codes(request: HttpRequest, codes: list[str]) -> HttpResponse:
    context = {"codes": "\n".join(codes), "back": reverse("profile"), "crumbs": _crumbs()}
    return render(request, "pages/accounts/codes.html", context)


def _crumbs() -> list[dict[str, str]]:
    return [{"text": "Profile", "url": reverse("profile")}]
