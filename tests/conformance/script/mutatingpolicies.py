"""What MutatingAdmissionPolicies in the system space make of objects there, beside what they make of them on a real server."""

from __future__ import annotations

from typing import Any

from tests.conformance.conversation import Conversation
from tests.conformance.script.admissionpolicies import (
    API,
    CASE,
    about,
    config_map,
    make,
    named,
    parameters_ready,
    wait_for,
)
from tests.conformance.script.media import APPLY, JSON_PATCH, MERGE
from tests.conformance.script.mutatingcases import (
    BAD_BINDINGS,
    BINDINGS,
    BINDINGS_AT,
    DEFINITION,
    LABEL,
    MAPS,
    OTHERS,
    POLICIES_AT,
    applies,
)


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
            {"policyName": f"eq-{case}", **BINDINGS.get(case, {})},
        )
    for name, spec in BAD_BINDINGS.items():
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
    say.speaker.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
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
            mutations = applies(f"Object{{data: {{'a': object.data.a + '{name}'}}}}")
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
    spec = about("itself", {"reinvocationPolicy": "Never", "mutations": applies(LABEL)})
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
    mutations = applies(f"Object{{data: {{'seen': '{name}'}}}}")
    wait_for(say, "mutating", name, {"reinvocationPolicy": "Never", "mutations": mutations}, {})


def _ready(say: Conversation) -> None:
    """Wait until the server watches the kinds that parameters are taken from, and knows the types of custom resources."""
    parameters_ready(say)
    at = f"/apis/eq.example.org/v1/namespaces/{say.namespace}/gadgets?dryRun=All"
    say.until(lambda: say.speaker.send("POST", at, _gadget("gadget")).status == 201)
