"""Watches over WebSockets of what a real cluster holds, of what is stored, and of both: nobody can tell which (GW4, GW5)."""

from __future__ import annotations

import pytest

from tenants.models import Role
from tenants.services import tenant_suspend
from tests.gateway.callers import config_map, eventually, names
from tests.gateway.placed.conftest import Door
from tests.gateway.sockets import opened, taken, until_closed
from tests.tenants.conftest import OPERATOR

OFFERED = ("binary.k8s.io", "base64.binary.k8s.io")
"""In one header line, which kube-apiserver itself refuses for a watch without an end to what it says."""

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("where", ["placed", "stored", "all"])
def test_a_watch_is_served_alike_and_ends_alike(door: Door, where: str) -> None:
    owner = door.person("olga", Role.OWNER)
    placed = f"/api/v1/namespaces/{door.place(owner)}/configmaps"
    stored = "/api/v1/namespaces/default/configmaps"
    path = {"placed": placed, "stored": stored, "all": "/api/v1/configmaps"}[where]
    version = owner.get(path).body["metadata"]["resourceVersion"]
    connection = opened(owner, path, watch="true", resourceVersion=version, subprotocols=OFFERED)
    assert connection.getsubprotocol() == "binary.k8s.io"
    for each in (placed, stored):
        if where in ("all", "placed" if each == placed else "stored"):
            assert owner.post(each, config_map("seen", {"a": "x" * 100_000})).status == 201
            assert names(taken(connection, 1)) == [("ADDED", "seen")]
    short = opened(owner, path, watch="true", resourceVersion=version, timeoutSeconds=1)
    events, code, _ = until_closed(short)
    assert (code, {event["type"] for event in events} - {"BOOKMARK"}) == (1000, {"ADDED"})
    tenant_suspend(actor=OPERATOR, name=door.name, reason="unpaid")
    events, code, reason = until_closed(connection)
    assert code == 1008
    assert events[-1]["type"] == "ERROR"
    assert reason


def test_the_other_tenant_gets_no_handshake(new_door) -> None:
    one, other = new_door(), new_door()
    owner, thief = one.person("olga", Role.OWNER), other.person("tom", Role.OWNER)
    path = f"/api/v1/namespaces/{one.place(owner)}/configmaps"
    with pytest.raises(Exception, match=r"Handshake status 403"):
        opened(thief, f"/clusters/root:{one.name}{path}", watch="true")
    # In the thief's own space nothing has that name.
    assert until_closed(opened(thief, path, watch="true", timeoutSeconds=1)) == ([], 1000, "")
    tenant_suspend(actor=OPERATOR, name=one.name, reason="unpaid")
    assert eventually(lambda: owner.get(path).status == 403)
    with pytest.raises(Exception, match="Handshake status 403"):
        opened(owner, path, watch="true")
