"""What a tenant holds in a placed namespace, step by step: nothing is forgotten, and nothing is lost for ever (AD1, AD2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from kube.quota.placedusage import Counted, PlacedUsage, placed_usage_body, read_placed_usage
from kube.quota.quantities import Quantity, parse_quantity
from kube.quota.reservations import Reservation


def pods(number: int) -> dict[str, Quantity]:
    return {"pods": parse_quantity(str(number))}


def taken(usage: PlacedUsage) -> int:
    return usage.total.get("pods", Quantity()).value()


def there(name: str, uid: str, version: str = "1", number: int = 1) -> Counted:
    return Counted(f"/pods/{name}", uid, version, pods(number))


def door(what: str = "p", number: int = 1, version: str = "") -> Reservation:
    return Reservation(amounts=pods(number), until=100.0, what=f"/pods/{what}", version=version)


def asked(uid: str, version: str = "", *, until: float = 100.0, name: str = "p", number: int = 1) -> Reservation:
    return Reservation(amounts=pods(number), until=until, what=f"/pods/{name}", uid=uid, version=version)


def as_kept(usage: PlacedUsage) -> PlacedUsage:
    """What is read again of what is kept: of the namespace, and of each write on its way."""
    read = read_placed_usage(placed_usage_body("n", usage))
    for request, each in usage.reserved.items():
        read = read.with_reservation(request, Reservation.read(each.body()))
    return read


def look(usage: PlacedUsage, *found: Counted, at: float = 9.0) -> PlacedUsage:
    return usage.recounted(found, usage, at)


def test_what_makes_an_object_by_its_name_is_not_counted_beside_it() -> None:
    usage = PlacedUsage().with_reservation("a", door(number=2))
    assert taken(look(usage)) == 2
    assert taken(look(usage, there("p", "u", number=2))) == 2
    assert taken(look(usage, there("p", "u", number=3))) == taken(look(usage, there("p", "u", number=1))) + 1 == 3
    assert taken(look(usage, there("other", "u", number=2))) == 4
    seen = look(usage, there("p", "u", number=2))
    assert taken(seen.confirmed("a")) == 2
    assert taken(seen.without("a")) == 2, "somebody else has made it"
    assert taken(look(usage).without("a")) == 0
    assert taken(look(usage, there("p", "u", number=2), at=101.0)) == 2


def test_what_changes_an_object_counts_beside_it_until_it_is_done() -> None:
    usage = PlacedUsage(counted=pods(1)).with_reservation("a", door(version="7"))
    assert taken(look(usage, there("p", "u", "8", 2))) == 3
    assert taken(look(usage.confirmed("a"), there("p", "u", "8", 2))) == 2
    made_up = PlacedUsage().with_reservation("a", door("web-*"))
    assert taken(look(made_up, there("web-x7k2", "u"))) == 2
    assert taken(look(made_up.confirmed("a"), there("web-x7k2", "u"))) == 1


def test_what_is_done_while_somebody_looks_stays_until_the_next_look() -> None:
    """A look may have come before it."""
    before = PlacedUsage().with_reservation("a", door())
    after = before.confirmed("a")
    assert taken(after.recounted([], before, 9.0)) == taken(after.recounted([there("p", "u")], before, 9.0)) == 1
    assert taken(look(after)) == 0, "it is gone again"


def test_what_a_cluster_has_asked_about_is_over_once_it_was_seen() -> None:
    """GW17: by its UID, and for a change by another version than the one that it replaces."""
    usage = PlacedUsage().with_reservation("u/", asked("u")).with_reservation("v/7", asked("v", "7"))
    assert as_kept(usage) == usage
    assert taken(look(usage, there("q", "v", "7"))) == 3
    assert taken(look(usage, there("p", "u"), there("q", "v", "7"))) == 3
    assert taken(look(usage, there("p", "u"), there("q", "v", "8", 2))) == 3
    assert look(usage, at=101.0).total == {}
    assert usage.ends == 100.0


def test_what_ends_before_anybody_looked_is_given_back_by_the_next_look() -> None:
    """GW17: the cluster asks about its deletion, so it was there."""
    usage = PlacedUsage().with_reservation("u/", asked("u")).with_reservation("v/", asked("v"))
    assert usage.found("u").total == usage.total == usage.found("").total
    assert taken(look(usage.found("u"))) == 1, "what the other one takes"
    changing = usage.with_reservation("u/7", asked("u", "7")).found("u")
    assert taken(look(changing)) == 2, "a change that is on its way is not seen by that"


def test_what_the_door_has_taken_goes_over_to_the_object_that_it_is_for() -> None:
    usage = PlacedUsage().with_reservation("request", door("web-*", 2)).with_reservation("u/", asked("u"))
    assert usage.under_way(asked("x", name="web-x7k2")) == "request"
    assert usage.under_way(asked("x", name="web-x7k2", number=3)) is None, "it has taken less"
    assert usage.under_way(asked("x", "7", name="web-x7k2")) is None, "it changes nothing"
    assert usage.under_way(asked("x")) is None, "the cluster has asked about that one already"
    for made_up, write in ((True, asked("x", name="web-x7k2", until=50.0)), (False, asked("x", name="q", until=50.0))):
        before = usage if made_up else usage.with_reservation("request", door("q", 2))
        over = before.passed_on("request", write)
        assert over.total == before.total and over.asked_again(write) == over and over.ends == 50.0
        assert taken(look(over, there(write.what.removeprefix("/pods/"), "x", number=2))) == 3
        if not made_up:
            assert taken(over.without("request")) == 1, "what the cluster refuses is given back at once"


def test_of_a_name_that_the_cluster_makes_up_nobody_knows_whose_it_is() -> None:
    """AD2: the account makes one past the door that begins alike, and is asked about first: it stays, whatever the door hears."""
    usage = PlacedUsage().with_reservation("request", door("web-*"))
    other = usage.passed_on("request", asked("x", name="web-zzz"))
    full = other.untied(asked("y", name="web-abcd"))
    assert taken(full.without("request")) == taken(full.confirmed("request")) == 1
    assert taken(look(full.confirmed("request"))) == 1, "it may be made yet"
    assert taken(look(full.without("request"), there("web-zzz", "x"))) == 1
    assert look(full, at=101.0).total == {}


def test_of_changes_of_one_version_the_most_is_taken_whoever_makes_it() -> None:
    """GW17: one of them is made at most, and nobody knows which; one that the door has sent gives nothing back."""
    before = PlacedUsage().with_reservation("request", door(version="7"))
    usage = before.passed_on("request", asked("u", "7"))
    assert before.asked_again(asked("u", "7")) is usage.asked_again(asked("u", "8")) is None
    again = usage.asked_again(asked("u", "7", number=5, until=150.0))
    assert again is not None
    assert taken(again) == taken(again.without("request")) == 5 and again.ends == 150.0
    less = again.asked_again(asked("u", "7", until=120.0))
    assert less is not None and taken(less) == 5 and less.ends == 150.0
    assert taken(look(less, there("p", "u", "8", 3))) == 3


def test_of_two_objects_with_one_name_nobody_knows_whose_request_makes_which() -> None:
    """So neither is given back before it was looked for."""
    usage = PlacedUsage().with_reservation("request", door()).passed_on("request", asked("u"))
    both = usage.untied(asked("v")).with_reservation("v/", asked("v"))
    assert taken(both.without("request")) == taken(both) == 2
    assert taken(look(both, there("p", "u"))) == 2
    assert taken(look(both, there("p", "u"), at=101.0)) == 1
    assert usage.untied(asked("u")) == usage


def test_what_is_done_does_not_pile_up_where_nobody_can_look() -> None:
    usage = PlacedUsage()
    for number in range(1000):
        usage = usage.with_reservation(str(number), door(str(number))).confirmed(str(number))
        assert taken(usage) == number + 1 and len(usage.reserved) < 100
    assert usage.turn, "whoever looks meanwhile begins again"
    assert usage.confirmed("no such") == usage.without("no such") == usage


@dataclass
class Write:
    """A request that makes an object, at the door or past it, and how far it has come."""

    name: str
    number: int
    uid: str
    until: float
    key: str
    is_asked_about: bool
    by_account: bool
    """Whether it may be the door's, by whom it says that it is of."""
    at_door: bool
    delivered: bool = False
    heard: bool = False
    made: bool | None = None


@dataclass
class World:
    """A placed namespace in a cluster, and what is known of it."""

    usage: PlacedUsage = field(default_factory=PlacedUsage)
    objects: dict[str, Counted] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    seen: tuple[PlacedUsage, Sequence[Counted], float] | None = None
    now: float = 0.0

    def begin(self, name: str, number: int, *, at_door: bool, asks: bool, by_account: bool = False) -> None:
        """One that makes an object of a name, or, where that ends in ``*``, of one that begins so."""
        uid = f"u{len(self.writes)}"
        made_up = name.replace("*", uid)
        key = uid if at_door else f"{uid}/"
        write = Write(made_up, number, uid, self.now + 100, key, asks, at_door or by_account, at_door)
        if at_door:
            self.usage = self.usage.with_reservation(
                uid, Reservation(amounts=pods(number), until=write.until, what=f"/pods/{name}")
            )
        else:
            self.ask(write)
        self.writes.append(write)

    def ask(self, write: Write) -> None:
        what = asked(write.uid, until=write.until, name=write.name, number=write.number)
        again = self.usage.asked_again(what)
        if again is not None:
            self.usage = again
            return
        request = self.usage.under_way(what) if write.by_account else None
        if request is not None:
            self.usage = self.usage.passed_on(request, what)
        else:
            self.usage = self.usage.untied(what).with_reservation(f"{write.uid}/", what)

    def deliver(self, write: Write, refused: bool, *, at_once: bool = False) -> None:
        """The cluster has asked, and refuses or makes it, in time; or it refuses it before it has asked."""
        if write.delivered or self.now > write.until:
            return
        if write.is_asked_about and not at_once:
            self.ask(write)
        write.delivered = True
        what = f"/pods/{write.name}"
        write.made = not refused and all(each.what != what for each in self.objects.values())
        if write.made:
            self.objects[write.uid] = Counted(what, write.uid, "1", pods(write.number))

    def answer(self, write: Write) -> None:
        """The door hears of it, once."""
        write.heard = True
        if write.at_door and write.made is not None:
            self.usage = self.usage.confirmed(write.uid) if write.made else self.usage.without(write.uid)

    def list(self) -> None:
        self.seen = self.usage, list(self.objects.values()), self.now

    def count(self) -> None:
        """What somebody has listed is put in place of what was counted."""
        if self.seen is not None and self.seen[0].turn == self.usage.turn:
            before, found, began = self.seen
            counted = self.usage.recounted(found, before, began)
            self.usage = PlacedUsage(counted=counted.counted, reserved=counted.reserved, turn=self.usage.turn + 1)
        self.seen = None

    def check(self) -> None:
        assert taken(self.usage) >= sum(each.used["pods"].value() for each in self.objects.values())
        assert as_kept(self.usage) == self.usage
        assert self.usage.reserved.total == as_kept(self.usage).reserved.total


DEEDS = [
    "door",
    "asking door",
    "controller",
    "ask",
    "make",
    "make",
    "refuse",
    "answer",
    "answer",
    "delete",
    "list",
    "count",
    "count",
]


MADE_UP = ["door of made-up names", "account", "make", "refuse at once", "answer"]
"""Where the cluster makes up names, and others than the door may write what it could have sent."""

Step = tuple[str, int, int, float]
"""What is done, to which of several, how large it is, and how long after what was done before."""


@given(st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 3), st.integers(1, 3), st.floats(0, 40)), max_size=60))
def test_never_less_is_taken_than_is_there_whoever_writes_and_looks(steps: list[Step]) -> None:
    """AD2: however late a cluster writes, answers and is listed, in any order; in the end exactly what is there."""
    play(steps)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.sampled_from(MADE_UP), st.integers(0, 1), st.just(1), st.just(1.0)), min_size=20, max_size=60)
)
def test_whatever_names_a_cluster_makes_up_never_less_is_taken_than_is_there(steps: list[Step]) -> None:
    """AD2: nobody knows which of those that begin alike is whose; the door hears of its own alone."""
    play(steps)


def play(steps: list[Step]) -> None:
    """One step after the other, and at each what is taken is no less than what is there."""
    world = World()
    for deed, which, number, pause in steps:
        world.now += pause
        name, open_ = "abcd"[which], [each for each in world.writes if not each.delivered]
        unheard = [each for each in world.writes if each.delivered and not each.heard]
        if deed in ("door", "asking door", "controller"):
            world.begin(name, number, at_door=deed != "controller", asks=deed == "asking door")
        elif deed in ("door of made-up names", "account"):
            world.begin(f"{name}-*", number, at_door=deed != "account", asks=True, by_account=True)
        elif deed == "ask" and (asking := [each for each in open_ if each.is_asked_about and world.now <= each.until]):
            world.ask(asking[which % len(asking)])
        elif deed in ("make", "refuse") and open_:
            world.deliver(open_[which % len(open_)], refused=deed == "refuse")
        elif deed == "refuse at once" and open_:
            world.deliver(open_[which % len(open_)], refused=True, at_once=True)
        elif deed == "answer" and unheard:
            world.answer(unheard[which % len(unheard)])
        elif deed == "delete" and world.objects:
            del world.objects[sorted(world.objects)[which % len(world.objects)]]
        elif deed == "list":
            world.list()
        elif deed == "count":
            world.count()
        world.check()
    world.now += 101
    world.list()
    world.count()
    assert taken(world.usage) == sum(each.used["pods"].value() for each in world.objects.values())
    assert not world.usage.reserved


@given(st.lists(st.tuples(st.sampled_from(["made", "refused"]), st.integers(1, 3)), max_size=20))
def test_what_is_answered_is_exact_with_the_next_look(writes: list[tuple[str, int]]) -> None:
    """Nobody waits for the end of a reservation whose request was answered, whether the cluster asks or not."""
    world = World()
    for number, (outcome, amount) in enumerate(writes):
        world.begin(f"p{number}", amount, at_door=True, asks=number % 2 == 0)
        world.deliver(world.writes[-1], refused=outcome == "refused")
        world.list()
        world.count()
        world.answer(world.writes[-1])
        world.check()
        assert taken(world.usage) == sum(each.used["pods"].value() for each in world.objects.values())
