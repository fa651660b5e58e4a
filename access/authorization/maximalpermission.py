"""What a provider lets be done with the APIs that others have bound (KC5, KC6)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any, Final

import orjson

from access.authorization.base import NOTHING, Holdings, abstain, deny
from access.authorization.rbac import PolicyCache
from kube.apiexports import EXPORT, EXPORTS, as_bound, has_policy, is_local, split_export
from kube.builtins import BUILTINS
from kube.crds import CRDS
from kube.identity import SYSTEM_TENANT, Principal
from kube.limits import within
from kube.logicalclusters import ROOT
from kube.rbac import TENANTED, Attributes, Rule
from kube.rbacindex import Reach
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision
from store.port import Reader
from store.types import Key, Range

_BUILTIN: Final = frozenset((resource.group, resource.plural) for resource in BUILTINS)
_KNOWN_MAX: Final = 4096
STEP: Final = "maximal-permission-policy"
_NOT_BOUND: Final = abstain(STEP, "not a bound resource")


class MaximalPermissionPolicy:
    """Asks the provider's RBAC about the prefixed user and groups; it only limits, and it fails closed."""

    name = STEP

    def __init__(self, store: Reader, policies: PolicyCache) -> None:
        self._store = store
        self._policies = policies
        self.providers: set[str] = set()
        """The logical clusters whose RBAC has limited something here: open streams elsewhere rest on it."""
        self._read: OrderedDict[Key, tuple[int, Any]] = OrderedDict()

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY beyond the policy of a bound resource, otherwise no opinion."""
        if not request.is_resource or (request.group, request.resource) in _BUILTIN:
            return _NOT_BOUND
        name = f"{request.resource}.{request.group}"
        definition = await self._body(Key(request.cluster, *CRDS, "", name))
        export = ((definition or {}).get("metadata", {}).get("annotations") or {}).get(EXPORT)
        if not isinstance(export, str):
            return _NOT_BOUND
        return await self.within(principal, Attributes.of(request), export)

    def decide(self, principal: Principal, request: RequestInfo) -> Decision | None:  # noqa: ARG002
        """The same without waiting, of what is certainly not bound."""
        return _NOT_BOUND if not request.is_resource or (request.group, request.resource) in _BUILTIN else None

    async def within(self, principal: Principal, attributes: Attributes, export: str) -> Decision:
        """DENY beyond the policy of the export ``<path>:<name>``, otherwise no opinion."""
        path, name = split_export(export)
        body = await self._body(Key(path, *EXPORTS, "", name))
        if body is None:
            return deny(self.name, "the export of the resource is gone")
        if not has_policy(body):
            return abstain(self.name, "the export has no maximal permission policy")
        self.providers.add(path)
        user, groups = as_bound(principal)
        reach = Reach(SYSTEM_TENANT) if path == ROOT else None
        if is_local(body):
            policy = await self._policies.of(path)
            if policy.authorize(user, groups, attributes, reach).allowed:
                return abstain(self.name, "within the maximal permission policy")
        return deny(self.name, "beyond the maximal permission policy of the export")

    async def holdings(self, principal: Principal, cluster: str, namespace: str) -> Holdings:  # noqa: ARG002
        """Nothing; ``limited`` says what is left of what others give."""
        return NOTHING

    async def limited(self, held: Holdings, principal: Principal, cluster: str, namespace: str) -> Holdings:
        """What providers leave of it; incomplete where a ``*`` covers what is limited."""
        limits: dict[tuple[str, str], tuple[Rule, ...]] = {}
        for stored in (await self._store.list(Range(cluster, *CRDS), cached=True)).items:
            if EXPORT.encode() not in stored.data:
                continue
            definition = orjson.loads(stored.data)
            export = (definition["metadata"].get("annotations") or {}).get(EXPORT)
            if isinstance(export, str):
                limit = await self._limit(principal, export, namespace)
                if limit is not None:
                    limits[definition["spec"]["group"], definition["spec"]["names"]["plural"]] = limit
        rules, exact = within(held.rules, limits)
        return replace(held, rules=rules, complete=held.complete and exact)

    async def _limit(self, principal: Principal, export: str, namespace: str) -> tuple[Rule, ...] | None:
        """The rules of an export's policy for a principal, or ``None`` when it has none."""
        path, name = split_export(export)
        body = await self._body(Key(path, *EXPORTS, "", name))
        if body is not None and not has_policy(body):
            return None
        if body is None or not is_local(body):
            return ()
        user, groups = as_bound(principal)
        reach = Reach(SYSTEM_TENANT) if path == ROOT else None
        found = (await self._policies.of(path)).rules_for(user, groups, namespace, reach)
        return tuple(replace(rule, scope=TENANTED) for rule in found)

    async def _body(self, key: Key) -> Any:
        stored = await self._store.get(key, cached=True)
        if stored is None:
            self._read.pop(key, None)
            return None
        known = self._read.get(key)
        if known is not None and known[0] == stored.revision:
            return known[1]
        body = orjson.loads(stored.data)
        kept = {"metadata": {"annotations": body["metadata"].get("annotations")}, "spec": _policy(body)}
        self._read[key] = (stored.revision, kept)
        if len(self._read) > _KNOWN_MAX:
            self._read.popitem(last=False)
        return kept


def _policy(body: dict[str, Any]) -> dict[str, Any]:
    spec = body.get("spec") or {}
    return {"maximalPermissionPolicy": spec.get("maximalPermissionPolicy")}
