"""Kubelets: each node reads what its own pods need and writes itself, its lease and its pods' status (AZ4)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from access.authorization.base import NO_RULES, RuleSet, allow, no_opinion, passes
from kube.authentication.identity import NODE_PREFIX, NODES, Principal
from kube.authorization.decisions import Decision
from kube.authorization.nodegraph import GRAPHED, NodeGraph, ObjectReference, node_of
from kube.authorization.rbac import Attributes, Rule
from kube.authorization.whocan import Holder
from kube.requests.logicalclusters import ClusterKind
from kube.requests.names import SYSTEM_TENANT
from kube.requests.requestinfo import RequestInfo
from store.interface import Reader
from store.types import Event, EventType, Range

_SPACES_MAX: Final = 256
_LEASES: Final = "kube-node-lease"
_WRITE: Final = ("update", "patch")
_READ: Final = ("get", "list", "watch")

ANY_NODE: Final = (
    Rule(_READ, ("",), ("services",)),
    Rule(("get",), ("",), ("endpoints",)),
    Rule(("create", *_WRITE), ("", "events.k8s.io"), ("events",)),
    Rule(("create",), ("authentication.k8s.io",), ("tokenreviews",)),
    Rule(("create",), ("authorization.k8s.io",), ("subjectaccessreviews", "localsubjectaccessreviews")),
    Rule(("create", "get", "list", "watch"), ("certificates.k8s.io",), ("certificatesigningrequests",)),
    Rule(_READ, ("storage.k8s.io",), ("csidrivers",)),
    Rule(_READ, ("node.k8s.io",), ("runtimeclasses",)),
)
"""What every node may, whatever runs on it. Reading services in all namespaces is how kubelets make environments."""


class NodeGraphs:
    """The graph of each space in which a node has asked for something, kept right by the change log."""

    resources: Final = GRAPHED
    """What ``on_events`` looks at."""

    def __init__(self, store: Reader) -> None:
        self._store = store
        self._graphs: OrderedDict[str, NodeGraph] = OrderedDict()
        self._changes = 0

    async def of(self, cluster: str) -> NodeGraph:
        """The graph of a space."""
        graph = self._graphs.get(cluster)
        while graph is None:
            before = self._changes
            loaded = NodeGraph()
            for group, resource in GRAPHED:
                listing = await self._store.list(Range(cluster, group, resource), cached=True)
                for stored in listing.items:
                    loaded.put(resource, orjson.loads(stored.data))
            if self._changes == before:
                graph = self._graphs[cluster] = loaded
        if len(self._graphs) > _SPACES_MAX:
            self._graphs.popitem(last=False)
        return graph

    def on_events(self, events: Sequence[Event]) -> None:
        """Follow what graphs are made of."""
        for event in events:
            key = event.key
            if (key.group, key.resource) not in GRAPHED:
                continue
            self._changes += 1
            graph = self._graphs.get(key.space)
            if graph is None:
                continue
            if event.type is EventType.DELETED:
                graph.remove(key.resource, key.namespace, key.name)
            else:
                graph.put(key.resource, orjson.loads(event.data))

    def forget(self) -> None:
        """Read everything anew: the log does not continue where this process stopped."""
        self._changes += 1
        self._graphs.clear()


STEP: Final = "Node"
_NO_NODE: Final = passes(STEP, "the user is no node")
_NOTHING_THERE: Final = passes(STEP, "nodes have no rights of their own there")


class NodeAuthorizer:
    """For ``system:node:<name>`` of group ``system:nodes`` in the system tenant; in a tenant these are just names."""

    name = STEP

    def __init__(self, graphs: NodeGraphs) -> None:
        self._graphs = graphs

    def applies_to(self, *, operator: bool, cluster_kind: ClusterKind) -> bool:  # noqa: ARG002
        """Nodes are of the system tenant."""
        return operator

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """ALLOW what the node needs, else no opinion: what others give to nodes, NodeRestriction limits to its own."""
        decision = self.decide(principal, request)
        if decision is not None:
            return decision
        node = node_of(principal.name, principal.groups)
        if not request.is_resource or request.all_tenants:
            return _NOTHING_THERE
        if any(rule.allows(Attributes.of(request)) for rule in ANY_NODE):
            return allow(self.name, "every node may", f'node "{node}"')
        if _is_own(request, node):
            return allow(self.name, "a node's own object", f'node "{node}"')
        place = _needed(request)
        if place is not None:
            if place.name and (await self._graphs.of(request.cluster)).is_needed(place, node):
                return allow(self.name, f'a pod on node "{node}" needs it', f"{place.resource}/{place.name}")
            return no_opinion(self.name, f"no relationship found between node '{node}' and this object")
        return _NOTHING_THERE

    def decide(self, principal: Principal, request: RequestInfo) -> Decision | None:  # noqa: ARG002
        """No opinion on whoever is no node, without waiting."""
        return None if principal.is_system and node_of(principal.name, principal.groups) else _NO_NODE

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:  # noqa: ARG002
        """The fixed rules; what follows from pods cannot be listed."""
        if not (principal.is_system and node_of(principal.name, principal.groups)):
            return NO_RULES
        return RuleSet(ANY_NODE, complete=False)


def nodes_that_may(request: RequestInfo, graph: Callable[[], NodeGraph]) -> tuple[Holder, ...]:
    """The nodes that may do this (AZ11); ``graph`` gives the space's, and is asked only where it decides."""
    if not request.is_resource:
        return ()
    if any(rule.allows(Attributes.of(request)) for rule in ANY_NODE):
        return (Holder("Group", NODES, "", SYSTEM_TENANT, (STEP,)),)
    if request.verb == "create" and not request.name and _is_own(request, ""):
        return (Holder("Group", NODES, "", SYSTEM_TENANT, (STEP,)),)
    place = _needed(request)
    if place is not None:
        names = sorted(set(graph().nodes_needing(place))) if place.name else []
    else:
        names = [request.name] if request.name and _is_own(request, request.name) else []
    return tuple(Holder("User", NODE_PREFIX + name, "", SYSTEM_TENANT, (STEP,)) for name in names)


def _needed(request: RequestInfo) -> ObjectReference | None:
    """The object that a node may reach only where its pods, or the object itself, lead to it."""
    kind, verb, part = (request.group, request.resource), request.verb, request.subresource
    place = ObjectReference(request.resource, request.namespace, request.name)
    match kind:
        case ("", "secrets" | "configmaps"):
            return place if not part and verb in _READ else None
        case ("resource.k8s.io", "resourceslices"):
            return place if not part and verb in ("get", "delete", *_WRITE) else None
        case (
            ("", "persistentvolumes") | ("resource.k8s.io", "resourceclaims") | ("storage.k8s.io", "volumeattachments")
        ):
            return place if not part and verb == "get" else None
        case ("", "persistentvolumeclaims"):
            return place if (not part and verb == "get") or (part == "status" and verb in _WRITE) else None
        case ("", "serviceaccounts"):
            return place if (part == "token" and verb == "create") or (not part and verb == "get") else None
        case ("", "pods"):
            reads = not part and verb in ("delete", *_READ)
            writes = (part == "status" and verb in _WRITE) or (part == "eviction" and verb == "create")
            return place if reads or writes else None
    return None


def _is_own(request: RequestInfo, node: str) -> bool:
    """Whether this is the node's own object, or the list of what is its own.

    What a new object is stands in its body: ``access.admission.kubernetes.noderestriction`` looks there.
    """
    own = request.name == node or (request.verb == "create" and not request.name)
    match (request.group, request.resource, request.subresource):
        case ("", "nodes", ""):
            return own and request.verb in ("create", *_READ, *_WRITE)
        case ("", "nodes", "status"):
            return own and request.verb in _WRITE
        case ("", "pods", ""):
            # A kubelet shows the pods that it runs by itself.
            return request.verb == "create" or (request.verb in ("list", "watch") and request.node == node)
        case ("resource.k8s.io", "resourceslices", ""):
            selected = request.verb in ("list", "watch", "deletecollection") and request.node == node
            return request.verb == "create" or selected
        case ("storage.k8s.io", "csinodes", ""):
            return own and request.verb in ("create", "get", "delete", *_WRITE)
        case ("coordination.k8s.io", "leases", ""):
            return own and request.namespace == _LEASES and request.verb in ("create", "get", "delete", *_WRITE)
    return False
