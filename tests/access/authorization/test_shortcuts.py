"""What the chain leaves out and what it remembers changes no decision."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from access.authorization.build import Authorization, build_authorization
from access.authorization.chain import BROKEN
from access.authorization.options import AuthorizationOptions
from access.authorization.tenancy.suspension import freeze_reason, suspended_tenants, suspension_reason
from gateway.resources.kinds import Catalogs
from kube.authentication.identity import AUTHENTICATED, Principal
from kube.authorization.placedrights import ACCOUNT_ROLES, CLUSTER_LABEL, WORKSPACE_LABEL
from kube.authorization.rbac import GROUP
from kube.requests.logicalclusters import tenant_of
from kube.requests.requestinfo import RequestInfo
from store.types import AllSpaces, Event, EventType, Key, Listing, Range, Stored

SPACES = ("root", "root:acme", "root:acme:web", "root:globex", "system:admin")
LOGICAL_CLUSTER = orjson.dumps({"metadata": {"name": "cluster"}, "status": {"phase": "Ready"}})


class ResourceCache:
    """A store of some objects, whose log is told by hand."""

    def __init__(self) -> None:
        self.objects: dict[Key, Stored] = {}
        self.put(Key("root", "", "tenants", "", "acme"), {"metadata": {"labels": {"tier": "gold"}}})
        self.put(Key("root:acme:web", "core.kcp.io", "logicalclusters", "", "cluster"), orjson.loads(LOGICAL_CLUSTER))
        for account, resource in zip(ACCOUNT_ROLES, ("pods", "secrets", "*"), strict=True):
            self.put(Key("root:acme", GROUP, "roles", "placed", account), role(account, "placed", resource))
        self.put(*placed("placed"))

    def put(self, key: Key, body: dict[str, Any] | None) -> Event:
        kind = EventType.MODIFIED if body is not None else EventType.DELETED
        if body is None:
            self.objects.pop(key, None)
        else:
            self.objects[key] = Stored(key, len(self.objects) + 1, orjson.dumps(body))
        return Event(kind, key, 1, orjson.dumps(body or {}))

    async def get(self, key: Key, **_: Any) -> Stored | None:
        return self.objects.get(key)

    def peek(self, key: Key) -> Stored | None:
        return self.objects.get(key)

    async def list(self, selection: Range | AllSpaces, **_: Any) -> Listing:
        assert isinstance(selection, Range)
        return Listing([item for key, item in self.objects.items() if key[:3] == selection[:3]], 1)


class Doors:
    """One tenant is locked, and of another a namespace is frozen."""

    locks = {("root:globex", ""): "unpaid"}
    freezes = {("root:acme", "team"): "audit"}
    tenants = suspended_tenants(locks)
    frozen_tenants = suspended_tenants(freezes)

    def reason(self, cluster: str, namespace: str) -> str | None:
        return suspension_reason(self.locks, cluster, namespace)

    def freeze(self, cluster: str, namespace: str, *, inside: bool = False) -> str | None:
        return freeze_reason(self.freezes, cluster, namespace, inside=inside)


def person(name: str, tenant: str | None, *groups: str, cluster: str | None = None) -> Principal:
    return Principal(name=name, tenant=tenant, groups=(*groups, AUTHENTICATED), authenticator="test", cluster=cluster)


PEOPLE = (
    *(person("ann", tenant) for tenant in ("acme", "globex", "system", None)),
    person("root", "system", "system:masters"),
    person("root", "acme", "system:masters"),
    person("system:node:n1", "system", "system:nodes"),
    person("vera", "acme", "tenantry:viewer"),
    person("ann", "acme", "tenantry:editor"),
    person("system:serviceaccount:team:bot", "acme", cluster="root:acme"),
    person("system:serviceaccount:team:bot", "acme", cluster="root:acme:web"),
)
WHAT = (
    ("get", "", "pods"),
    ("create", "", "pods"),
    ("get", "", "nodes"),
    ("list", "", "secrets"),
    ("get", "example.org", "widgets"),
)


def asked(cluster: str, verb: str, group: str, resource: str) -> RequestInfo:
    return RequestInfo(
        method="GET",
        path="/",
        cluster=cluster,
        tenant=tenant_of(cluster),
        verb=verb,
        is_resource=True,
        group=group,
        version="v1",
        resource=resource,
        namespace="team",
    )


REQUESTS = (
    *(asked(cluster, *what) for cluster in SPACES for what in WHAT),
    *(replace(asked("root:acme", *what), namespace="placed") for what in WHAT),
    *(replace(asked("root:acme", verb, "", "pods"), namespace="placed", subresource="proxy") for verb in ("get", "")),
    *(replace(asked(cluster, "get", "", ""), is_resource=False, path=path) for cluster in SPACES for path in ("/healthz", "/api")),
    replace(asked("root", "list", "", "pods"), all_tenants=True),
)  # fmt: skip


def binding(name: str, role: str, namespace: str, kind: str) -> dict[str, Any]:
    subjects = [{"kind": "User", "name": "ann"}, {"kind": "ServiceAccount", "name": "bot", "namespace": "team"}]
    return {
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"kind": kind, "name": role},
        "subjects": subjects,
    }


def role(name: str, namespace: str, resource: str) -> dict[str, Any]:
    rules: list[dict[str, Any]] = [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": [resource], "scopeType": "Cluster"}
    ]
    if not namespace:
        rules.append({"verbs": ["access"], "nonResourceURLs": ["/"]})
    return {"metadata": {"name": name, "namespace": namespace}, "rules": rules}


def placed(namespace: str, **marks: str) -> tuple[Key, dict[str, Any]]:
    labels = marks or {CLUSTER_LABEL: "east", WORKSPACE_LABEL: "w1"}
    return Key("root:acme", "", "namespaces", "", namespace), {"metadata": {"name": namespace, "labels": labels}}


def change(space: str, name: str, what: str, resource: str, *, namespaced: bool) -> tuple[Key, dict[str, Any] | None]:
    namespace = "team" if namespaced else ""
    if what == "accounts":
        account = ACCOUNT_ROLES[1]
        return Key("root:acme", GROUP, "roles", "placed", account), role(account, "placed", resource)
    if what == "bound":
        bound = binding(name, "view", "placed", "ClusterRole")
        return Key("root:acme", GROUP, "rolebindings", "placed", name), bound
    if what == "stored":
        return placed("placed", mine="a")
    plural = f"{'' if namespaced else 'cluster'}{'role' if 'role' in what else 'rolebinding'}s"
    if what == "role":
        body: dict[str, Any] | None = role(name, namespace, resource)
    elif what == "binding":
        body = binding(name, name, namespace, "Role" if namespaced else "ClusterRole")
    else:
        body = None
    return Key(space, GROUP, plural, namespace, name), body


CHANGES = st.lists(
    st.builds(
        change,
        st.sampled_from(SPACES),
        st.sampled_from(["a", "view"]),
        st.sampled_from(["role", "binding", "-role", "-binding", "accounts", "bound", "stored"]),
        st.sampled_from(["pods", "*"]),
        namespaced=st.booleans(),
    ),
    max_size=6,
)


async def check(authorization: Authorization) -> None:
    shortcuts: Counter[str | None] = Counter()
    for principal in PEOPLE:
        for request in REQUESTS:
            decision = await authorization.chain.authorize(principal, request)
            explained = await authorization.chain.explain(principal, request)
            assert replace(explained, trace=()) == decision, (principal, request)
            # What breaks is refused both ways: nothing would be compared.
            assert BROKEN not in {said.reason for said in explained.trace}, (principal, request, explained)
            shortcut = authorization.chain.decide(principal, request)
            assert shortcut in (None, decision), (principal, request)
            shortcuts[principal.tenant] += shortcut is not None
            # A step that was left out had nothing to say, and the last of the rest decided.
            opinions = [said for said in explained.trace if said.verdict.value != "no opinion"]
            assert opinions in ([], [decision])
    # Whose requests are never decided the short way has nothing compared.
    assert all(shortcuts[principal.tenant] for principal in PEOPLE), shortcuts


@settings(max_examples=15, deadline=None)
@given(CHANGES)
def test_decisions_are_those_of_every_step_asked_anew_after_every_change(
    changes: list[tuple[Key, dict[str, Any] | None]],
) -> None:
    """AZ1, AZ2, KC8: neither the plan of steps nor what is remembered of a principal outlives a change."""

    async def run() -> None:
        shelf = ResourceCache()
        authorization = build_authorization(
            AuthorizationOptions(), shelf, locks=Doors(), system_only=Catalogs().is_system_only
        )
        await check(authorization)
        for key, body in changes:
            authorization.on_events([shelf.put(key, body)])
            await check(authorization)
        authorization.forget()
        await check(authorization)

    asyncio.run(run())


async def test_what_newcomers_hold_is_gathered_and_not_remembered() -> None:
    """DOS-03: one question of each of many is nothing that comes again; of who comes again it is known once."""
    shelf = ResourceCache()
    shelf.put(*change("root:acme", "view", "binding", "pods", namespaced=False))
    authorization = build_authorization(
        AuthorizationOptions(), shelf, locks=Doors(), system_only=Catalogs().is_system_only
    )
    policies, request = authorization.policies, asked("root:acme", "get", "", "pods")
    index = (await policies.policies_for("root:acme")).local
    people = [person("ann", "acme"), *(person(f"newcomer-{number}", "acme") for number in range(20))]
    first = [authorization.chain.decide(each, request) for each in people]
    assert (len(index._held), len(policies._held)) == (0, 0)
    assert [said is not None and said.allowed for said in first] == [True] + [False] * 20
    assert [authorization.chain.decide(each, request) for each in people] == first
    assert (len(index._held), len(policies._held)) == (0, len(people))
