"""Where a namespace lives, as the processes of an API server know it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.upstream.placements import Placements
from kube.objects.publications import NAMESPACES
from store.engine import Engine
from store.types import Create, Delete, Key, Stored, Update
from tenants.clusters.objects import CLUSTER_LABEL, WORKSPACE_LABEL
from tests.databases import migrated

SPACE = "root:places"


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """One that no server works at."""
    with migrated("placements") as url:
        yield url


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "status": {"phase": "Active"},
    }


async def test_a_namespace_is_taken_for_a_stored_one_until_anybody_changes_it(database: str) -> None:
    """GW18: and is asked for again then; one that is placed, or not there, never is."""
    async with Engine(database) as store, Engine(database) as other:
        placements = Placements(store)
        key = Key(SPACE, *NAMESPACES, "", "one")

        async def seen() -> tuple[bool, bool]:
            # A reading that waits for what others have written.
            there = await store.get(key) is not None
            before = placements.is_kept(SPACE, "one")
            placement = await placements.of(SPACE, "one")
            assert placements.is_kept(SPACE, "one") is (there and placement is None)
            return before, placement is not None

        assert await seen() == (False, False)
        stored: Stored = (await other.commit(Create(key, namespace("one"))))[0]
        assert await seen() == (False, False)
        assert await seen() == (True, False)
        labels = {CLUSTER_LABEL: "east", WORKSPACE_LABEL: "uid"}
        stored = (await other.commit(Update(key, stored.revision, namespace("one", **labels))))[0]
        assert await seen() == (False, True)
        assert await seen() == (False, True)
        stored = (await other.commit(Update(key, stored.revision, namespace("one"))))[0]
        assert await seen() == (False, False)
        assert placements.is_kept(SPACE, "one")
        await other.commit(Delete(key, stored.revision, namespace("one")))
        assert await seen() == (False, False)


async def test_what_is_kept_of_placed_namespaces_is_filtered_whatever_is_held_in_memory(database: str) -> None:
    """GW18: one that was placed before, and one that is placed meanwhile, in whichever space."""
    roles, labels = ("rbac.authorization.k8s.io", "roles"), {CLUSTER_LABEL: "east", WORKSPACE_LABEL: "uid"}
    async with Engine(database) as store, Engine(database) as other:
        placements = Placements(store)
        for space in ("root:here", "root:there"):
            before, later, plain = (Key(space, *NAMESPACES, "", name) for name in ("before", "later", "plain"))
            await other.commit(Create(before, namespace("before", **labels)), Create(plain, namespace("plain")))
            filters = [await placements.shown(roles, None, spaces=among) for among in ([space], None)]
            await other.commit(Create(later, namespace("later", **labels)))
            assert await store.get(later) is not None
            for held in (True, False):
                if not held:
                    store._cache.clear()
                for one in filters:
                    assert one is not None
                    shown = [
                        key.name for key in (before, later, plain) if one.places(Key(space, *roles, key.name, "r"))
                    ]
                    assert shown == ["plain"]
