"""Claims on a tenant's quota for what is on clusters: never less than what is there, and none for ever (AD1, AD2, GW17)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from kube.quota.claims import PENDING_SECONDS, Claim, claim_from, difference, raised, settled
from kube.quota.quantities import parse_quantity

PODS = ("pods", "requests.cpu")


def claim(pods: int, cpu: int = 0, *, until: float = 0.0, ending: bool = False) -> Claim:
    used = {name: parse_quantity(str(number)) for name, number in zip(PODS, (pods, cpu), strict=True) if number}
    return Claim(namespace="acme-web", group="", plural="pods", used=used, until=until, ending=ending)


def test_a_claim_is_kept_and_read_as_it_is() -> None:
    for each in (claim(1, 2, until=17.5), claim(1, ending=True), claim(0)):
        assert claim_from(each.as_body("u1")) == each


def test_a_write_raises_a_claim_and_never_lowers_it() -> None:
    """What is admitted may be refused by another plug-in later: then the object is what it was."""
    wanted = claim(1, 3, until=200)
    assert raised(None, wanted) == wanted
    assert raised(claim(1, 2), wanted) == wanted
    assert raised(claim(1, 4), wanted) is None
    assert raised(claim(1, 3), wanted) is None


def test_what_was_seen_is_claimed_as_it_is_and_what_was_not_goes_once_it_can_no_longer_come() -> None:
    claims = {"seen": claim(1, 1, until=100), "late": claim(1, 1, until=100), "gone": claim(1, 1, until=40)}
    changes = settled(claims, {"seen": claim(1, 1), "stranger": claim(1, 5)}, asked_at=50)
    assert changes == {"seen": claim(1, 1), "gone": None, "stranger": claim(1, 5)}
    assert settled({"late": claims["late"]}, {}, asked_at=99.9) == {}
    assert settled({"late": claims["late"]}, {}, asked_at=100) == {"late": None}


def test_an_object_seen_as_it_was_before_a_change_keeps_what_the_change_has_claimed() -> None:
    grown = {"u": claim(1, 4, until=100)}
    assert settled(grown, {"u": claim(1, 2)}, asked_at=50) == {}
    assert settled(grown, {"u": claim(1, 2)}, asked_at=100) == {"u": claim(1, 2)}
    assert settled(grown, {"u": claim(1, 4)}, asked_at=50) == {"u": claim(1, 4)}


def test_what_was_asked_to_end_is_looked_at_once() -> None:
    assert settled({"u": claim(1, ending=True)}, {"u": claim(1)}, asked_at=1) == {"u": claim(1)}
    assert settled({"u": claim(1, until=9, ending=True)}, {}, asked_at=1) == {"u": claim(1, until=9)}
    assert settled({"u": claim(1)}, {"u": claim(1)}, asked_at=1) == {}


def test_what_changes_is_told_by_name() -> None:
    assert difference(None, claim(1, 2)) == claim(1, 2).used
    assert difference(claim(1, 2), claim(1, 5)) == {"requests.cpu": parse_quantity("3")}
    assert difference(claim(1), None) == {"pods": parse_quantity("-1")}


@dataclass
class _Cluster:
    """Objects that are written some time after they were admitted, or never."""

    there: dict[str, Claim] = field(default_factory=dict)
    coming: dict[str, tuple[float, Claim]] = field(default_factory=dict)

    def until(self, now: float) -> None:
        for uid, (moment, what) in list(self.coming.items()):
            if moment <= now:
                self.there[uid] = what
                del self.coming[uid]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["write", "refused", "delete", "look"]),
            st.sampled_from("abc"),
            st.integers(1, 5),
            st.floats(0, PENDING_SECONDS - 1),
            st.floats(0, 90),
        ),
        max_size=40,
    )
)
def test_at_every_moment_as_much_is_claimed_as_is_there_and_in_the_end_no_more(
    steps: list[tuple[str, str, int, float, float]],
) -> None:
    """Writes that take effect late or never, deletions and looks, in any order."""
    now, cluster, claims = 1000.0, _Cluster(), {}

    def look() -> None:
        for uid, change in settled(claims, dict(cluster.there), asked_at=now).items():
            claims.pop(uid, None)
            if change is not None:
                claims[uid] = change

    for what, uid, cpu, delay, pause in steps:
        now += pause
        cluster.until(now)
        if what in ("write", "refused"):
            after = raised(claims.get(uid), claim(1, cpu, until=now + PENDING_SECONDS))
            claims[uid] = after or claims[uid]
            if what == "write" and uid not in cluster.coming:
                cluster.coming[uid] = (now + delay, claim(1, cpu))
        elif what == "delete":
            cluster.there.pop(uid, None)
        else:
            look()
        for each, found in cluster.there.items():
            assert raised(claims[each], found) is None, each
    now += PENDING_SECONDS
    cluster.until(now)
    look()
    assert claims == cluster.there
