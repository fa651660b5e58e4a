"""One object: facts, conditions, what belongs to it, its YAML, and the values that somebody asks for one by one."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.dateparse import parse_datetime

from kube.display import commands, facts, yamltext
from kube.display.kinds import ServedKind
from kube.display.text import visible
from kube.requests.status import NotFound
from portal.contents import changing, reading
from portal.http.secretpages import shows_secret
from portal.views.contents.lists import file_name, rows_of, url_of
from portal.views.contents.place import Place, living, through_the_door
from portal.views.contents.terminal import may_enter, runs_containers

_EVERY = 10


@through_the_door
def one(request: HttpRequest, place: Place, resource: str, name: str) -> HttpResponse:
    """An object's page, of which what changes by itself is alive."""
    kind = reading.kind_called(place.door, resource)
    found = reading.object_called(place.door, kind, name)
    context = {
        "kind": kind,
        "name": visible(name, most=253),
        "facts": facts.facts_of(found),
        "conditions": facts.conditions_of(found),
        "containers": _containers(place, found, name),
        "ending": facts.text_at(found, "metadata", "deletionTimestamp"),
        "pods": _pods(place, found),
        "events": _events(place, found),
        "has_events": kind.name != "events",
    }
    if not place.is_live:
        context |= _still(place, kind, found, name)
    return living(
        place,
        "pages/contents/object.html",
        "pages/contents/state.html",
        context,
        seconds=_EVERY,
        current=kind.name,
    )


@through_the_door
@shows_secret
def value(request: HttpRequest, place: Place, resource: str, name: str, key: str) -> HttpResponse:
    """One value of a Secret or a ConfigMap, for whoever may read it: in a dialog, or as a page."""
    kind = reading.kind_called(place.door, resource)
    found = reading.object_called(place.door, kind, name)
    held = yamltext.value_of(found, key) if yamltext.has_values(found) else None
    if held is None:
        raise NotFound(f"{kind.resource} {name[:253]!r} has no key {key[:253]!r}")
    text, is_text = _read(held)
    context = {
        "kind": kind,
        "name": visible(name, most=253),
        "key": visible(key, most=253),
        "value": text,
        "is_text": is_text,
        "size": len(held),
        "object_url": url_of(place, kind.name, name),
    }
    return render(request, "pages/contents/value.html", {**place.context(kind.name), **context})


def _still(place: Place, kind: ServedKind, found: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What does not change by itself: asked for once."""
    namespace, shown_object = place.workspace.k8s_namespace, yamltext.readable(found)
    url = url_of(place, kind.name, name)
    may = {
        "restart": kind.name in changing.RESTARTABLE and reading.may(place.door, kind, name, "patch"),
        "scale": "scale" in kind.subresources and reading.may(place.door, kind, name, "patch", "scale"),
        "enter": kind.name == "pods" and runs_containers(place) and may_enter(place, name),
        "delete": "delete" in kind.verbs and reading.may(place.door, kind, name, "delete"),
    }
    shown = [("As YAML", commands.get_yaml(namespace, kind.name, name))]
    shown.append(("In words", commands.kubectl(namespace, "describe", kind.name, name)))
    if may["restart"]:
        shown.append(("Restart", commands.restart(namespace, kind.name, name)))
    if may["scale"]:
        wanted = facts.replicas_of(found)
        shown.append(("Scale", commands.scale(namespace, kind.name, name, 1 if wanted is None else wanted)))
    if may["enter"]:
        shown.append(("Terminal", commands.kubectl(namespace, "exec", "-it", name, "--", "sh")))
    if may["delete"]:
        shown.append(("Delete", commands.delete(namespace, kind.name, name)))
    return {
        "created_at": _moment(facts.text_at(found, "metadata", "creationTimestamp")),
        "uid": visible(facts.text_at(found, "metadata", "uid"), most=64),
        "object_labels": facts.texts_of(shown_object, "labels"),
        "annotations": facts.texts_of(shown_object, "annotations"),
        "owners": [
            {
                "text": visible(f"{owner.kind} {owner.name}", most=300),
                "url": url_of(place, of.name, owner.name) if of is not None else "",
            }
            for owner, of in reading.owners_of(place.door, found)
        ],
        "values": [
            {"key": visible(each.key, most=253), "size": each.size, "url": f"{url}values/{_in_address(each.key)}/"}
            for each in (yamltext.values_of(found) if yamltext.has_values(found) else ())
        ],
        "has_values": yamltext.has_values(found),
        "yaml": yamltext.yaml_of(found),
        "filename": file_name(kind.resource, name, ending="yaml"),
        "may": may,
        "object_url": url,
        "commands": [{"label": label, "text": text, "id": f"command-{label.split()[-1]}"} for label, text in shown],
    }


def _containers(place: Place, found: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    url = f"{url_of(place, 'pods', name)}logs/"
    return [
        {"container": each, "logs": f"{url}?container={_in_address(each.name)}"} for each in facts.containers_of(found)
    ]


def _pods(place: Place, found: Mapping[str, Any]) -> dict[str, Any] | None:
    related = reading.pods_of(place.door, found)
    if related is None:
        return None
    url = f"{place.url('workspace-kind', 'pods')}?labels={_in_address(related.labels)}"
    return {"table": rows_of(place, "pods", related.page), "url": url}


def _events(place: Place, found: Mapping[str, Any]) -> dict[str, Any] | None:
    page = reading.events_of(place.door, found)
    return rows_of(place, "events", page) if page is not None else None


def _read(held: bytes) -> tuple[str, bool]:
    """A value as text, or, where it is none, in Base64."""
    try:
        text = held.decode()
    except UnicodeDecodeError:
        return base64.b64encode(held).decode(), False
    return visible(text), True


def _moment(text: str) -> datetime | None:
    """When something was, as a cluster says it; ``None`` for no moment, and for one of no calendar."""
    try:
        return parse_datetime(text)
    except ValueError:
        return None


def _in_address(text: str) -> str:
    return quote(text, safe="")
