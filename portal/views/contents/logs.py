"""What a container says: followed, searched, taken away as a file; and what the one before it said."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse

from kube.display import commands, facts
from kube.display.loglines import read_lines
from kube.display.text import visible
from kube.requests.status import NotFound, StatusError
from portal.contents import reading
from portal.http.actors import actor_of
from portal.http.places import require_large
from portal.views.contents.lists import file_name, url_of
from portal.views.contents.place import Place, living, through_the_door

_EVERY = 2
_EVERY_OLD = 60


@through_the_door
def logs(request: HttpRequest, place: Place, name: str) -> HttpResponse:
    """A container's last lines, followed while somebody looks."""
    asked = _asked(place, name)
    context: dict[str, Any] = {**asked, "name": visible(name, most=253), "failed": ""}
    try:
        raw = reading.log_of(
            place.door,
            name,
            container=asked["container"],
            previous=asked["previous"],
            lines=asked["lines"],
            most=reading.LOG_BYTES,
            times=asked["times"],
        )
    except StatusError as error:
        if error.code not in {400, 404}:
            raise
        # A container that has not begun, or has no one before it: the rest of the page is well.
        raw, context["failed"] = b"", error.message
    context["log"], context["total"] = read_lines(raw, search=asked["query"])
    context["is_cut"] = len(raw) >= reading.LOG_BYTES
    url = url_of(place, "pods", name)
    filtered = f"container={quote(asked['container'], safe='')}{'&previous=1' if asked['previous'] else ''}"
    context |= {
        "pod_url": url,
        "pods_url": place.url("workspace-kind", "pods"),
        "file_url": f"{url}logs/file/?{filtered}",
        "choices": reading.LOG_LINES,
        "command": commands.logs(
            place.workspace.k8s_namespace,
            name,
            container=asked["container"],
            lines=asked["lines"],
            previous=asked["previous"],
        ),
    }
    return living(
        place,
        "pages/contents/logs.html",
        "pages/contents/lines.html",
        context,
        seconds=_EVERY_OLD if asked["previous"] else _EVERY,
        current="pods",
    )


@through_the_door
def log_file(request: HttpRequest, place: Place, name: str) -> HttpResponse:
    """The end of a log as it was written, some megabytes of it, with the time of each line."""
    asked = _asked(place, name)
    require_large(actor_of(request), place.workspace.tenant_id)
    raw = reading.log_of(
        place.door,
        name,
        container=asked["container"],
        previous=asked["previous"],
        lines=1_000_000,
        most=reading.LOG_FILE_BYTES,
        times=True,
    )
    response = HttpResponse(raw, content_type="text/plain; charset=utf-8")
    kept = file_name(name, asked["container"], ending="log")
    response["Content-Disposition"] = f'attachment; filename="{kept}"'
    return response


def _asked(place: Place, name: str) -> dict[str, Any]:
    """What the address asks for, as far as it makes sense. Raises as ``Door.read``."""
    pod = reading.object_called(place.door, reading.kind_called(place.door, "pods"), name)
    containers = [each.name for each in facts.containers_of(pod)]
    if not containers:
        raise NotFound("The pod has no containers.")
    query = place.request.GET
    chosen = query.get("container", "")
    lines = query.get("lines", "")
    own = [each for each in containers if each in reading.own_containers(pod)] or containers
    return {
        "containers": containers,
        "container": chosen if chosen in containers else own[0],
        "previous": query.get("previous") == "1",
        "times": query.get("times") == "1",
        "query": query.get("q", "")[:200],
        "lines": int(lines) if lines in map(str, reading.LOG_LINES) else reading.LOG_LINES[1],
    }
