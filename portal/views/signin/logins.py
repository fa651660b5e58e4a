"""The sign-in of kubectl: the page that asks, the page for a device's code, and what the plugin talks to (D9)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import FileResponse, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from access.credentials import logins
from kube.requests.status import StatusError
from portal.database.scopes import everything
from portal.http.actors import actor_of
from portal.pages.credentialforms import UserCodeForm
from portal.pages.forms import EmptyForm, add_status_error
from portal.signin import oauth
from portal.views.actions import form_status, render_action
from tenants import actionlimits

_PLUGIN = settings.BASE_DIR / "login" / "tenantry_login.py"


@sensitive_variables("address")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def authorize(request: HttpRequest) -> HttpResponse:
    """Ask whether a program on this machine may act as the person; a page, not a redirect, leads back to it.

    Our policy lets forms lead to our own pages only.
    """
    flaw = oauth.consent_flaw(request)
    context: dict[str, Any] = {"machine": oauth.machine_of(request.GET), "flaw": flaw}
    if flaw:
        return render(request, "pages/logins/authorize.html", context, status=400)
    if request.method == "POST":
        with everything():
            address = oauth.consent_redirect(request, allow=request.POST.get("decision") == "allow")
        return render(request, "pages/logins/leaving.html", {"url": address})
    return render(request, "pages/logins/authorize.html", context)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def device(request: HttpRequest) -> HttpResponse:
    """Let a device in that shows a code: first the code, then what it is, then the decision."""
    user: Any = request.user
    form = UserCodeForm(request.POST or None, initial={"user_code": request.GET.get("user_code", "")[:16]})
    context: dict[str, Any] = {"form": form}
    if request.method == "POST" and form.is_valid():
        code, decision, now = form.cleaned_data["user_code"], request.POST.get("decision", ""), timezone.now()
        try:
            # Every code costs one, right or wrong: a code is there for ten minutes, and nobody enters many.
            actionlimits.take(actionlimits.LOGIN_CODE, user.pk)
            with everything():
                context["login"] = logins.login_of_user_code(code, now=now)
                if decision in {"allow", "deny"}:
                    logins.login_decide(
                        actor=actor_of(request),
                        user=user,
                        session_key=str(request.session.session_key),
                        user_code=code,
                        allow=decision == "allow",
                        now=now,
                    )
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            if decision in {"allow", "deny"}:
                said = "The device is signed in." if decision == "allow" else "The device was turned away."
                messages.success(request, said, extra_tags="allow")
                return redirect("credentials")
    return render(request, "pages/logins/device.html", context, status=form_status(request, form))


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def login_end(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Sign a machine out."""
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: logins.login_revoke(actor=actor_of(request), login_id=pk, now=timezone.now()),
        title="Sign this machine out",
        submit="Sign out",
        done="The machine is signed out; its tokens are refused within a second.",
        back=reverse("credentials"),
        crumbs=[{"text": "Credentials", "url": reverse("credentials")}],
        destroys=True,
    )


@csrf_exempt
@sensitive_post_parameters()
@require_POST
def token(request: HttpRequest) -> HttpResponse:
    """A token for a code, a device's code, or what opened the login last."""
    return oauth.token_answer(request)


@csrf_exempt
@sensitive_post_parameters()
@require_POST
def device_codes(request: HttpRequest) -> HttpResponse:
    """Codes for a device."""
    return oauth.device_answer(request)


@csrf_exempt
@sensitive_post_parameters()
@require_POST
def revocation(request: HttpRequest) -> HttpResponse:
    """The end of a login, from its own machine."""
    return oauth.revocation_answer(request)


@require_safe
def plugin(request: HttpRequest) -> FileResponse:
    """The plugin as one file."""
    return FileResponse(_PLUGIN.open("rb"), as_attachment=True, filename="tenantry-login", content_type="text/x-python")
