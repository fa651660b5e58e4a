"""How many host names a tenant may take, and what is left of those that it no longer has (AD5, DOS-03)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from access.admission.configuration import read
from access.admission.tenancy.hostclaims import HostClaims, HostRefused
from access.reloading import UnusableFile
from kube.policies.hosts import NAMES
from kube.requests.status import ServiceUnavailable
from store.engine import Engine
from store.types import Create, Delete, Key, PreconditionFailed, Update
from tests.databases import migrated

MOST = 5


class Tenants:
    """Tenants that make Ingresses; ``away`` are names that they have on clusters, ``None`` while nobody says."""

    def __init__(self, store: Engine) -> None:
        self.store = store
        self.away: Collection[str] | None = ()
        self.claims = HostClaims(store, self._elsewhere, MOST)
        self.now = 1000.0

    async def _elsewhere(self, _: str) -> Collection[str]:
        if self.away is None:
            raise ServiceUnavailable("nobody says")
        return self.away

    async def come(self, tenant: str, uid: str) -> None:
        key = Key("root", "", "tenants", "", tenant)
        found = await self.store.get(key)
        body = {"metadata": {"name": tenant, "uid": uid}}
        await self.store.commit(Create(key, body) if found is None else Update(key, found.revision, body))

    def _key(self, tenant: str, name: str) -> Key:
        return Key(f"root:{tenant}", "networking.k8s.io", "ingresses", "default", name)

    async def make(self, tenant: str, name: str, hosts: Sequence[str], *, until: float = 0.0) -> None:
        body: dict[str, Any] = {"metadata": {"name": name}, "spec": {"rules": [{"host": host} for host in hosts]}}
        key = self._key(tenant, name)
        while True:
            operations = await self.claims.claim(key.space, None, body, now=self.now, until=until)
            with suppress(PreconditionFailed):
                await self.store.commit(Create(key, body), *operations)
                return
            assert await self.store.get(key) is None

    async def remove(self, tenant: str, name: str) -> None:
        found = await self.store.get(self._key(tenant, name))
        assert found is not None
        await self.store.commit(Delete(found.key, found.revision, orjson.loads(found.data)))

    async def kept(self) -> dict[str, dict[str, Any]]:
        """What is kept of host names: of each domain, and of each tenant."""
        found = {}
        for resource in ("hostclaims", "tenanthosts"):
            for key in [Key("root", "tenancy.tenantry.io", resource, "", name) for name in ("example.com", "a", "b")]:
                stored = await self.store.get(key)
                if stored is not None:
                    found[key.name] = orjson.loads(stored.data)["hosts"]
        return found


@pytest.fixture
async def tenants() -> AsyncIterator[Tenants]:
    with migrated("hosts") as database:
        async with Engine(database) as store:
            made = Tenants(store)
            for name in "ab":
                await made.come(name, f"uid-{name}")
            yield made


def names(*numbers: int) -> list[str]:
    return [f"n{number}.example.com" for number in numbers]


async def test_what_is_made_and_deleted_again_and_again_leaves_no_more_than_the_bound(tenants: Tenants) -> None:
    await tenants.make("b", "other", ["other.example.com"])
    for number in range(0, 60, MOST):
        await tenants.make("a", "x", names(*range(number, number + MOST)))
        await tenants.remove("a", "x")
    kept = await tenants.kept()
    assert set(kept["a"]) == set(names(*range(55, 60)))
    assert set(kept["example.com"]) == {f"n{number}" for number in range(55, 60)} | {"other"}
    # What has been dropped is anybody's.
    await tenants.make("b", "more", names(3))


async def test_who_has_as_many_as_may_be_gets_no_more_and_is_told_what_to_do(tenants: Tenants) -> None:
    await tenants.make("a", "x", names(*range(MOST)))
    before = await tenants.kept()
    with pytest.raises(HostRefused, match=f"taken {MOST} host names of at most {MOST}; take names") as refused:
        await tenants.make("a", "more", names(MOST))
    assert refused.value.causes[0].field == "spec.rules"
    assert await tenants.kept() == before
    # The same names in another Ingress are no more, and of others nobody is in the way.
    await tenants.make("a", "again", names(0, 1))
    await tenants.make("b", "theirs", names(MOST))
    await tenants.remove("a", "x")
    # All of its Ingresses are looked at every so often alone.
    with pytest.raises(HostRefused):
        await tenants.make("a", "more", ["m.example.com"])
    tenants.now += 60
    await tenants.make("a", "more", ["m.example.com"])
    assert set((await tenants.kept())["a"]) == {*names(0, 1), "m.example.com"}


async def test_of_more_than_anybody_may_have_no_more_are_looked_up_than_that(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DOS-03: an Ingress may name thousands, each in a domain of its own."""
    asked: list[Key] = []
    get = tenants.store.get

    async def counted(key: Key, **how: Any) -> Any:
        asked.append(key)
        return await get(key, **how)

    monkeypatch.setattr(tenants.store, "get", counted)
    with pytest.raises(HostRefused, match=f"taken 0 host names of at most {MOST}; take names"):
        await tenants.make("a", "x", [f"n.d{number}.example.com" for number in range(200)])
    # The tenant, what it has, and one name more than it may have.
    assert len(asked) <= MOST + 3
    # As many as may be are anybody's still.
    await tenants.make("a", "x", [f"n.d{number}.example.com" for number in range(MOST)])


@pytest.mark.parametrize("away", [names(0, 1, 2, 3, 4), None])
async def test_names_that_may_be_in_use_elsewhere_are_kept(tenants: Tenants, away: Collection[str] | None) -> None:
    """On clusters, on the way to one, and while nobody says."""
    await tenants.make("a", "x", names(*range(MOST)))
    await tenants.remove("a", "x")
    tenants.away = away
    with pytest.raises(HostRefused):
        await tenants.make("a", "y", names(9))
    tenants.away, tenants.now = (), tenants.now + 60
    await tenants.make("a", "y", names(9))
    await tenants.make("a", "z", names(*range(10, 9 + MOST)), until=tenants.now + 120)
    await tenants.remove("a", "z")
    tenants.now += 60
    with pytest.raises(HostRefused):
        await tenants.make("a", "w", names(20))
    tenants.now += 120
    await tenants.make("a", "w", names(20))


async def test_what_a_tenant_lost_is_not_dropped_from_who_has_it_now(tenants: Tenants) -> None:
    await tenants.make("a", "x", names(*range(MOST)))
    await tenants.remove("a", "x")
    await tenants.make("b", "x", [*names(0), "*.w.example.com"])
    await tenants.make("a", "y", names(7))
    with pytest.raises(HostRefused, match="another tenant"):
        await tenants.make("a", "z", names(0))
    with pytest.raises(HostRefused, match="another tenant"):
        await tenants.make("a", "z", ["*.example.com"])
    await tenants.remove("b", "x")
    await tenants.make("a", "z", ["*.example.com"])
    with pytest.raises(HostRefused, match="another tenant"):
        await tenants.make("b", "y", names(1))


async def test_a_tenant_that_comes_under_a_name_again_begins_with_none(tenants: Tenants) -> None:
    await tenants.make("a", "x", names(*range(MOST)))
    await tenants.come("a", "uid-new")
    await tenants.make("a", "y", names(*range(MOST, 2 * MOST)))
    assert set((await tenants.kept())["a"]) == set(names(*range(MOST, 2 * MOST)))


async def test_names_that_were_taken_before_there_was_a_bound_stay_and_count(tenants: Tenants) -> None:
    claim = {"tenant": "a", "uid": "uid-a", "until": 0.0}
    hosts = {f"n{number}": claim for number in range(2 * MOST)}
    body = {"metadata": {"name": "example.com"}, "hosts": hosts}
    await tenants.store.commit(Create(Key("root", "tenancy.tenantry.io", "hostclaims", "", "example.com"), body))
    await tenants.make("a", "x", names(*range(2 * MOST)))
    with pytest.raises(HostRefused, match="at most"):
        await tenants.make("a", "y", names(99))


def test_the_bound_is_the_operators_to_say(tmp_path: Path) -> None:
    told = """
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
  - name: HostOwnership
    configuration: {apiVersion: tenancy.tenantry.io/v1alpha1, kind: HostOwnershipConfiguration, namesOfTenant: NAMES}
"""
    file = tmp_path / "admission.yaml"
    file.write_text(told.replace("NAMES", "20"))
    assert read(file).host_names == 20
    assert read(None).host_names == NAMES
    for wrong in ("0", "-1", "true", "many", "1.5"):
        file.write_text(told.replace("NAMES", wrong))
        with pytest.raises(UnusableFile, match="namesOfTenant"):
            read(file)
