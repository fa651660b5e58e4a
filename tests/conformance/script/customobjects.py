"""Custom objects: what is wrong with them by schema, by formats and by rules, and what a changed schema makes of them."""

from __future__ import annotations

from typing import Any

from kube.objects.patches import deep_copy
from tests.conformance.conversation import Conversation
from tests.conformance.script.definitions import CRDS, GROUP, definition, home, serve
from tests.conformance.script.media import JSON_PATCH, MERGE, PARTIALS, TABLE

KEYED = {
    "type": "array",
    "maxItems": 2,
    "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string"}}},
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k"],
}
EMBEDDED = {
    "type": "object",
    "x-kubernetes-embedded-resource": True,
    "x-kubernetes-preserve-unknown-fields": True,
}
RULED: dict[str, Any] = {
    "type": "object",
    "x-kubernetes-validations": [
        {
            "rule": "self.low <= self.high",
            "message": "upside down",
            "reason": "FieldValueForbidden",
            "fieldPath": ".low",
        },
        {"rule": "!has(oldSelf.name) || self.name == oldSelf.name", "message": "stays"},
        {"rule": "self.high < 100", "messageExpression": "self.high > 200 ? 'far too high' : 'too high'"},
    ],
    "properties": {
        "low": {"type": "integer", "minimum": 0, "default": 1},
        "high": {"type": "integer", "maximum": 1000, "multipleOf": 2, "default": 10},
        "name": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
        "mode": {"type": "string", "enum": ["A", "B"], "default": "A"},
        "either": {"x-kubernetes-int-or-string": True},
        "keyed": KEYED,
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "few": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "integer"}},
        "whole": {"type": "object", "required": ["part"], "properties": {"part": {"type": "boolean"}}},
        "not": {"type": "string", "not": {"enum": ["bad"]}},
        "embedded": EMBEDDED,
        "int32": {"type": "integer", "format": "int32"},
        "ipv4": {"type": "string", "format": "ipv4"},
    },
}
RULED_SPECS: tuple[dict[str, Any], ...] = (
    {"low": 20},
    {"high": 100},
    {"high": 1001},
    {"high": 3},
    {"low": -1},
    {"name": "a"},
    {"name": "abcdef"},
    {"name": "A1", "high": 200},
    {"mode": "C", "high": 200},
    {"either": 1.5},
    {"keyed": []},
    {"keyed": [{"k": "a"}, {"k": "a"}], "high": 200},
    {"keyed": [{}]},
    {"keyed": [{"k": "a"}, {"k": "b"}, {"k": "c"}]},
    {"set": ["a", "a"], "low": 20},
    {"few": {"a": 1, "b": 2}},
    {"whole": {}},
    {"not": "bad", "low": 20},
    {"embedded": {}},
    {"embedded": {"apiVersion": "v1", "kind": "a b"}},
    {"embedded": {"apiVersion": "v1/2/3", "kind": "Pod"}, "low": 20},
    {"int32": 1.5},
    {"int32": 2**31, "low": 20},
    {"int32": 2**63},
    {"ipv4": "1.2.3"},
)
FORMATS: dict[str, tuple[str, ...]] = {
    "hostname": (
        *("a", "a-", "a-b", "a-b-c", "a.b", "a.bc", "A.com", "a.b.", "x_y.com", "1.com", "a-.com", "-a.com", "ä.com"),
        *("localhost", "1.2.3.4", "a.b1", "a.123", f"{'a' * 63}.com", f"{'a' * 64}.com", f"{'ä' * 40}.com", "a$b"),
    ),
    "duration": (
        *(
            "1 day",
            "1d",
            "5m",
            "2 weeks",
            "1h30m",
            "1.5h",
            "-5m",
            "5",
            "x",
            "1hr",
            "3 w",
            "1us",
            "10 ms 5 s",
            "1minute",
        ),
        *("P1D", "1h 5m", "1 Fortnight", "9223372036854775808 days", "0", "nano", "1 nanosecond", "1 nan"),
    ),
    "mac": ("01:23:45:67:89:ab", "0123.4567.89ab", "01-23-45-67-89-AB", "01:23-45:67:89:ab", "01:23:45:67:89:ab:cd:ef"),
    "email": ("a@b", "a@b.c", "A <a@b.c>", "A <a@b.c", "a b@c.d", "<a@b.c>"),
    "uri": ("http://a", "/a", "a", "//a", "mailto:x", "http://a b", "a:b", "?a", "#a", "/a%zz", "/a b"),
    "isbn": ("9783161484100", "9783161484101", "0-321-75104-3", "0-321-75104-4", "x"),
    "isbn10": ("9783161484100", "0-321-75104-3"),
    "isbn13": ("9783161484100", "0-321-75104-3"),
    "creditcard": ("4111111111111111", "4111-1111-1111-1111", "4111111111111112", "x"),
    "rgbcolor": ("rgb(1,2,3)", "rgb( 1 , 255,0 )", "rgb(1,2,256)", "x"),
    "k8s-short-name": ("abc", "A", "a.b", "a" * 64),
    "k8s-long-name": ("a.b", "A", "a..b"),
    "nobody-knows-it": ("x",),
}
NUMBERS: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "int": ({"type": "integer"}, (1.0, 1.5, 2**63, 1e30, "1")),
    "int32": ({"type": "integer", "format": "int32"}, (1.5, 2**31, -(2**31) - 1, 2**63)),
    "int64": ({"type": "integer", "format": "int64"}, (1.5, 2**63 - 1, 2**63)),
    "float": ({"type": "number", "format": "float"}, (1e38, 1e39, "x")),
    "number": ({"type": "number"}, (2**70, 1.5)),
    "several": ({"type": "integer", "minimum": 5, "maximum": 3, "multipleOf": 7}, (4, 6, 14, 3.5)),
}


def customobjects(say: Conversation) -> None:
    """What is wrong with new ones, and with changes of what they are."""
    say.set_up()
    serve(say, definition("Ruled", {"properties": {"spec": RULED}}))
    at = f"{home(say)}/ruleds"
    for spec in RULED_SPECS:
        say.say("POST", f"{at}?dryRun=All", _object("Ruled", spec))
    say.say("POST", at, _object("Ruled", {"name": "abc"}))
    for change in (
        {"spec": {"name": "xyz"}},
        {"spec": {"name": "xyz", "mode": "C"}},
        {"spec": {"low": 11}},
        {"spec": {"low": -1}},
        {"kind": "Other"},
        {"kind": "Other", "apiVersion": "v1"},
    ):
        say.say("PATCH", f"{at}/x", change, MERGE)
        say.say("PATCH", f"{at}/x?fieldValidation=Strict", change, MERGE)
    say.say("PATCH", f"{at}/x", [{"op": "replace", "path": "/kind", "value": "Other"}], JSON_PATCH)
    for form in (TABLE, PARTIALS):
        say.say("GET", at, Accept=form)
    say.speaker.send("DELETE", f"{CRDS}/ruleds.{GROUP}")


def formats(say: Conversation) -> None:
    """Texts and numbers of every format."""
    say.set_up()
    texts = {name: {"type": "string", "format": name} for name in FORMATS}
    numbers = {name: schema for name, (schema, _) in NUMBERS.items()}
    serve(say, definition("Formed", {"properties": {"spec": {"type": "object", "properties": {**texts, **numbers}}}}))
    given = {**FORMATS, **{name: values for name, (_, values) in NUMBERS.items()}}
    for name, values in given.items():
        for number, value in enumerate(values):
            # The value stands in the name of the request, so that one that differs is found.
            say.say("POST", f"{home(say)}/formeds?dryRun=All&of={name}-{number}", _object("Formed", {name: value}))
    say.speaker.send("DELETE", f"{CRDS}/formeds.{GROUP}")


def earlier(say: Conversation) -> None:
    """Objects from before their definition was changed, and in versions that know less."""
    say.set_up()
    text = {"type": "string"}
    item = {"type": "object", "properties": {"k": text, "v": text}}
    before = {"number": {"type": "integer"}, "gone": text, "part": {"type": "object", "properties": {"x": text}}}
    listed = {"type": "array", "items": item}
    body = definition("Earlier", {"properties": {"spec": _spec({**before, "list": listed})}})
    serve(say, body)
    at, kept = f"{home(say)}/earliers/x", {"k": "1", "v": "2"}
    say.say(
        "POST",
        f"{home(say)}/earliers",
        _object("Earlier", {"number": 1, "gone": "g", "part": {"x": "1"}, "list": [kept]}),
    )
    after = {
        "number": {"type": "integer"},
        "new": {**text, "default": "n"},
        "part": {"type": "object", "properties": {"y": {**text, "default": "y"}}},
        "list": {
            "type": "array",
            "items": {"type": "object", "properties": {"k": text, "w": {**text, "default": "w"}}},
        },
    }
    _redefine(say, at, [("v1", after)], lambda spec: "gone" not in spec)
    _read(say, "v1")
    say.say("PATCH", at, {"metadata": {"labels": {"a": "b"}}}, MERGE)
    _redefine(
        say,
        at,
        [
            ("v1", {"number": {"type": "integer"}}),
            ("v2", {"number": {"type": "integer"}, "own": {**text, "default": "o"}}),
        ],
        lambda spec: spec == {"number": 1},
    )
    for version in ("v1", "v2"):
        _read(say, version)
    say.say("PATCH", at, {"metadata": {"labels": {"a": "c"}}}, MERGE)
    for version in ("v1", "v2"):
        _read(say, version)
    say.speaker.send("DELETE", f"{CRDS}/earliers.{GROUP}")


def _object(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def _spec(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _read(say: Conversation, version: str) -> None:
    at = f"{home(say, version)}/earliers"
    # For a moment after a change of the definition the real server has nothing to list from.
    say.until(lambda: say.speaker.send("GET", at).status == 200)
    say.say("GET", f"{at}/x")
    say.say("GET", at)
    say.say("GET", f"{at}?watch=1&timeoutSeconds=1")


def _redefine(say: Conversation, at: str, versions: list[tuple[str, dict[str, Any]]], seen: Any) -> None:
    """Give the definition these versions, the last of them the kept one, and wait until objects are shown by them."""
    live = say.speaker.send("GET", f"{CRDS}/earliers.{GROUP}").body
    first = live["spec"]["versions"][0]
    made = []
    for name, properties in versions:
        version = deep_copy(first)
        version |= {"name": name, "storage": name == versions[-1][0]}
        version["schema"] = {"openAPIV3Schema": _spec({"spec": _spec(properties)})}
        made.append(version)
    live["spec"]["versions"] = made
    assert say.speaker.send("PUT", f"{CRDS}/earliers.{GROUP}", live).status == 200

    def shown() -> bool:
        answer = say.speaker.send("GET", at)
        return answer.status == 200 and seen(answer["spec"])

    say.until(shown)
    last = f"{home(say, versions[-1][0])}/earliers/x"
    say.until(lambda: say.speaker.send("GET", last).status == 200)
