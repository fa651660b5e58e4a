"""What a refusal by a quota says, and who in a cluster refused (AD2, AZ11)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.policies.clusterrefusals import refused_by
from kube.quota.podresources import amounts
from kube.quota.refusals import namespace_bounds, read_exceeded, refusal, tenant_bound
from kube.quota.usage import Quota, QuotaExceeded, check

POD = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}, "status": {"hard": hard, "used": used}}


def exceeded(hard: dict[str, str], asked: dict[str, str], used: dict[str, str]) -> QuotaExceeded:
    with pytest.raises(QuotaExceeded) as raised:
        check(Quota(name="q", hard=amounts(hard)), amounts(asked), amounts(used))
    return raised.value


def test_one_message_and_the_causes_name_what_was_asked_and_how_much_there_is_of_both() -> None:
    error = exceeded({"requests.cpu": "4", "pods": "9"}, {"requests.cpu": "2", "pods": "1"}, {"requests.cpu": "3"})
    bounds = [
        *namespace_bounds([quota({"requests.cpu": "4", "pods": "9"}, {"requests.cpu": "3"})], "", "pods", POD),
        tenant_bound(amounts({"requests.cpu": "20"}), amounts({"requests.cpu": "18"})),
    ]
    refused = refusal(error, "", "pods", "web", rule="ResourceQuota shop/q", bounds=bounds)
    said = "asked 2, 3 of 4 used in the namespace, 18 of 20 in the tenant"
    assert refused.message == (
        'pods "web" is forbidden: exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=3, '
        f"limited: requests.cpu=4; requests.cpu: {said}"
    )
    assert refused.details()["causes"] == [{"reason": "QuotaExceeded", "message": said, "field": "requests.cpu"}]
    assert (refused.code, refused.reason, refused.rule) == (403, "Forbidden", "ResourceQuota shop/q")
    assert "rule" not in refused.as_status()


def test_of_several_quotas_of_a_namespace_the_one_with_the_least_room_is_told_and_scopes_are_kept() -> None:
    quotas = [
        quota({"pods": "9"}, {"pods": "2"}),
        quota({"pods": "5"}, {"pods": "4"}),
        quota({"pods": "1"}, {"pods": "1"}, scopes=["Terminating"]),
        {"spec": 7},
        quota({"pods": "many"}, {}),
    ]
    error = QuotaExceeded("full", requested=amounts({"pods": "3"}))
    bounds = namespace_bounds(quotas, "", "pods", POD)
    refused = refusal(error, "", "pods", "p", rule="", bounds=[*bounds, tenant_bound(amounts({"pods": "20"}), {})])
    assert refused.causes[0].message == "asked 3, 4 of 5 used in the namespace, 0 of 20 in the tenant"


def test_where_the_tenants_quota_says_nothing_the_words_are_those_of_kubernetes() -> None:
    error = exceeded({"pods": "1"}, {"pods": "1"}, {"pods": "1"})
    bounds = [
        *namespace_bounds([quota({"pods": "1"}, {"pods": "1"})], "", "pods", POD),
        tenant_bound(amounts({"requests.cpu": "20"}), {}),
    ]
    refused = refusal(error, "", "pods", "p", rule="ResourceQuota shop/q", bounds=bounds)
    assert refused.message == f'pods "p" is forbidden: {error}' and not refused.causes


def test_who_does_not_say_what_a_quota_must_know_is_told_that_alone() -> None:
    error = QuotaExceeded("failed quota: q: must specify requests.cpu for: c")
    refused = refusal(error, "", "pods", "p", rule="", bounds=[tenant_bound(amounts({"pods": "1"}), {})])
    assert refused.message == f'pods "p" is forbidden: {error}' and not refused.causes


names = st.sampled_from(["pods", "requests.cpu", "count/jobs.batch", "requests.example.com/gpu"])
numbers = st.integers(0, 10**6).map(str)


@given(st.dictionaries(names, st.tuples(numbers, numbers, numbers), min_size=1))
def test_what_a_cluster_says_of_a_full_quota_is_read_as_it_was_written(told: dict[str, tuple[str, str, str]]) -> None:
    asked, used, hard = ({name: each[index] for name, each in told.items()} for index in range(3))
    try:
        check(Quota(name="small", hard=amounts(hard)), amounts(asked), amounts(used))
    except QuotaExceeded as error:
        found = read_exceeded(f'pods "p" is forbidden: {error}')
        assert found is not None
        assert found[0].requested == error.requested
        assert found[1].hard == {name: amounts(hard)[name] for name in error.requested}
        assert found[1].used == {name: amounts(used)[name] for name in error.requested}


@given(st.text())
def test_no_message_breaks_who_reads_it(text: str) -> None:
    refused_by(text)
    read_exceeded(text)
    read_exceeded(f"exceeded quota: q, requested: {text}, used: {text}, limited: {text}")


@pytest.mark.parametrize(
    ("message", "plugin", "rule"),
    [
        (
            'pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1',
            "ResourceQuota",
            "q",
        ),
        ('pods "a" is forbidden: failed quota: q: must specify requests.cpu for: c', "ResourceQuota", "q"),
        (
            'pods "a" is forbidden: violates PodSecurity "baseline:latest": host namespaces',
            "PodSecurity",
            "baseline:latest",
        ),
        (
            "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'tenantry-reach' with binding 'tenantry-reach' denied "
            "request: no",
            "ValidatingAdmissionPolicy",
            "tenantry-reach",
        ),
        (
            'admission webhook "admit.tenantry.io" denied the request: pods "a" is forbidden: exceeded quota: tenant acme',
            "AdmissionWebhook",
            "admit.tenantry.io",
        ),
        ('pods "a" is forbidden: maximum cpu usage per Container is 1, but limit is 2', "LimitRanger", "cpu"),
        ('pods "a" is forbidden: User "x" cannot create resource "pods"', "", ""),
    ],
)
def test_who_in_a_cluster_refused_is_read_from_its_words(message: str, plugin: str, rule: str) -> None:
    assert refused_by(message) == (plugin, rule)
