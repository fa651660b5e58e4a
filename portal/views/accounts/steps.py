"""The pages between the right password and a session (``portal.signin.steps``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods

from audit.actions import Action
from kube.requests.status import StatusError, TooManyRequests
from portal.database.scopes import everything
from portal.http.actors import visitor_of
from portal.http.secretpages import shows_secret
from portal.pages.accountforms import CodeForm, EnrolForm, NewPasswordForm, PasskeyForm
from portal.pages.forms import add_status_error
from portal.signin import accounts, attempts, factors, passkeys, refusals, steps
from portal.signin.steps import OnTheWay, Step
from portal.views.accounts.enrolling import app_context, forget_secret, offered_secret
from tenants.models import User

_View = Callable[[HttpRequest, OnTheWay], HttpResponse]


def step_page(step: Step) -> Callable[[_View], Callable[[HttpRequest], HttpResponse]]:
    """A page for whoever has this step before them; everybody else is sent to where they are."""

    def decorated(view: _View) -> Callable[[HttpRequest], HttpResponse]:
        @sensitive_post_parameters()
        @never_cache
        @require_http_methods(["GET", "HEAD", "POST"])
        @everything()  # nobody is signed in yet: the session says whose rows these are
        @wraps(view)
        def page(request: HttpRequest) -> HttpResponse:
            on_the_way = steps.on_the_way(request)
            if on_the_way is None:
                return redirect("overview" if request.user.is_authenticated else "login")
            return view(request, on_the_way) if on_the_way.step is step else go_on(request, on_the_way)

        return page

    return decorated


def go_on(request: HttpRequest, on_the_way: OnTheWay) -> HttpResponse:
    """To the next step, or in."""
    if on_the_way.step is not Step.IN:
        return redirect(on_the_way.step)
    steps.enter(request, on_the_way)
    answer = redirect(on_the_way.target)
    attempts.remember_device(request, answer, on_the_way.user)
    return answer


@step_page(Step.CODE)
def code(request: HttpRequest, on_the_way: OnTheWay) -> HttpResponse:
    """Ask for a code of the app, a recovery code, or a passkey. A wrong one is counted, and audited."""
    form: CodeForm | PasskeyForm = (PasskeyForm if "passkey" in request.POST else CodeForm)(request.POST or None)
    status, retry_after = 200, None
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                attempt = attempts.present_code(request, on_the_way.user)
            except TooManyRequests as error:
                add_status_error(request, form, error)
                status, retry_after = 429, error.retry_after
            else:
                proof = _proof(request, on_the_way.user, form.cleaned_data)
                if proof:
                    attempt.succeeded()
                    return go_on(request, steps.proven(request, on_the_way, proof))
                words = "This code is wrong, or it has been used already."
                form.add_error(
                    *(("code", words) if "code" in form.fields else (None, "This is none of your passkeys."))
                )
                what = {"step": "second factor"}
                refusals.record(request, 401, Action.SIGN_IN, name=on_the_way.user.email, target="session", detail=what)
                status = 401
    user = on_the_way.user
    app = factors.factor_of(user) is not None
    options = passkeys.offer_use(request, user) if passkeys.host_of(request) and user.passkeys.exists() else ""
    typed = form if isinstance(form, CodeForm) else CodeForm()
    response = _page(request, "code", form, on_the_way, status=status, app=app, options=options, typed=typed)
    if retry_after:
        response["Retry-After"] = str(retry_after)
    return response


@sensitive_variables("said")
def _proof(request: HttpRequest, user: User, said: dict[str, Any]) -> str:
    """By what the person has shown who they are; empty for nothing."""
    now = timezone.now()
    if "code" in said:
        return factors.code_use(actor=visitor_of(request, user.email, user), user=user, code=said["code"], now=now)
    return "passkey" if passkeys.passkey_use(request=request, answer=said["passkey"], now=now, user=user) else ""


@sensitive_variables("secret", "codes")
@step_page(Step.FACTOR)
@shows_secret
def factor(request: HttpRequest, on_the_way: OnTheWay) -> HttpResponse:
    """Set an app up, where nobody comes in without one; the recovery codes are shown before the way goes on."""
    secret = offered_secret(request)
    form = EnrolForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        user, now = on_the_way.user, timezone.now()
        try:
            codes = factors.factor_add(
                actor=visitor_of(request, user.email, user),
                user=user,
                secret=secret,
                code=form.cleaned_data["code"],
                now=now,
            )
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            forget_secret(request)
            further = steps.proven(request, on_the_way, "app")
            return _page(request, "codes", None, further, codes="\n".join(codes))
    return _page(request, "factor", form, on_the_way, **app_context(on_the_way.user, secret))


@step_page(Step.PASSWORD)
def password(request: HttpRequest, on_the_way: OnTheWay) -> HttpResponse:
    """A password of one's own in place of a given one."""
    form = NewPasswordForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        user = on_the_way.user
        actor = visitor_of(request, user.email, user)
        try:
            accounts.password_change(actor=actor, user=user, password=form.cleaned_data["password"])
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            return go_on(request, on_the_way)
    return _page(request, "password", form, on_the_way)


@never_cache
@require_http_methods(["POST"])
@everything()
def further(request: HttpRequest) -> HttpResponse:
    """Go on, from a page that has shown something once."""
    found = steps.on_the_way(request)
    return go_on(request, found) if found is not None else redirect("login")


def _page(
    request: HttpRequest, name: str, form: Any, on_the_way: OnTheWay, *, status: int = 0, **more: Any
) -> HttpResponse:
    context = {"form": form, "person": on_the_way.user, **more}
    status = status or (422 if form is not None and form.errors else 200)
    return render(request, f"pages/sessions/{name}.html", context, status=status)
