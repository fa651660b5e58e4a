"""What Celery's beat wakes for tenants, in one process without a broker: ``python -m tests.gateway.worker``."""

from __future__ import annotations

import os
import time

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
django.setup()

from tenants import tasks  # noqa: E402 -- Django's applications first

while __name__ == "__main__":
    tasks.operations_sweep()
    tasks.tenants_end()
    tasks.lapses_sweep()
    time.sleep(0.5)
