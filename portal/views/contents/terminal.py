"""A terminal in a container: its page, the ticket that it asks for, and the handshake that the ticket opens."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_GET, require_POST

from kube.display import commands, facts
from kube.display.text import visible
from kube.requests.status import BadRequest, Conflict, Forbidden, NotFound, StatusError
from portal.contents import reading, terminals
from portal.contents.relay import EXTENSION
from portal.views.contents.lists import url_of
from portal.views.contents.place import Place, place_of, through_the_door
from tenants.models import Cluster

_NOTHING_RUNS = "Nothing runs on the product's own API server, so there is nothing to open a terminal in."
_MAY_NOT = "Your role in the tenant does not let you into pods: the API server says no to create pods/exec."


@through_the_door
def terminal(request: HttpRequest, place: Place, name: str) -> HttpResponse:
    """The page, on which nothing is open yet."""
    containers = _containers(place, name)
    asked = request.GET.get("container", "")
    chosen = asked if asked in containers else containers[0]
    url = url_of(place, "pods", name)
    context = {
        "name": visible(name, most=253),
        "containers": containers,
        "container": chosen,
        "offered": terminals.COMMANDS,
        "command_max": terminals.COMMAND_MAX,
        "refusal": _refusal(place, name),
        "pod_url": url,
        "pods_url": place.url("workspace-kind", "pods"),
        "ticket_url": f"{url}terminal/ticket/",
        "command": commands.kubectl(place.workspace.k8s_namespace, "exec", "-it", name, "-c", chosen, "--", "sh"),
    }
    return render(request, "pages/contents/terminal.html", {**place.context("pods"), **context})


@never_cache
@require_POST
@login_required
@sensitive_variables("ticket")
def ticket(request: HttpRequest, pk: UUID, name: str) -> HttpResponse:
    """A ticket for one connection, and where to show it; or why there is none, in the API server's own words."""
    try:
        place = place_of(request, pk)
        if place.closed:
            raise Conflict(place.closed)
        container = request.POST.get("container", "")
        if container not in _containers(place, name):
            raise BadRequest("The pod has no such container.")
        if refusal := _refusal(place, name):
            raise Forbidden(refusal)
        command = request.POST.get("command", "")
        made = terminals.ticket_issue(request, place.workspace, pod=name, container=container, command=command)
    except StatusError as error:
        return JsonResponse({"message": error.message}, status=error.code)
    return JsonResponse({"ticket": terminals.TICKET + made, "path": f"{url_of(place, 'pods', name)}terminal/connect/"})


@never_cache
@require_GET
@login_required
def connect(request: HttpRequest, pk: UUID, name: str) -> HttpResponse:
    """The handshake of a terminal: what it is to be is handed over to the connection that asks (``portal.contents.relay``)."""
    scope: dict[str, Any] = getattr(request, "scope", {})
    hand_over = scope.get("extensions", {}).get(EXTENSION)
    if hand_over is not None:
        terminals.require_own_page(request)
    place = place_of(request, pk)
    if hand_over is None:
        return HttpResponse("This address is for WebSockets.", status=426, headers={"Upgrade": "websocket"})
    container, command = terminals.ticket_redeem(request, place.workspace, pod=name)
    try:
        if place.closed:
            raise Conflict(place.closed)
        hand_over(terminals.shell_of(request, place.workspace, pod=name, container=container, command=command))
    except StatusError as error:
        hand_over(error)
    return HttpResponse(status=204)


def _containers(place: Place, name: str) -> list[str]:
    """Those of the pod, its own before what stands beside them. Raises as ``Door.read``."""
    pod = reading.object_called(place.door, reading.kind_called(place.door, "pods"), name)
    every = [each.name for each in facts.containers_of(pod)]
    if not every:
        raise NotFound("The pod has no containers.")
    own = reading.own_containers(pod)
    return sorted(every, key=lambda each: each not in own)


def _refusal(place: Place, name: str) -> str:
    """Why this person opens no terminal here; empty where one may be tried."""
    if not runs_containers(place):
        return _NOTHING_RUNS
    return "" if may_enter(place, name) else _MAY_NOT


def may_enter(place: Place, name: str) -> bool:
    """Whether the API server lets the person into the pod."""
    return reading.may(place.door, reading.kind_called(place.door, "pods"), name, "create", "exec")


def runs_containers(place: Place) -> bool:
    """Whether there can be anything to enter where the workspace is."""
    return place.workspace.cluster.kind != Cluster.Kind.EMBEDDED
