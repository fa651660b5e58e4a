"""A form that confirms one action: drawn as a dialog when htmx asks, as a page of its own otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django_htmx.http import HttpResponseClientRedirect

from kube.requests.status import StatusError
from portal.pages.forms import add_status_error


def redirect_out(request: HttpRequest, url: str) -> HttpResponse:
    """A redirect that also leaves a dialog."""
    if getattr(request, "htmx", False):
        return HttpResponseClientRedirect(url)
    return redirect(url)


def form_status(request: HttpRequest, form: forms.Form) -> int:
    """The status of a page that shows a form: htmx draws only what succeeded."""
    return 422 if form.errors and not getattr(request, "htmx", False) else 200


def render_action(
    request: HttpRequest,
    form: forms.Form,
    perform: Callable[[dict[str, Any]], object],
    *,
    title: str,
    submit: str,
    done: str,
    back: str,
    after: str = "",
    texts: Sequence[str] = (),
    points: Sequence[str] = (),
    warning: str = "",
    crumbs: Sequence[dict[str, str]] = (),
    destroys: bool = False,
    template: str = "pages/action.html",
    **more: Any,
) -> HttpResponse:
    """Show ``form``; on POST ``perform`` with its data, say ``done`` and go to ``after`` (else ``back``).

    A refusal of the service is shown in the form, where it belongs.
    """
    if request.method == "POST" and form.is_valid():
        try:
            perform(form.cleaned_data)
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            messages.success(request, done, extra_tags="allow")
            return redirect_out(request, after or back)
    context = {
        "form": form,
        "title": title,
        "submit": submit,
        "back": back,
        "texts": texts,
        "points": points,
        "warning": warning,
        "crumbs": crumbs,
        "destroys": destroys,
        **more,
    }
    return render(request, template, context, status=form_status(request, form))
