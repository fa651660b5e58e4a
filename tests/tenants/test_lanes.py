"""How workers share themselves out among clusters (GW12, GW15, P11)."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from django.utils import timezone

from tenants.models import Cluster, Operation, OperationState, Phase, Workspace
from tenants.operationqueue import CLUSTER_LANES, CLUSTER_LANES_CLOSING, claim
from tenants.services import workspace_suspend
from tests import factories
from tests.tenants.conftest import OPERATOR

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("leases_last")]


def waiting(cluster: Cluster, count: int) -> list[Workspace]:
    """Workspaces of as many tenants, each with an operation that is due."""
    made = []
    for _ in range(count):
        tenant = factories.tenant()
        made.append(factories.workspace(tenant, factories.member(tenant), cluster=cluster, phase=Phase.PROVISIONING))
    Operation.objects.update(state=OperationState.PENDING, not_before=timezone.now() - timedelta(hours=1))
    return made


def claims(count: int) -> Counter[str]:
    """On which clusters the next free workers are."""
    found = [claimed for _ in range(count) if (claimed := claim()) is not None]
    rows = Operation.objects.filter(pk__in=[pk for pk, _fence in found]).values_list(
        "workspace__cluster__name", "desired"
    )
    return Counter(f"{name} {desired}" for name, desired in rows)


def test_one_registered_cluster_keeps_lanes_free_for_the_others_and_for_its_suspensions():
    """However slowly it answers, and however many tenants are on it."""
    crowded = waiting(factories.cluster("slow"), CLUSTER_LANES_CLOSING + 6)
    assert claims(40) == {"slow ready": CLUSTER_LANES}
    # What is at work keeps its lane; a suspension of the same workspace would wait for it, and free the lane.
    at_work = set(Operation.objects.filter(state=OperationState.RUNNING).values_list("workspace_id", flat=True))
    untouched = [workspace for workspace in crowded if workspace.pk not in at_work][:6]
    waiting(factories.cluster("other"), 2)
    Operation.objects.filter(workspace__cluster__name="slow").update(state=OperationState.RUNNING)
    assert claims(40) == {"other ready": 2}
    for workspace in untouched:
        workspace_suspend(actor=OPERATOR, workspace_id=workspace.pk, reason="mining")
    Operation.objects.filter(desired="suspended", state=OperationState.PENDING).update(
        not_before=timezone.now() - timedelta(hours=1)
    )
    assert claims(40) == {"slow suspended": CLUSTER_LANES_CLOSING - CLUSTER_LANES}


def test_the_products_own_api_server_has_all_lanes():
    waiting(factories.cluster("own", kind=Cluster.Kind.EMBEDDED), CLUSTER_LANES_CLOSING + 2)
    assert claims(40) == {"own ready": CLUSTER_LANES_CLOSING + 2}
