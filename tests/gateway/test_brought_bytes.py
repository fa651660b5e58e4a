"""What APIs and types of workspaces bring into a tenant's spaces, of which others choose how much (AD8)."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from kube.workspaces.apiexports import BINDING_BYTES_MAX
from tests.gateway.apiexports import APIS, binding, binds, export, schema, status_of
from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server, tenant_named
from tests.gateway.organization import TENANCY, made, ready, workspace, workspace_type
from tests.gateway.test_stored_bytes import KILO, LIMIT, MAPS, filled, says, taken, tier_of

CONDITIONS = 10 * KILO
"""What says that there is no room, more or less: the product's own, which is never refused."""


@pytest.fixture
def tenant(server: Server) -> str:
    return tenant_named(server, f"t-{uuid4().hex[:8]}")


@pytest.fixture
def builder(server: Server, tenant: str) -> Caller:
    """The owner of a tenant whose tier bounds it at one mebibyte."""
    asyncio.run(says(server, tier_of(server, tenant), {"stored_mebibytes": 1}))
    caller = server.user(tenant, "olga", "tenantry:owner")
    # The longest that a ConfigMap may be, which with what every tenant has is more.
    large = filled("large", 1045)
    assert eventually(lambda: all(caller.post(MAPS, large, dryRun="All").status == 403 for _ in range(10)))
    return caller


def test_what_an_export_brings_has_the_consumers_room_and_what_has_none_comes_when_there_is(
    server: Server, tenant: str, builder: Caller
) -> None:
    """Else a provider fills its consumers, and a tenant passes its bound by its own exports."""
    org = f"/clusters/root:{tenant}"
    for name in ("provider", "one", "two"):
        ready(builder, org, name)
    text = {"type": "string", "description": "x" * 120 * KILO}
    for kind in ("Red", "Green", "Blue"):
        made(builder.post(f"{org}:provider{APIS}/apiresourceschemas", schema(kind, colour=text)))
    made(builder.post(f"{org}:provider{APIS}/apiexports", export("colours")))
    for name in ("one", "two"):
        binds(builder, f"{org}:{name}", "colours", f"root:{tenant}:provider:colours")
    names = [f"v1.{plural}.example.org" for plural in ("reds", "greens", "blues")]
    change = {"spec": {"latestResourceSchemas": names}}
    assert builder.patch(f"{org}:provider{APIS}/apiexports/colours", change).status == 200

    def current(name: str) -> tuple[str, str, str]:
        (said,) = [
            each
            for each in status_of(builder, f"{org}:{name}", "colours")["conditions"]
            if each["type"] == "BindingUpToDate"
        ]
        return said["status"], said["reason"], said["message"]

    assert eventually(lambda: "QuotaExceeded" in {current(name)[1] for name in ("one", "two")})
    for name in ("one", "two"):
        status, reason, message = current(name)
        if reason == "QuotaExceeded":
            assert status == "False" and f"={LIMIT}" in message and "delete objects" in message
        # What is there already is in force.
        assert status_of(builder, f"{org}:{name}", "colours")["phase"] == "Bound"
    counted = taken(server, tenant, below=True)
    assert counted[0] == counted[1] <= LIMIT + CONDITIONS
    other = "two" if current("one")[1] == "QuotaExceeded" else "one"
    assert builder.delete(f"{org}:{other}{APIS}/apibindings/colours").status == 200
    (left,) = {"one", "two"} - {other}
    assert eventually(lambda: len(status_of(builder, f"{org}:{left}", "colours")["boundResources"]) == 3)
    assert eventually(lambda: current(left)[:2] == ("True", "Ready"))
    counted = taken(server, tenant, below=True)
    assert counted[0] == counted[1] <= LIMIT + CONDITIONS


def test_a_binding_brings_no_more_than_it_may_however_much_room_there_is(server: Server, tenant: str) -> None:
    """Its consumer has agreed to the export, not to whatever becomes of it."""
    owner, org = server.user(tenant, "olga", "tenantry:owner"), f"/clusters/root:{tenant}"
    for name in ("provider", "consumer"):
        ready(owner, org, name)
    schemas, exports = (f"{org}:provider{APIS}/{plural}" for plural in ("apiresourceschemas", "apiexports"))
    text = {"type": "string", "description": "x" * (BINDING_BYTES_MAX // 3 + KILO)}
    names = [f"v1.{plural}.example.org" for plural in ("reds", "greens", "blues")]
    for kind in ("Red", "Green"):
        made(owner.post(schemas, schema(kind, colour=text)))
    # Of the third nobody knows yet.
    made(owner.post(exports, export("colours", *names)))
    made(owner.post(f"{org}:consumer{APIS}/apibindings", binding("colours", f"root:{tenant}:provider:colours")))
    made(owner.post(schemas, schema("Blue", colour=text)))

    def says(reason: str, bound: int) -> bool:
        status = status_of(owner, f"{org}:consumer", "colours")
        reasons = {each["reason"] for each in status.get("conditions", ())}
        return reasons == {reason} and len(status["boundResources"]) == bound

    assert eventually(lambda: says("TooLarge", 2))
    refused = owner.post(exports, export("refused", *names))
    assert (refused.status, "spec.latestResourceSchemas" in refused.body["message"]) == (422, True)
    # What an export names no longer is there still, for there may be objects of it: it counts.
    made(owner.post(schemas, schema("Grey")))
    for name, reason, bound in (("greys", "Ready", 1), ("blues", "TooLarge", 0)):
        change = {"spec": {"latestResourceSchemas": [f"v1.{name}.example.org"]}}
        assert owner.patch(f"{exports}/colours", change).status == 200
        assert eventually(lambda reason=reason, bound=bound: says(reason, bound))


def test_no_workspace_begins_with_more_than_there_is_room_for(server: Server, tenant: str, builder: Caller) -> None:
    """What its type gives it is its tenant's, claims included."""
    org = f"/clusters/root:{tenant}"
    ready(builder, org, "provider")
    kind = f"{org}:provider{TENANCY}/workspacetypes"
    claim = {"group": "", "resource": "configmaps", "resourceSelector": [{"name": "x" * 50 * KILO}]}
    for name in "abcdef":
        made(builder.post(f"{org}:provider{APIS}/apiexports", export(name, permissionClaims=[claim])))
    made(builder.post(kind, workspace_type("laden", defaultAPIBindings=[{"export": name} for name in "abcdef"])))
    laden = f"root:{tenant}:provider:laden"
    for name in ("first", "second", "third"):
        made(builder.post(f"{org}{TENANCY}/workspaces", workspace(name, laden)))

    def said(name: str) -> set[str]:
        conditions = builder.get(f"{org}{TENANCY}/workspaces/{name}").body["status"].get("conditions") or ()
        return {each["reason"] for each in conditions}

    assert eventually(lambda: any("QuotaExceeded" in said(name) for name in ("first", "second", "third")))
    counted = taken(server, tenant, below=True)
    assert counted[0] == counted[1] <= LIMIT + CONDITIONS
    refused = builder.post(f"{org}:provider{APIS}/apiexports", export("g", permissionClaims=[claim, claim]))
    assert (refused.status, "spec.permissionClaims" in refused.body["message"]) == (422, True)
