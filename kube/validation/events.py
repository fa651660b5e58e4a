"""Events, as components report them in either of their two forms."""

from __future__ import annotations

from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import immutable, invalid, reason_causes, required
from kube.requests.status import Cause

_TEXT_MAX: Final = 128
_NOTE_MAX: Final = 1024
_SERIES_MIN: Final = 2
_GO: Final = {"uid": "UID", "apiVersion": "APIVersion"}
_NAMESPACE: Final = "does not match event.namespace"


def event_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with an Event of the core group, or of ``events.k8s.io`` when it is not new."""
    named = "regarding" in body or str(body.get("apiVersion", "")).startswith("events.k8s.io/")
    about = body.get("regarding" if named else "involvedObject", {}).get("namespace", "")
    place = "involvedObject.namespace"
    namespace = body.get("metadata", {}).get("namespace", "")
    if not body.get("eventTime"):
        agrees = namespace in (about, "") if about else namespace in ("", "default")
        return [] if agrees else [invalid(place, about, _NAMESPACE)]
    causes: list[Cause] = []
    if not about and namespace not in ("default", "kube-system"):
        causes.append(invalid(place, about, _NAMESPACE))
    controller = "reportingController" if named else "reportingComponent"
    reporter = body.get(controller, "")
    causes += [] if reporter else [required(controller)]
    causes += reason_causes(controller, reporter, names.qualified_name(reporter))
    for field in ("reportingInstance", "action", "reason"):
        text = body.get(field, "")
        causes += [] if text else [required(field)]
        if len(text.encode()) > _TEXT_MAX:
            causes.append(invalid(field, "", f"can have at most {_TEXT_MAX} characters"))
    if len(body.get("note" if named else "message", "").encode()) > _NOTE_MAX:
        causes.append(invalid("message", "", f"can have at most {_NOTE_MAX} characters"))
    return causes


def new_event_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a new Event of ``events.k8s.io``."""
    causes = event_causes(body) + _series_causes(body)
    if not body.get("eventTime"):
        causes.append(required("eventTime"))
    kind = body.get("type", "")
    if kind not in ("Normal", "Warning"):
        causes.append(invalid("type", "", f"has invalid value: {kind}"))
    for field, shown in (
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource", "source"),
    ):
        if body.get(field):
            causes.append(invalid(shown, "", "needs to be unset"))
    return causes


def event_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """Of an Event of ``events.k8s.io`` only its series and its metadata change."""
    if not str(new.get("apiVersion", "")).startswith("events.k8s.io/"):
        return []
    causes = [] if new.get("series") == old.get("series") else _series_causes(new)
    if new.get("regarding", {}) != old.get("regarding", {}):
        causes.append(immutable("involvedObject", _reference(new.get("regarding", {}))))
    causes += [
        immutable(shown, new.get(field, ""))
        for field, shown in (
            ("reason", "reason"),
            ("note", "message"),
            ("type", "type"),
            ("eventTime", "eventTime"),
            ("action", "action"),
        )
        if new.get(field, "") != old.get(field, "")
    ]
    if new.get("related") != old.get("related"):
        causes.append(immutable("related", _reference(new.get("related"))))
    return causes + [
        immutable(field, new.get(field, ""))
        for field in ("reportingController", "reportingInstance")
        if new.get(field, "") != old.get(field, "")
    ]


def _series_causes(body: dict[str, Any]) -> list[Cause]:
    series = body.get("series")
    if series is None:
        return []
    causes = [invalid("series.count", "", "should be at least 2")] if series.get("count", 0) < _SERIES_MIN else []
    return causes if series.get("lastObservedTime") else [*causes, required("series.lastObservedTime")]


def _reference(body: dict[str, Any] | None) -> dict[str, str] | None:
    """A reference to an object as Go shows it."""
    fields = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    return body and {_GO.get(field, field[0].upper() + field[1:]): body.get(field, "") for field in fields}
