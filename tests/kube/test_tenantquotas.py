"""What objects take of a tenant's quota: sums that no order changes, and rules that read any field (AD2, AD3)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.quota.configuration import read_configuration
from kube.quota.podresources import amounts
from kube.quota.quantities import InvalidQuantity, Quantity, parse_quantity
from kube.quota.tenantquotas import (
    TenantQuota,
    UsageRule,
    after,
    has_room,
    is_counted,
    read_tenant_quota,
    used_of,
    with_hard,
    with_used,
)
from kube.quota.usage import QuotaExceeded, counts, demand, read_quota

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VM = UsageRule(name="example.com/cores", group="vm.example", plural="machines", path=("spec", "domains", "cores"))
WIDTH = UsageRule(name="example.com/width", group="", plural="pods", annotation="width")
HARD = {name: parse_quantity("1k") for name in ("pods", "count/machines.vm.example", VM.name, WIDTH.name)}
QUOTA = TenantQuota(tenant="acme", hard=HARD, rules=(VM, WIDTH))

objects = st.one_of(
    st.integers(0, 50).map(lambda width: ("", "pods", {"metadata": {"annotations": {"width": f"{width}m"}}})),
    st.lists(st.integers(0, 9), max_size=4).map(
        lambda cores: ("vm.example", "machines", {"spec": {"domains": [{"cores": each} for each in cores]}})
    ),
    st.just(("", "configmaps", {"data": {"a": "b"}})),
)


@given(st.lists(st.tuples(objects, st.booleans()), max_size=30))
def test_what_is_settled_write_by_write_is_what_is_there(
    steps: list[tuple[tuple[str, str, dict[str, Any]], bool]],
) -> None:
    used, there = QUOTA.total(()), []
    for (group, plural, body), stays in steps:
        taken = QUOTA.counted(group, plural, body, now=NOW)
        used = after(used, taken)
        if stays:
            there.append(taken)
        else:
            used = after(used, {name: -amount for name, amount in taken.items()})
    assert used == QUOTA.total(there)


def test_rules_read_annotations_and_fields_and_add_up_the_members_of_lists() -> None:
    machine = {"spec": {"domains": [{"cores": 2}, {"cores": "500m"}, {}]}}
    assert str(QUOTA.counted("vm.example", "machines", machine, now=NOW)[VM.name]) == "2500m"
    assert QUOTA.counted("", "pods", {"metadata": {}}, now=NOW)[WIDTH.name].nanos == 0
    with pytest.raises(InvalidQuantity):
        QUOTA.change("", "pods", None, {"metadata": {"annotations": {"width": "wide"}}}, now=NOW)
    with pytest.raises(QuotaExceeded, match="negative"):
        QUOTA.change("", "pods", None, {"metadata": {"annotations": {"width": "-1"}}}, now=NOW)


said = st.sampled_from(
    ["-1", "-1e300", "1e300", "1e301", "wide", "", "7", "0", "1" * 70, -5, 3, True, None, {}, "-1n", "1n"]
)
bodies = st.one_of(
    said.map(lambda width: ("", "pods", {"metadata": {"annotations": {"width": width}}})),
    st.lists(said, max_size=3).map(
        lambda cores: ("vm.example", "machines", {"spec": {"domains": [{"cores": each} for each in cores]}})
    ),
    said.map(
        lambda cpu: (
            "",
            "pods",
            {
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {
                    "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
                    "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
                },
            },
        )
    ),
)


@given(st.lists(bodies, min_size=1, max_size=4))
def test_whatever_an_object_says_of_itself_it_makes_no_room_for_others(steps: list[tuple[str, str, Any]]) -> None:
    """Neither when it is there, nor by a change; and what is used can be read again."""
    quota = replace(QUOTA, hard={**HARD, "requests.cpu": parse_quantity("1k")})
    used = quota.total(())
    for group, plural, body in steps:
        try:
            taken = quota.counted(group, plural, body, now=NOW)
        except InvalidQuantity:
            continue  # No cluster keeps such a pod.
        assert all(amount.nanos >= 0 for amount in taken.values())
        used = after(used, taken)
    hard = {"spec": {"hard": dict.fromkeys(quota.hard, "1")}}
    assert used_of(with_used(hard, used)) == used
    for (group, plural, old), (*place, new) in pairwise(steps):
        if (group, plural) != tuple(place):
            continue
        try:
            change = quota.change(group, plural, old, new, now=NOW)
            before = quota.counted(group, plural, old, now=NOW)
        except (InvalidQuantity, QuotaExceeded):
            continue
        assert all(-amount <= before.get(name, Quantity()) for name, amount in change.items())


def test_what_was_said_before_anybody_counted_it_may_stay_and_go() -> None:
    """An operator's new rule shuts nobody in."""

    def of(width: str, **labels: str) -> dict[str, Any]:
        return {"metadata": {"annotations": {"width": width}, "labels": labels}}

    for wrong in ("wide", "-5"):
        assert QUOTA.change("", "pods", of(wrong), of(wrong, a="b"), now=NOW) == {}
        assert str(QUOTA.change("", "pods", of(wrong), of("3"), now=NOW)[WIDTH.name]) == "3"
        assert str(QUOTA.change("", "pods", of(wrong), None, now=NOW)["pods"]) == "-1"
        with pytest.raises((InvalidQuantity, QuotaExceeded)):
            QUOTA.change("", "pods", of("3"), of(wrong), now=NOW)


_STATES = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.sampled_from([{"size": "1"}, {"size": "2"}]),
                "resourceVersion": st.sampled_from(["1", "2"]),
                "annotations": st.sampled_from([{}, {"volume.beta.kubernetes.io/storage-class": "fast"}]),
                "deletionTimestamp": st.sampled_from(["2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"]),
                "deletionGracePeriodSeconds": st.sampled_from([0, 30]),
            },
        ),
        "spec": st.sampled_from(
            [
                {},
                {"type": "LoadBalancer", "ports": [{}]},
                {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
                {"resources": {"requests": {"storage": "1Gi"}}},
                {"priorityClassName": "high", "containers": [{"resources": {"requests": {"cpu": "2"}}}]},
            ]
        ),
        "status": st.sampled_from([{}, {"phase": "Failed"}]),
    }
)


@given(
    old=_STATES,
    new=_STATES,
    plural=st.sampled_from(["pods", "services", "persistentvolumeclaims"]),
    scopes=st.sampled_from([[], ["BestEffort"], ["NotTerminating"]]),
    ruled=st.booleans(),
)
def test_what_is_said_to_count_alike_does(
    old: dict[str, Any], new: dict[str, Any], plural: str, scopes: list[str], ruled: bool
) -> None:
    """AD3: whatever Kubernetes' quota or a rule looks at, in whichever field."""
    names = (
        "pods",
        "requests.cpu",
        "services.loadbalancers",
        "requests.storage",
        "fast.storageclass.storage.k8s.io/requests.storage",
    )
    rule = UsageRule(name="size", group="", plural=plural, path=("metadata", "labels", "size"))
    body = {"spec": {"hard": dict.fromkeys([*names, "size"], "9"), "scopes": scopes}}
    quota = read_tenant_quota("acme", body, (rule,) if ruled else ())
    before, after = (quota.counted("", plural, state, now=NOW) for state in (old, new))
    assert before == after or not quota.counts_alike("", plural, old, new)
    plain = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert quota.counts_alike("", plural, old, plain) is not ruled


def test_it_names_what_it_counts_by_itself_and_by_rules_that_bound_something() -> None:
    """Of any kind: whoever looks at what is there has to ask for it."""
    hard = amounts({"pods": "1", "count/maps": "1", "count/jobs.batch": "1", "count/m.a.b": "1", VM.name: "1"})
    quota = TenantQuota(tenant="t", hard=hard, rules=(VM, WIDTH))
    assert quota.named == {("", "maps"), ("batch", "jobs"), ("a.b", "m"), (VM.group, VM.plural)}
    assert all(quota.concerns(*each) for each in quota.named)


SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass")
scopes = st.lists(st.sampled_from(SCOPES), max_size=2, unique=True)
specs = st.fixed_dictionaries(
    {"containers": st.sampled_from([[{"name": "c"}], [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]])},
    optional={"activeDeadlineSeconds": st.just(5), "priorityClassName": st.sampled_from(["high", "low"])},
)


@given(scopes, st.lists(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]), max_size=1), specs)
def test_scopes_are_those_of_a_resource_quota(names: list[str], operators: list[str], spec: dict[str, Any]) -> None:
    """AD3: it counts a pod exactly where a ResourceQuota with the same spec would."""
    expressions = [
        {"scopeName": "PriorityClass", "operator": each, "values": ["high"] if "In" in each else []}
        for each in operators
    ]
    body = {
        "metadata": {"name": "quota"},
        "spec": {"hard": {"pods": "9"}, "scopes": names, "scopeSelector": {"matchExpressions": expressions}},
    }
    quota, like = read_tenant_quota("acme", body, ()), read_quota(body)
    taken = quota.change("", "pods", None, {"spec": spec}, now=NOW)
    assert (
        taken == quota.counted("", "pods", {"spec": spec}, now=NOW) == demand(like, "", "pods", {"spec": spec}, now=NOW)
    )
    assert bool(taken) == counts(like, "", "pods", {"spec": spec})
    assert quota.concerns("", "pods") and not quota.concerns("", "services")
    assert read_tenant_quota("acme", with_hard(body, {"pods": "1"}), ()).scopes == quota.scopes


def test_new_bounds_are_not_counted_before_somebody_counts() -> None:
    body = with_used({"spec": {"hard": {"pods": "5"}}}, {"pods": parse_quantity("2")})
    assert is_counted(body)
    changed = with_hard(body, {"pods": "1", "secrets": "3"})
    assert not is_counted(changed)
    assert {name: str(amount) for name, amount in used_of(changed).items()} == {"pods": "2"}


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"hard": {"pods": "-1"}}, "hard\\[pods\\] must not be negative"),
        ({"usage": [{"name": "a.b/c"}]}, "usage\\[0\\] needs a name"),
        ({"usage": [{"name": "a.b/c", "resource": "pods"}]}, "either annotation or field"),
        ({"usage": [{"name": "a.b/c", "resource": "pods", "annotation": "x", "field": "y"}]}, "either annotation"),
        ({"limits": {}}, "configuration.limits is not supported"),
    ],
)
def test_a_wrong_configuration_names_its_field(told: dict[str, Any], problem: str) -> None:
    kind = {"apiVersion": "tenancy.tenantry.io/v1alpha1", "kind": "TenantQuotaConfiguration"}
    with pytest.raises(ValueError, match=problem):
        read_configuration({**kind, **told})


@pytest.mark.parametrize(
    ("hard", "used", "room"),
    [
        ({"pods": "4"}, {"pods": "2"}, True),
        ({"pods": "4"}, {"pods": "3"}, False),
        ({"pods": "4", "requests.cpu": "1"}, {"pods": "0", "requests.cpu": "501m"}, False),
        ({"pods": "4", "services.nodeports": "0"}, {"pods": "0", "services.nodeports": "0"}, True),
        ({"pods": "4", "services.nodeports": "0"}, {"pods": "0", "services.nodeports": "1"}, False),
        ({"pods": "4"}, {}, False),
        ({}, {}, True),
    ],
)
def test_a_tenant_has_room_where_as_much_again_is_left_of_everything(
    hard: dict[str, str], used: dict[str, str], room: bool
) -> None:
    assert has_room(TenantQuota(tenant="acme", hard=amounts(hard)), amounts(used)) is room
