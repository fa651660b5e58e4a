"""Questions about rights: why a request is decided so, who can do a thing, what a change would change (AZ11)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from audit.recorder import Actor
from kube.requests.logicalclusters import ROOT, space_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import ServiceUnavailable, StatusError
from portal.access.dryruns import Doors
from portal.access.explanation import explain_access, explain_request, own_identity
from portal.access.inquiries import Choices, attributes_of, choices_in, question_in
from portal.access.queries import change_explained, change_of, differences_of, sent_of, what_if, who_can
from portal.contents.door import door_of
from portal.http.actors import actor_of
from portal.pages.accessforms import ExplainForm, MayForm, PasteForm, WhatIfForm, WhoCanForm
from portal.pages.forms import add_status_error

_QUESTIONS: Final = (("may", "Why, or why not"), ("who", "Who can"), ("change", "What if"))
_RENAMED: Final = {"verb": "action", "resource": "thing"}


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def explain(request: HttpRequest) -> HttpResponse:
    """One page for the three questions. Nothing is executed and nothing saved.

    What is asked by GET has an address that can be sent to a colleague; a change is sent by POST, as it may be long.
    """
    actor = actor_of(request)
    asked = {name: str(value) for name, value in request.GET.items() if value}
    if "paste" in asked:
        return _pasted(request, actor, asked)
    if request.method == "POST" or asked.get("ask") == "change":
        return _change(request, actor, asked)
    return _who(request, actor, asked) if asked.get("ask") == "who" else _may(request, actor, asked)


@require_safe
@login_required
def choices(request: HttpRequest) -> HttpResponse:
    """What there is in another place, for the fields to choose from."""
    found = _choices(actor_of(request), request.GET.get("cluster", "")[:512])
    return render(request, "components/forms/choices.html", {"choices": found})


@require_safe
@login_required
def elsewhere(request: HttpRequest, ask: str) -> HttpResponse:
    """Where the questions that had pages of their own are now; their addresses have been sent to people."""
    asked = {_RENAMED.get(name, name): str(value) for name, value in request.GET.items()}
    return redirect(f"{reverse('explain')}?{urlencode({**asked, 'ask': ask})}")


def _pasted(request: HttpRequest, actor: Actor, asked: dict[str, str]) -> HttpResponse:
    form = PasteForm(asked)
    begun = _begun(actor, asked)
    if form.is_valid():
        try:
            found = question_in(actor, form.cleaned_data["paste"], begun["cluster"])
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            filled = {"ask": asked.get("ask", "may"), **begun, "name": "", **found}
            return redirect(f"{reverse('explain')}?{urlencode({name: text for name, text in filled.items() if text})}")
    shown = WhoCanForm(initial=begun) if asked.get("ask") == "who" else MayForm(initial=begun)
    return _page(request, actor, asked, shown, paste=form)


def _may(request: HttpRequest, actor: Actor, asked: dict[str, str]) -> HttpResponse:
    """Why somebody may do something or not: as it was chosen, or as the raw request that an expert writes."""
    begun = _begun(actor, asked)
    chosen = MayForm(asked if "action" in asked else None, initial=begun)
    raw = ExplainForm(asked if "path" in asked else None, initial=own_identity(actor), auto_id="raw-%s")
    explanation = None
    try:
        if chosen.is_bound and chosen.is_valid():
            data = chosen.cleaned_data
            explanation = explain_access(
                actor=actor,
                name=data["person"],
                cluster=data["cluster"],
                attributes=attributes_of(data),
                sent=sent_of(data["manifest"], data["patch"]),
                doors=_doors(request),
                now=timezone.now(),
            )
        elif raw.is_bound and raw.is_valid():
            explanation = explain_request(
                actor=actor,
                name=raw.cleaned_data["user"],
                groups=[group.strip() for group in raw.cleaned_data["groups"].split(",") if group.strip()],
                tenant=raw.cleaned_data["tenant"],
                method=raw.cleaned_data["method"],
                path=raw.cleaned_data["path"],
                cluster=raw.cleaned_data["cluster"],
                sent=sent_of(raw.cleaned_data["manifest"], raw.cleaned_data["patch"]),
                doors=_doors(request),
                now=timezone.now(),
            )
    except StatusError as error:
        add_status_error(request, raw if raw.is_bound and not chosen.is_bound else chosen, error)
    return _page(request, actor, asked, chosen, raw=raw, explanation=explanation)


def _who(request: HttpRequest, actor: Actor, asked: dict[str, str]) -> HttpResponse:
    """Every subject that may do a thing, with the path by which."""
    form = WhoCanForm(asked if "action" in asked else None, initial=_begun(actor, asked))
    holders = None
    if form.is_bound and form.is_valid():
        try:
            holders = who_can(
                actor=actor, cluster=form.cleaned_data["cluster"], attributes=attributes_of(form.cleaned_data)
            )
        except StatusError as error:
            add_status_error(request, form, error)
    return _page(request, actor, asked, form, holders=holders)


def _change(request: HttpRequest, actor: Actor, asked: dict[str, str]) -> HttpResponse:
    """Who would gain and lose what, and whether the server would take the change."""
    form = WhatIfForm(request.POST or None, initial=_begun(actor, asked))
    effects = explanation = None
    if request.method == "POST" and form.is_valid():
        try:
            manifest, delete = change_of(form.cleaned_data)
            cluster = form.cleaned_data["cluster"]
            effects = differences_of(what_if(actor=actor, cluster=cluster, manifest=manifest, delete=delete))
            explanation = change_explained(
                actor=actor,
                cluster=cluster,
                manifest=manifest,
                delete=delete,
                doors=_doors(request),
                now=timezone.now(),
            )
        except StatusError as error:
            add_status_error(request, form, error)
    return _page(request, actor, {**asked, "ask": "change"}, form, effects=effects, explanation=explanation)


def _doors(request: HttpRequest) -> Doors | None:
    """Of what is asked here by the form, by the person themselves: else nothing is sent in anybody's name."""
    asked_here = request.method == "POST" or request.headers.get("Sec-Fetch-Site") == "same-origin"
    return partial(door_of, request) if asked_here and not hasattr(request, "viewing") else None


def _page(request: HttpRequest, actor: Actor, asked: dict[str, str], form: Form, **more: Any) -> HttpResponse:
    ask = asked.get("ask", "may")
    carried = {
        name: asked[name] for name in ("person", "action", "thing", "name", "cluster", "namespace") if name in asked
    }
    tabs = [
        {"text": text, "url": "?" + urlencode([*carried.items(), ("ask", name)]), "current": name == ask}
        for name, text in _QUESTIONS
    ]
    context: dict[str, Any] = {
        "ask": ask,
        "tabs": tabs,
        "form": form,
        "paste": PasteForm(),
        "raw": None,
        "choices": _choices(actor, str(form["cluster"].value() or "")[:512]),
        **more,
    }
    wrong = form.errors or context["paste"].errors or (context["raw"] is not None and context["raw"].errors)
    return render(request, "pages/explain.html", context, status=422 if wrong else 200)


def _choices(actor: Actor, cluster: str) -> Choices:
    """What there is to choose from; nothing while that would take too long, for everything can be typed."""
    try:
        return choices_in(actor, cluster)
    except ServiceUnavailable:
        return Choices()


def _begun(actor: Actor, asked: dict[str, str]) -> dict[str, str]:
    """What the form begins with: what was asked before, else oneself, where one is at home."""
    own = own_identity(actor)
    tenant = own.get("tenant", "")
    home = ROOT if tenant == SYSTEM_TENANT else space_of(tenant) if tenant else ""
    begun = {"person": own["user"], "cluster": home, "namespace": "" if home == ROOT else "default"}
    return {**begun, **{name: text for name, text in asked.items() if name not in {"ask", "paste"}}}
