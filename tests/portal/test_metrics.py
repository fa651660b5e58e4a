"""What is told to Prometheus is of everybody's work, though whoever asks is nobody (GW12)."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from tenants.models import OperationState
from tests import factories
from tests.portal.conftest import House

pytestmark = pytest.mark.django_db(transaction=True)


def told(metric: str) -> dict[str, float]:
    """The values of a metric by the text of their labels."""
    text = Client().get("/metrics").content.decode()
    return {labels: float(value) for labels, value in re.findall(rf"^{metric}\{{(.*)\}} (\S+)$", text, re.MULTILINE)}


def test_work_that_waits_and_work_that_was_in_vain(acme: House) -> None:
    long_ago = timezone.now() - timedelta(hours=1)
    late = factories.workspace(acme.tenant, acme.editor, "late")
    late.operations.update(state=OperationState.PENDING, not_before=long_ago, created_at=long_ago)
    factories.workspace(acme.tenant, acme.editor, "vain").operations.update(state=OperationState.FAILED, error="x")
    counts, overdue = told("tenantry_operations"), told("tenantry_operations_overdue_seconds")
    assert counts['state="failed"'] == 1
    assert counts['state="pending"'] >= 1
    assert overdue['state="pending"'] >= 3600
    assert told("tenantry_cluster_reached") == {f'cluster="{acme.workspace.cluster.name}"': 1}
