"""What Celery wakes: ids at most as arguments, nothing as a result; PostgreSQL knows what is to be done (GW15)."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from tenants import services
from tenants.reconciler import deletion, lapses, loop, reachability


@shared_task(name="tenants.operations_sweep", ignore_result=True)
def operations_sweep() -> None:
    """Run every due operation: woken by services, and every 2 s in case nobody woke."""
    loop.operations_sweep()


@shared_task(name="tenants.workspaces_reconcile", ignore_result=True)
def workspaces_reconcile() -> None:
    """Look for drift."""
    loop.workspaces_reconcile()


@shared_task(name="tenants.clusters_recheck", ignore_result=True)
def clusters_recheck() -> None:
    """Prove anew what registered clusters must be."""
    loop.clusters_recheck()


@shared_task(name="tenants.clusters_probe", ignore_result=True)
def clusters_probe() -> None:
    """See which clusters answer, and how fast."""
    reachability.clusters_probe()


@shared_task(name="tenants.tenants_end", ignore_result=True)
def tenants_end() -> None:
    """End tenants that have become empty."""
    deletion.tenants_end()


@shared_task(name="tenants.lapses_sweep", ignore_result=True)
def lapses_sweep() -> None:
    """End what has a time and is past it: memberships, break-glass, requests that nobody has decided."""
    lapses.lapses_sweep(now=timezone.now())


@shared_task(name="tenants.recordings_sweep", ignore_result=True)
def recordings_sweep() -> None:
    """End recordings that nobody keeps any more, and let go of those that are past their time."""
    services.recordings_close(now=timezone.now())
    services.recordings_forget(now=timezone.now())
