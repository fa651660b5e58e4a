"""Tenants' request rates (AD6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.requestlimits import Limits, TenantThrottle
from kube.authentication.identity import MASTERS, Principal
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import TooManyRequests
from kube.requests.tokenbuckets import TokenBucket

LIMITS = Limits(read=TokenBucket(10, 20), write=TokenBucket(2, 3), watch=TokenBucket(1, 2), open_watches=2)


def user(tenant: str | None = "acme", *groups: str) -> Principal:
    return Principal(name="jane", tenant=tenant, groups=groups, authenticator="test")


def asking(verb: str, resource: str = "pods", group: str = "") -> RequestInfo:
    return RequestInfo(
        method="GET",
        path="/api/v1/pods",
        cluster="root:acme",
        tenant="acme",
        verb=verb,
        is_resource=True,
        group=group,
        resource=resource,
    )


def throttle(limits: Limits = LIMITS, open_watches: int = 0) -> TenantThrottle:
    return TenantThrottle(limits, lambda _tenant: open_watches)


def served(subject: TenantThrottle, who: Principal, what: RequestInfo, *, times: int, now: float) -> int:
    count = 0
    for _ in range(times):
        try:
            subject.take(who, what, now)
        except TooManyRequests:
            continue
        count += 1
    return count


def test_flood_is_refused_behind_the_burst_with_the_time_to_wait() -> None:
    """AD6."""
    subject = throttle()
    assert served(subject, user(), asking("create"), times=50, now=100.0) == 3
    with pytest.raises(TooManyRequests) as refusal:
        subject.take(user(), asking("create"), 100.0)
    assert (refusal.value.code, refusal.value.reason, refusal.value.retry_after) == (429, "TooManyRequests", 1)


def test_one_tenants_flood_leaves_the_others_alone() -> None:
    """AD6."""
    subject = throttle()
    served(subject, user("acme"), asking("get"), times=1000, now=100.0)
    assert served(subject, user("umbrella"), asking("get"), times=20, now=100.0) == 20


def test_reads_writes_and_watches_are_counted_apart() -> None:
    """AD6. Reviews are questions, so they count as reads."""
    subject = throttle()
    assert served(subject, user(), asking("delete"), times=50, now=100.0) == 3
    assert served(subject, user(), asking("watch"), times=50, now=100.0) == 2
    review = asking("create", "selfsubjectaccessreviews", "authorization.k8s.io")
    assert served(subject, user(), review, times=50, now=100.0) == 20
    assert served(subject, user(), asking("list"), times=50, now=100.0) == 0


def test_a_waiting_tenant_gets_its_rate_back() -> None:
    """AD6."""
    subject = throttle()
    served(subject, user(), asking("get"), times=50, now=100.0)
    assert served(subject, user(), asking("get"), times=50, now=100.5) == 5
    assert served(subject, user(), asking("get"), times=50, now=1000.0) == 20


def test_the_operators_masters_are_never_held_up_and_masters_of_a_tenant_are() -> None:
    """AD6."""
    subject = throttle()
    assert served(subject, user("system", MASTERS), asking("create"), times=50, now=100.0) == 50
    assert served(subject, user("acme", MASTERS), asking("create"), times=50, now=100.0) == 3


def test_probes_are_never_held_up() -> None:
    """AD6."""
    probe = RequestInfo(method="GET", path="/readyz", cluster="root", tenant="system", verb="get")
    assert served(throttle(), user(None), probe, times=100, now=100.0) == 100


@pytest.mark.parametrize(
    "request_",
    [
        asking("watch"),
        replace(asking("get"), subresource="log"),
        replace(asking("get"), subresource="exec"),
        replace(asking("create"), subresource="portforward"),
    ],
)
def test_a_tenant_with_too_many_open_streams_opens_no_more(request_: RequestInfo) -> None:
    """AD6: whatever goes on is one of them."""
    with pytest.raises(TooManyRequests) as refusal:
        throttle(open_watches=2).take(user(), request_, 100.0)
    assert refusal.value.retry_after == 5
    throttle(open_watches=1).take(user(), request_, 100.0)


def test_zero_means_no_limit() -> None:
    """AD6."""
    free = Limits(read=TokenBucket(0, 0), write=TokenBucket(0, 0), watch=TokenBucket(0, 0), open_watches=0)
    assert served(throttle(free, 10_000), user(), asking("watch"), times=5000, now=100.0) == 5000


@given(st.lists(st.floats(0, 3), max_size=200))
def test_never_more_than_the_burst_and_the_rate(pauses: list[float]) -> None:
    """AD6: in any stretch of time at most ``burst + qps * seconds`` requests are served."""
    subject, now, count = throttle(), 100.0, 0
    for pause in pauses:
        now += pause
        count += served(subject, user(), asking("update"), times=2, now=now)
        assert count <= 3 + 2 * (now - 100.0) + 1e-6


@given(
    taken=st.lists(
        st.tuples(st.sampled_from(["get", "create", "watch"]), st.integers(1, 8), st.floats(0, 20)), max_size=20
    )
)
def test_what_is_said_to_be_left_is_left(taken: list[tuple[str, int, float]]) -> None:
    """AD6: as many requests as the headers say are served at once, not one more, and all of them after the reset."""
    subject, now = throttle(), 100.0
    for verb, times, passed in taken:
        served(subject, user(), asking(verb), times=times, now=now)
        now += passed
    for verb in ("get", "create"):
        what = asking(verb)
        left = subject.standing(user(), what, now)
        assert left is not None
        assert served(subject, user(), what, times=left.limit + 1, now=now) == left.remaining
        after = subject.standing(user(), what, now)
        assert after is not None
        assert after.remaining == 0
        full = subject.standing(user(), what, now + after.reset)
        assert full is not None
        assert full.remaining == full.limit
        assert after.window >= after.reset


def test_nothing_is_said_to_whom_nothing_limits() -> None:
    """AD6: nor to strangers, who would learn of each other."""
    subject = throttle()
    assert subject.standing(user("system", MASTERS), asking("get"), 100.0) is None
    assert subject.standing(user(None), asking("get"), 100.0) is None
    unlimited = throttle(replace(LIMITS, read=TokenBucket(0, 0)))
    assert unlimited.standing(user(), asking("get"), 100.0) is None


@given(processes=st.integers(1, 8), verb=st.sampled_from(["get", "create"]))
def test_the_processes_of_a_server_together_serve_no_more_than_is_configured(processes: int, verb: str) -> None:
    """AD6, up to one request for each process where there are more of them than the burst."""
    limits = replace(LIMITS, read=TokenBucket(16, 64), write=TokenBucket(8, 32))
    parts = [throttle(limits.shared_by(processes)) for _ in range(processes)]
    rate = limits.read if verb == "get" else limits.write
    counts = [served(part, user(), asking(verb), times=200, now=100.0) for part in parts]
    assert sum(counts) <= rate.burst
    assert min(counts) == rate.burst // processes
    again = [served(part, user(), asking(verb), times=200, now=101.0) for part in parts]
    assert sum(again) <= rate.qps + processes
