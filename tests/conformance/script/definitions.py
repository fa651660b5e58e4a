"""CustomResourceDefinitions: schemas that are taken or not, and what becomes of objects."""

from __future__ import annotations

from typing import Any

from tests.conformance.conversation import Conversation
from tests.conformance.script.media import MERGE

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "equal.example.org"
TEXT = {"type": "string"}
FIELD = {"x": TEXT}
FREE = {"x-kubernetes-preserve-unknown-fields": True}
MAP = {"type": "object", "additionalProperties": TEXT}
REFUSED: tuple[dict[str, Any], ...] = (
    {"additionalProperties": TEXT},
    {"additionalProperties": True},
    {"additionalProperties": False},
    {"properties": {"spec": {**MAP, "properties": FIELD}}},
    {"properties": {"spec": {"type": "object", "additionalProperties": False, "properties": FIELD}}},
    {"properties": {"spec": {**MAP, **FREE, "x-kubernetes-embedded-resource": True}}},
    {"properties": {"spec": {"type": "object", "additionalProperties": {}}}},
    {"properties": {"spec": {"type": "array", "items": {}}}},
    *(
        {"properties": {"spec": {"type": "object", "properties": FIELD, **part}}}
        for part in (
            {"not": {"additionalProperties": TEXT}},
            {"not": {"additionalProperties": True}},
            {"anyOf": [{"additionalProperties": {}}]},
            {"allOf": [{"title": "t"}]},
            {"allOf": [{"default": False}]},
            {"allOf": [{"x-kubernetes-list-type": "set"}]},
            {"allOf": [{"x-kubernetes-map-type": "atomic"}]},
            {"allOf": [FREE]},
            {"oneOf": [{"properties": {"metadata": {}}}]},
        )
    ),
)
KINDS: dict[str, dict[str, Any]] = {
    "Nothing": {"type": "object", "additionalProperties": False},
    "Anything": {"type": "object", "additionalProperties": True},
    "Beside": {"type": "object", "additionalProperties": True, "properties": FIELD},
    "Kept": {"type": "object", "additionalProperties": False, **FREE},
    "Texts": MAP,
    "Objects": {"type": "object", "additionalProperties": {"type": "object", **FREE}},
    "Part": {"type": "object", "properties": FIELD, "allOf": [{"additionalProperties": False}]},
    "Listed": {"type": "array", "items": TEXT, "additionalProperties": TEXT},
}
SPECS: tuple[dict[str, Any], ...] = (
    {"x": "1"},
    {"y": "1"},
    {"y": {"z": 1}},
    {"y": [{"z": 1}, [{"z": 1}]]},
    {"y": None},
)


def definition(kind: str, schema: dict[str, Any] | None = None, **version: Any) -> dict[str, Any]:
    """A definition with one version; ``version`` says more about it."""
    plural = kind.lower() + "s"
    whole = {"type": "object", **(schema or FREE)}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": whole}, **version}
            ],
        },
    }


def definitions(say: Conversation) -> None:
    """``additionalProperties``: where they may stand, and which fields they let in."""
    say.set_up()
    for schema in REFUSED:
        say.say("POST", f"{CRDS}?dryRun=All", definition("Refused", schema))
    for kind, schema in KINDS.items():
        serve(say, definition(kind, {"properties": {"spec": schema}}))
        at = f"{home(say)}/{kind.lower()}s"
        for spec in SPECS:
            body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
            say.say("POST", f"{at}?dryRun=All", body)
        say.speaker.send("DELETE", f"{CRDS}/{kind.lower()}s.{GROUP}")


def deprecations(say: Conversation) -> None:
    """Versions that warn of themselves with every answer."""
    say.set_up()
    for text in ("", "x" * 257, "é" * 129, "a\nb", "é\u200bb"):
        say.say("POST", f"{CRDS}?dryRun=All", definition("Warned", None, deprecated=True, deprecationWarning=text))
    say.say("POST", f"{CRDS}?dryRun=All", definition("Warned", None, deprecationWarning="good"))
    body = definition("Old", None, deprecated=True)
    version = {**body["spec"]["versions"][0], "storage": False}
    body["spec"]["versions"] += [
        {**version, "name": "v2", "deprecationWarning": "use version 3"},
        {**version, "name": "v3", "deprecated": False},
        {**version, "name": "v4", "deprecated": True},
        {**version, "name": "v5beta1"},
    ]
    serve(say, body)
    for number in ("v1", "v2", "v3", "v4", "v5beta1"):
        at = f"{home(say, number)}/olds"
        made = {"apiVersion": f"{GROUP}/{number}", "kind": "Old", "metadata": {"name": "x"}}
        say.say("GET", f"{at}/missing")
        say.say("POST", at, made)
        say.say("PATCH", f"{at}/x", {"metadata": {"labels": {"a": "b"}}}, MERGE)
        say.say("GET", at)
        say.say("GET", f"{at}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dnone")
        say.say("PUT", f"{at}/x?dryRun=All", {**made, "metadata": {"name": "x", "labels": {"b": "c"}}})
        say.say("DELETE", f"{at}/x")
        say.say("DELETE", at)
    say.speaker.send("DELETE", f"{CRDS}/olds.{GROUP}")


def home(say: Conversation, version: str = "v1") -> str:
    """Where the section's custom objects are."""
    return f"/apis/{GROUP}/{version}/namespaces/{say.namespace}"


def serve(say: Conversation, body: dict[str, Any]) -> None:
    """Make a definition, and wait until its objects may be written."""
    made = say.speaker.send("POST", CRDS, body)
    assert made.status == 201, made
    plural, kind = body["spec"]["names"]["plural"], body["spec"]["names"]["kind"]
    for version in body["spec"]["versions"]:
        probe = {"apiVersion": f"{GROUP}/{version['name']}", "kind": kind, "metadata": {"name": "probe"}}
        path = f"{home(say, version['name'])}/{plural}?dryRun=All"
        say.until(lambda path=path, probe=probe: say.speaker.send("POST", path, probe).status == 201)
