"""The quota of the tenant over what is on clusters, for every creator there, controllers included (AD1 to AD3, GW17)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from access.admission.base import CREATE, DELETE, UPDATE, Attributes, NoopPlugin
from access.admission.tenancy.tenantquota import TenantQuotaAdmission, quota_key
from kube.kinds.resources import Resource
from kube.quota.claims import PENDING_SECONDS, QUOTA_CLAIMS, Claim, claim_from, difference, raised, settled
from kube.quota.podresources import add
from kube.quota.quantities import InvalidQuantity
from kube.quota.usage import QuotaExceeded
from kube.requests.logicalclusters import tenant_of
from kube.requests.status import BadRequest, Forbidden
from store.interface import Store
from store.types import Create, Delete, Key, Operation, Range, Stored, Update

_NAMES: Final = uuid.UUID("8d3b4d27-62f5-4c0e-9c7c-0f6f2a7e6b19")
_COUNTED: Final = frozenset({"", "ephemeralcontainers", "resize", "status"})
"""Subresources whose object is the resource's own."""


class PlacedQuotaAdmission(NoopPlugin):
    """Claims what an object takes before a cluster writes it, in one commit with the tenant's quota.

    The claim stands until the cluster was looked at (``settle``): nobody says whether a write that was admitted was made.
    """

    name = "TenantQuota"

    def __init__(self, store: Store, quotas: TenantQuotaAdmission) -> None:
        self._store = store
        self._quotas = quotas

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` for what exceeds the quota; otherwise returns the claim, and the quota that counts it."""
        if attributes.operation not in (CREATE, UPDATE, DELETE) or attributes.subresource not in _COUNTED:
            return ()
        key = quota_key(tenant_of(attributes.cluster))
        stored = await self._store.get(key, cached=True) or await self._store.get(key)
        if stored is None:
            raise attributes.forbidden("the tenant is ending")
        try:
            return await self._claim(attributes, stored)
        except Forbidden:
            # What refuses must be the newest state: others may have given back what is missing here.
            newest = await self._store.get(key)
            if newest is None or newest.revision == stored.revision:
                raise
            return await self._claim(attributes, newest)

    async def _claim(self, attributes: Attributes, stored: Stored) -> Sequence[Operation]:
        place, now = attributes.resource.storage_key, datetime.fromtimestamp(attributes.now, UTC)
        try:
            quota = self._quotas.quota(stored)
            if not quota.concerns(*place):
                return ()
            metadata = (attributes.object or attributes.old or {}).get("metadata") or {}
            key = Key(stored.key.space, *QUOTA_CLAIMS, "", claim_name(attributes.namespace, *place, metadata))
            kept = await self._store.get(key, cached=True)
            before = claim_from(orjson.loads(kept.data)) if kept is not None else None
            if attributes.object is None:
                return _ending(kept, before)
            self._quotas.line_up(stored.key.space, *place)
            if attributes.operation == CREATE:
                used = quota.demand(*place, attributes.object, now=now)
            else:
                used = quota.counted(*place, attributes.object, now=now)
            wanted = _claim(attributes, used)
            after = raised(before, wanted)
            if after is None:
                return _ending(kept, before) if difference(before, wanted) else ()
            if not after.used:
                return ()
            held = before
            if before is None and attributes.operation == UPDATE and attributes.old is not None:
                # It is older than the webhook: what it takes already is not for this write to answer for.
                held = _claim(attributes, quota.counted(*place, attributes.old, now=now))
            settled_quota = await self._quotas.settled(
                stored, difference(before, after), difference(held, after), attributes.now
            )
            return (_write(key, kept, after), settled_quota)
        except QuotaExceeded as error:
            raise attributes.forbidden(str(error)) from None
        except InvalidQuantity as error:
            raise BadRequest(str(error)) from None

    async def concerns(self, space: str, resource: Resource) -> bool:
        """Whether the tenant's quota bounds anything of a resource."""
        stored = await self._store.get(quota_key(tenant_of(space)), cached=True)
        try:
            return stored is not None and self._quotas.quota(stored).concerns(*resource.storage_key)
        except InvalidQuantity:
            return False

    async def settle(
        self,
        space: str,
        namespace: str,
        seen: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]],
        *,
        asked_at: float,
    ) -> None:
        """Claim for a namespace what a look at its cluster has shown, and give back what is not there.

        ``seen`` are the objects by group and plural, all that were there at some moment after ``asked_at`` (Unix seconds).
        Raises ``PreconditionFailed`` when somebody claimed meanwhile, ``InvalidQuantity``.
        """
        stored = await self._store.get(quota_key(tenant_of(space)))
        listing = await self._store.list(Range(space, *QUOTA_CLAIMS))
        kept = {item.key.name: item for item in listing.items}
        claims = {name: claim_from(orjson.loads(item.data)) for name, item in kept.items()}
        claims = {name: claim for name, claim in claims.items() if claim.namespace == namespace}
        now, found = datetime.fromtimestamp(asked_at, UTC), {}
        if stored is not None:
            quota = self._quotas.quota(stored)
            for place, bodies in seen.items():
                for body in bodies:
                    used = quota.counted(*place, body, now=now) if quota.concerns(*place) else {}
                    claim = Claim(namespace=namespace, group=place[0], plural=place[1], used=used)
                    found[claim_name(namespace, *place, body["metadata"])] = claim
        changes = settled(claims, found, asked_at=asked_at)
        if not changes:
            return
        operations: list[Operation] = []
        total = Claim(namespace=namespace, group="", plural="", used={})
        before, after = total, total
        for name, claim in changes.items():
            operations.append(_write(Key(space, *QUOTA_CLAIMS, "", name), kept.get(name), claim))
            before = _with(before, claims.get(name))
            after = _with(after, claim)
        change = difference(before, after)
        if stored is not None and change:
            operations.append(await self._quotas.settled(stored, change, {}, asked_at))
        await self._store.commit(*operations)


def claim_name(namespace: str, group: str, plural: str, metadata: Mapping[str, Any]) -> str:
    """Under which name the claim of an object is kept: its own by its UID, whatever a cluster says that is."""
    identity = metadata.get("uid") or f"name:{metadata.get('name')}"
    return str(uuid.uuid5(_NAMES, f"{namespace}/{group}/{plural}/{identity}"))


def _claim(attributes: Attributes, used: Mapping[str, Any]) -> Claim:
    group, plural = attributes.resource.storage_key
    until = attributes.now + PENDING_SECONDS
    return Claim(namespace=attributes.namespace, group=group, plural=plural, used=used, until=until)


def _ending(kept: Stored | None, before: Claim | None) -> Sequence[Operation]:
    """The claim of what may be less soon, marked so that somebody looks."""
    if kept is None or before is None or before.ending:
        return ()
    return (_write(kept.key, kept, replace(before, ending=True)),)


def _write(key: Key, kept: Stored | None, claim: Claim | None) -> Operation:
    if claim is None:
        assert kept is not None, "what ends was there"  # noqa: S101 - a programming error
        return Delete(key, kept.revision, orjson.loads(kept.data))
    body = claim.as_body(key.name)
    return Create(key, body) if kept is None else Update(key, kept.revision, body)


def _with(total: Claim, claim: Claim | None) -> Claim:
    return total if claim is None else replace(total, used=add(total.used, claim.used))
