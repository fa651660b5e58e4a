"""The space of a tenant that is not there is not an empty one (TS1)."""

from __future__ import annotations

import pytest

from kube.requests.names import RESERVED_TENANTS
from tests.gateway.callers import Caller


@pytest.mark.parametrize(
    "path",
    [
        *(
            f"/clusters/root:nobody{path}"
            for path in (
                "/api/v1/namespaces",
                "/api/v1/configmaps",
                "/api/v1/namespaces/default/secrets",
                "/apis/apps/v1/deployments",
            )
        ),
        "/api/v1/tenants/nobody/namespaces",
        "/api/v1/tenants/nobody/namespaces/default/pods",
        "/apis/apps/v1/tenants/nobody/deployments",
    ],
)
def test_a_list_in_a_tenant_that_is_not_there_is_not_found(admin: Caller, path: str) -> None:
    answers = [admin.get(path), admin.get(path, watch="1"), admin.get(path, limit="1")]
    if "namespaces/" in path:
        answers.append(admin.delete(path))
    for answer in answers:
        assert (answer.status, answer.reason) == (404, "NotFound")
        assert answer.body["message"] == 'tenants "nobody" not found'


def test_nor_is_one_in_a_workspace_of_it(admin: Caller) -> None:
    for path in ("/api/v1/configmaps", "/api/v1/namespaces"):
        assert admin.get(f"/clusters/root:nobody:team{path}").status in (403, 404)


@pytest.mark.parametrize("name", sorted(RESERVED_TENANTS))
def test_nor_is_there_ever_one_by_a_reserved_name(admin: Caller, name: str) -> None:
    """URL-16: kubectl comes by the same way."""
    refused = admin.post("/api/v1/tenants", {"metadata": {"name": name}})
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert f"'{name}' is reserved" in refused.body["message"]
