"""What the objects of a tenant may be, as a decision about two bodies and nothing else (AD4, AD5)."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.objects.podtemplates import TEMPLATES
from kube.policies.images import comes_from, registry_reasons, repository
from kube.policies.policy import LISTS, RULES, Policy, as_document, policy_of, read_rules, rules_of
from kube.policies.violations import KINDS, Violation, judges, violations
from kube.requests.fielderrors import CAUSES_MAX

OPEN = Policy(
    node_labels=None,
    node_names=None,
    tolerations=None,
    affinity_namespaces=None,
    priority_classes=("batch",),
)
CLOSED = Policy(
    runtime_classes=(),
    storage_classes=("fast",),
    ingress_classes=("public",),
    gateway_classes=(),
    service_types=("ClusterIP",),
    registries=("ghcr.io/acme",),
    required_labels=("team", "stage=dev", "stage=prod"),
    hosts=("*.acme.example",),
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

words = st.sampled_from(["a", "b", "ghcr.io/acme/web:1", "nginx", "dev", "fast", "spot", "batch"])
labels = st.dictionaries(st.sampled_from(["team", "stage", "zone"]), words, max_size=3)
expressions = st.fixed_dictionaries(
    {"key": words, "operator": st.sampled_from(["In", "NotIn", "Exists"]), "values": st.lists(words, max_size=2)}
)
terms = st.fixed_dictionaries({"matchExpressions": st.lists(expressions, max_size=2)})
tolerations = st.fixed_dictionaries(
    {}, optional={"key": words, "operator": st.sampled_from(["Exists", "Equal"]), "value": words, "effect": words}
)
specs = st.fixed_dictionaries(
    {"containers": st.lists(st.fixed_dictionaries({"name": words, "image": words}), min_size=1, max_size=3)},
    optional={
        "nodeName": words,
        "nodeSelector": labels,
        "tolerations": st.lists(tolerations, max_size=3),
        "priorityClassName": words,
        "runtimeClassName": words,
        "affinity": st.fixed_dictionaries(
            {
                "nodeAffinity": st.fixed_dictionaries(
                    {REQUIRED: st.fixed_dictionaries({"nodeSelectorTerms": st.lists(terms)})}
                )
            }
        ),
    },
)
pods = st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"labels": labels}), "spec": specs})
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "metadata", "labels", "containers", "rules", "affinity", "tolerations"]), inner
        )
    ),
    max_leaves=12,
)


def placed(kind: tuple[str, str], pod: dict[str, Any]) -> dict[str, Any]:
    """A workload whose template the pod is."""
    return reduce(lambda body, name: {name: body}, reversed(TEMPLATES[kind]), pod)


def shape(found: list[Violation]) -> Counter[tuple[str, str]]:
    return Counter((each.rule, each.value) for each in found)


@given(pods, st.sampled_from(sorted(TEMPLATES)))
def test_a_template_is_judged_as_the_pods_that_come_of_it(pod: dict[str, Any], kind: tuple[str, str]) -> None:
    alone = violations(CLOSED, "", "Pod", None, pod)
    found = violations(CLOSED, *kind, None, placed(kind, pod))
    assert shape(found) == shape(alone)
    prefix = "".join(f"{name}." for name in TEMPLATES[kind])
    assert [each.field for each in found] == [prefix + each.field for each in alone]


@given(pods)
def test_every_violation_names_a_field_that_is_there_and_what_to_do(pod: dict[str, Any]) -> None:
    for each in violations(CLOSED, "", "Pod", None, pod):
        assert each.message
        if each.rule == "required_labels":
            continue
        part: Any = pod
        for name, index, key in re.findall(r"\.?(\w+)|\[(\d+)\]|\[([^]]+)\]", each.field):
            part = part[name] if name else part[int(index)] if index else part[key]
        assert part is not None


@given(pods, pods)
def test_what_was_there_may_stay_and_nothing_may_become_worse(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert violations(CLOSED, "", "Pod", old, old) == []
    before, after = (shape(violations(CLOSED, "", "Pod", None, body)) for body in (old, new))
    assert shape(violations(CLOSED, "", "Pod", old, new)) == after - before


def test_one_missing_label_is_not_another() -> None:
    """What an older object lacks is no licence to take off what it has."""
    old, new = ({"metadata": {"labels": labels}} for labels in ({"stage": "dev"}, {"team": "a"}))
    (found,) = violations(CLOSED, "", "Service", old, new)
    assert (found.rule, found.field) == ("required_labels", "metadata.labels[stage]")


def test_no_more_is_looked_for_than_is_named() -> None:
    """DOS-03: by the calls that are made; what was there before hides nothing that comes behind it."""
    old = {"spec": {"tolerations": [{"key": f"a{number}"} for number in range(300)]}}
    new = {"spec": {"tolerations": [*old["spec"]["tolerations"], *({"key": f"b{number}"} for number in range(40_000))]}}
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        alone, worse = (violations(CLOSED, "", "Pod", before, new) for before in (None, old))
    finally:
        sys.setprofile(None)
    assert (len(alone), len(worse)) == (CAUSES_MAX, CAUSES_MAX)
    assert worse[0].field == "spec.tolerations[300]"
    assert steps < 150_000


def test_a_second_container_of_a_kind_that_was_there_is_worse() -> None:
    def pod(*images: str) -> dict[str, Any]:
        return {
            "metadata": {"labels": {"team": "a", "stage": "dev"}},
            "spec": {"containers": [{"image": image} for image in images]},
        }

    (found,) = violations(CLOSED, "", "Pod", pod("evil"), pod("evil", "evil"))
    assert (found.field, found.rule) == ("spec.containers[1].image", "registries")
    assert violations(CLOSED, "", "Pod", pod("evil", "ghcr.io/acme/x"), pod("ghcr.io/acme/y", "evil")) == []


@given(pods)
def test_a_policy_without_bounds_refuses_nothing(pod: dict[str, Any]) -> None:
    pod["spec"].pop("priorityClassName", None)
    assert violations(OPEN, "", "Pod", None, pod) == []


@given(
    anything, st.sampled_from([*sorted(TEMPLATES), ("", "Service"), ("networking.k8s.io", "Ingress"), ("x.io", "Y")])
)
def test_bodies_of_any_shape_are_survived(body: Any, kind: tuple[str, str]) -> None:
    violations(CLOSED, *kind, None, body if isinstance(body, dict) else {"spec": body})


@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.lists(st.sampled_from(["a", "b.c", "ClusterIP", "Pod", "ghcr.io/x"]), max_size=2)
            | (st.nothing() if name in LISTS else st.none())
            for name in RULES
        },
    )
)
def test_what_is_read_is_what_was_said_or_named_as_wrong(document: dict[str, Any]) -> None:
    rules, causes = read_rules(document, "policies")
    wrong = {cause.field.removeprefix("policies.").partition("[")[0] for cause in causes}
    assert as_document(rules) == {name: document[name] for name in RULES if name in document and name not in wrong}
    assert read_rules(as_document(rules_of(policy_of("acme", rules))), "p")[1] == []


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"images": []}, "policies.images"),
        ({"registries": "ghcr.io"}, "policies.registries"),
        ({"registries": ["nginx"]}, "policies.registries[0]"),
        ({"registries": ["https://ghcr.io"]}, "policies.registries[0]"),
        ({"priority_classes": None}, "policies.priority_classes"),
        ({"priority_classes": ["ok", "system-node-critical"]}, "policies.priority_classes[1]"),
        ({"tolerations": ["a=b:Sometimes"]}, "policies.tolerations[0]"),
        ({"node_labels": ["a=b=c"]}, "policies.node_labels[0]"),
        ({"service_types": ["Any"]}, "policies.service_types[0]"),
        ({"refused_kinds": ["daemonsets"]}, "policies.refused_kinds[0]"),
        ({"hosts": ["*"]}, "policies.hosts[0]"),
        ({"hosts": ["a.example", "a.example"]}, "policies.hosts[1]"),
        ({"hosts": [1]}, "policies.hosts[0]"),
        ([], "policies"),
    ],
)
def test_what_is_no_rule_is_named_by_its_field(document: Any, field: str) -> None:
    assert [cause.field for cause in read_rules(document, "policies")[1]] == [field]


def test_a_tenants_own_rules_stand_in_place_of_its_tiers() -> None:
    tier = {"registries": ("ghcr.io",), "hosts": ("*.{tenant}.example",), "node_labels": None}
    found = policy_of("acme", tier, {"registries": None})
    assert (found.registries, found.hosts, found.node_labels, found.node_names) == (None, ("*.acme.example",), None, ())


@pytest.mark.parametrize("kind", sorted(KINDS), ids=lambda kind: kind[1])
def test_a_status_breaks_no_rule(kind: tuple[str, str]) -> None:
    """Whatever it says, of an object that broke every rule when there was none: it says nothing that is judged."""
    pod = {"metadata": {}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "nginx"}]}}
    spec = {"template": pod, "jobTemplate": {"spec": {"template": pod}}, "type": "NodePort", "rules": [{"host": "x"}]}
    old = {"metadata": {"name": "x"}, "spec": {**spec, **pod["spec"]}, "template": pod}
    everything = replace(CLOSED, refused_kinds=(f"{kind[1]}.{kind[0]}".removesuffix("."),))
    assert violations(everything, *kind, None, old), "it would not be made"
    assert violations(everything, *kind, old, {**old, "status": {**spec, "template": pod, "hosts": ["y"]}}) == []


def test_kinds_are_refused_at_their_creation_alone() -> None:
    policy = Policy(refused_kinds=("DaemonSet.apps", "Widget.example.com"))
    assert [each.rule for each in violations(policy, "example.com", "Widget", None, {})] == ["refused_kinds"]
    assert violations(policy, "example.com", "Widget", {}, {}) == []
    assert judges(policy, "example.com", "") and judges(policy, "example.com", "Widget")
    assert not judges(Policy(), "example.com", "Widget")


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("nginx", "docker.io/library/nginx"),
        ("nginx:1.27@sha256:0", "docker.io/library/nginx"),
        ("acme/web", "docker.io/acme/web"),
        ("index.docker.io/nginx", "docker.io/library/nginx"),
        ("localhost/web", "localhost/web"),
        ("registry:5000/a/b:1", "registry:5000/a/b"),
        ("GHCR.io/acme/web", "ghcr.io/acme/web"),
    ],
)
def test_images_are_read_as_container_runtimes_read_them(image: str, name: str) -> None:
    assert repository(image) == name
    assert comes_from(image, [name]) and comes_from(image, [name.partition("/")[0]])
    assert not comes_from(image, [f"{name}x", name[:-1]])
    assert registry_reasons(name) == ()
