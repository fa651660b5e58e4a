"""The policy playground: a request goes in, its way through the house comes out (AZ11)."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from kube.status import StatusError
from portal.explain import explain_request, own_facts
from portal.forms import ExplainForm, refuse
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
