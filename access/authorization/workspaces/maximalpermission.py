"""What a provider lets be done with the APIs that others have bound (KC5, KC6)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any, Final

import orjson

from access.authorization.base import NO_RULES, RuleSet, deny, passes
from access.authorization.modes.rbac import PolicyCache
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.authorization.maximalpermission import intersect
from kube.authorization.rbac import TENANTED, Attributes, Rule
from kube.authorization.rbacindex import TargetTenant
from kube.customresources.definitions import CRDS
from kube.kinds.builtins import BUILTINS
from kube.requests.logicalclusters import ROOT
from kube.requests.names import SYSTEM_TENANT
from kube.requests.requestinfo import RequestInfo
from kube.workspaces.apiexports import (
    EXPORT,
    EXPORTS,
    has_policy,
    identity_of,
    is_local,
    maximal_permission_subject,
    source_of,
    split_export,
)
from store.interface import Reader
from store.pace import Pace
from store.types import Key, Range

_BUILTIN: Final = frozenset((resource.group, resource.plural) for resource in BUILTINS)
_KNOWN_MAX: Final = 4096
STEP: Final = "maximal-permission-policy"
_NOT_BOUND: Final = passes(STEP, "not a bound resource")


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
        source = source_of(await self._body(Key(request.cluster, *CRDS, "", name)))
        return _NOT_BOUND if source is None else await self.authorize_export(principal, Attributes.of(request), *source)

    def decide(self, principal: Principal, request: RequestInfo) -> Decision | None:  # noqa: ARG002
        """The same without waiting, of what is certainly not bound."""
        return _NOT_BOUND if not request.is_resource or (request.group, request.resource) in _BUILTIN else None

    async def authorize_export(
        self, principal: Principal, attributes: Attributes, export: str, identity: str
    ) -> Decision:
        """DENY beyond the policy of the export ``<path>:<name>`` of this identity, otherwise no opinion."""
        path, _ = split_export(export)
        body = await self._export(export, identity)
        if body is None:
            return deny(self.name, "the export of the resource is gone")
        if not has_policy(body):
            return passes(self.name, "the export has no maximal permission policy")
        self.providers.add(path)
        user, groups = maximal_permission_subject(principal)
        target = TargetTenant(SYSTEM_TENANT) if path == ROOT else None
        if is_local(body):
            policy = await self._policies.of(path)
            if policy.authorize(user, groups, attributes, target).allowed:
                return passes(self.name, "within the maximal permission policy")
        return deny(self.name, "beyond the maximal permission policy of the export")

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:  # noqa: ARG002
        """Nothing; ``filter_rules`` says what is left of what others give."""
        return NO_RULES

    async def filter_rules(self, held: RuleSet, principal: Principal, cluster: str, namespace: str) -> RuleSet:
        """What providers leave of it; incomplete where a ``*`` covers what is limited."""
        limits: dict[tuple[str, str], tuple[Rule, ...]] = {}
        async for stored in Pace().over((await self._store.list(Range(cluster, *CRDS), cached=True)).items):
            if EXPORT.encode() not in stored.data:
                continue
            definition = orjson.loads(stored.data)
            source = source_of(definition)
            if source is not None:
                limit = await self._limit(principal, *source, namespace)
                if limit is not None:
                    limits[definition["spec"]["group"], definition["spec"]["names"]["plural"]] = limit
        rules, exact = intersect(held.rules, limits)
        return replace(held, rules=rules, complete=held.complete and exact)

    async def _limit(self, principal: Principal, export: str, identity: str, namespace: str) -> tuple[Rule, ...] | None:
        """The rules of an export's policy for a principal, or ``None`` when it has none."""
        path, _ = split_export(export)
        body = await self._export(export, identity)
        if body is not None and not has_policy(body):
            return None
        if body is None or not is_local(body):
            return ()
        user, groups = maximal_permission_subject(principal)
        target = TargetTenant(SYSTEM_TENANT) if path == ROOT else None
        found = (await self._policies.of(path)).rules_for(user, groups, namespace, target)
        return tuple(replace(rule, scope=TENANTED) for rule in found)

    async def _export(self, export: str, identity: str) -> Any:
        """The export of this name, if it is still the one that was bound; another of its name has no say."""
        path, name = split_export(export)
        body = await self._body(Key(path, *EXPORTS, "", name))
        return body if identity and identity_of(body) == identity else None

    async def _body(self, key: Key) -> Any:
        stored = await self._store.get(key, cached=True)
        if stored is None:
            self._read.pop(key, None)
            return None
        known = self._read.get(key)
        if known is not None and known[0] == stored.revision:
            return known[1]
        body = orjson.loads(stored.data)
        kept = {
            "metadata": {"annotations": body["metadata"].get("annotations")},
            "spec": _policy(body),
            "status": {"identityHash": identity_of(body)},
        }
        self._read[key] = (stored.revision, kept)
        if len(self._read) > _KNOWN_MAX:
            self._read.popitem(last=False)
        return kept


def _policy(body: dict[str, Any]) -> dict[str, Any]:
    spec = body.get("spec") or {}
    return {"maximalPermissionPolicy": spec.get("maximalPermissionPolicy")}
