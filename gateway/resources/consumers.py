"""Who has bound which export, and what of its claims they accept (KC6).

What a view of an export costs is what its own consumers hold: nothing is looked at of what others have bound (DOS-03).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gateway.resources.selection import decoded
from kube.workspaces.apiexports import (
    BINDINGS,
    CLAIMS_MAX,
    EXPORTS,
    Selected,
    claimed,
    consents_to,
    identity_of,
)
from kube.workspaces.types import reference
from store.engine import Engine
from store.objectindex import Noted, ObjectIndex
from store.pace import Pace
from store.types import Event, Key, Range, Stored

Body = dict[str, Any]


_TOGETHER: Final = 256
"""Bindings that are looked up at once."""

_ASKED_BYTES: Final = 1024 * 1024
"""Bytes of bindings that are asked for at once."""


class Wanted(NamedTuple):
    """A verb on a resource, and the identity of the export that it is from, empty for built-in ones."""

    group: str
    resource: str
    verb: str
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What an export claims of a resource, and what of it is accepted in which logical cluster."""

    claims: Selected
    answers: Mapping[str, Selected]
    question: tuple[Wanted, str] = field(compare=False)
    """What was asked, and the version of the export."""
    said: Mapping[Key, tuple[int, Selected]] = field(compare=False)
    """What each binding says, at which revision."""
    by_key: bool = field(init=False, compare=False)
    """Whether the key of an object alone decides: asked for each object, found in all answers once."""

    def __post_init__(self) -> None:
        """Find out what follows from the answers."""
        labelled = self.claims.labels or any(answer.labels for answer in self.answers.values())
        object.__setattr__(self, "by_key", not labelled)

    def __bool__(self) -> bool:
        """Whether anybody has accepted any of it."""
        return bool(self.claims and self.answers)

    @property
    def spaces(self) -> Sequence[str]:
        """The logical clusters in which any of it is accepted, in order."""
        return sorted(self.answers)

    def places(self, key: Key) -> bool:
        """Whether an object can be reached, by its key alone."""
        answer = self.answers.get(key.space)
        return (
            answer is not None
            and self.claims.places(key.namespace, key.name)
            and answer.places(key.namespace, key.name)
        )

    def includes(self, key: Key, labels: Mapping[str, str]) -> bool:
        """Whether it is reached: both sides select it."""
        answer = self.answers.get(key.space)
        return (
            answer is not None
            and self.claims.includes(key.namespace, key.name, labels)
            and answer.includes(key.namespace, key.name, labels)
        )


@dataclass(frozen=True, slots=True)
class Look:
    """One look at what is accepted: ``charge`` is called with the bytes that are to be read, and raises what it does.

    Of what an earlier look has found, ``known``, only what has changed since is read.
    """

    charge: Callable[[int], None]
    known: Accepted | None = None


class Consumers:
    """The consumers of all exports."""

    resources: Final = (BINDINGS, EXPORTS)
    """What ``on_events`` looks at."""

    def __init__(self, store: Engine) -> None:
        self._store = store
        self._bindings = ObjectIndex(store, BINDINGS, _export_of)
        self._exports = ObjectIndex(store, EXPORTS, lambda body: identity_of(body) or None)

    def on_events(self, events: Sequence[Event]) -> None:
        """Keep what is known right; called by the store with every batch of its log."""
        self._bindings.on_events(events)
        self._exports.on_events(events)

    def forget(self) -> None:
        """Look again: the log does not continue where this process stopped."""
        self._bindings.forget()
        self._exports.forget()

    async def exports_of(self, identity: str) -> Sequence[Stored]:
        """The export of an identity; none that has another."""
        found = [await self._store.get(key, cached=True) for key in list(await self._exports.bearing(identity))]
        return [stored for stored in found if stored is not None]

    async def accepted(self, at: Key, export: Body, wanted: Wanted, look: Look, *, cluster: str = "") -> Accepted:
        """What bindings to the export ``at`` this key accept of its claims; of one ``cluster`` where it is named."""
        bindings = await self._bindings_to(at, cluster)
        question, known = (wanted, export["metadata"]["resourceVersion"]), look.known
        if known is not None and known.question == question:
            claims = known.claims
            said = {key: one for key, one in known.said.items() if key in bindings and bindings[key].revision == one[0]}
            if said.keys() == bindings.keys() == known.said.keys():
                return known
        else:
            claims, said = claimed(export, **wanted._asdict()), {}
        unread = {key: noted for key, noted in bindings.items() if key not in said} if claims else {}
        look.charge(sum(noted.size for noted in unread.values()))
        pace = Pace()
        for keys in _together(unread):
            async for item in pace.over(await self._current(keys)):
                # Where it is newer than what was noted, it is read again once that has been heard of.
                said[item.key] = unread[item.key].revision, _answer(decoded(item.data), export, wanted)
        answers: dict[str, Selected] = {}
        for number, key in enumerate(sorted(said), 1):
            if number % _TOGETHER == 0:
                await asyncio.sleep(0)
            both = said[key][1] | answers.get(key.space, Selected())
            # Each object is held against all of them: of what many bindings of one consumer say together no more is heard.
            if both and len(both.labels) <= CLAIMS_MAX:
                answers[key.space] = both
        return Accepted(claims, answers, question, said)

    async def _bindings_to(self, at: Key, cluster: str) -> Mapping[Key, Noted]:
        """Those to an export; in one cluster its own are looked at, not those of all consumers."""
        if not cluster:
            return dict(await self._bindings.bearing((at.space, at.name)))
        own = (await self._store.list(Range(cluster, *BINDINGS), cached=True)).items
        of_export = await self._bindings.bearing((at.space, at.name))
        return {key: of_export[key] for key, _, _ in own if key in of_export}

    async def _current(self, keys: Sequence[Key]) -> Sequence[Stored]:
        """Those that are there, after a turn for others."""
        await asyncio.sleep(0)
        held = [stored for stored in map(self._store.peek, keys) if stored is not None]
        away = {*keys}.difference([stored.key for stored in held])
        # Each is of another space: to load all of what those hold, one after the other, would cost far more.
        return [*held, *(await self._store.current([*away])).values()] if away else held


def _together(bindings: Mapping[Key, Noted]) -> Iterator[Sequence[Key]]:
    """What is looked up at once."""
    keys, size = list[Key](), 0
    for key, noted in bindings.items():
        if keys and (len(keys) == _TOGETHER or size + noted.size > _ASKED_BYTES):
            yield keys
            keys, size = [], 0
        keys.append(key)
        size += noted.size
    if keys:
        yield keys


def _export_of(binding: Mapping[str, Any]) -> tuple[str, str] | None:
    try:
        return reference(binding["spec"]["reference"]["export"])
    except (KeyError, TypeError, ValueError):
        return None


def _answer(binding: Body, export: Body, wanted: Wanted) -> Selected:
    """What one binding accepts, when it was made for this very export and is in force."""
    if "deletionTimestamp" in binding["metadata"] or (binding.get("status") or {}).get("phase") != "Bound":
        return Selected()
    return claimed(binding, **wanted._asdict(), answered=True) if consents_to(binding, export) else Selected()
