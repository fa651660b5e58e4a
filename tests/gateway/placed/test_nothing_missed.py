"""Whoever follows a tenant's objects is told what a client of the cluster itself is told, whatever breaks (GW4, GW5, TS15).

One file of the product; a stored namespace, one on a cluster that nothing happens to and one on a cluster that all happens
to. Those who follow the last one: an informer that lists, one that has its watch begin with what is there, the official
client's and lightkube. Two more follow all namespaces at once. What is told is compared, namespace by namespace, event by
event, with what a client was told that is not behind anything that breaks: at the clusters themselves, and for the stored
namespace at another API server.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import TestCluster
from tests.gateway.callers import eventually
from tests.gateway.conftest import Server, stop
from tests.gateway.placed.breaking import Breakable, Relay, administrator, breakable, kill, status_of
from tests.gateway.placed.conftest import Door
from tests.gateway.placed.followers import PAUSE, SELECTOR, Follower, Light, Official, Writer, made, path
from tests.gateway.placed.informer import Event, Informer

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 240.0
"""Where a test gives up on clusters, whatever the machine."""
LARGE = "x" * 300_000
"""More than passes at once."""

MERGED = ("all lists", "all streams")


@dataclass
class House:
    """Who writes in a tenant's namespaces, and who follows."""

    place: Breakable
    direct: dict[str, Informer] = field(default_factory=dict)
    """By namespace."""
    followers: dict[str, Follower] = field(default_factory=dict)

    def __post_init__(self) -> None:
        place = self.place
        self.writer = Writer(place.caller, [place.stored, place.calm, place.hit], PATIENCE)

    @contextmanager
    def following(self) -> Iterator[None]:
        place = self.place
        for name, caller in (
            (place.stored, place.here),
            (place.calm, administrator(place.door.cluster)),
            (place.hit, administrator(place.cluster)),
        ):
            self.direct[name] = Informer(caller, path(name), SELECTOR, streams=False)
        everywhere = "/api/v1/configmaps"
        self.followers = {
            "lists": Informer(place.caller, path(place.hit), SELECTOR, streams=False),
            "streams": Informer(place.caller, path(place.hit), SELECTOR, streams=True),
            "official": Official(place.file, place.hit),
            "lightkube": Light(place.file, place.hit),
            "all lists": Informer(place.caller, everywhere, SELECTOR, streams=False),
            "all streams": Informer(place.caller, everywhere, SELECTOR, streams=True),
        }
        everybody: list[Follower] = [*self.direct.values(), *self.followers.values()]
        for each in everybody:
            each.start()
        try:
            yield
        finally:
            leaving = [threading.Thread(target=each.stop, daemon=True) for each in everybody]
            for thread in leaving:
                thread.start()
            while any(thread.is_alive() for thread in leaving):
                # Who is told nothing sees that it is over once the connection is lost.
                place.doors.relay.lose()
                time.sleep(PAUSE)

    def namespaces(self, name: str) -> list[str]:
        return list(self.direct) if name in MERGED else [self.place.hit]

    def settle(self) -> None:
        """Until everybody knows the same, and that is what was written."""
        assert eventually(self._agree, PATIENCE), self.differences()

    def _agree(self) -> bool:
        words = {key: word for each in self.direct.values() for key, word in each.words().items()}
        words.pop((self.place.hit, "large"), None)
        return words == self.writer.words and not self.differences()

    def differences(self) -> dict[str, Any]:
        """What each of the followers knows otherwise than who asks where nothing breaks."""
        found = {}
        for name, each in self.followers.items():
            right = {key: now for space in self.namespaces(name) for key, now in self.direct[space].known().items()}
            if (known := each.known()) != right:
                found[name] = sorted(set(known.items()) ^ set(right.items()))
        return found

    def during(self, happens: Callable[[], None], anew: tuple[str, ...]) -> None:
        """While this happens everybody is told the same, but those that begin ``anew``: they know the same afterwards."""
        everybody: dict[str, Follower] = {**self.followers, **self.direct}
        before = {name: (len(each.told), each.counts["lists"]) for name, each in everybody.items()}
        happens()
        self.settle()
        lists = {name: each.counts["lists"] - before[name][1] for name, each in everybody.items()}
        assert [name for name, count in lists.items() if count and name not in anew] == [], lists
        for name, each in self.followers.items():
            for space in self.namespaces(name):
                if not lists[name] and not lists[space]:
                    right = told(self.direct[space], before[space][0], space)
                    assert told(each, before[name][0], space) == right, (name, space)

    def large(self) -> None:
        """One that a controller of the cluster makes, at the cluster, which is longer than what passes at once."""
        body = made("large", "large")
        body["data"]["much"] = LARGE
        answer = administrator(self.place.cluster).post(path(self.place.hit), body)
        assert answer.status == 201, answer.body


def told(follower: Follower, since: int, namespace: str) -> list[Event]:
    return [event for event in follower.told[since:] if event[0] == namespace]


@pytest.fixture
def place(
    new_door: Callable[[], Door],
    second: TestCluster,
    door_server: tuple[Server, str],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[Breakable]:
    with breakable(new_door, second, door_server, settings, monkeypatch, tmp_path) as found:
        yield found


@pytest.fixture
def house(place: Breakable) -> Iterator[House]:
    found = House(place)
    with found.following():
        found.writer.write(2)
        found.settle()
        yield found


def connection_lost(house: House) -> None:
    house.place.doors.relay.lose()


def cut_before_the_door(house: House) -> None:
    """In the midst of an event, for all who follow."""
    cut(house, house.place.doors.relay)


def cut_behind_the_door(house: House) -> None:
    cut(house, house.place.behind)


def cut(house: House, relay: Relay) -> None:
    relay.cut(len(house.followers), within=len(LARGE) // 3)
    house.large()
    assert eventually(lambda: relay.cuts == 0, PATIENCE)


def door_ends(house: House) -> None:
    house.place.doors.restart(stop)


def door_is_killed(house: House) -> None:
    house.place.doors.restart(kill)


def cluster_restarts(house: House) -> None:
    house.place.cluster.real.restart()


def workspace_is_suspended(house: House) -> None:
    """And opened again. What the cluster's own controllers do meanwhile is told afterwards."""
    place = house.place
    place.suspend()
    assert eventually(lambda: status_of(place.caller, path(place.hit)) == 403)
    assert eventually(lambda: place.hit not in {key[0] for key in house.followers["all lists"].known()})
    house.large()
    place.resume()


ANEW: dict[Callable[[House], None], tuple[str, ...] | None] = {
    connection_lost: (),
    cut_before_the_door: (),
    cut_behind_the_door: (),
    # The numbers of what is in several places are one process'.
    door_ends: MERGED,
    door_is_killed: MERGED,
    # Everybody may: of what was before, the cluster itself tells nobody who had not heard of its last change.
    cluster_restarts: None,
    # What is closed is not there for who follows all.
    workspace_is_suspended: MERGED,
}
"""Who begins anew then, as every client does that is told that its version has expired."""


@pytest.mark.parametrize("breaks", ANEW, ids=lambda breaks: breaks.__name__)
def test_nothing_is_missed_or_told_twice(house: House, breaks: Callable[[House], None]) -> None:
    anew = ANEW[breaks]
    everybody = (*house.followers, *house.direct)

    def broken() -> None:
        writing = threading.Thread(target=house.writer.write)
        writing.start()
        time.sleep(0.1)
        breaks(house)
        writing.join(PATIENCE)
        assert not writing.is_alive()
        # Who knows of this has come back.
        house.writer.write()

    house.during(lambda: house.writer.write(2), ())
    house.during(broken, everybody if anew is None else anew)
    house.during(lambda: house.writer.write(2), ())
    for each in (*house.direct.values(), *house.followers.values()):
        if isinstance(each, Informer):
            assert each.repeated == []
        else:
            events = [event[1:] for event in each.told]
            assert len(events) == len(set(events)) or each.counts["lists"] > 1


def test_watches_simply_end_with_the_door(place: Breakable) -> None:
    """As at a kube-apiserver that stops: an event of type ERROR is the end of some clients, and so is half an answer."""
    for namespace in (place.stored, place.hit):
        assert place.caller.post(path(namespace), made("there")).status == 201
    watches = [
        place.caller.open("GET", f"{at}?watch=true&labelSelector={SELECTOR}")
        for at in (path(place.stored), path(place.hit), "/api/v1/configmaps")
    ]
    assert [json.loads(watch.readline())["type"] for watch in watches] == ["ADDED"] * 3
    place.doors.restart(stop)
    for watch in watches:
        assert [json.loads(line)["type"] for line in watch.read().splitlines()] in ([], ["ADDED"])
        watch.connection.close()  # type: ignore[attr-defined]
