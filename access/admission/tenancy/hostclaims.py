"""Host names of Ingresses belong to one tenant at a time, wherever the Ingresses are (AD5).

The names below one domain are in one row of the store, with whose they are: a wildcard and the names that it stands for
meet there. Whoever takes a name replaces the row in the commit of the Ingress, on the revision that it was read at, also
where the name is its own already. So of two that take one name, or of one that takes it up again and one that takes it
over, the later begins anew and sees the other.

A name is free once no Ingress of its tenant has it, which is looked at when another wants it. How many names one tenant has
taken is bounded, and what it has taken is in a row of its own beside: at the bound, those that no Ingress of it has any more
are dropped, from that row and from those of the domains. So what a tenant makes and deletes leaves no more than the bound.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from access.admission.base import DELETE, Attributes, NoopPlugin
from kube.policies.hosts import NAMES, hosts_of
from kube.quota.tenantquotas import GROUP
from kube.requests.fielderrors import forbidden
from kube.requests.logicalclusters import ROOT, space_of, tenant_of
from kube.requests.names import SYSTEM_TENANT, is_dns_subdomain
from kube.requests.status import Cause, StatusError
from kube.workspaces.types import WORKSPACES
from store.interface import Store
from store.pace import Pace
from store.types import Create, Key, Operation, Range, Update

KIND: Final = ("networking.k8s.io", "Ingress")
_INGRESSES: Final = ("networking.k8s.io", "ingresses")
_CLAIMS: Final = "hostclaims"
_OF_TENANTS: Final = "tenanthosts"
_ANY: Final = "*"

_FULL_SECONDS: Final = 30.0
"""How long a tenant that has no room is refused before all of its Ingresses are looked at again."""
_FULL_MAX: Final = 4_096

Body = dict[str, Any]

Elsewhere = Callable[[str], Awaitable[Collection[str]]]
"""The host names in the placed namespaces of a space. Raises ``StatusError`` where a cluster does not say."""


class HostRefused(Exception):
    """Host names that the tenant does not get, each by its field."""

    def __init__(self, causes: Sequence[Cause]) -> None:
        super().__init__("; ".join(f"{cause.field}: {cause.message}" for cause in causes))
        self.causes = causes


@dataclass(slots=True)
class _Holders:
    """What is known, within one claim, of those who may hold names: of who has been met again all names at once."""

    met: set[str] = field(default_factory=set)
    names: dict[str, Collection[str]] = field(default_factory=dict)


class HostClaims:
    """Who has which host name. ``elsewhere`` looks into placed namespaces; ``names_max`` is of one tenant."""

    def __init__(self, store: Store, elsewhere: Elsewhere, names_max: int = NAMES) -> None:
        self._store = store
        self._elsewhere = elsewhere
        self._names_max = names_max
        self._full: dict[str, float] = {}
        """Of tenants that have as many names as they may, until when that is not looked at again (Unix seconds)."""

    async def claim(
        self, cluster: str, old: Mapping[str, Any] | None, new: Mapping[str, Any], *, now: float, until: float = 0.0
    ) -> Sequence[Operation]:
        """What must be written before, or together with, an Ingress of a tenant, or nothing.

        ``until`` is the Unix time up to which the names are the tenant's whether or not an Ingress is seen to have them:
        for one that is on its way to a cluster. Raises ``HostRefused``.
        """
        had = _names(old) if old is not None else {}
        wanted = {host: at for host, at in _names(new).items() if host not in had}
        tenant = tenant_of(cluster)
        if not wanted or tenant == SYSTEM_TENANT:
            return ()
        claims, holders = _Claims(self._store, tenant, await self._uid(tenant)), _Holders()
        causes, grown = [], 0
        for host in sorted(wanted, key=lambda host: (_zone(host), host)):
            for each, claim in await claims.met_by(host):
                if await self._is_held(each, claim, now, holders):
                    said = f'the host name "{host}" is another tenant\'s; choose one of your own'
                    causes.append(forbidden(wanted[host], said))
                    break
                await claims.drop(each, claim["uid"])
            grown += await claims.take(host, until)
            if grown > self._names_max:
                # There is no room for so many, whatever else it let go: those that are left are not looked up.
                raise self._too_many(await claims.taken(), wanted)
        if causes:
            raise HostRefused(causes)
        taken = await claims.taken()
        if grown and len(taken) > self._names_max and not await self._makes_room(claims, wanted, now):
            raise self._too_many(taken, wanted)
        return claims.operations()

    def _too_many(self, taken: Mapping[str, float], wanted: Collection[str]) -> HostRefused:
        said = (
            f"the tenant has taken {len(taken.keys() - wanted)} host names of at most {self._names_max}; take names that "
            "are not needed out of its Ingresses and try again in half a minute, or ask the operators for more"
        )
        return HostRefused([forbidden("spec.rules", said)])

    async def _makes_room(self, claims: _Claims, wanted: Collection[str], now: float) -> bool:
        """Drop what no Ingress of the tenant has; whether there is room then."""
        if self._full.get(claims.uid, 0.0) > now:
            return False
        taken = await claims.taken()
        try:
            held = await self._held_by(claims.tenant)
        except StatusError:
            held = taken.keys()
        for host in [host for host, until in taken.items() if host not in held and until <= now]:
            if host not in wanted:
                await claims.drop(host, claims.uid)
        if len(await claims.taken()) <= self._names_max:
            return True
        if len(self._full) >= _FULL_MAX:
            self._full.clear()
        self._full[claims.uid] = now + _FULL_SECONDS
        return False

    async def _is_held(self, host: str, claim: Mapping[str, Any], now: float, holders: _Holders) -> bool:
        tenant = claim["tenant"]
        if await self._uid(tenant) != claim["uid"]:
            return False
        if claim["until"] > now:
            return True
        try:
            if tenant in holders.met:
                if tenant not in holders.names:
                    holders.names[tenant] = await self._held_by(tenant)
                return host in holders.names[tenant]
            holders.met.add(tenant)
            async for _ in self._ingresses(space_of(tenant), host):
                return True
            return host in await self._elsewhere(space_of(tenant))
        except StatusError:
            return True

    async def _held_by(self, tenant: str) -> Collection[str]:
        """The host names that Ingresses of a tenant have. Raises ``StatusError`` where a cluster does not say."""
        held = set(await self._elsewhere(space_of(tenant)))
        async for names in self._ingresses(space_of(tenant), ""):
            held.update(names)
        return held

    async def _ingresses(self, space: str, host: str) -> AsyncIterator[Collection[str]]:
        """The names of each Ingress of a tenant that has this one; empty for any. Others have turns between them."""
        sought, pace = host.encode(), Pace()
        async for cluster in self._clusters(space):
            async for stored in pace.over((await self._store.list(Range(cluster, *_INGRESSES))).items):
                # Most have another, which their bytes tell.
                if sought in stored.data.lower():
                    names = _names(orjson.loads(stored.data))
                    if not host or host in names:
                        yield names

    async def _clusters(self, space: str) -> AsyncIterator[str]:
        yield space
        for item in (await self._store.list(Range(space, *WORKSPACES))).items:
            async for below in self._clusters(f"{space}:{item.key.name}"):
                yield below

    async def _uid(self, tenant: str) -> str:
        stored = await self._store.get(Key(ROOT, "", "tenants", "", tenant))
        return str(orjson.loads(stored.data)["metadata"]["uid"]) if stored is not None else ""


class _Claims:
    """The rows that one claim reads and writes, each read once: of domains, and of the tenant."""

    def __init__(self, store: Store, tenant: str, uid: str) -> None:
        self._store = store
        self._rows: dict[Key, tuple[int, Body]] = {}
        """The revision of each, 0 for one that is not there, and what is to be there."""
        self.tenant = tenant
        self.uid = uid

    async def met_by(self, host: str) -> list[tuple[str, Mapping[str, Any]]]:
        """The claims of others that a name would meet, with the host name of each."""
        hosts, label = (await self._row(_key(_zone(host))))["hosts"], _label(host)
        met = [each for each in sorted(hosts) if _ANY in (each, label) or each == label]
        return [(f"{each}.{_zone(host)}".rstrip("."), hosts[each]) for each in met if hosts[each]["uid"] != self.uid]

    async def take(self, host: str, until: float) -> bool:
        """Let the tenant have a name, of nobody else; whether it has one more now."""
        hosts, taken = (await self._row(_key(_zone(host))))["hosts"], await self.taken()
        claim = hosts.get(_label(host), {})
        until = max(until, claim.get("until", 0.0))
        hosts[_label(host)] = {"tenant": self.tenant, "uid": self.uid, "until": until}
        taken[host] = until
        return bool(claim.get("uid") != self.uid)

    async def drop(self, host: str, uid: str) -> None:
        """Let a name be no longer that of the tenant of this uid."""
        hosts = (await self._row(_key(_zone(host))))["hosts"]
        if hosts.get(_label(host), {}).get("uid") == uid:
            del hosts[_label(host)]
        if uid == self.uid:
            (await self.taken()).pop(host, None)

    async def taken(self) -> dict[str, float]:
        """The names that the tenant has taken, with ``until`` of each."""
        row = await self._row(_key_of(self.tenant))
        if row.get("uid") != self.uid:
            # A tenant of that name before this one.
            row["uid"], row["hosts"] = self.uid, {}
        found: dict[str, float] = row["hosts"]
        return found

    def operations(self) -> Sequence[Operation]:
        """What writes it: whatever was read is replaced, so that of two who read the same one begins anew."""
        rows = sorted(self._rows.items(), key=lambda each: each[0])
        return [Update(key, revision, body) if revision else Create(key, body) for key, (revision, body) in rows]

    async def _row(self, key: Key) -> Body:
        if key not in self._rows:
            stored = await self._store.get(key)
            body = orjson.loads(stored.data) if stored is not None else {"metadata": {"name": key.name}, "hosts": {}}
            self._rows[key] = (stored.revision if stored is not None else 0, body)
        return self._rows[key][1]


class HostOwnership(NoopPlugin):
    """Refuses Ingresses with host names of other tenants."""

    name = "HostOwnership"
    kinds = frozenset({_INGRESSES})

    def __init__(self, claims: HostClaims, *, underway: float = 0.0) -> None:
        """``underway`` is for how long (seconds) an Ingress that is admitted may not be seen yet."""
        self._claims = claims
        self._underway = underway

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` with a cause for every name."""
        body = attributes.object
        if body is None or attributes.subresource or attributes.operation == DELETE:
            return ()
        try:
            until = attributes.now + self._underway if self._underway else 0.0
            return await self._claims.claim(attributes.cluster, attributes.old, body, now=attributes.now, until=until)
        except HostRefused as refused:
            raise attributes.forbidden(str(refused), causes=refused.causes) from None


def _names(body: Mapping[str, Any]) -> dict[str, str]:
    """Host names, each with the first field that has it; what is none is refused as such."""
    found: dict[str, str] = {}
    for at, host in hosts_of(KIND[1], body):
        if is_dns_subdomain(host.lower().removeprefix("*.")):
            found.setdefault(host.lower(), at)
    return found


def _zone(host: str) -> str:
    return host.partition(".")[2]


def _label(host: str) -> str:
    return host.partition(".")[0]


def _key(zone: str) -> Key:
    return Key(ROOT, GROUP, _CLAIMS, "", zone or ".")


def _key_of(tenant: str) -> Key:
    return Key(ROOT, GROUP, _OF_TENANTS, "", tenant)
