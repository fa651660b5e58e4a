"""What decisions ask about workspaces: their state, who may enter them and who administers them (KC2, KC4)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import orjson

from access.authorization.rbac import PolicyCache
from kube import spacepolicy
from kube.identity import SERVICE_ACCOUNT_PREFIX, Principal
from kube.rbac import Attributes
from kube.verdicts import Decision
from kube.workspaces import (
    ACCESS_GROUPS,
    ADMIN_GROUPS,
    CLUSTER_NAME,
    LOGICAL_CLUSTERS,
    Dialect,
    State,
    asked_from_afar,
    home_of,
    is_masters,
    may_administer,
    may_enter,
    state_of,
)
from store.port import Reader
from store.types import Key

_STATES_MAX: Final = 4096


def logical_cluster_key(path: str) -> Key:
    """Where the ``LogicalCluster`` object of a logical cluster is kept."""
    return Key(path, *LOGICAL_CLUSTERS, "", CLUSTER_NAME)


class Workspaces:
    """Answers from the cache of the store and the compiled policies. ``dialect`` reads required groups (KC3)."""

    def __init__(self, store: Reader, policies: PolicyCache, dialect: Dialect) -> None:
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

    async def administers(self, principal: Principal, path: str) -> bool:
        """Whether the principal holds ``admin`` on ``workspaces/content`` of this workspace in its parent (KC4)."""
        parent, name = home_of(path)
        return is_masters(principal) or await self._holds(principal, parent, may_administer(name))

    async def groups(self, principal: Principal, path: str) -> tuple[str, ...]:
        """The virtual groups of a principal in a workspace; empty for whoever has no access (KC2, KC9).

        A service account has access to its own workspace. While a workspace is not ready, its administrators by the
        parent are its administrators.
        """
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

    async def asked(self, principal: Principal, path: str, attributes: Attributes) -> Decision:
        """RBAC's answer about an object of another logical cluster, without entering it (KC10, KC11)."""
        return asked_from_afar(principal, attributes, await self._policies.around(path))

    async def _holds(self, principal: Principal, path: str, attributes: Attributes) -> bool:
        policies = self._policies.at_hand(path) or await self._policies.around(path)
        return spacepolicy.authorize(principal, attributes, policies).allowed
