"""Host names of Ingresses belong to one tenant at a time, wherever the Ingresses are (AD5).

The names below one domain are in one row of the store, with whose they are: a wildcard and the names that it stands for
meet there. Whoever takes a name replaces the row in the commit of the Ingress, on the revision that it was read at, also
where the name is its own already. So of two that take one name, or of one that takes it up again and one that takes it
over, the later begins anew and sees the other.

A name is given back by nobody: it is free once no Ingress of its tenant has it, which is looked at when another wants it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final

import orjson

from access.admission.base import DELETE, Attributes, NoopPlugin
from kube.policies.hosts import hosts_of
from kube.quota.tenantquotas import GROUP
from kube.requests.fielderrors import forbidden
from kube.requests.logicalclusters import ROOT, space_of, tenant_of
from kube.requests.names import SYSTEM_TENANT, is_dns_subdomain
from kube.requests.status import Cause, StatusError
from kube.workspaces.types import WORKSPACES
from store.interface import Store
from store.types import Create, Key, Operation, Range, Update

KIND: Final = ("networking.k8s.io", "Ingress")
_INGRESSES: Final = ("networking.k8s.io", "ingresses")
_CLAIMS: Final = "hostclaims"
_ANY: Final = "*"

Elsewhere = Callable[[str], Awaitable[Collection[str]]]
"""The host names in the placed namespaces of a space. Raises ``StatusError`` where a cluster does not say."""


class HostTaken(Exception):
    """Host names that are another tenant's, each by its field."""

    def __init__(self, causes: Sequence[Cause]) -> None:
        super().__init__("; ".join(f"{cause.field}: {cause.message}" for cause in causes))
        self.causes = causes


class HostClaims:
    """Who has which host name. ``elsewhere`` looks into placed namespaces."""

    def __init__(self, store: Store, elsewhere: Elsewhere) -> None:
        self._store = store
        self._elsewhere = elsewhere

    async def claim(
        self, cluster: str, old: Mapping[str, Any] | None, new: Mapping[str, Any], *, now: float, until: float = 0.0
    ) -> Sequence[Operation]:
        """What must be written before, or together with, an Ingress of a tenant, or nothing.

        ``until`` is the Unix time up to which the names are the tenant's whether or not an Ingress is seen to have them:
        for one that is on its way to a cluster. Raises ``HostTaken``.
        """
        had = _names(old) if old is not None else {}
        wanted = {host: at for host, at in _names(new).items() if host not in had}
        tenant = tenant_of(cluster)
        if not wanted or tenant == SYSTEM_TENANT:
            return ()
        uid, causes, operations = await self._uid(tenant), [], []
        for zone in sorted({_zone(host) for host in wanted}):
            stored = await self._store.get(_key(zone))
            body: dict[str, Any] = (
                orjson.loads(stored.data) if stored is not None else {"metadata": {"name": zone}, "hosts": {}}
            )
            hosts = body["hosts"]
            for host in sorted(host for host in wanted if _zone(host) == zone):
                label = host.partition(".")[0]
                others = [each for each in hosts if _ANY in (each, label) or each == label]
                for each in (each for each in others if hosts[each]["uid"] != uid):
                    if await self._is_held(f"{each}.{zone}".rstrip("."), hosts[each], now):
                        causes.append(
                            forbidden(
                                wanted[host], f'the host name "{host}" is another tenant\'s; choose one of your own'
                            )
                        )
                        break
                    del hosts[each]
                known = hosts.get(label, {}).get("until", 0.0)
                hosts[label] = {"tenant": tenant, "uid": uid, "until": max(until, known)}
            operations.append(
                Update(stored.key, stored.revision, body) if stored is not None else Create(_key(zone), body)
            )
        if causes:
            raise HostTaken(causes)
        return operations

    async def _is_held(self, host: str, claim: Mapping[str, Any], now: float) -> bool:
        tenant = claim["tenant"]
        if await self._uid(tenant) != claim["uid"]:
            return False
        if claim["until"] > now:
            return True
        async for cluster in self._clusters(space_of(tenant)):
            for stored in (await self._store.list(Range(cluster, *_INGRESSES))).items:
                if host in _names(orjson.loads(stored.data)):
                    return True
        try:
            return host in await self._elsewhere(space_of(tenant))
        except StatusError:
            return True

    async def _clusters(self, space: str) -> AsyncIterator[str]:
        yield space
        for item in (await self._store.list(Range(space, *WORKSPACES))).items:
            async for below in self._clusters(f"{space}:{item.key.name}"):
                yield below

    async def _uid(self, tenant: str) -> str:
        stored = await self._store.get(Key(ROOT, "", "tenants", "", tenant))
        return str(orjson.loads(stored.data)["metadata"]["uid"]) if stored is not None else ""


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
        except HostTaken as taken:
            raise attributes.forbidden(str(taken), causes=taken.causes) from None


def _names(body: Mapping[str, Any]) -> dict[str, str]:
    """Host names, each with the first field that has it; what is none is refused as such."""
    found: dict[str, str] = {}
    for at, host in hosts_of(KIND[1], body):
        if is_dns_subdomain(host.lower().removeprefix("*.")):
            found.setdefault(host.lower(), at)
    return found


def _zone(host: str) -> str:
    return host.partition(".")[2]


def _key(zone: str) -> Key:
    return Key(ROOT, GROUP, _CLAIMS, "", zone or ".")
