"""The chains: order, attribution, and what happens when a link breaks (AN9, AZ11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from access.authentication import clusterwebhooks
from access.authentication.anonymous import NOBODY as STRANGER
from access.authentication.base import Credentials, Refused
from access.authentication.chain import AuthenticationChain
from access.authorization.base import allow, deny, no_opinion, passes
from access.authorization.chain import AuthorizationChain
from access.authorization.tenancy.isolation import SystemMasters, TenantIsolation
from access.authorization.tenancy.suspension import SuspensionAuthorizer
from access.authorization.tenancy.systemworkspaces import SystemWorkspaces
from kube.authentication.identity import AUTHENTICATED, Principal
from kube.authorization.decisions import Decision, Verdict
from kube.authorization.rbac import Rule
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Unauthorized

ALICE = Principal(name="alice", tenant="acme", authenticator="test")
ROBOT = Principal(name="system:serviceaccount:n1:robot", tenant="acme", authenticator="test", cluster="root:acme")
OPERATOR = Principal(name="olga", tenant="system", authenticator="test")
MASTER = Principal(name="max", groups=("system:masters",), tenant="system", authenticator="test")
FALSE_MASTER = Principal(name="mallory", groups=("system:masters",), tenant="acme", authenticator="test")
NOBODY = Principal(name="system:anonymous", tenant=None, authenticator="test")


def asks(
    cluster: str = "root:acme", *, tenant: str = "acme", namespace: str = "n1", resource: str = "pods"
) -> RequestInfo:
    return RequestInfo(
        method="GET",
        path="/",
        cluster=cluster,
        tenant=tenant,
        verb="list",
        is_resource=True,
        version="v1",
        resource=resource,
        namespace=namespace,
    )


class Knows:
    def __init__(self, name: str, answer: Principal | Exception | None) -> None:
        self.name = name
        self._answer = answer

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal | None:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Says:
    def __init__(self, name: str, decision: Decision | Exception) -> None:
        self.name = name
        self._decision = decision

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        if isinstance(self._decision, Exception):
            raise self._decision
        return self._decision


class SaysAtOnce(Says):
    """Nobody has to wait for it."""

    def decide(self, principal: Principal, request: RequestInfo) -> Decision | None:
        if isinstance(self._decision, Exception):
            raise self._decision
        return self._decision


async def test_authenticator_that_fails_or_refuses_never_stops_the_next() -> None:
    """AN9."""
    chain = AuthenticationChain(
        [
            Knows("broken", RuntimeError("x")),
            Knows("refuses", Refused("no")),
            Knows("silent", None),
            Knows("test", ALICE),
        ]
    )
    assert await chain.authenticate(Credentials(), now=0) is ALICE


@pytest.mark.parametrize(
    "group",
    [
        "system:kcp:workspace:access",
        "system:kcp:workspace:admin",
        "system:kcp:clusterworkspace:admin",
        "system:kcp:anything",
        "system:cluster:root:acme",
    ],
)
@pytest.mark.parametrize("tenant", ["acme", "system", None])
async def test_nobody_brings_groups_along_that_the_server_gives_for_one_request(group: str, tenant: str | None) -> None:
    """KC2, KC10: whichever authenticator says so; the others stay, in order."""
    brought = Principal(name="x", groups=("a", group, "system:authenticated"), tenant=tenant, authenticator="any")
    found = await AuthenticationChain([Knows("any", brought)]).authenticate(Credentials(), now=0.0)
    assert found.groups == ("a", "system:authenticated")


@pytest.mark.parametrize(
    ("known", "default", "tenant"),
    [
        (Principal(name="x", groups=(AUTHENTICATED,), tenant=None, authenticator="any"), "home", "home"),
        (Principal(name="x", groups=(AUTHENTICATED,), tenant=None, authenticator="any"), "", None),
        (Principal(name="x", groups=(AUTHENTICATED,), tenant="acme", authenticator="any"), "home", "acme"),
        (Principal(name="x", groups=(AUTHENTICATED,), tenant="system", authenticator="any"), "home", "system"),
        (STRANGER, "home", None),
        (Principal(name="tenantry:cluster:c1", tenant=None, authenticator=clusterwebhooks.NAME), "home", None),
    ],
)
async def test_users_without_a_tenant_have_the_default_one(known: Principal, default: str, tenant: str | None) -> None:
    """TS7: users, not strangers, nor clusters that ask the webhooks (GW17)."""
    chain = AuthenticationChain([Knows("any", known)], default_tenant=default)
    assert await chain.authenticate(Credentials(), now=0.0) == replace(known, tenant=tenant)


async def test_credential_from_before_its_default_tenant_was_opened_does_not_count() -> None:
    """TS7, P5."""
    known = Principal(name="x", groups=(AUTHENTICATED,), tenant=None, authenticator="any", issued_at=7.0)
    for opened, counts in ((7.0, True), (8.0, False)):
        chain = AuthenticationChain(
            [Knows("any", known)], not_before={"home": opened}.__getitem__, default_tenant="home"
        )
        if counts:
            assert (await chain.authenticate(Credentials(), now=9.0)).tenant == "home"
        else:
            with pytest.raises(Unauthorized):
                await chain.authenticate(Credentials(), now=9.0)


async def test_nobody_known_is_unauthorized() -> None:
    with pytest.raises(Unauthorized):
        await AuthenticationChain([Knows("refuses", Refused("no"))]).authenticate(Credentials(), now=0)


def test_credentials_do_not_show_in_logs() -> None:
    """GW9."""
    assert "secret" not in repr(Credentials(authorization="Bearer secret"))


async def test_authorizer_that_breaks_denies() -> None:
    """AZ11: an exception is never an allow."""
    chain = AuthorizationChain([Says("broken", RuntimeError("x")), Says("kind", allow("kind"))])
    decision = await chain.authorize(ALICE, asks())
    assert (decision.verdict, decision.step) == (Verdict.DENY, "broken")


async def test_silence_is_no_permission_and_the_first_opinion_decides() -> None:
    assert not (await AuthorizationChain([Says("a", no_opinion("a"))]).authorize(ALICE, asks())).allowed
    chain = AuthorizationChain([Says("a", no_opinion("a")), Says("b", deny("b", "no")), Says("c", allow("c"))])
    decision = await chain.explain(ALICE, asks())
    assert decision.step == "b"
    assert [step.step for step in decision.trace] == ["a", "b"]


@pytest.mark.parametrize("says", [Says, SaysAtOnce])
async def test_a_refusal_has_the_reasons_of_all_who_have_no_opinion(says: type[Says]) -> None:
    """AZ11: as in Kubernetes; why a gate lets something through is no reason to refuse it."""
    gate, silent = says("gate", passes("gate", "open")), says("silent", no_opinion("silent"))
    no_line, asked = says("a", no_opinion("a", "no line")), says("b", no_opinion("b", "not now"))
    for steps, step, reason in (
        ([gate, no_line, silent, asked], "a", "no line\nnot now"),
        ([gate, silent, asked, gate], "b", "not now"),
        ([silent, gate], "gate", ""),
        ([gate, no_line, says("c", deny("c", "closed"))], "c", "closed"),
        ([no_line, says("c", allow("c", "open"))], "c", "open"),
        ([], "", ""),
    ):
        chain = AuthorizationChain(steps)
        # What need not wait is asked without a coroutine, in half the time, and says the same.
        trace: list[Decision] = []
        at_once, waited = chain.decide(ALICE, asks()), await chain.authorize(ALICE, asks(), trace)
        assert at_once == (waited if says is SaysAtOnce or not steps else None)
        for decision in (waited, await chain.authorize(ALICE, asks()), await chain.explain(ALICE, asks())):
            assert (decision.step, decision.reason) == (step, reason)


class NoGrants:
    """Nobody has let anybody in."""

    async def find_grant(self, principal: Principal, request: RequestInfo) -> Decision | None:
        return None

    async def rules(self, principal: Principal, cluster: str, namespace: str) -> tuple[Rule, ...]:
        return ()


WALL = TenantIsolation(lambda _group, resource: resource == "nodes", NoGrants())


@pytest.mark.parametrize(
    ("principal", "request_", "denied"),
    [
        (ALICE, asks(), False),
        (ALICE, asks("root:globex", tenant="globex"), True),
        (ALICE, asks("root", tenant="system"), True),
        (ALICE, asks(resource="nodes"), True),
        (OPERATOR, asks(), False),
        (OPERATOR, asks("root", tenant="system", resource="nodes"), False),
        (NOBODY, asks(), True),
        (NOBODY, asks(tenant=""), True),
        (FALSE_MASTER, asks("root:globex", tenant="globex"), True),
    ],
)
async def test_wall_between_tenants(principal: Principal, request_: RequestInfo, denied: bool) -> None:
    """AZ1, TS13."""
    assert ((await WALL.authorize(principal, request_)).verdict is Verdict.DENY) is denied


async def test_system_workspaces_are_closed_to_users() -> None:
    """KC12."""
    closed = SystemWorkspaces()
    assert (await closed.authorize(ALICE, asks("system:admin"))).verdict is Verdict.DENY
    assert (await closed.authorize(FALSE_MASTER, asks("system:admin"))).verdict is Verdict.DENY
    assert (await closed.authorize(ALICE, asks())).verdict is Verdict.NO_OPINION


async def test_masters_mean_everything_in_the_system_tenant_and_nothing_elsewhere() -> None:
    assert (await SystemMasters().authorize(MASTER, asks())).allowed
    assert not (await SystemMasters().authorize(FALSE_MASTER, asks())).allowed


class Doors:
    tenants = frozenset({"acme"})

    frozen_tenants = frozenset[str]()

    def freeze(self, cluster: str, namespace: str, *, inside: bool = False) -> str | None:
        return None

    def reason(self, cluster: str, namespace: str) -> str | None:
        return "unpaid" if (cluster, namespace) == ("root:acme", "n1") else None


@pytest.mark.parametrize(
    ("principal", "request_", "denied"),
    [
        (ALICE, asks(), True),
        (ALICE, asks(namespace="n2"), False),
        (ALICE, asks(namespace=""), False),
        (ROBOT, asks(namespace="n2"), True),
        (OPERATOR, asks(), False),
    ],
)
async def test_lock_closes_its_door_to_tenants_and_locks_its_accounts_in(
    principal: Principal, request_: RequestInfo, denied: bool
) -> None:
    """GW5."""
    assert ((await SuspensionAuthorizer(Doors()).authorize(principal, request_)).verdict is Verdict.DENY) is denied
