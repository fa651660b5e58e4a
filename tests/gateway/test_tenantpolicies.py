"""What holds in a namespace, as a process remembers it while others change what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from access.admission.tenancy.tenantpolicies import TenantPolicies
from store.engine import Engine
from store.types import Create, Delete, Key, Update
from tenants.clusters.objects import DEFAULT_TIER, TIER_ANNOTATION, WORKSPACE_LABEL
from tenants.policies import tenant_policies_key, tier_policies_key
from tests.databases import migrated

TENANT, SPACE = "policed", "root:policed"
HOME = Key("root", "", "tenants", "", TENANT)
PLACE = Key(SPACE, "", "namespaces", "", "one")


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """One that no server works at."""
    with migrated("policies") as url:
        yield url


def body(**metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata}


def rules(*classes: str) -> dict[str, Any]:
    return {"metadata": {}, "rules": {"runtime_classes": list(classes)}}


async def test_what_is_remembered_is_what_is_read_anew_after_every_write_of_another_process(database: str) -> None:
    """AD5: whatever it rests on is made, changed and removed."""
    workspace = body(labels={WORKSPACE_LABEL: "uid"}, annotations={TIER_ANNOTATION: "gold"})
    states = {
        HOME: [body(), body(annotations={DEFAULT_TIER: "silver"})],
        PLACE: [body(), workspace],
        tier_policies_key("gold"): [rules("a"), rules("b")],
        tier_policies_key("silver"): [rules("c"), rules("d")],
        tenant_policies_key(TENANT): [rules("e"), rules("a", "c")],
    }
    async with Engine(database) as store, Engine(database) as other:
        policies, seen = TenantPolicies(store, {}), set()

        async def compare() -> None:
            # Readings that wait for what others have written, in either space.
            await store.get(HOME)
            await store.get(PLACE)
            remembered = await policies.of(SPACE, "one", newest=False)
            assert remembered is await policies.of(SPACE, "one", newest=False)
            anew = await TenantPolicies(store, {}).of(SPACE, "one")
            assert (remembered.policy, remembered.checks) == (anew.policy, anew.checks)
            seen.add(anew.policy)

        await compare()
        # Each is changed while all that come before it are as they were left.
        for key, (first, second) in states.items():
            stored = (await other.commit(Create(key, first)))[0]
            await compare()
            await other.commit(Update(key, stored.revision, second))
            await compare()
        for key in states:
            last = await other.get(key)
            assert last is not None
            await other.commit(Delete(key, last.revision, body()))
            await compare()
        assert len(seen) > 3, "what was changed made no difference"
