"""Points at which a worker of a test build can be made to die, to prove that nothing is lost (GW15).

``TENANTRY_FAILPOINT`` names one; it counts only where the settings allow fail points at all.
"""

from __future__ import annotations

import os
import signal

from django.conf import settings


def failpoint(name: str) -> None:
    """Die here by SIGKILL, as a power cut would have it, if this point is the configured one."""
    if settings.FAILPOINT and name == settings.FAILPOINT:
        os.kill(os.getpid(), signal.SIGKILL)
