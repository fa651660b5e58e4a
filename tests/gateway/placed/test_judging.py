"""What the rules of the door cost the event loop: nothing that others would notice (DOS-03)."""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
import pytest

from access.admission.tenancy.tenantpolicies import PolicyInForce
from gateway.http.messages import Request
from gateway.process.fairexecutor import FairExecutor
from gateway.upstream.admission import PlacedPolicies, PlacedWrite
from gateway.upstream.placements import Placement
from kube.authentication.identity import Principal
from kube.policies.policy import Policy
from kube.requests.requestinfo import parse, resolve
from tests.gateway.loopturns import LoopTurns
from tests.gateway.test_overload import STEPS

OLGA = Principal(name="olga", groups=(), tenant="acme", authenticator="test")
ALLOWED = [{"key": f"k{number % 100}"} for number in range(5_000)]


class Policies:
    """The same for every namespace."""

    async def of(self, cluster: str, namespace: str, *, newest: bool = True) -> PolicyInForce:
        return PolicyInForce(Policy(tolerations=tuple(f"k{number}" for number in range(100))), ())


async def never() -> Any:
    raise AssertionError("nobody is asked")


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_a_large_object_is_judged_beside_the_loop(method: str) -> None:
    """A body that is whole, and what a cluster says that a small patch makes: counted by calls in one turn."""
    pod = {"metadata": {"name": "p"}, "spec": {"tolerations": ALLOWED}}
    body, executor, turns = orjson.dumps(pod), FairExecutor(), LoopTurns()
    path = "/api/v1/namespaces/acme-web/pods" + ("/p" if method == "PATCH" else "")
    info = resolve(parse(method, path.encode()), "acme")
    request = Request(principal=OLGA, info=info, query={}, headers={}, body=body, now=0)
    request.in_turn = partial(executor.run, "acme")

    async def outcome() -> Any:
        return pod

    write = PlacedWrite(
        principal=OLGA,
        info=info,
        placement=Placement("w", "c", "root:acme", "acme-web", "Active"),
        role="editor",
        media="application/json",
        body=body if method == "POST" else b"{}",
        current=never,
        outcome=outcome,
        request="a",
        now=0,
        dry_run=False,
        in_thread=request.in_thread,
    )
    with turns.counting():
        await PlacedPolicies(Policies()).admit(write)  # type: ignore[arg-type]
    await executor.close()
    assert turns.most < STEPS
