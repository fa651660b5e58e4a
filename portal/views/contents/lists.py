"""What there is in a workspace: in a few words, and kind by kind."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.encoding import escape_uri_path

from kube.display import commands
from kube.display.kinds import kind_named
from kube.display.tables import Page
from kube.display.text import visible
from kube.requests.status import StatusError
from portal.contents import reading
from portal.views.contents.place import Place, living, through_the_door

_COUNTED: Final = (
    *("deployments.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "cronjobs.batch", "pods"),
    *("services", "ingresses.networking.k8s.io", "configmaps", "secrets", "persistentvolumeclaims"),
)
_ALWAYS_THERE: Final = {"configmaps", "secrets"}
"""What a cluster puts into every namespace: it says nothing about whether somebody uses it."""

_EVERY: Final = 5
_EVERY_SEARCH: Final = 20


@through_the_door
def contents(request: HttpRequest, place: Place) -> HttpResponse:
    """The first page: what there is of the kinds that people ask for first, and what to do when there is nothing."""
    return render(request, "pages/contents/home.html", {**place.context(), **_summary(place)})


@through_the_door
def running(request: HttpRequest, place: Place) -> HttpResponse:
    """The same in a few words, for the workspace's own page, which does not wait for it."""
    try:
        context = {**_summary(place), "home": place.url("workspace-contents"), "brief": True}
    except StatusError as error:
        return refused_in_part(request, error)
    return render(request, "pages/contents/summary.html", context)


@through_the_door
def kind(request: HttpRequest, place: Place, resource: str) -> HttpResponse:
    """A kind's objects as ``kubectl get`` shows them, page by page, by part of a name and by labels; alive."""
    found = reading.kind_called(place.door, resource)
    name, labels = (request.GET.get(field, "").strip()[:253] for field in ("q", "labels"))
    after = request.GET.get("after", "")
    result = reading.listed(place.door, found, name=name, labels=labels, after=after)
    context = {
        "kind": found,
        "query": name,
        "labels": labels,
        "is_searched": bool(name or labels),
        "table": rows_of(place, found.name, result.page),
        "looked_through": result.looked_through,
        "is_whole": result.is_whole,
        "remaining": result.page.remaining,
        "newer": _address(request, "") if after else "",
        "older": _address(request, result.page.following) if result.page.following else "",
        "command": commands.get_list(place.workspace.k8s_namespace, found.name, labels=labels),
        "kubeconfig": reverse("workspace-kubeconfig", args=[place.workspace.pk]),
    }
    return living(
        place,
        "pages/contents/list.html",
        "pages/contents/rows.html",
        context,
        seconds=_EVERY_SEARCH if name else _EVERY,
        current=found.name,
    )


def rows_of(place: Place, resource: str, page: Page) -> dict[str, Any]:
    """A table for a template, each row with the way to its object."""
    return {
        "columns": page.columns,
        "rows": [
            {"name": visible(row.name, most=253), "url": url_of(place, resource, row.name), "cells": row.cells}
            for row in page.rows
        ],
    }


def url_of(place: Place, resource: str, name: str) -> str:
    """The page of an object; empty for what can be in no address."""
    if not name or "/" in name or name in {".", ".."}:
        return ""
    return place.url("workspace-kind", resource) + f"{quote(name, safe='')}/"


def file_name(*parts: str, ending: str) -> str:
    """Of what is taken away: letters, digits, dashes and dots of the names that it has."""
    letters = "".join(
        letter if (letter.isascii() and letter.isalnum()) or letter in "-." else "-" for letter in "-".join(parts)
    )
    return f"{letters[:200]}.{ending}"


def refused_in_part(request: HttpRequest, error: StatusError) -> HttpResponse:
    """A refusal within another page, which is well without it."""
    context = {"title": "What runs here cannot be read", "text": error.message, "remedy": ""}
    return render(request, "pages/contents/refusal.html", context)


def _summary(place: Place) -> dict[str, Any]:
    """How many there are of each kind that is asked for first; the first that fails for other than rights ends it."""
    kinds, counts, has_something = reading.kinds_of(place.door), [], False
    for name in _COUNTED:
        found = kind_named(kinds, name)
        if found is None:
            continue
        try:
            number: int | None = reading.counted(place.door, found)
        except StatusError as error:
            if error.code not in {403, 404, 405}:
                raise
            number = None
        has_something |= bool(number) and name not in _ALWAYS_THERE
        if number != 0:
            counts.append({"text": found.title, "number": number, "url": place.url("workspace-kind", name)})
    namespace = place.workspace.k8s_namespace
    return {
        "counts": counts,
        "has_something": has_something,
        "command": commands.kubectl(namespace, "create", "deployment", "hello", "--image=nginx"),
        "kubeconfig": reverse("workspace-kubeconfig", args=[place.workspace.pk]),
    }


def _address(request: HttpRequest, after: str) -> str:
    query = request.GET.copy()
    for name in ("after", "seen"):
        query.pop(name, None)
    if after:
        query["after"] = after
    return f"{escape_uri_path(request.path)}?{query.urlencode()}"
