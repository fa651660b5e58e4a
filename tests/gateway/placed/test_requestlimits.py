"""A tier's limits on requests, in every process of every server (AD6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path

import pytest

from audit.models import ApiRequest
from tenants.models import Role, Tier
from tenants.services import tier_change
from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server, another
from tests.gateway.placed.conftest import Door
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/api/v1/namespaces/default/configmaps"
TOLD = 20
"""As many new connections in a row reach every process of a server."""


@pytest.fixture
def second(
    door: Door, door_server: tuple[Server, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    """Another server on the same database, with two processes."""
    monkeypatch.setenv("TENANTRY_SEALING_KEYS", door_server[1])
    with another(door.server, tmp_path / "data", "--workers", "2") as running:
        yield running


def limits_told(callers: Sequence[Caller], times: int = TOLD) -> list[set[str]]:
    """What the answers to each say that a person or tenant may read at once."""
    return [
        {caller.get(PATH).headers.get("x-ratelimit-limit", "") for caller in repeat(each, times)} for each in callers
    ]


def test_a_tiers_limits_reach_every_process_and_leave_with_it(door: Door, second: Server) -> None:
    owner = door.person("olga", Role.OWNER)
    there = second.user(door.name, f"olga@{door.name}.test", "tenantry:owner")
    quick = {"read_qps": 100_000, "person_share": 10}
    tier_change(actor=OPERATOR, name="basic", request_limits={**quick, "read_burst": 4200})
    assert eventually(lambda: there.get(PATH).status == 200)
    # No namespace of the tenant has a tier: the servers' flags hold, which set no limit.
    assert limits_told([owner, there]) == [{""}, {""}]
    door.place(owner)
    # A tenth of them for a person, and a third of that in each of the three processes.
    assert eventually(lambda: limits_told([owner, there]) == [{"140"}, {"140"}])
    tier_change(actor=OPERATOR, name="basic", request_limits={**quick, "read_burst": 6000, "open_watches": 2})
    assert eventually(lambda: limits_told([owner, there]) == [{"200"}, {"200"}])
    assert Tier.objects.get(name="basic").request_limits["open_watches"] == 2
    with owner.watch(PATH):
        refused = owner.get(f"{PATH}?watch=true")
        assert refused.status == 429 and f"olga@{door.name}.test has too many" in refused.body["message"]
        # The audit names the step that refused, and whose limit it was (AZ11).
        noted = ApiRequest.objects.filter(tenant=door.name, step="requestlimits", code=429)
        assert eventually(noted.exists)
        row = noted.first()
        assert row is not None and not row.allowed and "too many open watches" in row.reason
        assert [(each["step"], each["rule"]) for each in row.trace] == [("requestlimits", "open streams of the person")]
        colleague = door.person("carl", Role.EDITOR)
        with colleague.watch(PATH):
            assert colleague.get(PATH).status == 200
    tier_change(actor=OPERATOR, name="basic", request_limits={})
    assert eventually(lambda: limits_told([owner, there]) == [{""}, {""}])
