"""The gates before all rules: locks bind whoever belongs to what is locked, and tell neighbours nothing (GW5, AZ-23)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from access.authorization.chain import AuthorizationChain
from access.authorization.tenancy.suspension import SuspensionAuthorizer, suspended_tenants, suspension_reason
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision, Verdict
from kube.requests.requestinfo import RequestInfo

CLOSED = {("root:acme", ""): "unpaid", ("root:globex", "team"): "abuse"}


def test_a_lock_that_cannot_be_understood_makes_every_door_be_looked_at() -> None:
    """GW5."""
    assert suspended_tenants([("root:acme", ""), ("root:globex:web", "team")]) == {"acme", "globex"}
    assert suspended_tenants([("nowhere", "")]) == {"system"}
    assert suspended_tenants([("root", "")]) == {"system"}


class Locked:
    """A tenant and a namespace that are closed."""

    tenants = suspended_tenants(CLOSED)

    def reason(self, cluster: str, namespace: str) -> str | None:
        return suspension_reason(CLOSED, cluster, namespace)


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
    assert await chain.rules_for(person("acme"), "root:acme", "x") == ((), False)
    assert not (await AuthorizationChain([]).authorize(person("acme"), request("acme"))).allowed
