"""What decisions ask about workspaces: their state, who may enter them and who administers them (KC2, KC4)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import orjson

from access.authorization.modes.rbac import PolicyCache
from kube.authentication.identity import ACCESS_GROUPS, ADMIN_GROUPS, SERVICE_ACCOUNT_PREFIX, Principal, is_masters
from kube.authorization import effectivepolicy
from kube.authorization.decisions import Decision
from kube.authorization.rbac import Attributes
from kube.requests.logicalclusters import is_workspace
from kube.workspaces.types import (
    CLUSTER_NAME,
    LOGICAL_CLUSTERS,
    Alternatives,
    Phase,
    RequiredGroupsSyntax,
    State,
    cross_workspace_access,
    may_administer,
    may_enter,
    parent_cluster,
    state_of,
)
from store.interface import Reader, Store
from store.types import Check, Key, Operation, Update

_STATES_MAX: Final = 4096


def logical_cluster_key(path: str) -> Key:
    """Where the ``LogicalCluster`` object of a logical cluster is kept."""
    return Key(path, *LOGICAL_CLUSTERS, "", CLUSTER_NAME)


async def closing(store: Store, path: str) -> tuple[Operation, ...]:
    """What closes a workspace for everybody, to be kept in the commit that deletes it; nothing where it is closed."""
    key = logical_cluster_key(path)
    stored = await store.get(key)
    body = orjson.loads(stored.data) if stored is not None else {}
    if stored is None or (body.get("status") or {}).get("phase") == Phase.DELETING:
        return ()
    body["status"] = {**(body.get("status") or {}), "phase": Phase.DELETING}
    return (Update(key, stored.revision, body),)


async def held_open(store: Store, path: str) -> tuple[Operation, ...] | None:
    """What holds a write back unless the logical cluster stays open; ``None`` where it is closed or not there.

    Spaces of tenants are emptied until nothing comes any more: there is nothing to hold.
    """
    if not is_workspace(path):
        return ()
    stored = await store.get(logical_cluster_key(path), cached=True)
    if stored is None or (orjson.loads(stored.data).get("status") or {}).get("phase") == Phase.DELETING:
        return None
    return (Check(stored.key, stored.revision),)


class Workspaces:
    """Answers from the cache of the store and the compiled policies. ``dialect`` reads required groups (KC3)."""

    def __init__(self, store: Reader, policies: PolicyCache, dialect: RequiredGroupsSyntax) -> None:
        self._store = store
        self._policies = policies
        self._states: OrderedDict[str, tuple[int, State]] = OrderedDict()
        self.dialect = dialect

    async def state(self, path: str) -> State | None:
        """The state of a workspace, or ``None`` when there is none."""
        stored = await self._store.get(logical_cluster_key(path), cached=True)
        if stored is None:
            self._states.pop(path, None)
            return None
        known = self._states.get(path)
        if known is not None and known[0] == stored.revision:
            return known[1]
        state = state_of(orjson.loads(stored.data), self.dialect)
        self._states[path] = (stored.revision, state)
        if len(self._states) > _STATES_MAX:
            self._states.popitem(last=False)
        return state

    async def required(self, path: str) -> tuple[Alternatives | None, ...]:
        """What groups a workspace asks for, and each logical cluster above it, that of the tenant included (KC3).

        ``None`` for an annotation that cannot be understood, and for a workspace that is not there.
        """
        found: list[Alternatives | None] = []
        while True:
            state = await self.state(path)
            # The logical cluster of a tenant's space may be still to come.
            found.append(state.required if state is not None else None if is_workspace(path) else ())
            if not is_workspace(path):
                return tuple(found)
            path, _ = parent_cluster(path)

    async def administers(self, principal: Principal, path: str) -> bool:
        """Whether the principal holds ``admin`` on ``workspaces/content`` of this workspace in its parent (KC4)."""
        parent, name = parent_cluster(path)
        return is_masters(principal) or await self._holds(principal, parent, may_administer(name))

    async def groups(self, principal: Principal, path: str) -> tuple[str, ...]:
        """The virtual groups of a principal in a workspace; empty for whoever has no access (KC2, KC9).

        A service account has access to its own workspace. While a workspace is not ready, its administrators by the
        parent are its administrators. One that is being deleted, or is below one that is, nobody enters any more but
        the operators' masters.
        """
        if not is_masters(principal) and await self._is_closed(path):
            return ()
        if principal.cluster is not None or principal.name.startswith(SERVICE_ACCOUNT_PREFIX):
            if principal.cluster != path:
                return ()
            inside = await self._holds(principal, path, may_enter("admin"))
            return ACCESS_GROUPS + ADMIN_GROUPS if inside else ACCESS_GROUPS
        state = await self.state(path)
        if state is None:
            return ()
        if await self._holds(principal, path, may_enter("admin")):
            return ACCESS_GROUPS + ADMIN_GROUPS
        if not state.is_ready and await self.administers(principal, path):
            return ACCESS_GROUPS + ADMIN_GROUPS
        return ACCESS_GROUPS if await self._holds(principal, path, may_enter("access")) else ()

    async def _is_closed(self, path: str) -> bool:
        while is_workspace(path):
            state = await self.state(path)
            if state is not None and state.phase == Phase.DELETING:
                return True
            path, _ = parent_cluster(path)
        return False

    async def asked(self, principal: Principal, path: str, attributes: Attributes) -> Decision:
        """RBAC's answer about an object of another logical cluster, without entering it (KC10, KC11)."""
        return cross_workspace_access(principal, attributes, await self._policies.policies_for(path))

    async def _holds(self, principal: Principal, path: str, attributes: Attributes) -> bool:
        policies = self._policies.cached_policies_for(path) or await self._policies.policies_for(path)
        return effectivepolicy.authorize(principal, attributes, policies).allowed
