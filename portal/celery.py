"""Celery wakes workers and sweeps; PostgreSQL is the queue of record (GW15)."""

import os
from typing import Any

from celery import Celery
from celery.signals import worker_init

from audit import tracing

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

app = Celery("tenantry", amqp="portal.waiting:Broker")
app.config_from_object("django.conf:settings", namespace="CELERY")


@worker_init.connect(weak=False)
def _begin(**_: Any) -> None:
    """Trace the work, where it is wanted; not in every process that wakes workers."""
    tracing.start("tenantry-worker")


app.conf.imports = ["portal.scheduling"]
app.autodiscover_tasks(["tenants", "access", "audit", "store", "portal"])
app.conf.beat_schedule = {
    # By beat's clock, and for as long as few messages wait (``portal.scheduling``): "expires" would be read on a worker's clock.
    "sweep": {"task": "tenants.operations_sweep", "schedule": 2.0},
    "drift": {"task": "tenants.workspaces_reconcile", "schedule": 10.0},
    "clusters": {"task": "tenants.clusters_recheck", "schedule": 60.0},
    "probes": {"task": "tenants.clusters_probe", "schedule": 30.0},
    "lapses": {"task": "tenants.lapses_sweep", "schedule": 5.0},
    "notices": {"task": "portal.notices_send", "schedule": 5.0},
    "heartbeat": {"task": "portal.heartbeat", "schedule": 10.0},
    "recordings": {"task": "tenants.recordings_sweep", "schedule": 60.0},
    "endings": {"task": "tenants.tenants_end", "schedule": 5.0},
    "credentials": {"task": "access.credentials_expire", "schedule": 30.0},
    "usage": {"task": "access.usage_sample", "schedule": 300.0},
    "compaction": {"task": "store.compact", "schedule": 300.0},
    "refusals": {"task": "portal.refusals_record", "schedule": 60.0},
    "sessions": {"task": "portal.sessions_forget", "schedule": 300.0},
    "checkpoints": {"task": "audit.checkpoints_write", "schedule": 60.0},
    "partitions": {"task": "audit.partitions_prepare", "schedule": 3600.0},
}
