"""Coming in and going out."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from kube.requests.status import Forbidden, TooManyRequests
from portal.database.scopes import everything
from portal.http.actors import actor_of
from portal.http.targets import safe_target
from portal.pages.forms import SignInForm, add_status_error
from portal.signin import accounts, steps
from portal.signin.oidc.provider import provider_name, way_in
from portal.signin.viewing import viewing_end
from portal.views.accounts.steps import go_on
from portal.views.signin import oidc


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def login(request: HttpRequest) -> HttpResponse:
    """Sign in by password; the way to single sign-on stands below when it is configured (GW16)."""
    target = safe_target(request)
    if request.user.is_authenticated:
        return redirect(target)
    form = SignInForm(request.POST or None)
    status, retry_after = 200, None
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                user = accounts.password_try(
                    request, email=form.cleaned_data["username"], password=form.cleaned_data["password"]
                )
            except TooManyRequests as error:
                add_status_error(request, form, error)
                status, retry_after = 429, error.retry_after
            else:
                if user is not None:
                    with everything():
                        return go_on(request, steps.begin(request, user, target=target))
                form.add_error(None, "The e-mail address or the password is wrong.")
                status = 401
    context: dict[str, Any] = {"form": form, "next": target, "single_sign_on": way_in(target)}
    context |= {"ended": "ended" in request.GET, "mail": bool(settings.EMAIL_URL)}
    response = render(request, "pages/sessions/login.html", context, status=status)
    if retry_after:
        response["Retry-After"] = str(retry_after)
    return response


def admin_login(request: HttpRequest) -> HttpResponse:
    """Where the operators' console sends whoever it does not let in. Raises ``Forbidden`` for the signed in."""
    if request.user.is_authenticated:
        raise Forbidden("The console is for operators of the platform, and your account is none.")
    return redirect(reverse("login") + "?" + request.GET.urlencode())


@require_POST
def logout(request: HttpRequest) -> HttpResponse:
    """End the session, and that at the provider for those who came from there.

    A page leads there, not a redirect: our policy lets forms lead to our own pages only.
    """
    address = oidc.end_session_url(request)
    viewing_end(request, actor_of(request))
    accounts.sign_out(request)
    if not address:
        return redirect("login")
    context = {"url": address, "provider": provider_name()}
    return render(request, "pages/sessions/leaving.html", context)
