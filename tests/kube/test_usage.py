"""What objects consume of a ResourceQuota, and what is refused in which words (AD2, AD3)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.quota.podresources import add, amounts, pod_limits, pod_requests, subtract
from kube.quota.quantities import InvalidQuantity
from kube.quota.usage import (
    ONCE_MARKED,
    UNTIL_GONE,
    Quota,
    QuotaExceeded,
    check,
    counts,
    demand,
    read_quota,
    total,
    usage,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def container(name: str = "c", requests: Any = None, limits: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def pod(*containers: dict[str, Any], init: Any = (), **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(containers), "initContainers": list(init), **spec}}


def quota(hard: dict[str, str], name: str = "q", **spec: Any) -> Quota:
    return read_quota({"metadata": {"name": name}, "spec": {"hard": hard, **spec}})


def used(group: str, resource: str, item: dict[str, Any]) -> dict[str, str]:
    return {name: str(amount) for name, amount in usage(group, resource, item, now=NOW).items()}


def test_a_pod_consumes_what_its_containers_ask_for() -> None:
    item = pod(container(requests={"cpu": "100m", "memory": "64Mi", "example.com/gpu": "1"}, limits={"cpu": "1"}))
    assert used("", "pods", item) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "100m",
        "requests.cpu": "100m",
        "memory": "64Mi",
        "requests.memory": "64Mi",
        "requests.example.com/gpu": "1",
        "limits.cpu": "1",
    }


def test_an_init_container_counts_when_it_is_larger_and_a_sidecar_always() -> None:
    steps = [
        container("i", {"cpu": "2"}),
        container("s", {"cpu": "500m"}, restartPolicy="Always"),
        container("j", {"cpu": "3"}),
    ]
    item = pod(container("a", {"cpu": "1"}), container("b", {"cpu": "1"}), init=steps)
    assert str(pod_requests(item)["cpu"]) == "3500m"


def test_a_pod_that_is_resized_holds_the_most_of_what_it_wants_was_given_and_uses() -> None:
    """AD2: until a node has made a pod smaller, the quota does not give away what it still has."""
    item = pod(container("a", {"cpu": "1"}, {"cpu": "2"}), init=[container("s", {"cpu": "1"}, restartPolicy="Always")])
    item["status"] = {
        "containerStatuses": [
            {
                "name": "a",
                "allocatedResources": {"cpu": "3"},
                "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}},
            }
        ],
        "initContainerStatuses": [{"name": "s", "resources": {"requests": {"cpu": "500m"}}}],
    }
    assert used("", "pods", item)["requests.cpu"] == "4"
    assert used("", "pods", item)["limits.cpu"] == "4"
    item["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "7"
    assert used("", "pods", item)["requests.cpu"] == "8"
    item["status"]["conditions"] = [{"type": "PodResizePending", "reason": "Infeasible"}]
    assert used("", "pods", item)["requests.cpu"] == "3500m"


def test_overhead_and_pod_level_resources_count() -> None:
    item = pod(container("a", {"cpu": "1"}), overhead={"cpu": "100m"}, resources={"requests": {"cpu": "4"}})
    assert str(pod_requests(item)["cpu"]) == "4100m"
    assert pod_limits(item) == {}


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_consumes_nothing_but_its_place(phase: str) -> None:
    item = {**pod(container(requests={"cpu": "1"})), "status": {"phase": phase}}
    assert used("", "pods", item) == {"count/pods": "1"}


def test_a_pod_whose_grace_period_is_over_consumes_nothing_but_its_place() -> None:
    item = pod(container(requests={"cpu": "1"}))
    item["metadata"].update(deletionTimestamp="2025-12-31T23:59:00Z", deletionGracePeriodSeconds=30)
    assert used("", "pods", item) == {"count/pods": "1"}
    item["metadata"]["deletionGracePeriodSeconds"] = 90
    assert "requests.cpu" in used("", "pods", item)


@given(
    marked=st.none() | st.integers(0, 4 * 10**9).map(lambda at: f"{datetime.fromtimestamp(at, UTC):%FT%TZ}"),
    grace=st.none() | st.integers(0, 10**9),
)
def test_without_a_clock_a_pod_counts_until_it_is_gone_or_until_it_was_marked(
    marked: str | None, grace: int | None
) -> None:
    """AD2: what is settled and what is counted is the same, whenever and by whichever process."""
    item = pod(container(requests={"cpu": "1"}))
    plain = usage("", "pods", item, now=NOW)
    told = {"deletionTimestamp": marked, "deletionGracePeriodSeconds": grace}
    item["metadata"].update({name: value for name, value in told.items() if value is not None})
    assert usage("", "pods", item, now=UNTIL_GONE) == plain
    is_over = marked is not None and grace is not None
    assert (usage("", "pods", item, now=ONCE_MARKED) != plain) == is_over


SERVICES: list[tuple[dict[str, Any], str, str]] = [
    ({"ports": [{}, {}]}, "0", "0"),
    ({"type": "NodePort", "ports": [{}, {}]}, "0", "2"),
    ({"type": "LoadBalancer", "ports": [{}]}, "1", "1"),
    ({"type": "LoadBalancer", "ports": [{}, {"nodePort": 3}], "allocateLoadBalancerNodePorts": False}, "1", "1"),
]


@pytest.mark.parametrize(("spec", "balancers", "node_ports"), SERVICES)
def test_a_service_consumes_by_its_type(spec: dict[str, Any], balancers: str, node_ports: str) -> None:
    assert used("", "services", {"spec": spec}) == {
        "count/services": "1",
        "services": "1",
        "services.loadbalancers": balancers,
        "services.nodeports": node_ports,
    }


def test_a_claim_consumes_storage_also_of_its_class() -> None:
    claim = {"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}}
    assert used("", "persistentvolumeclaims", claim) == {
        "count/persistentvolumeclaims": "1",
        "persistentvolumeclaims": "1",
        "requests.storage": "1Gi",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "gold.storageclass.storage.k8s.io/requests.storage": "1Gi",
    }


def test_a_claim_consumes_the_devices_that_it_may_come_to_hold() -> None:
    """AD2, AD3: of alternatives the most, of "all" what one claim is given at most, in whichever version it is written."""
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}},
        {"name": "b", "firstAvailable": [{"deviceClassName": "gpu", "count": 3}, {"deviceClassName": "gpu"}]},
        {"name": "c", "exactly": {"deviceClassName": "fpga", "allocationMode": "All"}},
        {"name": "d", "deviceClassName": "gpu"},
        {"name": "e", "exactly": {"deviceClassName": "tpu", "allocationMode": "Unknown"}},
    ]
    claim = {"spec": {"devices": {"requests": requests}}}
    assert used("resource.k8s.io", "resourceclaims", claim) == {
        "count/resourceclaims.resource.k8s.io": "1",
        "gpu.deviceclass.resource.k8s.io/devices": "6",
        "fpga.deviceclass.resource.k8s.io/devices": "32",
        "requests.deviceclass.resource.kubernetes.io/gpu": "6",
        "requests.deviceclass.resource.kubernetes.io/fpga": "32",
    }
    limited = quota({"gpu.deviceclass.resource.k8s.io/devices": "5"})
    wanted = demand(limited, "resource.k8s.io", "resourceclaims", claim, now=NOW)
    with pytest.raises(QuotaExceeded, match=r"gpu\.deviceclass\.resource\.k8s\.io/devices=6"):
        check(limited, wanted, {})
    implicit = pod(container(requests={"deviceclass.resource.kubernetes.io/gpu": "2"}))
    assert used("", "pods", implicit)["requests.deviceclass.resource.kubernetes.io/gpu"] == "2"
    assert counts(quota({"requests.deviceclass.resource.kubernetes.io/gpu": "1"}), "", "pods", implicit)


def test_a_claim_of_several_attribute_classes_is_within_a_scope_by_any_of_them() -> None:
    """AD3: what its volume still has is not hidden by what it is to get."""
    claim = {"spec": {"volumeAttributesClassName": "free"}, "status": {"currentVolumeAttributesClassName": "gold"}}

    def counted(operator: str, *values: str) -> bool:
        expression = {"scopeName": "VolumeAttributesClass", "operator": operator, "values": list(values)}
        limited = quota({"persistentvolumeclaims": "1"}, scopeSelector={"matchExpressions": [expression]})
        return counts(limited, "", "persistentvolumeclaims", claim)

    assert counted("NotIn", "free") and counted("NotIn", "gold") and not counted("NotIn", "free", "gold")
    assert counted("In", "free") and counted("In", "gold") and not counted("In", "silver")


def test_everything_else_is_counted() -> None:
    assert used("apps", "deployments", {}) == {"count/deployments.apps": "1"}
    assert used("", "secrets", {}) == {"count/secrets": "1", "secrets": "1"}
    assert used("", "endpoints", {}) == {"count/endpoints": "1"}


def test_a_quota_on_compute_demands_that_it_is_stated() -> None:
    limits = quota({"limits.cpu": "1", "requests.memory": "1Gi", "pods": "5"})
    with pytest.raises(QuotaExceeded) as caught:
        demand(limits, "", "pods", pod(container("b"), container("a", {"memory": "1"})), now=NOW)
    assert str(caught.value) == "failed quota: q: must specify limits.cpu for: a,b; requests.memory for: b"


def test_what_does_not_fit_is_refused_in_the_real_servers_words() -> None:
    limits = quota({"requests.cpu": "1", "pods": "10", "services": "0"})
    wanted = demand(limits, "", "pods", pod(container(requests={"cpu": "600m"})), now=NOW)
    check(limits, wanted, amounts({"requests.cpu": "400m", "pods": "9"}))
    with pytest.raises(QuotaExceeded) as caught:
        check(limits, wanted, amounts({"requests.cpu": "500m", "pods": "10"}))
    assert str(caught.value) == (
        "exceeded quota: q, requested: pods=1,requests.cpu=600m, used: pods=10,requests.cpu=500m, "
        "limited: pods=10,requests.cpu=1"
    )


def test_an_update_takes_only_what_it_adds() -> None:
    limits = quota({"requests.storage": "10Gi", "persistentvolumeclaims": "1"})

    def claim(size: str) -> dict[str, Any]:
        return {"spec": {"resources": {"requests": {"storage": size}}}}

    grown = demand(limits, "", "persistentvolumeclaims", claim("5Gi"), old=claim("2Gi"), now=NOW)
    assert {name: str(amount) for name, amount in grown.items()} == {"requests.storage": "3Gi"}
    assert demand(limits, "", "persistentvolumeclaims", claim("1Gi"), old=claim("2Gi"), now=NOW) == {}


def test_negative_amounts_are_refused() -> None:
    with pytest.raises(QuotaExceeded, match=r"quota usage is negative for resource\(s\): cpu,requests.cpu"):
        demand(quota({"pods": "1"}), "", "pods", pod(container(requests={"cpu": "-1"})), now=NOW)


def test_an_amount_that_is_none_is_reported_as_such() -> None:
    with pytest.raises(InvalidQuantity):
        usage("", "pods", pod(container(requests={"cpu": "lots"})), now=NOW)


BEST_EFFORT = pod(container())
BURSTABLE = pod(container(requests={"cpu": "1"}))
ENDING = pod(container(), activeDeadlineSeconds=5)
IMPORTANT = pod(container(), priorityClassName="high")
SCOPES: list[tuple[dict[str, Any], list[bool]]] = [
    ({"scopes": ["BestEffort"]}, [True, False, True, True]),
    ({"scopes": ["NotBestEffort"]}, [False, True, False, False]),
    ({"scopes": ["Terminating"]}, [False, False, True, False]),
    ({"scopes": ["NotTerminating"]}, [True, True, False, True]),
    ({"scopes": ["NotTerminating", "BestEffort"]}, [True, False, False, True]),
    ({"scopes": ["PriorityClass"]}, [False, False, False, True]),
    ({"scopes": ["CrossNamespacePodAffinity"]}, [False, False, False, False]),
    ({"scopes": ["Unheard"]}, [False, False, False, False]),
]
OPERATORS: list[tuple[str, list[str], list[bool]]] = [
    ("In", ["high", "low"], [False, False, False, True]),
    ("NotIn", ["high"], [True, True, True, False]),
    ("DoesNotExist", [], [True, True, True, False]),
    ("Exists", [], [False, False, False, True]),
]


@pytest.mark.parametrize(("spec", "expected"), SCOPES)
def test_a_quota_counts_only_what_is_in_its_scopes(spec: dict[str, Any], expected: list[bool]) -> None:
    limits = quota({"pods": "1"}, **spec)
    assert [counts(limits, "", "pods", item) for item in (BEST_EFFORT, BURSTABLE, ENDING, IMPORTANT)] == expected
    assert not counts(quota({"services": "1"}, **spec), "", "services", {})


@pytest.mark.parametrize(("operator", "values", "expected"), OPERATORS)
def test_priority_classes_are_selected_by_operator(operator: str, values: list[str], expected: list[bool]) -> None:
    expression = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    limits = quota({"pods": "1"}, scopeSelector={"matchExpressions": [expression]})
    assert [counts(limits, "", "pods", item) for item in (BEST_EFFORT, BURSTABLE, ENDING, IMPORTANT)] == expected


def test_affinity_across_namespaces_is_a_scope() -> None:
    limits = quota({"pods": "1"}, scopes=["CrossNamespacePodAffinity"])
    term = {"podAffinityTerm": {"namespaces": ["x"]}}
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert counts(limits, "", "pods", pod(container(), affinity=affinity))


@given(st.lists(st.integers(0, 4000), max_size=8), st.integers(0, 6000))
def test_admitting_one_by_one_never_passes_the_limit(requests: list[int], limit: int) -> None:
    limits = quota({"requests.cpu": f"{limit}m"})
    admitted: list[dict[str, Any]] = []
    for request in requests:
        item = pod(container(requests={"cpu": f"{request}m"}))
        now_used = total((usage("", "pods", other, now=NOW) for other in admitted), limits)
        try:
            check(limits, demand(limits, "", "pods", item, now=NOW), now_used)
        except QuotaExceeded:
            assert sum(other["m"] for other in admitted) + request > limit
            continue
        admitted.append({**item, "m": request})
    assert sum(other["m"] for other in admitted) <= limit


resource_lists = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 100).map(str)).map(amounts)


@given(resource_lists, resource_lists)
def test_taking_away_what_was_added_leaves_what_was_there(left: Any, right: Any) -> None:
    rest = subtract(add(left, right), right)
    assert {name: amount for name, amount in rest.items() if amount} == {n: a for n, a in left.items() if a}
