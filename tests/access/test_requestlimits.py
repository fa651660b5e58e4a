"""Tenants' request rates (AD6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.authentication import clusterwebhooks
from access.requestlimits import RateLimited, TenantThrottle
from kube.authentication.identity import MASTERS, Principal
from kube.requests.ratelimits import Limits, most_generous, read_settings
from kube.requests.rateshares import RESERVE, RateShares
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import TooManyRequests
from kube.requests.tokenbuckets import TokenBucket

LIMITS = Limits(
    read=TokenBucket(10, 20), write=TokenBucket(2, 3), watch=TokenBucket(1, 2), open_watches=2, person_share=100
)


def user(tenant: str | None = "acme", *groups: str, name: str = "jane") -> Principal:
    return Principal(name=name, tenant=tenant, groups=groups, authenticator="test")


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
    return TenantThrottle(limits, lambda *_: open_watches)


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
    with pytest.raises(RateLimited) as refusal:
        subject.take(user(), asking("create"), 100.0)
    assert (refusal.value.code, refusal.value.reason, refusal.value.retry_after) == (429, "TooManyRequests", 1)
    said = refusal.value.decision
    assert (said.allowed, said.step, said.rule) == (False, "requestlimits", "write requests of the tenant")
    assert said.reason == refusal.value.message


def pauses(subject: TenantThrottle, who: Principal, *moments: float) -> list[float]:
    found = []
    for moment in moments:
        with pytest.raises(RateLimited) as refusal:
            subject.take(who, asking("get"), moment)
        found.append(refusal.value.pause)
    return found


def test_who_asks_again_before_the_time_waits_for_the_answer_and_who_waited_does_not() -> None:
    """AD6: so a flood is no quicker than what everybody is told, however often its connections could ask."""
    subject = throttle(replace(LIMITS, read=TokenBucket(0.1, 1), person_share=50))
    subject.take(user(), asking("get"), 100.0)
    assert pauses(subject, user(), 100.0, 100.0, 105.0, 119.75) == [0.0, 1.0, 1.0, 0.25]
    assert pauses(subject, user(name="joe"), 100.5) == [0.0]
    subject = throttle(replace(LIMITS, read=TokenBucket(1, 1)))
    for moment in (100.0, 101.5, 103.0):
        subject.take(user(), asking("get"), moment)
        assert pauses(subject, user(), moment, moment + 0.25) == [0.0, 0.75]
    subject.take(user("umbrella"), asking("get"), 103.0)


@pytest.mark.parametrize("verb", ["get", "watch"])
def test_a_flood_waits_whatever_names_it_comes_by(verb: str) -> None:
    """AD6: whoever may act as others, or make accounts, has as many names as it likes. What is the tenant's, all wait for."""
    limits = replace(LIMITS, read=TokenBucket(0.1, 1), watch=TokenBucket(1, 100))
    subject = throttle(limits, open_watches=2 if verb == "watch" else 0)
    if verb == "get":
        subject.take(user(), asking(verb), 100.0)
    found = []
    for number in range(1000):
        with pytest.raises(RateLimited) as refusal:
            subject.take(user(name=f"robot-{number}"), asking(verb), 100.0)
        found.append(refusal.value.pause)
    assert found == [0.0] + [1.0] * 999
    assert len(subject._told) == 1


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


@pytest.mark.parametrize("group", ["authentication.k8s.io", "authorization.k8s.io"])
def test_what_tenants_keep_in_a_group_of_questions_is_written_like_anything_else(group: str) -> None:
    """AD6: they may define kinds there."""
    subject = throttle()
    assert served(subject, user(), asking("create", "widgets", group), times=50, now=100.0) == 3
    assert served(subject, user(), asking("patch", "widgets", group), times=50, now=100.0) == 0
    assert served(subject, user(), asking("get", "widgets", group), times=50, now=100.0) == 20


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
        # A moment in floating point may be a little before itself.
        full = subject.standing(user(), what, now + after.reset + 1e-6)
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


class Sharing:
    """Processes that share the rates, each telling the others in its turn."""

    def __init__(self, processes: int, limits: Limits = LIMITS) -> None:
        self.shares = [RateShares(str(number), processes) for number in range(processes)]
        self.throttles = [TenantThrottle(limits, lambda *_: 0, share.part) for share in self.shares]
        self.tell(0.0)

    def tell(self, now: float, seconds: float = 2.0) -> None:
        for said, speaker in zip(self.shares, self.throttles, strict=True):
            wanted = said.worth_telling(speaker.wanted(seconds))
            for heard, throttle in zip(self.shares, self.throttles, strict=True):
                throttle.share_anew(heard.hear(said.process, wanted, now), now)


@given(processes=st.integers(1, 8), verb=st.sampled_from(["get", "create"]))
def test_the_processes_of_a_server_together_serve_no_more_than_is_configured(processes: int, verb: str) -> None:
    """AD6, up to one request for each process where there are more of them than the burst."""
    limits = replace(LIMITS, read=TokenBucket(16, 64), write=TokenBucket(8, 32))
    parts = Sharing(processes, limits).throttles
    rate = limits.read if verb == "get" else limits.write
    counts = [served(part, user(), asking(verb), times=200, now=100.0) for part in parts]
    assert sum(counts) <= rate.burst
    assert min(counts) == rate.burst // processes
    again = [served(part, user(), asking(verb), times=200, now=101.0) for part in parts]
    assert sum(again) <= rate.qps + processes


@given(
    processes=st.integers(1, 6),
    asked=st.lists(st.lists(st.integers(0, 60), min_size=6, max_size=6), min_size=1, max_size=20),
)
def test_wherever_it_is_asked_all_processes_together_serve_no_more_than_the_rate(
    processes: int, asked: list[list[int]]
) -> None:
    """AD6: however what is asked moves between them, and up to one request of each as often as its part is less than that."""
    sharing = Sharing(processes, replace(LIMITS, read=TokenBucket(10, 40)))
    now, count = 100.0, 0
    for turn in asked:
        for _ in range(4):
            now += 0.5
            for subject, times in zip(sharing.throttles, turn, strict=False):
                count += served(subject, user(), asking("get"), times=times, now=now)
        assert count <= 40 + 10 * (now - 100.0) + processes
        sharing.tell(now)


@given(processes=st.integers(2, 8), before=st.integers(0, 40))
def test_a_tenant_of_one_connection_has_nearly_the_whole_rate(processes: int, before: int) -> None:
    """AD6: its requests all come to one process; two reports later nothing of it lies idle but the reserve."""
    sharing = Sharing(processes, replace(LIMITS, read=TokenBucket(100, 400)))
    busy, now = sharing.throttles[0], 100.0
    served(sharing.throttles[-1], user(), asking("get"), times=before, now=now)
    for _ in range(2):
        served(busy, user(), asking("get"), times=1000, now=now)
        now += 2.0
        sharing.tell(now)
    served(busy, user(), asking("get"), times=1000, now=now)
    assert served(busy, user(), asking("get"), times=1000, now=now + 2.0) >= (1 - RESERVE) * 200
    said = busy.standing(user(), asking("get"), now + 2.0)
    assert said is not None and said.limit >= (1 - RESERVE) * 400
    # Whoever comes to another one meanwhile is served there, and has its part when that was told.
    assert served(sharing.throttles[1], user(), asking("get"), times=1, now=now) == 1


def test_a_person_of_one_connection_has_nearly_all_that_a_person_may() -> None:
    """AD6: others of the tenant are busy at another process."""
    sharing = Sharing(2, replace(LIMITS, read=TokenBucket(100, 100), person_share=40))
    now = 100.0
    for _ in range(3):
        served(sharing.throttles[0], user(name="jane"), asking("get"), times=1000, now=now)
        served(sharing.throttles[1], user(name="joe"), asking("get"), times=1000, now=now)
        now += 2.0
        sharing.tell(now)
    for subject, name in zip(sharing.throttles, ("jane", "joe"), strict=True):
        said = subject.standing(user(name=name), asking("get"), now)
        assert said is not None
        assert (said.name, said.limit) == ("person-read", 38)
        assert 36 <= served(subject, user(name=name), asking("get"), times=1000, now=now) <= 40


def test_what_costs_more_than_a_part_holds_is_paid_in_full() -> None:
    """AD6: one request passes wherever it comes, and its price is owed as it would be to the whole rate."""
    sharing = Sharing(4, replace(LIMITS, read=TokenBucket(8, 8)))
    subject = sharing.throttles[0]
    subject.take(user(), asking("get"), 100.0)
    subject.charge(user(), asking("get"), 9, 100.0)
    with pytest.raises(RateLimited) as refusal:
        subject.take(user(), asking("get"), 100.0)
    assert refusal.value.retry_after == 5, "2 - 1 - 9 = -8, at 2 a second, and one more"


SHARED = replace(LIMITS, read=TokenBucket(10, 20), person_share=25)


ADMIT = RequestInfo(method="POST", path="/webhooks/c/admit", cluster="root", tenant="system", verb="post")


def asking_about(tenant: str | None, cluster: str) -> Principal:
    return Principal(name=f"tenantry:cluster:{cluster}", tenant=tenant, authenticator=clusterwebhooks.NAME)


def test_what_a_cluster_asks_about_a_tenant_takes_nothing_from_the_tenant_nor_from_other_clusters() -> None:
    """AD6, GW17: one that asks about what is heavy without end waits; the tenant's writes and others' reviews do not."""
    subject = throttle(replace(LIMITS, write=TokenBucket(2, 8)))
    evil, good = asking_about("acme", "evil"), asking_about("acme", "good")
    subject.charge(evil, ADMIT, 100, 100.0)
    for _ in range(3):
        subject.charge(evil, ADMIT, 100, 100.0, further=True)
        with pytest.raises(RateLimited, match="too much work") as refused:
            subject.charge(evil, ADMIT, 1, 100.0)
        # As much as the tenant itself would wait: a cluster is no way around its rate.
        assert refused.value.retry_after == 4
    subject.charge(good, ADMIT, 2, 100.0)
    subject.charge(asking_about("umbrella", "evil"), ADMIT, 2, 100.0)
    assert served(subject, user(), asking("create"), times=50, now=100.0) == 8
    # Nor the other way round.
    subject.charge(good, ADMIT, 2, 100.0)
    subject.charge(evil, ADMIT, 2, 104.5)


def test_what_a_cluster_asks_about_nobody_is_charged_to_nobody() -> None:
    """AD6."""
    subject = throttle()
    for _ in range(10):
        subject.charge(asking_about(None, "evil"), ADMIT, 1000, 100.0)
    assert subject.wanted(2.0) == {}


def test_all_processes_together_take_of_a_cluster_no_more_than_its_part() -> None:
    """AD6: as of a tenant, whichever of them it asks."""
    sharing = Sharing(4, replace(LIMITS, write=TokenBucket(10, 40)))
    evil, now, taken = asking_about("acme", "evil"), 100.0, 0
    for _ in range(30):
        for _ in range(4):
            now += 0.5
            for each in sharing.throttles:
                for _ in range(20):
                    try:
                        each.charge(evil, ADMIT, 1, now)
                    except TooManyRequests:
                        break
                    taken += 1
        sharing.tell(now)
    # Each process lets one in that owes what it costs.
    assert taken <= 40 + 10 * (now - 100.0) + 4 * 30 * 4


def test_one_members_flood_leaves_the_others_of_the_tenant_served() -> None:
    """AD6."""
    subject = throttle(SHARED)
    assert served(subject, user(name="flood"), asking("get"), times=1000, now=100.0) == 5
    assert served(subject, user(name="jane"), asking("get"), times=5, now=100.0) == 5
    with pytest.raises(TooManyRequests) as refusal:
        subject.take(user(name="flood"), asking("get"), 100.0)
    assert "you have made too many requests" in refusal.value.message
    for name in ("a", "b", "c"):
        served(subject, user(name=name), asking("get"), times=50, now=100.0)
    with pytest.raises(TooManyRequests) as refusal:
        subject.take(user(name="late"), asking("get"), 100.0)
    assert "the tenant has made too many requests" in refusal.value.message


@given(
    asked=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.floats(0, 3)), max_size=30),
    share=st.integers(1, 100),
)
def test_what_is_said_to_be_left_to_a_person_is_left(asked: list[tuple[str, int, float]], share: int) -> None:
    """AD6: whoever else of the tenant has taken from it."""
    subject, now, count = throttle(replace(LIMITS, person_share=share)), 100.0, 0
    for name, times, passed in asked:
        count += served(subject, user(name=name), asking("get"), times=times, now=now)
        assert count <= 20 + 10 * (now - 100.0) + 1e-6
        now += passed
    for name in "abc":
        left = subject.standing(user(name=name), asking("get"), now)
        assert left is not None
        assert served(subject, user(name=name), asking("get"), times=21, now=now) == left.remaining
        assert left.name.endswith("-read")


def test_the_owed_price_of_one_member_does_not_hold_up_the_others() -> None:
    """AD6."""
    subject = throttle(SHARED)
    subject.charge(user(name="flood"), asking("get"), 9, 100.0)
    with pytest.raises(TooManyRequests):
        subject.take(user(name="flood"), asking("get"), 100.0)
    subject.take(user(name="jane"), asking("get"), 100.0)


def test_a_member_leaves_streams_to_the_others() -> None:
    """AD6."""
    subject = TenantThrottle(
        replace(LIMITS, open_watches=10, person_share=50), lambda _, person: {"": 6, "flood": 5, "jane": 1}[person]
    )
    subject.take(user(name="jane"), asking("watch"), 100.0)
    with pytest.raises(TooManyRequests):
        subject.take(user(name="flood"), asking("watch"), 100.0)


def test_a_tenants_own_limits_hold_in_place_of_the_servers() -> None:
    """AD6: and what it has used stays used."""
    subject = throttle()
    assert served(subject, user(), asking("create"), times=50, now=100.0) == 3
    subject.bound("acme", LIMITS.with_settings({"write_qps": 100, "write_burst": 200}))
    assert subject.is_bound("acme") and not subject.is_bound("globex")
    assert served(subject, user(), asking("create"), times=500, now=101.0) == 100
    assert served(subject, user("globex"), asking("create"), times=50, now=101.0) == 3
    subject.forget("acme")
    assert served(subject, user(), asking("create"), times=500, now=200.0) == 3


settings_of_tiers = st.fixed_dictionaries(
    {},
    optional={
        "read_qps": st.integers(0, 1000),
        "read_burst": st.integers(1, 1000),
        "open_watches": st.integers(0, 1000),
        "person_share": st.integers(1, 100),
    },
)


@given(st.lists(settings_of_tiers, min_size=1, max_size=4))
def test_of_several_tiers_a_tenant_has_the_most_generous(tiers: list[dict[str, int]]) -> None:
    """AD6: what any of them would serve is served."""
    each = [LIMITS.with_settings(read_settings(settings)) for settings in tiers]
    limits = most_generous(each)
    most = [served(throttle(one), user(), asking("get"), times=1100, now=100.0) for one in each]
    assert served(throttle(limits), user(), asking("get"), times=1100, now=100.0) >= max(most)
    assert limits.open_watches == (
        0 if any(not one.open_watches for one in each) else max(o.open_watches for o in each)
    )


@pytest.mark.parametrize(
    "wrong",
    [{"reads": 1}, {"read_qps": -1}, {"read_qps": True}, {"read_burst": 0}, {"person_share": 0}, {"person_share": 101}]
    + [{"write_qps": text} for text in ("", "many", "1.5", "²", "9" * 30)],
)
def test_what_is_no_limit_is_refused_by_its_name(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        read_settings(wrong)
