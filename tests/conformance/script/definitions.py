"""CustomResourceDefinitions: schemas that are taken or not, and what becomes of objects."""

from __future__ import annotations

from typing import Any

from kube.objects.patches import deep_copy
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


_VERSION = "spec.versions.0"
_SPEC = f"{_VERSION}.schema.openAPIV3Schema.properties.spec"
CHANGES: tuple[tuple[str, Any], ...] = (
    ("metadata.name", "others.example.org"),
    ("spec.group", "nodots"),
    ("spec.scope", "Bad"),
    ("spec.names.plural", "Changeds"),
    ("spec.names.kind", "changed-x"),
    ("spec.names.listKind", "Changed"),
    ("spec.names.shortNames", ["BAD", "b"]),
    ("spec.names.categories", ["Bad Category"]),
    ("spec.versions", []),
    (f"{_VERSION}.name", "V1"),
    (f"{_VERSION}.name", ""),
    (f"{_VERSION}.schema", None),
    ("spec.preserveUnknownFields", True),
    ("spec.conversion", {"strategy": "Bad"}),
    ("spec.conversion", {"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}),
    (f"{_VERSION}.additionalPrinterColumns", [{"name": "A", "type": "bad", "jsonPath": ".x"}]),
    (f"{_VERSION}.additionalPrinterColumns", [{"name": "", "type": "string", "format": "bad", "jsonPath": "x"}]),
    (f"{_VERSION}.subresources", {"scale": {"specReplicasPath": ".foo.n", "statusReplicasPath": ".spec.r"}}),
    *(
        (f"{_VERSION}.selectableFields", [{"jsonPath": path}])
        for path in (".spec.a", ".spec.l", ".spec.none", "spec.a", ".metadata.name", ".spec.m.a", ".spec.o.x")
    ),
    (f"{_SPEC}.type", ""),
    (f"{_SPEC}.properties.n.default", 1.5),
    (f"{_SPEC}.default", {"none": "b"}),
    *((f"{_SPEC}.properties.a.format", name) for name in ("bogus", "date_time", "dateti-me", "int32", "k8s-long-name")),
    (f"{_SPEC}.properties.n.format", "double"),
    (f"{_SPEC}.properties.l.items.format", "bogus"),
    (f"{_SPEC}.deprecated", True),
    (f"{_VERSION}.schema.openAPIV3Schema.default", {}),
    (f"{_VERSION}.schema.openAPIV3Schema.nullable", True),
    *(
        (f"{_SPEC}.x-kubernetes-validations", [{"rule": "true", **said}])
        for said in (
            {"message": " "},
            {"message": "a\nb"},
            {"reason": "Bad"},
            {"fieldPath": "a"},
            {"fieldPath": ".none"},
        )
    ),
)


def redefined(say: Conversation) -> None:
    """A good definition with one thing changed; and what becomes of two that want the same names."""
    say.set_up()
    parts = {
        "a": TEXT,
        "n": {"type": "integer"},
        "l": {"type": "array", "items": TEXT},
        "m": MAP,
        "o": {"type": "object", "properties": FIELD},
    }
    good = definition("Changed", {"properties": {"spec": {"type": "object", "properties": parts}}})
    for number, (path, value) in enumerate(CHANGES):
        say.verdict("POST", f"{CRDS}?dryRun=All&of={number}", _changed(good, path, value))
    serve(say, good)
    one = f"{CRDS}/changeds.{GROUP}"
    live = say.speaker.send("GET", one).body
    for path, value in (
        ("spec.group", "example.com"),
        ("spec.names.plural", "others"),
        ("spec.names.kind", "Other"),
        ("spec.scope", "Cluster"),
        (f"{_VERSION}.name", "v2"),
        (f"{_SPEC}.properties.a.format", "bogus"),
    ):
        say.verdict("PUT", f"{one}?dryRun=All&of={path}", _changed(live, path, value))
    say.note(one, lambda answer: answer["status"]["storedVersions"])
    say.part("PATCH", f"{one}/status", {"status": {"storedVersions": []}}, lambda answer: answer["status"], **_MERGE)
    names = {"plural": "others", "singular": "other", "kind": "Changed", "listKind": "ChangedList"}
    other = _changed(_changed(good, "spec.names", names), "metadata.name", f"others.{GROUP}")
    say.speaker.send("POST", CRDS, other)
    at = f"{CRDS}/others.{GROUP}"
    say.until(lambda: bool(say.speaker.send("GET", at)["status"].get("conditions")))
    say.note(at, lambda answer: answer["status"])
    for each in (at, one):
        say.speaker.send("DELETE", each)


_MERGE = {"Content_Type": MERGE}


def _changed(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    result: dict[str, Any] = deep_copy(body)
    node: Any = result
    *parents, last = path.split(".")
    for parent in parents:
        node = node[int(parent)] if isinstance(node, list) else node[parent]
    node[last] = value
    return result
