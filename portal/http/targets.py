"""Where somebody goes on to after a sign-in: a page of ours, never another site."""

from __future__ import annotations

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme


def safe_target(request: HttpRequest) -> str:
    """What ``next`` says, if it is a path of ours; else the overview."""
    target = request.POST.get("next") or request.GET.get("next") or ""
    # What does not begin with a slash leads somewhere by where one is, or is taken for the name of a page.
    if target.startswith("/") and url_has_allowed_host_and_scheme(target, None):
        return target
    return reverse("overview")
