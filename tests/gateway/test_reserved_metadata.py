"""What kcp's domain names is the server's: whoever meets a mark of it may believe it (KC13)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.gateway.callers import Caller, config_map
from tests.gateway.conftest import Server, tenant_named
from tests.gateway.organization import TENANCY, workspace_type

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def olga(server: Server) -> Caller:
    """An owner."""
    return server.user(tenant_named(server, f"marks-{uuid4().hex[:6]}"), "olga", "tenantry:owner")


@pytest.mark.parametrize("field", ["annotations", "labels"])
@pytest.mark.parametrize("key", ["kcp.io/cluster", "core.kcp.io/max-total-objects", "claimed.internal.apis.kcp.io/x"])
def test_nobody_sets_changes_or_takes_off_the_servers_marks(server: Server, olga: Caller, field: str, key: str) -> None:
    name = f"m-{uuid4().hex[:8]}"
    marked = config_map(name, **{field: {key: "a", "mine": "b"}})
    refused = olga.post(MAPS, marked)
    assert refused.status == 403
    assert f'modification of reserved {field[:-1]}: "{key}"' in refused.body["message"]
    tenant = olga.get("/api/v1/namespaces/default").body["metadata"]["tenant"]
    assert server.admin.post(f"/clusters/root:{tenant}{MAPS}", marked).status == 201, "the operators' masters may"
    one = f"{MAPS}/{name}"
    for value in ("c", None):
        assert olga.patch(one, {"metadata": {field: {key: value}}}).status == 403
    assert olga.put(one, config_map(name)).status == 403
    assert olga.patch(one, {"metadata": {field: {"mine": None}}, "data": {"d": "e"}}).status == 200
    kept: dict[str, Any] = olga.get(one).body
    assert (kept["metadata"][field], kept["data"]) == ({key: "a"}, {"a": "1", "d": "e"})
    assert olga.delete(one).status == 200


@pytest.mark.parametrize("key", ["kcp.io", "notkcp.io/a", "kcp.io.example.com/a"])
def test_what_only_looks_like_it_is_anybodys(olga: Caller, key: str) -> None:
    name = f"m-{uuid4().hex[:8]}"
    assert olga.post(MAPS, config_map(name, annotations={key: "a"}, labels={key: "a"})).status == 201
    assert olga.patch(f"{MAPS}/{name}", {"metadata": {"annotations": {key: None}}}).status == 200


@pytest.mark.parametrize("name", ["any", "system"])
def test_some_names_of_types_are_reserved(olga: Caller, name: str) -> None:
    """KC10."""
    tenant = olga.get("/api/v1/namespaces/default").body["metadata"]["tenant"]
    refused = olga.post(f"/clusters/root:{tenant}{TENANCY}/workspacetypes", workspace_type(name))
    assert refused.status == 403
    assert f'Invalid value: "{name}": name is reserved' in refused.body["message"]
