"""Which clusters answer, and how fast (GW12)."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit.actions import Action
from audit.models import AuditEntry
from tenants.models import Cluster, ClusterProbe
from tenants.reconciler.reachability import KEPT, clusters_probe
from tenants.selectors import clusters_to_tend, latencies_of
from tenants.services import cluster_register
from tests import factories
from tests.clusters import TestCluster
from tests.faultproxy import Fault
from tests.tenants.conftest import OPERATOR

BOTH = pytest.mark.parametrize("cluster", [pytest.param("kube-apiserver"), pytest.param("embedded")], indirect=True)


def turns() -> list[str]:
    """What the audit tells of clusters that come and go."""
    actions = (Action.CLUSTER_AWAY, Action.CLUSTER_BACK)
    return list(AuditEntry.objects.filter(action__in=actions).order_by("sequence").values_list("action", flat=True))


@BOTH
@pytest.mark.django_db(transaction=True)
def test_a_cluster_says_its_version_and_is_missed_once(cluster: TestCluster) -> None:
    """It is away from the first question without an answer on, and told of once; and once that it is back."""
    deadline = time.monotonic() + 300
    while not clusters_probe():
        # The product's own may still be on its way to listening.
        assert time.monotonic() < deadline, Cluster.objects.get().unreached_why
        time.sleep(0.2)
    ClusterProbe.objects.all().delete()
    before = turns()
    found = Cluster.objects.get()
    assert (found.version.startswith("v1."), found.unreached_since) == (True, None)
    assert found.latency_ms is not None
    # The credentials of tests are short.
    Cluster.objects.update(credential_expires_at=None)
    assert clusters_to_tend(OPERATOR, now=timezone.now()) == []
    fault = Fault("503", path="/version$", times=2)
    cluster.proxy.faults.append(fault)
    assert (clusters_probe(), clusters_probe()) == (0, 0)
    away = Cluster.objects.get()
    assert (away.last_seen_at, away.latency_ms, turns()) == (found.last_seen_at, None, [*before, Action.CLUSTER_AWAY])
    assert away.unreached_since is not None
    assert "503" in away.unreached_why
    assert clusters_to_tend(OPERATOR, now=timezone.now()) == [away]
    assert clusters_probe() == 1
    back = Cluster.objects.get()
    assert (back.unreached_since, back.unreached_why) == (None, "")
    assert turns() == [*before, Action.CLUSTER_AWAY, Action.CLUSTER_BACK]
    begin = timezone.now() - timedelta(hours=1)
    ((_, _, missed, asked),) = latencies_of(back, since=begin, step=timedelta(hours=2))
    assert (missed, asked) == (2, 3)


@pytest.mark.django_db
def test_a_cluster_that_hangs_keeps_nobody_from_knowing_of_the_others(cluster: TestCluster) -> None:
    cluster_register(actor=OPERATOR, name="swift", kubeconfig=cluster.real.kubeconfig("tenantry-gateway"))
    fault = Fault("hold", path="/version$")
    cluster.proxy.faults.append(fault)
    try:
        assert clusters_probe() == 1
    finally:
        fault.go.set()
    assert list(ClusterProbe.objects.order_by("pk").values_list("cluster__name", flat=True)) == ["swift", cluster.kind]
    assert Cluster.objects.get(name=cluster.kind).unreached_since is not None
    assert Cluster.objects.get(name="swift").unreached_since is None


@pytest.mark.django_db
def test_many_clusters_are_few_statements() -> None:
    """Those whose credential cannot be opened are away as well, and say why."""
    for number in range(60):
        factories.cluster(f"c{number}")
    clusters_probe()
    with CaptureQueriesContext(connection) as queries:
        assert clusters_probe() == 0
    assert ClusterProbe.objects.count() == 120
    assert len(queries) < 60, "a statement a cluster would be more"
    assert not Cluster.objects.filter(unreached_why="").exists()


@pytest.mark.django_db
def test_old_probes_are_forgotten() -> None:
    cluster, now = factories.cluster(), timezone.now()
    for age in (timedelta(hours=1), KEPT + timedelta(minutes=1), KEPT * 3):
        ClusterProbe.objects.create(cluster=cluster, at=now - age, latency_ms=3)
    clusters_probe()
    assert ClusterProbe.objects.filter(at__lt=now - KEPT).count() == 0
    assert ClusterProbe.objects.count() == 2
