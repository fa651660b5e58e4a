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
    # The message is only a wake-up: what is late is not worth doing twice.
    "sweep": {"task": "tenants.operations_sweep", "schedule": 2.0, "options": {"expires": 2}},
    "drift": {"task": "tenants.workspaces_reconcile", "schedule": 10.0, "options": {"expires": 10}},
    "clusters": {"task": "tenants.clusters_recheck", "schedule": 60.0, "options": {"expires": 60}},
    "probes": {"task": "tenants.clusters_probe", "schedule": 30.0, "options": {"expires": 30}},
    "lapses": {"task": "tenants.lapses_sweep", "schedule": 5.0, "options": {"expires": 5}},
    "notices": {"task": "portal.notices_send", "schedule": 5.0, "options": {"expires": 5}},
    "recordings": {"task": "tenants.recordings_sweep", "schedule": 60.0, "options": {"expires": 60}},
    "endings": {"task": "tenants.tenants_end", "schedule": 5.0, "options": {"expires": 5}},
    "credentials": {"task": "access.credentials_expire", "schedule": 30.0, "options": {"expires": 30}},
    "usage": {"task": "access.usage_sample", "schedule": 300.0, "options": {"expires": 300}},
    "compaction": {"task": "store.compact", "schedule": 300.0, "options": {"expires": 300}},
    "refusals": {"task": "portal.refusals_record", "schedule": 60.0, "options": {"expires": 60}},
    "sessions": {"task": "portal.sessions_forget", "schedule": 300.0, "options": {"expires": 300}},
    "checkpoints": {"task": "audit.checkpoints_write", "schedule": 60.0, "options": {"expires": 60}},
    "partitions": {"task": "audit.partitions_prepare", "schedule": 3600.0, "options": {"expires": 3600}},
}
