"""The space of a tenant that is not there is not an empty one (TS1)."""

from __future__ import annotations

import pytest

from tests.gateway.callers import Caller


@pytest.mark.parametrize(
    "path",
    ["/api/v1/namespaces", "/api/v1/configmaps", "/api/v1/namespaces/default/secrets", "/apis/apps/v1/deployments"],
)
def test_a_list_in_a_tenant_that_is_not_there_is_not_found(admin: Caller, path: str) -> None:
    for query in ({}, {"watch": "1"}):
        answer = admin.get(f"/clusters/root:nobody{path}", **query)
        assert (answer.status, answer.reason) == (404, "NotFound")
        assert answer.body["message"] == 'tenants "nobody" not found'
