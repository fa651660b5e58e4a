"""The garbage collector goes by the definitions of the history that there is, and by those of no other (TS10, TS15)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest

from gateway.http.certificates import prepare
from gateway.options import Options
from gateway.process.runtime import Runtime
from gateway.server.assembly import build_runtime
from kube.customresources.definitions import CRDS
from store.engine import Engine
from store.types import Create, Delete, Key
from tests.databases import OWNER, migrated, url_of
from tests.gateway.test_catalogs import established
from tests.store.conftest import run

TENANT = Key("root", "", "tenants", "", "acme")
SPACE = "root:acme"
THINGS = Key(SPACE, *CRDS, "", "things.example.com")
DEFAULT = Key(SPACE, "", "serviceaccounts", "default", "default")
WAIT_SECONDS = 300.0
COLUMNS = (
    "SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute "
    "WHERE attrelid = 'store_object'::regclass AND attnum > 0 AND attgenerated = '' AND NOT attisdropped"
)
"""Those of an object that are written; the others follow from them."""


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    """A process with all its workers, on a database of its own."""
    with migrated("restored") as database:
        options = Options(database_url=database, data_folder=tmp_path)
        async with build_runtime(options, prepare(options)) as made:
            yield made


def _map(name: str) -> Key:
    return Key(SPACE, "", "configmaps", "default", name)


def _owned(name: str, owner: str) -> Create:
    reference = {"apiVersion": "example.com/v1", "kind": "Thing", "name": owner, "uid": owner}
    return Create(_map(name), {"metadata": {"name": name, "uid": name, "ownerReferences": [reference]}})


async def _until(store: Engine, key: Key, *, there: bool) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while (await store.get(key) is not None) != there:
            await asyncio.sleep(0.01)


async def test_who_is_owned_in_a_restored_history_stays(runtime: Runtime) -> None:
    """The definition was deleted, and made again, after the backup: its objects were then kept elsewhere."""
    store = runtime.store
    owner_url = url_of(urlsplit(runtime.options.database_url).path.removeprefix("/"), OWNER)
    namespace = {"metadata": {"name": "default", "uid": "default"}, "spec": {"finalizers": ["kubernetes"]}}
    await store.commit(
        Create(TENANT, {"metadata": {"name": "acme", "uid": "acme"}}),
        Create(Key(SPACE, "", "namespaces", "", "default"), namespace),
        Create(THINGS, established("Thing", "first")),
        Create(Key(SPACE, "example.com", "things:first", "default", "owner"), {"metadata": {"uid": "owner"}}),
    )
    await store.commit(_owned("kept", "owner"))
    (columns,) = run(owner_url, COLUMNS)
    run(owner_url, f"CREATE TABLE backup AS SELECT {columns} FROM store_object")
    (before,) = (stored for stored in (await store.current([THINGS])).values())
    await store.commit(Delete(THINGS, before.revision, orjson.loads(before.data)))
    await store.commit(Create(THINGS, established("Thing", "second")))
    await store.commit(_owned("looked-at", "nobody"))
    await _until(store, _map("looked-at"), there=False)
    assert runtime.custom.resource_of(SPACE, "example.com/v1", "Thing") == ("things:second", True)

    # Whoever reads the definitions anew is slow: all other workers go on meanwhile.
    async with runtime.custom._loading:
        run(owner_url, "DELETE FROM store_object")
        run(owner_url, f"INSERT INTO store_object ({columns}) SELECT {columns} FROM backup")
        run(owner_url, "UPDATE store_revision SET epoch = gen_random_uuid()")
        account = await store.get(DEFAULT)
        if account is not None:
            await store.commit(Delete(DEFAULT, account.revision, orjson.loads(account.data)))
        await store.commit(_owned("lost", "nobody"))
        await _until(store, DEFAULT, there=True)
    await _until(store, _map("lost"), there=False)
    # A tenant's are looked at one after the other.
    await store.commit(_owned("last", "nobody"))
    await _until(store, _map("last"), there=False)
    assert await store.get(_map("kept")) is not None
    assert runtime.custom.resource_of(SPACE, "example.com/v1", "Thing") == ("things:first", True)
