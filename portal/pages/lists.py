"""What the address of a list, or of its file, asks for: taken as it is said or refused by name; and the links between pages."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest

from kube.requests.status import BadRequest


def chosen(request: HttpRequest, name: str, *choices: str) -> str:
    """Which of the ``choices`` the address names; empty where it names none. Raises ``BadRequest`` for another one."""
    said = request.GET.get(name, "")
    if said and said not in choices:
        raise BadRequest(f"{name} is {' or '.join(choices)}, or left out.")
    return said


def filters_of(form: forms.Form) -> dict[str, Any]:
    """What a form of filters says; nothing of one that was not sent. Raises ``BadRequest`` that names what is wrong."""
    if not form.is_bound:
        return {}
    if not form.is_valid():
        said = [f"{name}: {error}" for name, errors in form.errors.items() for error in errors]
        raise BadRequest(f"{' '.join(said)} Correct the filter or leave it out; without it more is shown.")
    return form.cleaned_data


def pager(request: HttpRequest, cursor: str) -> dict[str, str]:
    """Links to the first and to the next page, filters kept."""
    query = request.GET.copy()
    query.pop("after", None)
    newer = f"?{query.urlencode()}" if request.GET.get("after") else ""
    if cursor:
        query["after"] = cursor
    return {"newer": newer, "older": f"?{query.urlencode()}" if cursor else ""}
