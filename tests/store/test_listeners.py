"""Who hears of which batches of the change log."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from store.listeners import Listeners
from store.types import Event, EventType, Key

RESOURCES = [("", "pods"), ("", "namespaces"), ("apps", "pods")]
BATCHES = st.lists(st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=4), max_size=12)
LOOKED_AT = st.none() | st.sets(st.sampled_from(RESOURCES))


def events(resources: Sequence[tuple[str, str]]) -> list[Event]:
    return [
        Event(EventType.ADDED, Key("root:acme", *resource, "", f"n{number}"), number, b"{}", None)
        for number, resource in enumerate(resources)
    ]


@given(st.lists(LOOKED_AT, max_size=5), BATCHES, st.integers(0, 12))
def test_everybody_hears_the_batches_that_hold_what_it_looks_at(
    looked_at: list[set[tuple[str, str]] | None], batches: list[list[tuple[str, str]]], gone_after: int
) -> None:
    """In their order, from when it comes to when it goes, and whatever another one does."""
    listeners, heard = Listeners(), [list[list[Event]]() for _ in looked_at]
    undos = [listeners.add(lambda _: 1 / 0, None, None)]
    expected = [list[list[Event]]() for _ in looked_at]
    for number, resources in enumerate(batches):
        if number < len(looked_at):
            # One that comes later hears what comes later.
            told = heard[number]
            undos.append(listeners.add(lambda batch, told=told: told.append(list(batch)), None, looked_at[number]))
        if number == gone_after:
            undos.pop()()
        batch = events(resources)
        for listener, wanted in enumerate(looked_at[: number + 1]):
            is_gone = number >= gone_after and listener == min(gone_after, len(looked_at) - 1)
            if not is_gone and (wanted is None or wanted & set(resources)):
                expected[listener].append(batch)
        listeners.tell(batch)
    assert heard == expected
