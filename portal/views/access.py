"""The policy playground: why a request is decided so, who can do a thing, what a change would change (AZ11)."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_safe

from kube.authorization.rbac import Attributes
from kube.requests.logicalclusters import space_of
from kube.requests.status import StatusError
from portal.access.explanation import explain_request, own_identity
from portal.access.queries import manifest_of, what_if, who_can
from portal.http.actors import actor_of
from portal.pages.forms import ExplainForm, WhatIfForm, WhoCanForm, add_status_error


@require_safe
@login_required
def explain(request: HttpRequest) -> HttpResponse:
    """Nothing is executed, so this is a GET: its address can be sent to a colleague."""
    actor = actor_of(request)
    asked = "path" in request.GET
    form = ExplainForm(request.GET if asked else None, initial=own_identity(actor))
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
            add_status_error(request, form, error)
    return render(request, "pages/explain.html", context, status=422 if asked and form.errors else 200)


@require_safe
@login_required
def whocan(request: HttpRequest) -> HttpResponse:
    """Every subject that may do a thing, with the path by which."""
    actor = actor_of(request)
    asked = "verb" in request.GET
    form = WhoCanForm(request.GET if asked else None, initial={"cluster": _own_cluster(own_identity(actor))})
    context: dict[str, Any] = {"form": form, "holders": None}
    if asked and form.is_valid():
        data = form.cleaned_data
        try:
            context["holders"] = who_can(actor=actor, cluster=data["cluster"], attributes=_attributes(data))
        except StatusError as error:
            add_status_error(request, form, error)
    return render(request, "pages/whocan.html", context, status=422 if asked and form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def whatif(request: HttpRequest) -> HttpResponse:
    """Who would gain and lose what; a POST only because manifests are long: nothing is saved."""
    actor = actor_of(request)
    form = WhatIfForm(request.POST or None, initial={"cluster": _own_cluster(own_identity(actor))})
    context: dict[str, Any] = {"form": form, "effects": None}
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            context["effects"] = what_if(
                actor=actor, cluster=data["cluster"], manifest=manifest_of(data["manifest"]), delete=data["delete"]
            )
        except StatusError as error:
            add_status_error(request, form, error)
    return render(request, "pages/whatif.html", context, status=422 if form.errors else 200)


def _own_cluster(facts: dict[str, Any]) -> str:
    tenant = facts.get("tenant", "")
    return space_of(tenant) if tenant else ""


def _attributes(data: dict[str, Any]) -> Attributes:
    """``deployments.apps/scale`` taken apart as kubectl does; a path is no resource."""
    resource = data["resource"]
    if resource.startswith("/"):
        return Attributes(data["verb"], path=resource, is_resource=False)
    what, slash, part = resource.partition("/")
    plural, _, group = what.partition(".")
    return Attributes(data["verb"], group, f"{plural}{slash}{part}", part, data["namespace"], data["name"])
