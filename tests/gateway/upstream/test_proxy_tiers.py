"""What goes on behind the proxy ends with the tier that has opened it (GW4, GW5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from access.authorization.chain import AuthorizationChain
from access.authorization.modes import always
from access.authorization.modes.rbac import PolicyCache
from access.authorization.tenancy.placednamespaces import KeptAccounts, PlacedNamespaces
from gateway.filters.authorization import recheck
from gateway.filters.requestinfo import resolve
from gateway.process.runtime import Runtime
from gateway.process.streams import OpenStreams
from kube.authentication.identity import Principal
from kube.authorization.placedrights import ACCOUNT_ROLES
from store.engine import Engine, Options
from store.types import Create, Delete, Key, Update
from tenants.clusters.objects import CLUSTER_LABEL, TIER_ANNOTATION, WORKSPACE_LABEL
from tenants.policies import tier_proxies_key
from tests.databases import migrated
from tests.gateway.upstream.asking import until

SPACE = "root:acme"
NAMESPACE = Key(SPACE, "", "namespaces", "", "acme-web")
RULES = [{"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}]
OPEN = {"rules": {"proxies": True}}


@pytest.fixture
def database() -> Iterator[str]:
    with migrated("proxy-tiers") as url:
        yield url


def of_tier(tier: str, **labels: str) -> dict[str, Any]:
    marks = {CLUSTER_LABEL: "prod", WORKSPACE_LABEL: "w1", **labels}
    return {"metadata": {"name": "acme-web", "labels": marks, "annotations": {TIER_ANNOTATION: tier}}}


async def put(store: Engine, key: Key, body: dict[str, Any]) -> None:
    known = await store.get(key)
    await store.commit(Create(key, body) if known is None else Update(key, known.revision, body))


async def closed(store: Engine) -> None:
    known = await store.get(tier_proxies_key("open"))
    assert known is not None
    await store.commit(Delete(known.key, known.revision, orjson.loads(known.data)))


ENDS: dict[str, Callable[[Engine], Awaitable[None]]] = {
    "closed": closed,
    "another tier": lambda store: put(store, NAMESPACE, of_tier("other")),
}


@pytest.mark.parametrize("end", ENDS)
async def test_what_goes_on_ends_with_the_tier(database: str, end: str) -> None:
    async with Engine(database, Options(poll_seconds=0.05)) as store:
        for name in ACCOUNT_ROLES:
            role = Key(SPACE, "rbac.authorization.k8s.io", "roles", "acme-web", name)
            await put(store, role, {"metadata": {"name": name, "namespace": "acme-web"}, "rules": RULES})
        await put(store, NAMESPACE, of_tier("open"))
        for tier in ("open", "alike"):
            await put(store, tier_proxies_key(tier), OPEN)
        rest = AuthorizationChain([step for step in always.ALWAYS if step.name == always.ALLOW])
        chain = AuthorizationChain([PlacedNamespaces(KeptAccounts(store, PolicyCache(store)), rest), *always.ALWAYS])
        streams = OpenStreams()
        runtime = SimpleNamespace(open_streams=streams, maximal_permission=SimpleNamespace(providers=frozenset[str]()))
        store.subscribe(partial(Runtime.on_events, cast("Runtime", runtime)))
        who = Principal(name="anna", tenant="acme", groups=("tenantry:editor",), authenticator="test")
        opened = []
        for path in ("pods/web/proxy/", "pods/web/log"):
            info = resolve("GET", f"/api/v1/namespaces/acme-web/{path}".encode(), b"", "acme")
            again = partial(recheck, chain, who, info)
            await again()
            opened.append(streams.open(who, info, again, cut=lambda: None))
        proxied, log = opened
        # What says nothing else of it ends nothing.
        await put(store, NAMESPACE, of_tier("open", mine="a"))
        await put(store, NAMESPACE, of_tier("alike"))
        await put(store, NAMESPACE, of_tier("open"))
        assert not proxied.ended.done()
        await ENDS[end](store)
        await until(proxied.ended.done)
        assert "closed in placed namespaces" in proxied.ended.result().message
        assert not log.ended.done()
