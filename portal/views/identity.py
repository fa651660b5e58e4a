"""The identity inspector: something is pasted, who it would be comes out."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods

from portal.access.tokeninspection import inspect_identity
from portal.pages.accessforms import IdentityForm


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
