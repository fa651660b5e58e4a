"""What the schemas of the kinds that a policy names have against its expressions, as its status says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.conformance.conversation import Conversation
from tests.conformance.script.media import MERGE

API: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

EXPRESSIONS: Final = (
    "object.spec.replicas > 1",
    "object.replicas > 1",
    "object.spec.replicas.foo > 1",
    "object.spec.replicas > '1'",
    "object.metadata.namespace == 'a'",
    "object.metadata.__namespace__ == 'a'",
    "object.spec.template.spec.containers.all(c, c.imag == 'x')",
    "object.spec.template.spec.containers[0].resources.requests['cpu'] == '1'",
    "has(object.spec.nope)",
    "object.spec.strategy.rollingUpdate.maxSurge > 1",
    "object.a && object.b",
    "object.metadata.labels.foo == 1",
    "object.spec.template.spec.containers.exists(c, c.ports.exists(p, p.containerPort == '80'))",
    "variables.x > 'a'",
    "variables.broken == 1",
    "params.data.y == 1",
    "params.dat.y == 'a'",
    "size(object.spec.replicas) > 1",
    "object.spec.replicas + 'a' == 'b'",
    "!object.spec.paused",
    "!object.spec.replicas",
    "object == oldObject",
    "oldObject.foo == null",
    "object.spec.paused || object.spec.replicas == 1",
    "has(object.status.conditions) && object.status.conditions.all(c, c.lastUpdateTime == null)",
    "object.spec.template.spec.volumes.all(v, has(v.hostPath) && v.hostPath.pathh == '/')",
    "object.spec.\n  nope == 1",
    "object.spec.selector.matchLabels.all(k, k == 1)",
    "authorizer.group('apps').resource('deployments').check('get').allowed() && object.nope",
    "namespaceObject.metadata.labels['a'] == object.metadata.labels['a']",
)

RULES: Final[Mapping[str, list[tuple[list[str], list[str], list[str]]]]] = {
    "several": [(["apps"], ["v1"], ["statefulsets", "deployments", "deployments/scale"])],
    "any-group": [(["*"], ["v1"], ["deployments"])],
    "any-version": [(["apps"], ["*"], ["deployments"])],
    "any-resource": [(["apps"], ["v1"], ["*"])],
    "no-kind": [(["apps"], ["v1"], ["nothing"]), (["nothing.example"], ["v1"], ["deployments"])],
    "rules": [([""], ["v1"], ["pods", "configmaps"]), (["batch"], ["v1"], ["jobs"])],
    "many": [
        (
            ["apps", "batch", "policy", "networking.k8s.io"],
            ["v1"],
            [
                *(
                    "deployments",
                    "statefulsets",
                    "daemonsets",
                    "replicasets",
                    "controllerrevisions",
                    "jobs",
                    "cronjobs",
                ),
                *("poddisruptionbudgets", "ingresses", "networkpolicies", "ingressclasses"),
            ],
        )
    ],
}


def _policy(name: str, rules: list[tuple[list[str], list[str], list[str]]], *expressions: str) -> dict[str, Any]:
    about = [
        {"apiGroups": groups, "apiVersions": versions, "resources": resources, "operations": ["CREATE"]}
        for groups, versions, resources in rules
    ]
    return {
        "metadata": {"name": f"eq-types-{name}"},
        "spec": {
            "failurePolicy": "Ignore",
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": about},
            "variables": [
                {"name": "x", "expression": "object.spec.replicas"},
                {"name": "broken", "expression": "object.nothing"},
            ],
            "validations": [{"expression": each} for each in expressions],
        },
    }


def _told(say: Conversation, name: str, generation: int) -> None:
    """What the status says, and who owns it, once it is about this generation."""
    path = f"{API}/eq-types-{name}"
    say.until(lambda: (say.speaker.send("GET", path).body.get("status") or {}).get("observedGeneration") == generation)
    say.note(f"{path}?generation={generation}", lambda answer: answer["status"])
    say.note(
        f"{path}?owners={generation}",
        lambda answer: [
            each for each in answer["metadata"].get("managedFields") or () if each.get("subresource") == "status"
        ],
    )


def policytypes(say: Conversation) -> None:
    """Policies about built-in kinds, about several, and about custom ones; changed, and put right."""
    deployments = [(["apps"], ["v1"], ["deployments"])]
    for number, expression in enumerate(EXPRESSIONS):
        name = f"x{number}"
        assert say.speaker.send("POST", API, _policy(name, deployments, expression)).status == 201, expression
    for number in range(len(EXPRESSIONS)):
        _told(say, f"x{number}", 1)
        say.speaker.send("DELETE", f"{API}/eq-types-x{number}")
    for name, rules in RULES.items():
        assert (
            say.speaker.send("POST", API, _policy(name, rules, "object.nope == 1", "object.metadata.name != ''")).status
            == 201
        )
        _told(say, name, 1)
        say.speaker.send("DELETE", f"{API}/eq-types-{name}")
    words = _policy("words", deployments, "object.spec.replicas > 1")
    words["spec"]["validations"] = [
        {"expression": "object.nope == 1", "messageExpression": "'has ' + object.neither"},
        {"expression": "object.spec.replicas > 1", "messageExpression": "string(object.spec.replicas)"},
    ]
    assert say.speaker.send("POST", API, words).status == 201
    _told(say, "words", 1)
    right = {"spec": {"validations": [{"expression": "object.spec.replicas > 1"}]}}
    assert say.speaker.send("PATCH", f"{API}/eq-types-words", right, MERGE).status == 200
    _told(say, "words", 2)
    say.speaker.send("DELETE", f"{API}/eq-types-words")
    for said in ({"message": " "}, {"message": "a\nb"}, {"message": "a\rb"}, {"messageExpression": " "}):
        wrong = _policy("wrong", deployments, "true")
        wrong["spec"]["validations"][0].update(said)
        say.verdict("POST", f"{API}?dryRun=All&{next(iter(said))}={len(str(said))}", wrong)
