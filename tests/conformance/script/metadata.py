"""What objects of every kind may be called and bear, and by which of their fields they are selected."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tests.conformance.conversation import Conversation
from tests.conformance.script.kinds import OBJECTS, home
from tests.speaking import Answer

METADATA: tuple[dict[str, Any], ...] = (
    {},
    *({"name": name} for name in ("Bad_Name", "a.b", "a_b", "-a", "1a", "system:x", ".", "..", "a/b", "a%b", "ä", " ")),
    {"name": "x", "generateName": "Bad_"},
    {"name": "x", "labels": {"bad key": "v"}},
    {"name": "x", "annotations": {"BAD KEY": "x"}},
    {"name": "x", "finalizers": ["bad", "a/b", "UP/x"]},
    {"name": "x", "ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "", "uid": ""}]},
    {"name": "x", "resourceVersion": "12", "uid": "12"},
    {"name": "x", "generation": -1},
)
OTHERWISE = frozenset(
    {
        # Of these the real server looks at names where it looks at fields, and in other words.
        "DeviceClass",
        "ReplicationController",
        # Of these it takes what the path cannot hold for a mistake only when there is no other.
        "CertificateSigningRequest",
        # Of these not all is judged here.
        "ResourceSlice",
        # Of these the labels that it gives templates are the job's name.
        "Job",
    }
)
FIELDS = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "type", "reason", "source", "count"),
    *("spec.nodeName", "spec.type", "spec.unschedulable", "spec.signerName", "spec.clusterIP", "spec.driver"),
    *("spec.hostNetwork", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.replicas"),
    *("status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName", "status.replicas"),
    *("status.successful", "involvedObject.kind", "involvedObject.fieldPath", "regarding.kind", "regarding.fieldPath"),
    *("reportingComponent", "reportingController", "nothing"),
)


def called(say: Conversation) -> None:
    """Kinds of every space."""
    _call(say, system=False)


def calledsystem(say: Conversation) -> None:
    """Kinds of the system space alone."""
    _call(say, system=True)


def selected(say: Conversation) -> None:
    """Kinds of every space."""
    _select(say, system=False)


def selectedsystem(say: Conversation) -> None:
    """Kinds of the system space alone."""
    _select(say, system=True)


def _bodies(*, system: bool) -> list[dict[str, Any]]:
    kinds = {(body["apiVersion"], body["kind"]): body for body in OBJECTS}
    return [body for body in kinds.values() if bool(body.get("system")) is system]


def _call(say: Conversation, *, system: bool) -> None:
    say.set_up()
    for body in _bodies(system=system):
        if body["kind"] in OTHERWISE:
            continue
        at = home(say, body)
        for number, metadata in enumerate(METADATA):
            bare = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": metadata}
            answer = say.speaker.send("POST", f"{at}?dryRun=All", bare)
            say.keep(f"{at} {number} {metadata}", _judged(answer))


def _judged(answer: Answer) -> Any:
    """Whether it was refused, with what was said of the metadata; of an object without a name, with all that was said."""
    if answer.status != 422:
        return {"status": answer.status, "message": answer["message"] if answer.status >= 400 else ""}
    causes = answer["details"]["causes"]
    if any(cause["field"] == "metadata.name" and "Required" in cause["message"] for cause in causes):
        return {"status": answer.status, "fields": sorted({cause["field"] for cause in causes})}
    return {"status": answer.status, "causes": [cause for cause in causes if cause["field"].startswith("metadata")]}


def _select(say: Conversation, *, system: bool) -> None:
    say.set_up()
    for body in _bodies(system=system):
        at = home(say, body)
        for field in FIELDS:
            answer = say.speaker.send("GET", f"{at}?limit=1&fieldSelector={quote(f'{field}=nothing')}")
            say.keep(f"{at} {field}", {"status": answer.status, "message": answer.body.get("message", "")})
