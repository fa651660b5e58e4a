"""Writes, reads and watches of API objects (TS4, P12): each acknowledged write is there once, in one order, for everybody."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from bench.campaign.checkers import Finding
from bench.campaign.history import Era, Event, History, identity_of

NOTICED_SECONDS = 2.0
"""How long after a restore a server may still answer of what was there before."""

State = dict[tuple[str, str], str]
"""The identity of the write that each object is of, by space and name."""


@dataclass(frozen=True, slots=True)
class _Kept:
    revision: int
    key: tuple[str, str]


def check(history: History, rows: State) -> list[Finding]:
    """All of it; ``rows`` is what is there in the end."""
    return [
        *_logs(history, rows),
        *_acknowledged(history),
        *_watched(history),
        *(finding for number in range(len(history.eras)) for finding in _read(history, number)),
    ]


def _amid_a_restore(history: History, begun: float) -> bool:
    """Whether it is of the time in which servers find out that another history has begun."""
    return any(
        era.until <= begun <= restore.ended + NOTICED_SECONDS
        for era, restore in zip(history.eras, history.restores, strict=False)
    )


def _span(history: History, era: int) -> tuple[float, float]:
    """From when to when what is acknowledged must be in this era's log."""
    begin = history.restores[era - 1].ended if era else 0.0
    return begin, history.eras[era].until


def _logs(history: History, rows: State) -> Iterator[Finding]:
    """Each change is built on what was there before it; what is there in the end is what the last one has left."""
    state: State = {}
    for number, era in enumerate(history.eras):
        if number:
            state = _state_at(history.eras[number - 1], history.restores[number - 1].revision)
        yield from _replay(era, state)
    if state != rows:
        different = sorted(key for key in state.keys() | rows.keys() if state.get(key) != rows.get(key))
        yield Finding("lost", f"the log says otherwise than the objects of {different[:5]}")


def _state_at(era: Era, revision: int) -> State:
    state: State = {}
    for event in era.log:
        if event.revision <= revision:
            _apply(state, event)
    return state


def _apply(state: State, event: Event) -> None:
    if event.type == "DELETED":
        state.pop((event.space, event.name), None)
    else:
        state[event.space, event.name] = identity_of(orjson.loads(event.data))


def _replay(era: Era, state: State) -> Iterator[Finding]:
    seen: dict[tuple[str, str], int] = {}
    for event in era.log:
        key = event.space, event.name
        body = orjson.loads(event.data)
        before, identity = state.get(key, ""), identity_of(body)
        if (event.type == "ADDED") == (key in state):
            yield Finding("out of order", f"{event.revision}: {event.type} of {key}, which was {before or 'not there'}")
        if body["metadata"]["resourceVersion"] != str(event.revision):
            yield Finding("out of order", f"{event.revision}: {key} calls itself {body['metadata']['resourceVersion']}")
        if event.type != "DELETED":
            if body["data"]["base"] != before:
                yield Finding(
                    "lost", f"{event.revision}: {key} was built on {body['data']['base']!r}, not on {before!r}"
                )
            if (event.space, identity) in seen:
                yield Finding(
                    "doubled", f"{identity} of {key} is kept at {seen[event.space, identity]} and {event.revision}"
                )
            seen[event.space, identity] = event.revision
        elif identity != before:
            yield Finding(
                "out of order", f"{event.revision}: the end of {key} tells of {identity!r}, not of {before!r}"
            )
        _apply(state, event)


def _acknowledged(history: History) -> Iterator[Finding]:
    for number, era in enumerate(history.eras):
        begin, end = _span(history, number)
        kept: dict[tuple[str, str], int] = {}
        ends: dict[tuple[str, str, str], int] = {}
        for event in era.log:
            identity = identity_of(orjson.loads(event.data))
            if event.type == "DELETED":
                ends[event.space, event.name, identity] = event.revision
            else:
                kept[event.space, identity] = event.revision
        for write in history.writes:
            where = f"{write.verb} {write.identity} of {write.space} {write.name}"
            if write.verb == "delete":
                there: int | None = ends.get((write.space, write.name, write.base))
            else:
                there = kept.get((write.space, write.identity))
            if write.outcome == "refused" and there is not None and write.verb != "delete":
                yield Finding("orphaned", f"{where} was refused, and is there at {there}")
            if write.outcome != "kept" or not (begin <= write.begun and write.ended <= end):
                continue
            if there is None:
                yield Finding("lost", f"{where} was acknowledged, and is not there")
            elif write.revision not in (0, there):
                yield Finding("out of order", f"{where} was acknowledged as {write.revision}, and is {there}")


def _watched(history: History) -> Iterator[Finding]:
    """Each segment tells everything from its beginning to its last event, once, in order."""
    for segment in history.segments:
        # Who began while a restore went on may have been told of either history.
        if not segment.events or _amid_a_restore(history, segment.begun):
            continue
        last = segment.events[-1][0]
        order = [event[0] for event in segment.events]
        if order != sorted(set(order)):
            yield Finding("out of order", f"a watch of {segment.space} told {order}")
            continue
        matching = [
            era
            for number, era in enumerate(history.eras)
            if number + 1 == len(history.eras) or segment.begun < _span(history, number)[1]
        ]
        era = matching[0]
        until = last if era is history.eras[-1] else min(last, max((e.revision for e in era.log), default=0))
        expected = [
            (event.revision, event.type, event.name, identity_of(orjson.loads(event.data)))
            for event in era.log
            if event.space == segment.space and segment.since < event.revision <= until
        ]
        told = [event for event in segment.events if event[0] <= until]
        if missing := [event for event in expected if event not in told]:
            yield Finding("lost", f"a watch of {segment.space} from {segment.since} left out {missing[:3]}")
        if more := [event for event in told if event not in expected]:
            yield Finding(
                "doubled", f"a watch of {segment.space} from {segment.since} told {more[:3]}, which nobody wrote"
            )


def _read(history: History, number: int) -> Iterator[Finding]:
    """No read is older than what was acknowledged, or read by anybody, before it began."""
    begin, end = _span(history, number)
    revisions: dict[tuple[str, str], int] = {}
    versions: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for event in history.eras[number].log:
        identity = identity_of(orjson.loads(event.data))
        if event.type != "DELETED":
            revisions[event.space, identity] = event.revision
        versions[event.space, event.name].append((event.revision, "" if event.type == "DELETED" else identity))
    told: dict[tuple[str, str], list[tuple[float, float, str, bool]]] = defaultdict(list)
    for write in history.writes:
        if write.outcome == "kept" and write.verb != "delete" and begin <= write.begun and write.ended <= end:
            told[write.space, write.name].append((write.ended, write.begun, write.identity, True))
    for read in history.reads:
        if begin <= read.begun and read.ended <= end and not _amid_a_restore(history, read.begun):
            told[read.space, read.name].append((read.ended, read.begun, read.identity, False))
    for key, all_told in told.items():
        ends: list[float] = []
        known: list[int] = []
        for ended, begun, identity, written in sorted(all_told):
            before = bisect_left(ends, begun)
            seen = known[before - 1] if before else 0
            at_least: int | None
            if written:
                at_least = revisions.get((key[0], identity), 0)
            else:
                at_least = _first_moment(versions[key], identity, seen, restored=number > 0)
            if at_least is None:
                yield Finding("out of order", f"{key} was read as {identity or 'absent'} after {seen} was known")
                continue
            ends.append(ended)
            known.append(max(at_least, known[-1] if known else 0))


def _first_moment(versions: list[tuple[int, str]], read: str, known: int, *, restored: bool) -> int | None:
    """The first revision, not before ``known``, as of which an object with these versions is what was read."""
    moments = [(0, ""), *versions]
    for index, (start, identity) in enumerate(moments):
        end = moments[index + 1][0] if index + 1 < len(moments) else None
        # What an object was before this era began is not in its log.
        if (identity == read or (restored and start == 0)) and (end is None or end > known):
            return max(start, known)
    return None
