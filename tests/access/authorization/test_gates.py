"""The gates before all rules: locks bind whoever belongs to what is locked, and tell neighbours nothing (GW5, AZ-23)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from access.authentication.anonymous import NOBODY
from access.authorization.base import RuleSet
from access.authorization.chain import AuthorizationChain
from access.authorization.tenancy.suspension import (
    SuspensionAuthorizer,
    freeze_reason,
    suspended_tenants,
    suspension_reason,
)
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision, Verdict
from kube.authorization.rbac import Rule
from kube.requests.requestinfo import RequestInfo

CLOSED = {("root:acme", ""): "unpaid", ("root:globex", "team"): "abuse"}


def test_a_lock_that_cannot_be_understood_makes_every_door_be_looked_at() -> None:
    """GW5."""
    assert suspended_tenants([("root:acme", ""), ("root:globex:web", "team")]) == {"acme", "globex"}
    assert suspended_tenants([("nowhere", "")]) == {"system"}
    assert suspended_tenants([("root", "")]) == {"system"}


FROZEN = {("root:initech", ""): "audit", ("root:globex", "still"): "incident", ("root:acme", ""): "audit"}


class Locked:
    """A tenant and a namespace that are closed."""

    tenants = suspended_tenants(CLOSED)

    frozen_tenants = suspended_tenants(FROZEN)

    def reason(self, cluster: str, namespace: str) -> str | None:
        return suspension_reason(CLOSED, cluster, namespace)

    def freeze(self, cluster: str, namespace: str, *, inside: bool = False) -> str | None:
        return freeze_reason(FROZEN, cluster, namespace, inside=inside)


def person(tenant: str, name: str = "ann", cluster: str | None = None) -> Principal:
    return Principal(name=name, tenant=tenant, authenticator="test", cluster=cluster)


def request(tenant: str, namespace: str = "", cluster: str = "") -> RequestInfo:
    at = cluster or f"root:{tenant}"
    return RequestInfo(
        method="GET", path="/", cluster=at, tenant=tenant, verb="get", is_resource=True, namespace=namespace
    )


@pytest.mark.parametrize(
    ("who", "asked", "reason"),
    [
        (person("acme"), request("acme"), "locked: unpaid"),
        (person("acme"), request("acme", cluster="root:acme:web"), "locked: unpaid"),
        (person("acme"), request("acmeco"), "the request is for another tenant's space"),
        (person("acmeco"), request("acmeco"), None),
        (person("globex"), request("acme"), "the request is for another tenant's space"),
        (person("globex"), request("globex", "team"), "locked: abuse"),
        (person("globex"), request("globex", "other"), None),
        (person("globex"), replace(request("globex", "team"), resource="namespaces", name="team"), None),
        (person("globex"), replace(request("globex", "team"), resource="pods", name="team"), "locked: abuse"),
        (person("acme"), replace(request("acme", "team"), resource="namespaces", name="team"), "locked: unpaid"),
        (person("globex", "system:serviceaccount:team:sa", "root:globex"), request("globex", "other"), "locked: abuse"),
        (person("system"), request("acme"), None),
    ],
)
async def test_locks_bind_whoever_belongs_to_what_is_locked(
    who: Principal, asked: RequestInfo, reason: str | None
) -> None:
    """GW5: what others have opened to a locked tenant counts no more, and why it is closed is its own affair."""
    decision = await SuspensionAuthorizer(Locked()).authorize(who, asked)
    assert decision.verdict is (Verdict.NO_OPINION if reason is None else Verdict.DENY)
    assert reason is None or decision.reason == reason


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("/livez", Verdict.NO_OPINION),
        ("/readyz", Verdict.NO_OPINION),
        ("/healthz", Verdict.NO_OPINION),
        ("/readyz/store", Verdict.DENY),
        ("/version", Verdict.DENY),
        ("/metrics", Verdict.DENY),
    ],
)
async def test_an_installation_that_is_closed_is_open_to_probes_alone(path: str, verdict: Verdict) -> None:
    """P12: whoever looks after its servers goes on with them, signed in or not."""

    class Closed(Locked):
        tenants = suspended_tenants([("root", "")])

        def reason(self, cluster: str, namespace: str) -> str | None:
            return suspension_reason({("root", ""): "a restore"}, cluster, namespace)

    asked = replace(request("system", cluster="root"), path=path, is_resource=False)
    for who in (NOBODY, person("acme")):
        assert (await SuspensionAuthorizer(Closed()).authorize(who, asked)).verdict is verdict


async def test_an_authorizer_that_breaks_denies() -> None:
    """AZ11."""

    class Broken:
        name = "broken"

        async def authorize(self, _principal: Principal, _request: RequestInfo) -> Decision:
            raise KeyError("x")

    class Generous:
        name = "generous"

        async def authorize(self, _principal: Principal, _request: RequestInfo) -> Decision:
            return Decision(Verdict.ALLOW, "generous")

    chain = AuthorizationChain([Broken(), Generous()])
    decision = await chain.authorize(person("acme"), request("acme"))
    assert (decision.verdict, decision.step) == (Verdict.DENY, "broken")
    assert replace(await chain.explain(person("acme"), request("acme")), trace=()) == decision
    assert await chain.rules_for(person("acme"), "root:acme", "x") == RuleSet(complete=False)
    assert not (await AuthorizationChain([]).authorize(person("acme"), request("acme"))).allowed


@pytest.mark.parametrize(
    ("who", "changes", "reason"),
    [
        ("initech", {"verb": "create"}, "frozen: audit"),
        ("initech", {"verb": "delete", "cluster": "root:initech:web"}, "frozen: audit"),
        ("initech", {"verb": "deletecollection", "namespace": "n"}, "frozen: audit"),
        ("initech", {"verb": "get", "resource": "pods", "subresource": "exec", "namespace": "n"}, "frozen: audit"),
        ("initech", {"verb": "list"}, None),
        ("initech", {"verb": "watch"}, None),
        ("initech", {"verb": "create", "group": "authorization.k8s.io", "resource": "selfsubjectaccessreviews"}, None),
        ("initech", {"verb": "create", "group": "authorization.k8s.io", "resource": "widgets"}, "frozen: audit"),
        ("initech", {"verb": "delete", "group": "authentication.k8s.io", "resource": "widgets"}, "frozen: audit"),
        ("initech", {"verb": "post", "is_resource": False}, None),
        ("globex", {"verb": "create"}, "frozen"),
        ("system", {"verb": "create"}, None),
    ],
)
async def test_who_reads_what_is_frozen_reads_on_and_nobody_writes(
    who: str, changes: dict[str, Any], reason: str | None
) -> None:
    """GW28: whoever asks, but operators; a neighbour is not told why."""
    decision = await SuspensionAuthorizer(Locked()).authorize(person(who), replace(request("initech"), **changes))
    assert decision.reason == reason if reason else decision.verdict is Verdict.NO_OPINION


async def test_one_frozen_namespace_freezes_no_other_and_what_is_closed_says_so_itself() -> None:
    """GW28."""
    locks = SuspensionAuthorizer(Locked())
    writes = replace(request("globex", "still"), verb="update")
    assert (await locks.authorize(person("globex"), writes)).reason == "frozen: incident"
    assert (await locks.authorize(person("globex"), replace(writes, namespace="free"))).reason != "frozen: incident"
    for verb, resource in (("deletecollection", "configmaps"), ("delete", "customresourcedefinitions")):
        across = replace(request("globex"), verb=verb, resource=resource)
        assert (await locks.authorize(person("globex"), across)).reason == "frozen: incident", "it reaches inside"
    closed = await locks.authorize(person("acme"), replace(request("acme"), verb="create"))
    assert closed.reason == "locked: unpaid"


async def test_of_rules_over_what_is_frozen_only_reading_is_left() -> None:
    """GW28: what a review lists is what a request is given."""
    review = Rule(("create",), ("authorization.k8s.io",), ("selfsubjectaccessreviews",))
    held = RuleSet((Rule(("*",), ("*",), ("*",)), Rule(("get", "create"), ("",), ("pods",)), Rule(("delete",)), review))
    locks = SuspensionAuthorizer(Locked())
    left = await locks.filter_rules(held, person("initech"), "root:initech", "n")
    assert [rule.verbs for rule in left.rules] == [("get", "list", "watch"), ("get",), ("create",)]
    assert await locks.filter_rules(held, person("globex"), "root:globex", "n") == held
    assert await locks.filter_rules(held, person("system"), "root:initech", "n") == held
