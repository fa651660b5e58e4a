"""What admission policies in the system space say of requests there, beside what they say on a real server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.conformance.conversation import Conversation
from tests.conformance.script.media import APPLY, JSON_PATCH, MERGE

API: Final = "/apis/admissionregistration.k8s.io/v1"
CASE: Final = "eq-case"
"""The label by which an object says which policy it is for."""

CONFIG_MAPS: Final = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}
PROBE: Final = "eq-probe"

Spec = Mapping[str, Any]


def about(case: str, spec: Spec) -> dict[str, Any]:
    """A policy about ConfigMaps that are labelled with its case, unless it says otherwise."""
    constraints = {
        "resourceRules": [CONFIG_MAPS],
        "objectSelector": {"matchLabels": {CASE: case}},
        **spec.get("matchConstraints", {}),
    }
    return {"failurePolicy": "Fail", **spec, "matchConstraints": constraints}


def _expect(expression: str, **further: Any) -> list[dict[str, Any]]:
    return [{"expression": expression, **further}]


_ROLES: Final = {
    "apiGroups": ["rbac.authorization.k8s.io"],
    "apiVersions": ["*"],
    "resources": ["clusterroles"],
    "operations": ["*"],
}
_DEPLOYMENTS: Final = {
    "apiGroups": ["apps"],
    "apiVersions": ["v1"],
    "resources": ["deployments/scale"],
    "operations": ["*"],
}
_NAMED: Final = {**CONFIG_MAPS, "resourceNames": ["eq-named"], "operations": ["CREATE"]}

POLICIES: Final[dict[str, Spec]] = {
    "plain": {"validations": _expect("object.data.a == 'good'")},
    "words": {"validations": _expect("object.data.a == 'good'", message="  say good  ")},
    "composed": {
        "variables": [
            {"name": "a", "expression": "object.data.a"},
            {"name": "twice", "expression": "variables.a + variables.a"},
            {"name": "broken", "expression": "object.data.missing"},
        ],
        "validations": [
            {"expression": "variables.twice != 'badbad'", "messageExpression": "'twice is ' + variables.twice"},
            {"expression": "variables.a != 'broken' || variables.broken == ''"},
        ],
    },
    "reasons-forbidden": {"validations": _expect("false", reason="Forbidden")},
    "reasons-large": {"validations": _expect("false", reason="RequestEntityTooLarge")},
    "reasons-invalid": {"validations": _expect("false", reason="Invalid")},
    "breaks": {"validations": _expect("object.data.missing == 'x'")},
    "breaks-open": {"failurePolicy": "Ignore", "validations": _expect("object.data.missing == 'x'")},
    "divides": {"validations": _expect("1 / int(object.data.a) == 1")},
    "spoken": {"validations": _expect("false", messageExpression="object.data.missing")},
    "spoken-typed": {"validations": _expect("false", messageExpression="string(object.data.missing)")},
    "unauthorized": {"validations": _expect("false", reason="Unauthorized")},
    "unclosed": {"validations": _expect("object.data.all(a, a")},
    "unknown": {"validations": _expect("objekt.data == 1 && params == 1")},
    "unknown-field": {"validations": _expect("request.nothing == 'x'")},
    "unknown-variable": {"validations": _expect("variables.nothing == 'x'")},
    "untrue": {"validations": _expect("'text'")},
    "undecided": {"validations": _expect("object.data.a")},
    "decided": {
        "variables": [{"name": "good", "expression": "object.data.a == 'good'"}],
        "validations": _expect("variables.good"),
    },
    "lines": {"validations": _expect("false", messageExpression="'a\\nb'", message="one line")},
    "empty": {"validations": _expect("false", messageExpression="'  '")},
    "several": {"validations": [{"expression": "object.data.a != 'bad'", "message": f"rule {n}"} for n in range(3)]},
    "conditions": {
        "matchConditions": [{"name": "asked", "expression": "object.data.a == 'bad'"}],
        "validations": _expect("false"),
    },
    "conditions-broken": {
        "matchConditions": [
            {"name": "one", "expression": "object.data.one == 'bad'"},
            {"name": "two", "expression": "object.data.two == 'bad'"},
        ],
        "validations": _expect("false"),
    },
    "conditions-open": {
        "failurePolicy": "Ignore",
        "matchConditions": [{"name": "one", "expression": "object.data.one == 'bad'"}],
        "validations": _expect("false"),
    },
    "namespace": {
        "validations": _expect(
            "namespaceObject.metadata.name == request.namespace && has(namespaceObject.status.phase)"
            " && namespaceObject.metadata.labels['kubernetes.io/metadata.name'] != request.namespace",
            messageExpression="'in ' + namespaceObject.metadata.name",
        )
    },
    "nothing": {"validations": _expect("oldObject.data.a == 'x'")},
    "in-none": {
        "matchConstraints": {"resourceRules": [_ROLES]},
        "validations": _expect("request.namespace == ''"),
    },
    "request": {
        "validations": _expect(
            "false",
            messageExpression="[request.operation, request.kind.kind, request.kind.version, request.resource.resource,"
            " request.requestKind.kind, request.requestResource.resource, request.name, request.namespace,"
            " string(request.dryRun), string(has(request.subResource)), string(object == null), string(oldObject == null)].join(' ')",
        )
    },
    "options": {
        "validations": _expect("false", messageExpression="request.options.kind + ' ' + request.options.apiVersion")
    },
    "authorizer": {
        "validations": [
            {
                "expression": "authorizer.group('').resource('configmaps').namespace('kube-system').check('delete').allowed()"
                " && authorizer.path('/healthz').check('get').allowed()",
            },
            {"expression": "authorizer.requestResource.check('custom').allowed()"},
            {
                "expression": "authorizer.serviceAccount('default', 'default').group('').resource('secrets')"
                ".namespace('default').name('x').check('get').allowed()",
                "message": "the service account may not",
            },
        ]
    },
    "authorizer-much": {
        "validations": _expect(
            "authorizer.path('/a').check('get').allowed() && authorizer.path('/b').check('get').allowed()"
            " && authorizer.path('/c').check('get').allowed()"
        )
    },
    "scoped": {
        "matchConstraints": {"resourceRules": [{**CONFIG_MAPS, "scope": "Cluster"}]},
        "validations": _expect("false"),
    },
    "excluded": {
        "matchConstraints": {"excludeResourceRules": [_NAMED]},
        "validations": _expect("false"),
    },
    "named": {"matchConstraints": {"resourceRules": [_NAMED]}, "validations": _expect("false")},
    "elsewhere": {
        "matchConstraints": {"namespaceSelector": {"matchLabels": {"eq": "elsewhere"}}},
        "validations": _expect("false"),
    },
    "here": {
        "matchConstraints": {"namespaceSelector": {"matchLabels": {"eq": "here"}}},
        "validations": _expect("false"),
    },
    "changes": {
        "validations": _expect(
            "oldObject == null || object == null || object.data.a == oldObject.data.a", message="a is fixed"
        )
    },
    "deleting": {
        "matchConstraints": {"resourceRules": [{**CONFIG_MAPS, "operations": ["DELETE"]}]},
        "validations": _expect("oldObject.data.a != 'kept' && object == null", message="it stays"),
    },
    "cluster": {
        "matchConstraints": {"resourceRules": [_ROLES]},
        "validations": _expect("request.namespace == '' && namespaceObject != null"),
    },
    "scaling": {
        "matchConstraints": {"resourceRules": [_DEPLOYMENTS], "objectSelector": {}},
        "validations": _expect(
            "object.spec.replicas < 3",
            messageExpression="request.kind.kind + ' ' + request.requestSubResource + ' from ' + string(oldObject.spec.replicas)",
        ),
    },
    "warns": {"validations": _expect("false", message="not so good")},
    "audits": {"validations": _expect("false", message="noted")},
    "annotated": {
        "validations": _expect("true"),
        "auditAnnotations": [{"key": "seen", "valueExpression": "object.data.missing"}],
    },
    "params": {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": _expect(
            "object.data.a == params.data.allowed", messageExpression="'allowed is ' + params.data.allowed"
        ),
    },
    "params-chosen": {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": _expect(
            "object.data.a != params.data.allowed", messageExpression="'not ' + params.metadata.name"
        ),
    },
    "params-missing": {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": _expect("false")},
    "params-open": {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": _expect("false")},
    "params-none": {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": _expect("params != null", message="there are none"),
    },
    "params-unknown": {
        "paramKind": {"apiVersion": "example.org/v1", "kind": "Nothing"},
        "validations": _expect("true"),
    },
    "exact": {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["events"], "operations": ["CREATE"]}
            ],
            "matchPolicy": "Exact",
        },
        "validations": _expect("false"),
    },
    "equivalent": {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["events"], "operations": ["CREATE"]}
            ]
        },
        "validations": _expect(
            "false",
            messageExpression="request.kind.group + '/' + request.requestKind.group + ' ' + object.apiVersion"
            " + ' ' + string(has(object.note)) + string(has(object.message))",
        ),
    },
    "connecting": {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/exec"], "operations": ["CONNECT"]}
            ],
            "objectSelector": {},
        },
        "validations": _expect(
            "!('forbidden' in object.command)", messageExpression="object.kind + ' in ' + object.container"
        ),
    },
    "quantity": {
        "validations": _expect("quantity(object.data.a).isLessThan(quantity('1Gi'))", message="too much"),
    },
    "timed": {
        "variables": [{"name": "long", "expression": "duration(object.data.a)"}],
        "validations": _expect("variables.long < duration('1h')", message="too long"),
    },
}

_BINDINGS: Final[dict[str, Spec]] = {
    "warns": {"validationActions": ["Warn"]},
    "audits": {"validationActions": ["Audit"]},
    "params": {"paramRef": {"name": "eq-params", "parameterNotFoundAction": "Deny"}},
    "params-chosen": {"paramRef": {"selector": {"matchLabels": {"eq": "params"}}, "parameterNotFoundAction": "Deny"}},
    "params-missing": {"paramRef": {"name": "eq-nothing", "parameterNotFoundAction": "Deny"}},
    "params-open": {"paramRef": {"name": "eq-nothing", "parameterNotFoundAction": "Allow"}},
    "params-unknown": {"paramRef": {"name": "eq-nothing", "parameterNotFoundAction": "Deny"}},
}


def admissionpolicies(say: Conversation) -> None:
    """Every part of a ValidatingAdmissionPolicy, with what it lets through and what it says to what it does not."""
    say.set_up()
    say.speaker.send("PATCH", f"/api/v1/namespaces/{say.namespace}", {"metadata": {"labels": {"eq": "here"}}}, MERGE)
    for name in ("eq-params", "eq-params-more"):
        params = {"metadata": {"name": name, "labels": {"eq": "params"}}, "data": {"allowed": name}}
        say.speaker.send("POST", f"{say.core}/configmaps", params)
    names = [f"eq-{case}" for case in POLICIES]
    for case, spec in POLICIES.items():
        # Some are refused as they are.
        say.verdict("POST", f"{API}/validatingadmissionpolicies", named(f"eq-{case}", about(case, spec)))
        bound = {"policyName": f"eq-{case}", "validationActions": ["Deny"], **_BINDINGS.get(case, {})}
        make(say, "validatingadmissionpolicybindings", f"eq-{case}", bound)
    try:
        settle(say)
        parameters_ready(say)
        _created(say)
        _kept(say)
        _parts(say)
    finally:
        for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            for name in names:
                say.speaker.send("DELETE", f"{API}/{plural}/{name}")
    settle(say)
    say.say("POST", f"{say.core}/configmaps?dryRun=All", config_map("plain", "bad"))


def _created(say: Conversation) -> None:
    at = f"{say.core}/configmaps"
    for case in POLICIES:
        for value in ("good", "bad"):
            say.verdict("POST", f"{at}?dryRun=All&case={case}", config_map(case, value))
    for case, value in (
        ("composed", "broken"),
        ("timed", "2h"),
        ("timed", "1m"),
        ("quantity", "2Gi"),
        ("quantity", "1Mi"),
        ("divides", "0"),
        ("params", "eq-params"),
        ("params-chosen", "eq-params-more"),
    ):
        say.verdict("POST", f"{at}?dryRun=All&case={case}&value={value}", config_map(case, value))
    for case in ("named", "excluded"):
        say.verdict("POST", f"{at}?dryRun=All&case={case}&named", config_map(case, "x", "eq-named"))
    say.say("POST", f"{at}?dryRun=All", config_map("words", "bad"))
    say.say("POST", f"{at}?dryRun=All", config_map("reasons-large", "bad"))
    say.verdict("POST", at, config_map("options", "x"))
    generated = config_map("request", "x")
    generated["metadata"] = {**generated["metadata"], "generateName": "eq-", "name": ""}
    say.verdict(
        "POST",
        f"{at}?dryRun=All&generated",
        {**generated, "metadata": {"name": "one", **{k: v for k, v in generated["metadata"].items() if k == "labels"}}},
    )
    for kind, path, version in (
        ("events", f"{say.core}/events", "v1"),
        ("events", f"/apis/events.k8s.io/v1/namespaces/{say.namespace}/events", "events.k8s.io/v1"),
    ):
        for case in ("exact", "equivalent"):
            body = {
                "apiVersion": version,
                "metadata": {"name": f"eq-{case}", "namespace": say.namespace, "labels": {CASE: case}},
                "reason": "Asked",
                "type": "Normal",
            }
            about = {"kind": "Pod", "name": "a", "namespace": say.namespace}
            if version == "v1":
                body |= {"involvedObject": about, "message": "said"}
            else:
                body |= {
                    "regarding": about,
                    "note": "said",
                    "action": "Ask",
                    "eventTime": "2026-01-01T00:00:00.000000Z",
                    "reportingController": "example.org/eq",
                    "reportingInstance": "eq",
                }
            say.verdict("POST", f"{path}?dryRun=All&case={case}&kind={kind}", body)
    for case in ("cluster", "in-none"):
        role = {"metadata": {"name": "eq-cluster", "labels": {CASE: case}}, "rules": []}
        say.verdict("POST", f"/apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All&case={case}", role)


def _kept(say: Conversation) -> None:
    """What is changed and deleted."""
    at = f"{say.core}/configmaps"
    for case in ("changes", "deleting", "request", "options"):
        made = config_map(case, "kept", f"eq-kept-{case}")
        made["metadata"]["labels"] = {}
        say.speaker.send("POST", at, made)
        say.verdict("PATCH", f"{at}/eq-kept-{case}", {"metadata": {"labels": {CASE: case}}}, MERGE)
        say.verdict("PATCH", f"{at}/eq-kept-{case}", {"data": {"a": "other"}}, MERGE)
        say.verdict("PATCH", f"{at}/eq-kept-{case}?json", [{"op": "add", "path": "/data/b", "value": "c"}], JSON_PATCH)
        applied = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"eq-kept-{case}", "labels": {CASE: case}},
            "data": {"c": "d"},
        }
        say.verdict("PATCH", f"{at}/eq-kept-{case}?fieldManager=eq", applied, APPLY)
        say.verdict("PUT", f"{at}/eq-kept-{case}", config_map(case, "put", f"eq-kept-{case}"))
        say.verdict("DELETE", f"{at}/eq-kept-{case}", None)
    say.verdict("DELETE", f"{at}?labelSelector={CASE}=deleting", None)


def _parts(say: Conversation) -> None:
    """Scales and connections."""
    deployments = f"/apis/apps/v1/namespaces/{say.namespace}/deployments"
    labels = {"app": "eq"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    say.speaker.send(
        "POST",
        deployments,
        {
            "metadata": {"name": "eq"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        },
    )
    for replicas in (2, 3):
        say.verdict("PATCH", f"{deployments}/eq/scale?replicas={replicas}", {"spec": {"replicas": replicas}}, MERGE)
    say.verdict("PATCH", f"{deployments}/eq?replicas=5", {"spec": {"replicas": 5}}, MERGE)
    say.speaker.send("DELETE", f"{deployments}/eq")
    say.speaker.send("POST", f"{say.core}/pods", {"metadata": {"name": "eq"}, "spec": template["spec"]})
    for command in ("ls", "forbidden"):
        say.verdict("POST", f"{say.core}/pods/eq/exec?command={command}&container=c&stdout=true", None)
    say.speaker.send("DELETE", f"{say.core}/pods/eq")


def config_map(case: str, value: str, name: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name or f"eq-{case}-{value}".lower(), "labels": {CASE: case}}, "data": {"a": value}}


def named(name: str, spec: Spec) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def make(say: Conversation, plural: str, name: str, spec: Spec) -> None:
    made = say.speaker.send("POST", f"{API}/{plural}", named(name, spec))
    assert made.status == 201, made.body


_settled: list[int] = [0]


def settle(say: Conversation) -> None:
    """Wait until the server has seen the policies that were written before: it takes a moment to."""
    _settled[0] += 1
    name = f"eq-settled-{_settled[0]}"
    wait_for(say, "validating", name, {"validations": _expect("false", message=name)}, {"validationActions": ["Deny"]})


def wait_for(say: Conversation, kind: str, name: str, spec: Mapping[str, Any], binding: Mapping[str, Any]) -> None:
    """Make a policy that answers with its name to whoever writes ``PROBE``, wait until it does, and delete it."""
    policies, bindings = f"{kind}admissionpolicies", f"{kind}admissionpolicybindings"
    rules = {"matchConstraints": {"resourceRules": [{**CONFIG_MAPS, "resourceNames": [PROBE]}]}}
    make(say, policies, name, {**rules, **spec})
    make(say, bindings, name, {"policyName": name, **binding})
    probe = {"metadata": {"name": PROBE}}
    try:
        say.until(lambda: name in str(say.speaker.send("POST", f"{say.core}/configmaps?dryRun=All", probe).body))
    finally:
        for plural in (bindings, policies):
            say.speaker.send("DELETE", f"{API}/{plural}/{name}")


def parameters_ready(say: Conversation) -> None:
    """Wait until the server watches the kind that policies take their parameters from."""
    for case in ("params", "params-missing"):
        asked = config_map(case, "probe")
        say.until(
            lambda asked=asked: (
                "synced" not in str(say.speaker.send("POST", f"{say.core}/configmaps?dryRun=All", asked).body)
            )  # type: ignore[misc]
        )
