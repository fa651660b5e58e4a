"""What MutatingAdmissionPolicies in the system space make of objects there, beside what they make of them on a real server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.conformance.conversation import Conversation
from tests.conformance.script.admissionpolicies import API, CASE, CONFIG_MAPS, PROBE, about, config_map, make, named
from tests.conformance.script.media import APPLY, JSON_PATCH, MERGE

POLICIES_AT: Final = f"{API}/mutatingadmissionpolicies"
BINDINGS_AT: Final = f"{API}/mutatingadmissionpolicybindings"
_DEFINITION: Final = {
    "metadata": {"name": "gadgets.eq.example.org"},
    "spec": {
        "group": "eq.example.org",
        "names": {"kind": "Gadget", "plural": "gadgets"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "size": {"type": "integer", "default": 1},
                                    "words": {"type": "array", "items": {"type": "string"}},
                                    "tags": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "set",
                                        "items": {"type": "string"},
                                    },
                                    "parts": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string"},
                                                "size": {"type": "integer"},
                                                "kind": {"type": "string", "default": "plain"},
                                            },
                                        },
                                    },
                                    "fixed": {
                                        "type": "object",
                                        "x-kubernetes-map-type": "atomic",
                                        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                                    },
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}

Spec = Mapping[str, Any]


def _applies(*expressions: str) -> list[dict[str, Any]]:
    return [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": each}} for each in expressions]


def _patches(*expressions: str) -> list[dict[str, Any]]:
    return [{"patchType": "JSONPatch", "jsonPatch": {"expression": each}} for each in expressions]


def _rules(
    group: str, *resources: str, operations: tuple[str, ...] = ("CREATE", "UPDATE"), **more: Any
) -> dict[str, Any]:
    rule = {"apiGroups": [group], "apiVersions": ["*"], "resources": list(resources), "operations": list(operations)}
    return {"matchConstraints": {"resourceRules": [{**rule, **more}]}}


_DATA: Final = "Object{data: {'b': 'made'}}"
_LABEL: Final = "Object{metadata: Object.metadata{labels: {'made': 'yes'}}}"
_BROKEN: Final = [{"name": "one", "expression": "object.data.one == 'bad'"}]
_PARAMS: Final = {"apiVersion": "v1", "kind": "ConfigMap"}
_ADD: Final = "[JSONPatch{op: 'add', path: '/data/b', value: 'made'}]"

MAPS: Final[dict[str, Spec]] = {
    "apply": {"mutations": _applies(_DATA)},
    "apply-label": {"mutations": _applies(_LABEL)},
    "apply-replace": {"mutations": _applies("Object{data: {'a': object.data.a + '!'}}")},
    "apply-nothing": {"mutations": _applies("Object{}")},
    "apply-optional": {
        "mutations": _applies(
            "Object{?data: object.?nothing, metadata: Object.metadata{?labels: object.metadata.?labels}}"
        )
    },
    "apply-optional-field": {
        "mutations": _applies("Object{?data: object.data.a == 'good' ? optional.of({'b': 'x'}) : optional.none()}")
    },
    "apply-choice": {"mutations": _applies("object.data.a == 'good' ? Object{data: {'b': 'x'}} : Object{}")},
    "apply-escaped": {
        "mutations": _applies("Object{metadata: Object.metadata{annotations: {'example.org/a-b': 'Object{x: 1}'}}}")
    },
    "apply-lines": {"mutations": _applies("Object{ // a comment { with\n  data: {\n    'b': \"it's\",\n  },\n}")},
    "apply-several": {"mutations": _applies(_DATA, "Object{data: {'c': object.data.b + '!'}}")},
    "apply-finalizers": {"mutations": _applies("Object{metadata: Object.metadata{finalizers: ['example.org/eq']}}")},
    "apply-unknown": {"mutations": _applies("Object{spec: Object.spec{a: 1}}")},
    "apply-misnamed": {"mutations": _applies("Object{metadata: Object.data{labels: {'a': 'b'}}}")},
    "apply-type": {"mutations": _applies("Object{data: {'b': 1}}")},
    "apply-list": {"mutations": _applies("Object{data: ['b']}")},
    "apply-null": {"mutations": _applies("Object{data: null}")},
    "apply-null-value": {"mutations": _applies("Object{data: {'a': null}}")},
    "apply-error": {"mutations": _applies("Object{data: {'b': object.data.missing}}")},
    "apply-error-open": {
        "failurePolicy": "Ignore",
        "mutations": _applies("Object{data: {'b': object.data.missing}}", _LABEL),
    },
    "apply-name": {"mutations": _applies("Object{metadata: Object.metadata{name: 'eq-other'}}")},
    "apply-kind": {"mutations": _applies("Object{kind: 'Secret'}")},
    "apply-reads": {"mutations": _applies("Object{data: {'b': string(Object{data: {'x': 'y'}}.data['x'])}}")},
    "returns-text": {"mutations": _applies("'text'")},
    "returns-dyn": {"mutations": _applies("object")},
    "returns-part": {"mutations": _applies("Object.spec{}")},
    "returns-map": {"mutations": _applies("{'data': {'b': 'x'}}")},
    "returns-patch": {"mutations": _applies(_ADD)},
    "unclosed": {"mutations": _applies("Object{data: {'b': 'x'}")},
    "undeclared": {"mutations": _applies("Object{data: {'b': objekt.data}}")},
    "undeclared-type": {"mutations": _applies("Objekt{data: {'b': 'x'}}")},
    "undeclared-params": {"mutations": _applies("Object{data: {'b': params.data.a}}")},
    "json": {"mutations": _patches(_ADD)},
    "json-none": {"mutations": _patches("[]")},
    "json-choice": {"mutations": _patches(f"object.data.a == 'good' ? {_ADD} : []")},
    "json-several": {
        "mutations": _patches(
            "[JSONPatch{op: 'add', path: '/data/b', value: 'x'}, JSONPatch{op: 'copy', from: '/data/b', path: '/data/c'},"
            " JSONPatch{op: 'move', from: '/data/a', path: '/data/d'}, JSONPatch{op: 'remove', path: '/data/b'}]"
        )
    },
    "json-replace": {"mutations": _patches("[JSONPatch{op: 'replace', path: '/data/a', value: object.data.a + '!'}]")},
    "json-test": {
        "mutations": _patches(
            "[JSONPatch{op: 'test', path: '/data/a', value: 'good'}, JSONPatch{op: 'add', path: '/data/b', value: 'x'}]"
        )
    },
    "json-escape": {
        "mutations": _patches(
            "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.org/a~b'), value: 'x'}]",
            "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.org/b'), value: 'x'}]",
        )
    },
    "json-escaped": {
        "mutations": _patches(
            "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.org/b'), value: 'x'}]"
        )
    },
    "json-object": {
        "mutations": _patches(
            "[JSONPatch{op: 'add', path: '/metadata', value: Object.metadata{name: object.metadata.name}}]"
        )
    },
    "json-object-misnamed": {
        "mutations": _patches("[JSONPatch{op: 'add', path: '/data', value: Object.data{b: Object.wrong{c: 'x'}}}]")
    },
    "json-map": {"mutations": _patches("[JSONPatch{op: 'replace', path: '/data', value: {'b': 'x', 'c': 'y'}}]")},
    "json-null": {"mutations": _patches("[JSONPatch{op: 'add', path: '/data', value: null}]")},
    "json-valueless": {"mutations": _patches("[JSONPatch{op: 'add', path: '/data/b'}]")},
    "json-missing": {"mutations": _patches("[JSONPatch{op: 'remove', path: '/data/missing'}]")},
    "json-missing-open": {
        "failurePolicy": "Ignore",
        "mutations": _patches("[JSONPatch{op: 'remove', path: '/data/missing'}]", _ADD),
    },
    "json-replace-missing": {"mutations": _patches("[JSONPatch{op: 'replace', path: '/data/missing', value: 'x'}]")},
    "json-copy-missing": {"mutations": _patches("[JSONPatch{op: 'copy', from: '/data/missing', path: '/data/b'}]")},
    "json-move-missing": {"mutations": _patches("[JSONPatch{op: 'move', from: '/data/missing', path: '/data/b'}]")},
    "json-remove-nowhere": {"mutations": _patches("[JSONPatch{op: 'remove', path: '/binaryData/a'}]")},
    "json-pathless": {"mutations": _patches("[JSONPatch{op: 'add', path: 'data', value: 'x'}]")},
    "json-kind": {"mutations": _patches("[JSONPatch{op: 'replace', path: '/kind', value: 'Secret'}]")},
    "json-metadata": {"mutations": _patches("[JSONPatch{op: 'replace', path: '/metadata', value: 'x'}]")},
    "json-test-missing": {"mutations": _patches("[JSONPatch{op: 'test', path: '/data/missing', value: 'x'}]")},
    "json-nowhere": {"mutations": _patches("[JSONPatch{op: 'add', path: '/binaryData/a', value: 'eA=='}]")},
    "json-verb": {"mutations": _patches("[JSONPatch{op: 'put', path: '/data/b', value: 'x'}]")},
    "json-verbless": {"mutations": _patches("[JSONPatch{path: '/data/b', value: 'x'}]")},
    "json-unknown": {"mutations": _patches("[JSONPatch{op: 'add', path: '/spec', value: {'a': 'b'}}]")},
    "json-unknown-open": {
        "failurePolicy": "Ignore",
        "mutations": _patches("[JSONPatch{op: 'add', path: '/spec', value: {'a': 'b'}}]"),
    },
    "json-type": {"mutations": _patches("[JSONPatch{op: 'add', path: '/data/b', value: 1}]")},
    "json-mapped": {
        "mutations": _patches("object.data.map(k, JSONPatch{op: 'replace', path: '/data/' + k, value: k})")
    },
    "json-joined": {"mutations": _patches(f"{_ADD} + [JSONPatch{{op: 'remove', path: '/data/a'}}]")},
    "json-field": {"mutations": _patches("[JSONPatch{op: 'add', path: '/data/b', wert: 'x'}]")},
    "json-number": {"mutations": _patches("[JSONPatch{op: 1, path: '/data/b', value: 'x'}]")},
    "json-single": {"mutations": _patches("JSONPatch{op: 'add', path: '/data/b', value: 'x'}")},
    "json-maps": {"mutations": _patches("[{'op': 'add', 'path': '/data/b', 'value': 'x'}]")},
    "json-error": {"mutations": _patches("[JSONPatch{op: 'add', path: '/data/b', value: object.data.missing}]")},
    "mixed": {"mutations": [*_patches(_ADD), *_applies("Object{data: {'c': object.data.b}}")]},
    "conditions": {
        "matchConditions": [{"name": "good", "expression": "object.data.a == 'good'"}],
        "mutations": _applies(_DATA),
    },
    "conditions-broken": {"matchConditions": _BROKEN, "mutations": _applies(_DATA)},
    "conditions-open": {"failurePolicy": "Ignore", "matchConditions": _BROKEN, "mutations": _applies(_DATA)},
    "variables": {
        "variables": [
            {"name": "a", "expression": "object.data.a"},
            {"name": "twice", "expression": "variables.a + variables.a"},
        ],
        "mutations": _applies("Object{data: {'b': variables.twice}}"),
    },
    "variables-object": {
        "variables": [{"name": "made", "expression": "Object{data: {'b': 'x'}}"}],
        "mutations": _applies("variables.made"),
    },
    "variables-broken": {
        "variables": [{"name": "broken", "expression": "object.data.missing"}],
        "mutations": _applies("Object{data: {'b': variables.broken}}"),
    },
    "namespace": {"mutations": _applies("Object{data: {'b': namespaceObject.metadata.labels['eq']}}")},
    "request": {
        "mutations": _applies(
            "Object{data: {'b': [request.operation, request.kind.kind, request.name, request.namespace,"
            " string(request.dryRun), string(oldObject == null)].join(' ')}}"
        )
    },
    "authorizer": {
        "mutations": _applies(
            "Object{data: {'b': string(authorizer.group('').resource('configmaps').check('delete').allowed())}}"
        )
    },
    "params": {"paramKind": _PARAMS, "mutations": _applies("Object{data: {'b': params.data.allowed}}")},
    "params-chosen": {
        "paramKind": _PARAMS,
        "mutations": _applies("Object{metadata: Object.metadata{labels: {params.metadata.name: 'seen'}}}"),
    },
    "params-missing": {"paramKind": _PARAMS, "mutations": _applies(_DATA)},
    "params-open": {"paramKind": _PARAMS, "mutations": _applies(_DATA)},
    "params-none": {"paramKind": _PARAMS, "mutations": _applies("Object{data: {'b': string(params == null)}}")},
    "params-unknown": {
        "paramKind": {"apiVersion": "example.org/v1", "kind": "Nothing"},
        "mutations": _applies(_DATA),
    },
    "grows": {"mutations": _applies("Object{data: {'a': object.data.a + '!'}}")},
    "grows-again": {
        "reinvocationPolicy": "IfNeeded",
        "mutations": _applies("Object{data: {'a': object.data.a + '!'}}"),
    },
    "costly": {
        "mutations": _applies(
            "Object{data: {'b': string([1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, a * b < 1000)))}}"
        )
    },
    "elsewhere": {
        "matchConstraints": {"namespaceSelector": {"matchLabels": {"eq": "elsewhere"}}},
        "mutations": _applies(_DATA),
    },
    "here": {"matchConstraints": {"namespaceSelector": {"matchLabels": {"eq": "here"}}}, "mutations": _applies(_DATA)},
    "scoped": {
        "matchConstraints": {"resourceRules": [{**CONFIG_MAPS, "scope": "Cluster"}]},
        "mutations": _applies(_DATA),
    },
    # What is wrong with a policy itself.
    "without": {"mutations": []},
    "untyped": {"mutations": [{"applyConfiguration": {"expression": _DATA}}]},
    "mistyped": {"mutations": [{"patchType": "MergePatch", "applyConfiguration": {"expression": _DATA}}]},
    "crossed": {"mutations": [{"patchType": "JSONPatch", "applyConfiguration": {"expression": _DATA}}]},
    "crossed-other": {"mutations": [{"patchType": "ApplyConfiguration", "jsonPatch": {"expression": _ADD}}]},
    "both": {"mutations": [{**_applies(_DATA)[0], "jsonPatch": {"expression": _ADD}}]},
    "empty": {"mutations": _applies("  ")},
    "empty-json": {"mutations": _patches("")},
    "reinvoked": {"reinvocationPolicy": "Always", "mutations": _applies(_DATA)},
    "unreinvoked": {"reinvocationPolicy": None, "mutations": _applies(_DATA)},
    "unfailing": {"failurePolicy": "Never", "mutations": _applies(_DATA)},
    "unmatched": {"matchConstraints": {"resourceRules": []}, "mutations": _applies(_DATA)},
    "deleting": {
        "matchConstraints": {"resourceRules": [{**CONFIG_MAPS, "operations": ["DELETE"]}]},
        "mutations": _applies(_DATA),
    },
    "connects": {
        "matchConstraints": {"resourceRules": [{**CONFIG_MAPS, "operations": ["CONNECT"]}]},
        "mutations": _applies(_DATA),
    },
    "creates": {
        "matchConstraints": {"resourceRules": [{**CONFIG_MAPS, "operations": ["CREATE"]}]},
        "mutations": _applies(_DATA),
    },
}
"""About ConfigMaps that are labelled with the case."""

OTHERS: Final[dict[str, Spec]] = {
    "containers": {
        **_rules("", "pods"),
        "mutations": _applies(
            "Object{spec: Object.spec{containers: object.spec.containers.map(c,"
            " Object.spec.containers{name: c.name, imagePullPolicy: 'Always'})}}"
        ),
    },
    "sidecar": {
        **_rules("", "pods"),
        "mutations": _applies(
            "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'mesh', image: 'mesh',"
            " args: ['run'], restartPolicy: 'Always'}]}}"
        ),
    },
    "env": {
        **_rules("", "pods"),
        "mutations": _applies(
            "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c',"
            " env: [Object.spec.containers.env{name: 'MADE', value: 'x'}]}]}}"
        ),
    },
    "sidecar-json": {
        **_rules("", "pods"),
        "mutations": _patches(
            "[JSONPatch{op: 'add', path: '/spec/containers/-', value: Object.spec.containers{name: 'd', image: 'i'}}]"
        ),
    },
    "args": {
        **_rules("", "pods"),
        "mutations": _applies(
            "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', args: ['x']}]}}"
        ),
    },
    "selector-atomic": {
        **_rules("", "pods"),
        "mutations": _applies("Object{spec: Object.spec{nodeSelector: {'a': 'b'}}}"),
    },
    "keyless": {
        **_rules("", "pods"),
        "mutations": _applies("Object{spec: Object.spec{containers: [Object.spec.containers{image: 'x'}]}}"),
    },
    "twice": {
        **_rules("", "pods"),
        "mutations": _applies(
            "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c'}, Object.spec.containers{name: 'c'}]}}"
        ),
    },
    "tolerates": {
        **_rules("", "pods"),
        "mutations": _applies("Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'a'}]}}"),
    },
    "named-wrongly": {
        **_rules("", "pods"),
        "mutations": _applies("Object{spec: Object.spec{containers: [Object.spec.initContainers{name: 'c'}]}}"),
    },
    "invalid": {
        **_rules("", "pods"),
        "mutations": _applies("Object{spec: Object.spec{restartPolicy: 'Sometimes'}}"),
    },
    "number": {
        **_rules("", "pods"),
        "mutations": _applies("Object{spec: Object.spec{terminationGracePeriodSeconds: '5'}}"),
    },
    "replicas": {
        **_rules("apps", "deployments"),
        "mutations": _applies("Object{spec: Object.spec{replicas: object.spec.replicas + 2}}"),
    },
    "gadget": {
        **_rules("eq.example.org", "gadgets"),
        "mutations": _applies(
            "Object{spec: Object.spec{size: 5, tags: ['b', 'c'], parts: [Object.spec.parts{name: 'b', size: 2},"
            " Object.spec.parts{name: 'c'}]}}"
        ),
    },
    "gadget-words": {
        **_rules("eq.example.org", "gadgets"),
        "mutations": _applies("Object{spec: Object.spec{words: ['a']}}"),
    },
    "gadget-fixed": {
        **_rules("eq.example.org", "gadgets"),
        "mutations": _applies("Object{spec: Object.spec{fixed: Object.spec.fixed{a: 'x'}}}"),
    },
    "gadget-unknown": {
        **_rules("eq.example.org", "gadgets"),
        "mutations": _applies("Object{spec: Object.spec{nothing: 1}}"),
    },
    "gadget-json": {
        **_rules("eq.example.org", "gadgets"),
        "mutations": _patches(
            "[JSONPatch{op: 'add', path: '/spec/nothing', value: 1}, JSONPatch{op: 'add', path: '/spec/parts/-', value: {'name': 'z'}}]"
        ),
    },
    "gadget-type": {
        **_rules("eq.example.org", "gadgets"),
        "mutations": _patches("[JSONPatch{op: 'add', path: '/spec/size', value: 'x'}]"),
    },
}
"""About what the script makes of other kinds, labelled with the case."""

_BINDINGS: Final[dict[str, Spec]] = {
    "params": {"paramRef": {"name": "eq-params", "parameterNotFoundAction": "Deny"}},
    "params-chosen": {"paramRef": {"selector": {"matchLabels": {"eq": "params"}}, "parameterNotFoundAction": "Deny"}},
    "params-missing": {"paramRef": {"name": "eq-nothing", "parameterNotFoundAction": "Deny"}},
    "params-open": {"paramRef": {"name": "eq-nothing", "parameterNotFoundAction": "Allow"}},
    "params-unknown": {"paramRef": {"name": "eq-nothing", "parameterNotFoundAction": "Deny"}},
}
_BAD_BINDINGS: Final[dict[str, Spec]] = {
    "nameless": {"policyName": ""},
    "misnamed": {"policyName": "Not_A_Name"},
    "actions": {"policyName": "a", "paramRef": {"name": "x", "selector": {}, "parameterNotFoundAction": "Deny"}},
    "found": {"policyName": "a", "paramRef": {"name": "x", "parameterNotFoundAction": "Maybe"}},
    "selects": {"policyName": "a", "paramRef": {"parameterNotFoundAction": "Deny"}},
    "operates": {"policyName": "a", "matchResources": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"]}]}},
}


def mutatingpolicies(say: Conversation) -> None:
    """Every part of a MutatingAdmissionPolicy, with what it makes of objects and whom it refuses."""
    say.set_up()
    say.speaker.send("PATCH", f"/api/v1/namespaces/{say.namespace}", {"metadata": {"labels": {"eq": "here"}}}, MERGE)
    for name in ("eq-params", "eq-params-more"):
        params = {"metadata": {"name": name, "labels": {"eq": "params"}}, "data": {"allowed": name}}
        say.speaker.send("POST", f"{say.core}/configmaps", params)
    _define(say)
    cases = {**MAPS, **OTHERS}
    for case, spec in cases.items():
        whole = {"reinvocationPolicy": "Never", **about(case, spec)}
        body = named(f"eq-{case}", {name: value for name, value in whole.items() if value is not None})
        say.verdict("POST", POLICIES_AT, body)
        make(
            say,
            "mutatingadmissionpolicybindings",
            f"eq-{case}",
            {"policyName": f"eq-{case}", **_BINDINGS.get(case, {})},
        )
    for name, spec in _BAD_BINDINGS.items():
        say.verdict("POST", f"{BINDINGS_AT}?dryRun=All&case={name}", named(f"eq-{name}", spec))
    try:
        _settle(say)
        _ready(say)
        _maps(say)
        _pods(say)
        _gadgets(say)
        _order(say)
        _kept(say)
        _itself(say)
    finally:
        for at in (BINDINGS_AT, POLICIES_AT):
            for case in cases:
                say.speaker.send("DELETE", f"{at}/eq-{case}")
    _settle(say)
    say.say("POST", f"{say.core}/configmaps?dryRun=All", config_map("apply", "good"))
    say.speaker.send("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.eq.example.org")


def _define(say: Conversation) -> None:
    say.speaker.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _DEFINITION)
    at = f"/apis/eq.example.org/v1/namespaces/{say.namespace}/gadgets"
    say.until(lambda: say.speaker.send("POST", f"{at}?dryRun=All", _gadget("none")).status == 201)


def _gadget(case: str) -> dict[str, Any]:
    spec = {
        "size": 2,
        "tags": ["a", "b"],
        "words": ["z"],
        "parts": [{"name": "a", "size": 1}, {"name": "b", "kind": "round"}],
        "fixed": {"b": "y"},
    }
    return {
        "apiVersion": "eq.example.org/v1",
        "kind": "Gadget",
        "metadata": {"name": f"eq-{case}", "labels": {CASE: case}},
        "spec": spec,
    }


def _pod(case: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "args": ["a"], "env": [{"name": "A", "value": "a"}]}
    return {"metadata": {"name": f"eq-{case}", "labels": {CASE: case}}, "spec": {"containers": [container]}}


def _maps(say: Conversation) -> None:
    at = f"{say.core}/configmaps?dryRun=All"
    for case in MAPS:
        for value in ("good", "bad"):
            say.say("POST", f"{at}&case={case}&value={value}", config_map(case, value))


def _pods(say: Conversation) -> None:
    for case in ("containers", "sidecar", "env", "sidecar-json", "args", "selector-atomic", "keyless"):
        say.say("POST", f"{say.core}/pods?dryRun=All&case={case}", _pod(case))
    for case in ("twice", "tolerates", "named-wrongly", "invalid", "number"):
        say.verdict("POST", f"{say.core}/pods?dryRun=All&case={case}", _pod(case))
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    body = {"metadata": {"name": "eq-replicas", "labels": {CASE: "replicas"}}, "spec": spec}
    say.say("POST", f"/apis/apps/v1/namespaces/{say.namespace}/deployments?dryRun=All", body)


def _gadgets(say: Conversation) -> None:
    at = f"/apis/eq.example.org/v1/namespaces/{say.namespace}/gadgets?dryRun=All"
    for case in ("gadget", "gadget-words", "gadget-fixed", "gadget-unknown", "gadget-json", "gadget-type"):
        say.say("POST", f"{at}&case={case}", _gadget(case))


def _order(say: Conversation) -> None:
    """Policies one after the other by their names, and again those that want it after another has changed something."""
    at = f"{say.core}/configmaps?dryRun=All"
    for title, policies in (
        ("never", {"b": "Never", "a": "Never"}),
        ("first", {"a": "IfNeeded", "b": "Never"}),
        ("second", {"a": "Never", "b": "IfNeeded"}),
        ("all", {"a": "IfNeeded", "b": "IfNeeded", "c": "IfNeeded"}),
    ):
        for name, again in policies.items():
            mutations = _applies(f"Object{{data: {{'a': object.data.a + '{name}'}}}}")
            spec = about("order", {"reinvocationPolicy": again, "mutations": mutations})
            make(say, "mutatingadmissionpolicies", f"eq-order-{name}", spec)
            make(say, "mutatingadmissionpolicybindings", f"eq-order-{name}", {"policyName": f"eq-order-{name}"})
        _settle(say)
        # The real server asks them in no order that it would promise.
        say.part("POST", f"{at}&order={title}", config_map("order", "x"), lambda answer: sorted(answer["data"]["a"]))
        for name in policies:
            say.speaker.send("DELETE", f"{BINDINGS_AT}/eq-order-{name}")
            say.speaker.send("DELETE", f"{POLICIES_AT}/eq-order-{name}")
    _settle(say)


def _kept(say: Conversation) -> None:
    """What is changed, applied and deleted."""
    at = f"{say.core}/configmaps"
    for case in ("apply", "grows", "creates", "json-test", "request", "apply-error"):
        made = config_map(case, "kept", f"eq-kept-{case}")
        made["metadata"]["labels"] = {}
        say.speaker.send("POST", at, made)
        path = f"{at}/eq-kept-{case}"
        say.say("PATCH", f"{path}?label", {"metadata": {"labels": {CASE: case}}}, MERGE)
        say.say("PATCH", f"{path}?data", {"data": {"a": "other"}}, MERGE)
        say.say("PATCH", f"{path}?json", [{"op": "add", "path": "/data/b", "value": "c"}], JSON_PATCH)
        applied = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"eq-kept-{case}", "labels": {CASE: case}},
            "data": {"c": "d"},
        }
        say.say("PATCH", f"{path}?fieldManager=applier", applied, APPLY)
        say.say("GET", path)
        say.verdict("DELETE", path, None)


def _itself(say: Conversation) -> None:
    """No policy changes what configures policies."""
    spec = about("itself", {"reinvocationPolicy": "Never", "mutations": _applies(_LABEL)})
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
    spec["matchConstraints"] = {"resourceRules": [rule], "objectSelector": {"matchLabels": {CASE: "itself"}}}
    make(say, "mutatingadmissionpolicies", "eq-itself", spec)
    make(say, "mutatingadmissionpolicybindings", "eq-itself", {"policyName": "eq-itself"})
    try:
        _settle(say)
        say.say("POST", f"{say.core}/configmaps?dryRun=All&itself", config_map("itself", "x"))
        for plural, inner in (
            ("mutatingadmissionpolicies", spec),
            ("mutatingadmissionpolicybindings", {"policyName": "a"}),
        ):
            body = {"metadata": {"name": "eq-other", "labels": {CASE: "itself"}}, "spec": inner}
            say.say("POST", f"{API}/{plural}?dryRun=All&itself", body)
    finally:
        say.speaker.send("DELETE", f"{BINDINGS_AT}/eq-itself")
        say.speaker.send("DELETE", f"{POLICIES_AT}/eq-itself")


_settled: list[int] = [0]


def _settle(say: Conversation) -> None:
    """Wait until the server has seen the policies that were written before: it takes a moment to."""
    _settled[0] += 1
    name = f"eq-settled-m-{_settled[0]}"
    rules = {"matchConstraints": {"resourceRules": [{**CONFIG_MAPS, "resourceNames": [PROBE]}]}}
    mutations = _applies(f"Object{{data: {{'seen': '{name}'}}}}")
    make(say, "mutatingadmissionpolicies", name, {**rules, "reinvocationPolicy": "Never", "mutations": mutations})
    make(say, "mutatingadmissionpolicybindings", name, {"policyName": name})
    probe = {"metadata": {"name": PROBE}}
    try:
        say.until(lambda: name in str(say.speaker.send("POST", f"{say.core}/configmaps?dryRun=All", probe).body))
    finally:
        for at in (BINDINGS_AT, POLICIES_AT):
            say.speaker.send("DELETE", f"{at}/{name}")


def _ready(say: Conversation) -> None:
    """Wait until the server watches the kinds that parameters are taken from, and knows the types of custom resources."""
    for case in ("params", "params-missing"):
        asked = config_map(case, "probe")
        say.until(
            lambda asked=asked: (
                "synced" not in str(say.speaker.send("POST", f"{say.core}/configmaps?dryRun=All", asked).body)
            )  # type: ignore[misc]
        )
    at = f"/apis/eq.example.org/v1/namespaces/{say.namespace}/gadgets?dryRun=All"
    say.until(lambda: say.speaker.send("POST", at, _gadget("gadget")).status == 201)
