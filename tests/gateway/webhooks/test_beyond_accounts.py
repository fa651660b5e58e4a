"""What accounts do not hold is left to a cluster's own RBAC, but not what is denied whatever they hold (GW17)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from access.authorization.base import allow, deny, no_opinion
from access.authorization.chain import AuthorizationChain
from access.authorization.tenancy.placednamespaces import Accounts, KeptAccounts, PlacedNamespaces
from gateway.handlers.webhooks import authorize
from gateway.http.messages import Request
from gateway.process.runtime import Runtime
from gateway.upstream.placements import ACTIVE, Placement
from kube.authentication.identity import TENANT_EXTRA, Principal
from kube.authorization.decisions import Decision
from kube.authorization.leastrole import WorkspaceRoles
from kube.authorization.rbac import Rule
from kube.requests.requestinfo import RequestInfo

READS = Rule(("get",), ("",), ("pods",))
WRITES = Rule(("delete",), ("",), ("pods",))


class Says:
    """A mode that says the same of everything."""

    name = "Webhook"

    def __init__(self, decision: Decision) -> None:
        self._decision = decision

    async def authorize(self, _principal: Principal, _request: RequestInfo) -> Decision:
        return self._decision


class Breaks:
    """A mode that is broken, which denies."""

    name = "Webhook"

    async def authorize(self, _principal: Principal, _request: RequestInfo) -> Decision:
        raise OSError("away")


@pytest.mark.parametrize("verb", ["delete", "create"], ids=["beyond the membership", "beyond all accounts"])
@pytest.mark.parametrize(
    ("mode", "given", "denied"),
    [
        (Says(allow("Webhook", "yes")), True, False),
        (Says(no_opinion("Webhook", "who knows")), False, False),
        (Says(deny("Webhook", "she has left")), False, True),
        (Breaks(), False, True),
    ],
    ids=["allows", "says nothing", "denies", "breaks"],
)
async def test_who_is_denied_otherwise_is_denied_beyond_accounts_too(
    mode: Any, verb: str, *, given: bool, denied: bool
) -> None:
    roles = WorkspaceRoles.of({"viewer": (READS,), "editor": (READS, WRITES)}, {})

    async def of(*_: str) -> Accounts:
        return Accounts("prod", roles, proxies=False)

    async def on(_cluster: str) -> dict[str, Placement]:
        return {"acme-web": Placement("w1", "prod", "root:acme", "acme-web", ACTIVE)}

    async def roles_of(_cluster: str) -> WorkspaceRoles:
        return roles

    accounts = SimpleNamespace(of=of, policies=SimpleNamespace(cached_policies_for=lambda _: None))
    placed = PlacedNamespaces(cast("KeptAccounts", accounts), AuthorizationChain([mode]))
    runtime = SimpleNamespace(
        cluster_namespaces=SimpleNamespace(on=on),
        suspensions=SimpleNamespace(reason=lambda *_: None, freeze=lambda *_: None),
        clusters=SimpleNamespace(roles=roles_of),
        authorization=AuthorizationChain([placed, mode]),
        audit=SimpleNamespace(put_nowait=lambda _: None),
    )
    spec = {
        "user": "tenantry:vera",
        "groups": ["tenantry:viewer"],
        "extra": {TENANT_EXTRA: ["acme"]},
        "resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "acme-web", "name": "web"},
    }
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    asked = SimpleNamespace(
        info=SimpleNamespace(path="/webhooks/prod/authorize"), audit_id="a-1", now=0.0, user_agent=""
    )
    answered = await authorize.answer(cast("Runtime", runtime), cast("Request", asked), "prod", body)
    status = answered["status"]
    # What the mode gives without the membership, an account has to hold all the same.
    assert status["allowed"] is (given and verb == "delete")
    assert status.get("denied", False) is denied
