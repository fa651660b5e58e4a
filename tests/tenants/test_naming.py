"""Names that a tenant may have are the same in the portal, the REST API and kubectl (TS1, URL-16)."""

from __future__ import annotations

import pytest

from kube.requests.names import RESERVED_TENANTS
from kube.requests.status import Invalid
from tenants.naming import check_tenant_name


@pytest.mark.parametrize("name", [*sorted(RESERVED_TENANTS), "", "Upper", "a.b", "a" * 64])
def test_a_name_that_a_path_could_not_mean_is_nobodys(name: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_tenant_name(name)
    assert refused.value.causes[0].field == "metadata.name"


def test_any_other_label_is_a_name() -> None:
    assert check_tenant_name("acme-2") == "acme-2"
