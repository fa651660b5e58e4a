"""The process that ``tests.gateway.publishing`` hurts: it keeps copies, and empties namespaces, until it is killed."""

from __future__ import annotations

import asyncio
import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
django.setup()

from gateway.controllers import publications  # noqa: E402 - after the settings
from kube.kinds.builtins import BUILTINS, TENANT_BUILTINS  # noqa: E402
from kube.kinds.resources import parse_api_version  # noqa: E402
from store import garbagecollection  # noqa: E402
from store.engine import Engine, Options  # noqa: E402
from store.postgresql import leadership  # noqa: E402
from store.types import StoreError  # noqa: E402

# Many ends of leaders in little time.
for _module in (publications, garbagecollection, leadership):
    _module.RETRY_SECONDS = 0.02  # type: ignore[attr-defined]


def work(conninfo: str) -> None:
    """Work on a database until killed."""
    while True:
        try:
            asyncio.run(_run(conninfo))
        except StoreError:
            continue


async def _run(conninfo: str) -> None:
    async with Engine(conninfo, Options(poll_seconds=0.05)) as store:
        await asyncio.gather(
            publications.PublicationController(store, conninfo, _resource_of, frozenset()).run(),
            garbagecollection.GarbageCollector(store, conninfo, _resource_of, lambda *_: False).run(),
        )


def _resource_of(space: str, version: str, kind: str) -> tuple[str, bool] | None:
    catalog = BUILTINS if space == "root" else TENANT_BUILTINS
    found = catalog.by_kind(*parse_api_version(version), kind)
    return None if found is None else (found.plural, found.namespaced)
