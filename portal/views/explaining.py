"""The policy playground (AZ11) and the identity inspector: something goes in, what the rules make of it comes out."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods, require_safe

from kube.status import StatusError
from portal.explain import explain_request, own_facts
from portal.forms import ExplainForm, IdentityForm, refuse
from portal.inspecting import inspect_identity
from portal.requests import actor_of


@require_safe
@login_required
def explain(request: HttpRequest) -> HttpResponse:
    """Nothing is executed, so this is a GET: its address can be sent to a colleague."""
    actor = actor_of(request)
    asked = "path" in request.GET
    form = ExplainForm(request.GET if asked else None, initial=own_facts(actor))
    context: dict[str, Any] = {"form": form}
    if asked and form.is_valid():
        data = form.cleaned_data
        groups = [group.strip() for group in data["groups"].split(",") if group.strip()]
        try:
            context["explanation"] = explain_request(
                actor=actor,
                name=data["user"],
                groups=groups,
                tenant=data["tenant"],
                method=data["method"],
                path=data["path"],
                cluster=data["cluster"],
            )
        except StatusError as error:
            refuse(form, error)
    return render(request, "pages/explain.html", context, status=422 if asked and form.errors else 200)


@sensitive_post_parameters("text")
@sensitive_variables("form", "inspection")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def identity(request: HttpRequest) -> HttpResponse:
    """A POST, so that what is pasted is in no address; it is not repeated on the page either."""
    form = IdentityForm(request.POST or None)
    context: dict[str, Any] = {"form": form}
    if request.method == "POST" and form.is_valid():
        context["inspection"] = inspect_identity(form.cleaned_data["text"])
    return render(request, "pages/identity.html", context, status=422 if form.errors else 200)
