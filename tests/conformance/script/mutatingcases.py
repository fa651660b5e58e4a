"""The MutatingAdmissionPolicies that are played: right and wrong ones, of maps, of pods and of custom resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.conformance.script.admissionpolicies import API, CONFIG_MAPS

POLICIES_AT: Final = f"{API}/mutatingadmissionpolicies"
BINDINGS_AT: Final = f"{API}/mutatingadmissionpolicybindings"
DEFINITION: Final = {
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


def applies(*expressions: str) -> list[dict[str, Any]]:
    return [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": each}} for each in expressions]


def _patches(*expressions: str) -> list[dict[str, Any]]:
    return [{"patchType": "JSONPatch", "jsonPatch": {"expression": each}} for each in expressions]


def _rules(
    group: str, *resources: str, operations: tuple[str, ...] = ("CREATE", "UPDATE"), **more: Any
) -> dict[str, Any]:
    rule = {"apiGroups": [group], "apiVersions": ["*"], "resources": list(resources), "operations": list(operations)}
    return {"matchConstraints": {"resourceRules": [{**rule, **more}]}}


_DATA: Final = "Object{data: {'b': 'made'}}"
LABEL: Final = "Object{metadata: Object.metadata{labels: {'made': 'yes'}}}"
_BROKEN: Final = [{"name": "one", "expression": "object.data.one == 'bad'"}]
_PARAMS: Final = {"apiVersion": "v1", "kind": "ConfigMap"}
_ADD: Final = "[JSONPatch{op: 'add', path: '/data/b', value: 'made'}]"

MAPS: Final[dict[str, Spec]] = {
    "apply": {"mutations": applies(_DATA)},
    "apply-label": {"mutations": applies(LABEL)},
    "apply-replace": {"mutations": applies("Object{data: {'a': object.data.a + '!'}}")},
    "apply-nothing": {"mutations": applies("Object{}")},
    "apply-optional": {
        "mutations": applies(
            "Object{?data: object.?nothing, metadata: Object.metadata{?labels: object.metadata.?labels}}"
        )
    },
    "apply-optional-field": {
        "mutations": applies("Object{?data: object.data.a == 'good' ? optional.of({'b': 'x'}) : optional.none()}")
    },
    "apply-choice": {"mutations": applies("object.data.a == 'good' ? Object{data: {'b': 'x'}} : Object{}")},
    "apply-escaped": {
        "mutations": applies("Object{metadata: Object.metadata{annotations: {'example.org/a-b': 'Object{x: 1}'}}}")
    },
    "apply-lines": {"mutations": applies("Object{ // a comment { with\n  data: {\n    'b': \"it's\",\n  },\n}")},
    "apply-several": {"mutations": applies(_DATA, "Object{data: {'c': object.data.b + '!'}}")},
    "apply-finalizers": {"mutations": applies("Object{metadata: Object.metadata{finalizers: ['example.org/eq']}}")},
    "apply-unknown": {"mutations": applies("Object{spec: Object.spec{a: 1}}")},
    "apply-misnamed": {"mutations": applies("Object{metadata: Object.data{labels: {'a': 'b'}}}")},
    "apply-type": {"mutations": applies("Object{data: {'b': 1}}")},
    "apply-list": {"mutations": applies("Object{data: ['b']}")},
    "apply-null": {"mutations": applies("Object{data: null}")},
    "apply-null-value": {"mutations": applies("Object{data: {'a': null}}")},
    "apply-error": {"mutations": applies("Object{data: {'b': object.data.missing}}")},
    "apply-error-open": {
        "failurePolicy": "Ignore",
        "mutations": applies("Object{data: {'b': object.data.missing}}", LABEL),
    },
    "apply-name": {"mutations": applies("Object{metadata: Object.metadata{name: 'eq-other'}}")},
    "apply-kind": {"mutations": applies("Object{kind: 'Secret'}")},
    "apply-reads": {"mutations": applies("Object{data: {'b': string(Object{data: {'x': 'y'}}.data['x'])}}")},
    "returns-text": {"mutations": applies("'text'")},
    "returns-dyn": {"mutations": applies("object")},
    "returns-part": {"mutations": applies("Object.spec{}")},
    "returns-map": {"mutations": applies("{'data': {'b': 'x'}}")},
    "returns-patch": {"mutations": applies(_ADD)},
    "unclosed": {"mutations": applies("Object{data: {'b': 'x'}")},
    "undeclared": {"mutations": applies("Object{data: {'b': objekt.data}}")},
    "undeclared-type": {"mutations": applies("Objekt{data: {'b': 'x'}}")},
    "undeclared-params": {"mutations": applies("Object{data: {'b': params.data.a}}")},
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
    "mixed": {"mutations": [*_patches(_ADD), *applies("Object{data: {'c': object.data.b}}")]},
    "conditions": {
        "matchConditions": [{"name": "good", "expression": "object.data.a == 'good'"}],
        "mutations": applies(_DATA),
    },
    "conditions-broken": {"matchConditions": _BROKEN, "mutations": applies(_DATA)},
    "conditions-open": {"failurePolicy": "Ignore", "matchConditions": _BROKEN, "mutations": applies(_DATA)},
    "variables": {
        "variables": [
            {"name": "a", "expression": "object.data.a"},
            {"name": "twice", "expression": "variables.a + variables.a"},
        ],
        "mutations": applies("Object{data: {'b': variables.twice}}"),
    },
    "variables-object": {
        "variables": [{"name": "made", "expression": "Object{data: {'b': 'x'}}"}],
        "mutations": applies("variables.made"),
    },
    "variables-broken": {
        "variables": [{"name": "broken", "expression": "object.data.missing"}],
        "mutations": applies("Object{data: {'b': variables.broken}}"),
    },
    "namespace": {"mutations": applies("Object{data: {'b': namespaceObject.metadata.labels['eq']}}")},
    "request": {
        "mutations": applies(
            "Object{data: {'b': [request.operation, request.kind.kind, request.name, request.namespace,"
            " string(request.dryRun), string(oldObject == null)].join(' ')}}"
        )
    },
    "authorizer": {
        "mutations": applies(
            "Object{data: {'b': string(authorizer.group('').resource('configmaps').check('delete').allowed())}}"
        )
    },
    "params": {"paramKind": _PARAMS, "mutations": applies("Object{data: {'b': params.data.allowed}}")},
    "params-chosen": {
        "paramKind": _PARAMS,
        "mutations": applies("Object{metadata: Object.metadata{labels: {params.metadata.name: 'seen'}}}"),
    },
    "params-missing": {"paramKind": _PARAMS, "mutations": applies(_DATA)},
    "params-open": {"paramKind": _PARAMS, "mutations": applies(_DATA)},
    "params-none": {"paramKind": _PARAMS, "mutations": applies("Object{data: {'b': string(params == null)}}")},
    "params-unknown": {
        "paramKind": {"apiVersion": "example.org/v1", "kind": "Nothing"},
        "mutations": applies(_DATA),
    },
    "grows": {"mutations": applies("Object{data: {'a': object.data.a + '!'}}")},
    "grows-again": {
        "reinvocationPolicy": "IfNeeded",
        "mutations": applies("Object{data: {'a': object.data.a + '!'}}"),
    },
    "costly": {
        "mutations": applies(
            "Object{data: {'b': string([1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, a * b < 1000)))}}"
        )
    },
    "elsewhere": {
        "matchConstraints": {"namespaceSelector": {"matchLabels": {"eq": "elsewhere"}}},
        "mutations": applies(_DATA),
    },
    "here": {"matchConstraints": {"namespaceSelector": {"matchLabels": {"eq": "here"}}}, "mutations": applies(_DATA)},
    "scoped": {
        "matchConstraints": {"resourceRules": [{**CONFIG_MAPS, "scope": "Cluster"}]},
        "mutations": applies(_DATA),
    },
    # What is wrong with a policy itself.
    "without": {"mutations": []},
    "untyped": {"mutations": [{"applyConfiguration": {"expression": _DATA}}]},
    "mistyped": {"mutations": [{"patchType": "MergePatch", "applyConfiguration": {"expression": _DATA}}]},
    "crossed": {"mutations": [{"patchType": "JSONPatch", "applyConfiguration": {"expression": _DATA}}]},
    "crossed-other": {"mutations": [{"patchType": "ApplyConfiguration", "jsonPatch": {"expression": _ADD}}]},
    "both": {"mutations": [{**applies(_DATA)[0], "jsonPatch": {"expression": _ADD}}]},
    "empty": {"mutations": applies("  ")},
    "empty-json": {"mutations": _patches("")},
    "reinvoked": {"reinvocationPolicy": "Always", "mutations": applies(_DATA)},
    "unreinvoked": {"reinvocationPolicy": None, "mutations": applies(_DATA)},
    "unfailing": {"failurePolicy": "Never", "mutations": applies(_DATA)},
    "unmatched": {"matchConstraints": {"resourceRules": []}, "mutations": applies(_DATA)},
    "deleting": {
        "matchConstraints": {"resourceRules": [{**CONFIG_MAPS, "operations": ["DELETE"]}]},
        "mutations": applies(_DATA),
    },
    "connects": {
        "matchConstraints": {"resourceRules": [{**CONFIG_MAPS, "operations": ["CONNECT"]}]},
        "mutations": applies(_DATA),
    },
    "creates": {
        "matchConstraints": {"resourceRules": [{**CONFIG_MAPS, "operations": ["CREATE"]}]},
        "mutations": applies(_DATA),
    },
}
"""About ConfigMaps that are labelled with the case."""

OTHERS: Final[dict[str, Spec]] = {
    "containers": {
        **_rules("", "pods"),
        "mutations": applies(
            "Object{spec: Object.spec{containers: object.spec.containers.map(c,"
            " Object.spec.containers{name: c.name, imagePullPolicy: 'Always'})}}"
        ),
    },
    "sidecar": {
        **_rules("", "pods"),
        "mutations": applies(
            "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'mesh', image: 'mesh',"
            " args: ['run'], restartPolicy: 'Always'}]}}"
        ),
    },
    "env": {
        **_rules("", "pods"),
        "mutations": applies(
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
        "mutations": applies("Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', args: ['x']}]}}"),
    },
    "selector-atomic": {
        **_rules("", "pods"),
        "mutations": applies("Object{spec: Object.spec{nodeSelector: {'a': 'b'}}}"),
    },
    "keyless": {
        **_rules("", "pods"),
        "mutations": applies("Object{spec: Object.spec{containers: [Object.spec.containers{image: 'x'}]}}"),
    },
    "twice": {
        **_rules("", "pods"),
        "mutations": applies(
            "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c'}, Object.spec.containers{name: 'c'}]}}"
        ),
    },
    "tolerates": {
        **_rules("", "pods"),
        "mutations": applies("Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'a'}]}}"),
    },
    "named-wrongly": {
        **_rules("", "pods"),
        "mutations": applies("Object{spec: Object.spec{containers: [Object.spec.initContainers{name: 'c'}]}}"),
    },
    "invalid": {
        **_rules("", "pods"),
        "mutations": applies("Object{spec: Object.spec{restartPolicy: 'Sometimes'}}"),
    },
    "number": {
        **_rules("", "pods"),
        "mutations": applies("Object{spec: Object.spec{terminationGracePeriodSeconds: '5'}}"),
    },
    "replicas": {
        **_rules("apps", "deployments"),
        "mutations": applies("Object{spec: Object.spec{replicas: object.spec.replicas + 2}}"),
    },
    "gadget": {
        **_rules("eq.example.org", "gadgets"),
        "mutations": applies(
            "Object{spec: Object.spec{size: 5, tags: ['b', 'c'], parts: [Object.spec.parts{name: 'b', size: 2},"
            " Object.spec.parts{name: 'c'}]}}"
        ),
    },
    "gadget-words": {
        **_rules("eq.example.org", "gadgets"),
        "mutations": applies("Object{spec: Object.spec{words: ['a']}}"),
    },
    "gadget-fixed": {
        **_rules("eq.example.org", "gadgets"),
        "mutations": applies("Object{spec: Object.spec{fixed: Object.spec.fixed{a: 'x'}}}"),
    },
    "gadget-unknown": {
        **_rules("eq.example.org", "gadgets"),
        "mutations": applies("Object{spec: Object.spec{nothing: 1}}"),
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

BINDINGS: Final[dict[str, Spec]] = {
    "params": {"paramRef": {"name": "eq-params", "parameterNotFoundAction": "Deny"}},
    "params-chosen": {"paramRef": {"selector": {"matchLabels": {"eq": "params"}}, "parameterNotFoundAction": "Deny"}},
    "params-missing": {"paramRef": {"name": "eq-nothing", "parameterNotFoundAction": "Deny"}},
    "params-open": {"paramRef": {"name": "eq-nothing", "parameterNotFoundAction": "Allow"}},
    "params-unknown": {"paramRef": {"name": "eq-nothing", "parameterNotFoundAction": "Deny"}},
}
BAD_BINDINGS: Final[dict[str, Spec]] = {
    "nameless": {"policyName": ""},
    "misnamed": {"policyName": "Not_A_Name"},
    "actions": {"policyName": "a", "paramRef": {"name": "x", "selector": {}, "parameterNotFoundAction": "Deny"}},
    "found": {"policyName": "a", "paramRef": {"name": "x", "parameterNotFoundAction": "Maybe"}},
    "selects": {"policyName": "a", "paramRef": {"parameterNotFoundAction": "Deny"}},
    "operates": {"policyName": "a", "matchResources": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"]}]}},
}
