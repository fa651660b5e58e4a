"""The release before, where the history has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.databases import ROOT, migrated
from tests.upgrades.neighbours import Installation, installation
from tests.upgrades.releasebefore import PORTAL, NotInHistory, unpacked


@pytest.fixture(scope="session")
def release_before() -> Iterator[Path]:
    """The folder with its files."""
    with ExitStack() as held:
        try:
            folder = held.enter_context(unpacked())
        except NotInHistory as reason:
            pytest.skip(str(reason))
        yield folder


@pytest.fixture(scope="module")
def both(release_before: Path) -> Iterator[Installation]:
    """Everything of both releases, on one database that this one has migrated."""
    with migrated("releases") as database, installation(database) as running:
        old, new = running.add("old", release_before, PORTAL), running.add("new", ROOT)
        running.prepare(new)
        for house in (new, old):
            house.start(*house.parts)
        yield running
