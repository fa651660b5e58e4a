"""Restart, scale, delete: confirmed here, allowed or refused by the API server, in its own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django import forms
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from kube.display import commands, facts
from kube.display.kinds import ServedKind
from kube.requests.status import StatusError
from portal.contents import changing, reading
from portal.pages.forms import ConfirmForm
from portal.views.actions import render_action
from portal.views.contents.lists import url_of
from portal.views.contents.place import Place, place_of, refused

_MENDED = frozenset({"pods", "jobs.batch", "replicasets.apps", "events"})
"""What is made again, or missed by nobody: one press is enough."""


class ObjectForm(forms.Form):
    """The object that was shown: another one of its name is not meant."""

    uid = forms.CharField(max_length=64, widget=forms.HiddenInput)


class ScaleForm(ObjectForm):
    """How many there shall be."""

    replicas = forms.IntegerField(min_value=0, max_value=changing.REPLICAS_MAX)


class ErasureForm(ConfirmForm, ObjectForm):
    """The name, typed, of the object that was shown."""


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def restart(request: HttpRequest, pk: UUID, resource: str, name: str) -> HttpResponse:
    """Confirm, and let a workload make its pods anew, one after the other."""

    def perform(place: Place, kind: ServedKind, data: dict[str, Any]) -> None:
        changing.restart(place.door, kind, name, uid=data["uid"], now=timezone.now())

    return _act(
        place_of(request, pk),
        resource,
        name,
        lambda data, found: ObjectForm(data, initial=found),
        perform,
        title=f"Restart {name}",
        submit="Restart",
        done=f"{name} makes its pods anew.",
        texts=["Its pods are replaced as its strategy says: with the usual one, no moment is without any."],
        command=commands.restart,
    )


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def scale(request: HttpRequest, pk: UUID, resource: str, name: str) -> HttpResponse:
    """Ask how many, and let there be as many."""

    def perform(place: Place, kind: ServedKind, data: dict[str, Any]) -> None:
        changing.scale(place.door, kind, name, uid=data["uid"], replicas=data["replicas"])

    return _act(
        place_of(request, pk),
        resource,
        name,
        lambda data, found: ScaleForm(data, initial=found),
        perform,
        title=f"Scale {name}",
        submit="Scale",
        done=f"{name} is being scaled.",
        texts=["With 0 it stops and keeps its definition."],
    )


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def delete(request: HttpRequest, pk: UUID, resource: str, name: str) -> HttpResponse:
    """Confirm, by typing the name where it is for good, and delete an object with what it has made."""

    def perform(place: Place, kind: ServedKind, data: dict[str, Any]) -> None:
        changing.delete(place.door, kind, name, uid=data["uid"])

    def form(data: Any, found: dict[str, Any]) -> forms.Form:
        if resource in _MENDED:
            return ObjectForm(data, initial=found)
        return ErasureForm(data, initial=found, expected=name)

    place = place_of(request, pk)
    return _act(
        place,
        resource,
        name,
        form,
        perform,
        title=f"Delete {name}",
        submit="Delete",
        done=f"{name} is being deleted.",
        texts=["It ends with everything that it has made. It cannot be undone."],
        command=commands.delete,
        destroys=True,
        after=place.url("workspace-kind", resource),
    )


def _act(
    place: Place,
    resource: str,
    name: str,
    form: Callable[[Any, dict[str, Any]], forms.Form],
    perform: Callable[[Place, ServedKind, dict[str, Any]], None],
    *,
    texts: list[str],
    command: Callable[[str, str, str], str] | None = None,
    **words: Any,
) -> HttpResponse:
    request = place.request
    if place.closed:
        return refused(place, StatusError(place.closed, code=409))
    try:
        kind = reading.kind_called(place.door, resource)
        shown: dict[str, Any] = {}
        if request.method != "POST":
            found = reading.object_called(place.door, kind, name)
            shown = {"uid": facts.text_at(found, "metadata", "uid"), "replicas": facts.replicas_of(found)}
    except StatusError as error:
        return refused(place, error)
    back = url_of(place, kind.name, name)
    said = [f"kubectl says it as: {command(place.workspace.k8s_namespace, kind.name, name)}"] if command else []
    return render_action(
        request,
        form(request.POST if request.method == "POST" else None, shown),
        lambda data: perform(place, kind, data),
        back=back,
        texts=[*texts, *said],
        crumbs=[
            {"text": place.workspace.name, "url": place.url("workspace")},
            {"text": kind.title, "url": place.url("workspace-kind", kind.name)},
            {"text": name, "url": back},
        ],
        **words,
    )
