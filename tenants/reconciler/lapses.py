"""Ends what has a time and is past it, each thing in a transaction of its own (GW25).

What is over gives nothing any more before this runs: rows are asked for their end on every use. This takes away what is
left of them, so that credentials end as well, and says so.
"""

from __future__ import annotations

from datetime import datetime

from tenants.services.endings import ends_announce, suspensions_end, workspaces_expire
from tenants.services.memberships import memberships_lapse
from tenants.services.operating.freezing import freezes_end
from tenants.services.operating.offboarding import offboardings_announce, offboardings_end
from tenants.services.operating.postponing import postponements_end
from tenants.services.requests import requests_expire


def lapses_sweep(*, now: datetime) -> int:
    """Memberships and break-glass by the database's clock, the rest by ``now``; how many there were, warnings included."""
    ended = memberships_lapse() + requests_expire(now=now)
    ended += suspensions_end(now=now) + freezes_end(now=now) + postponements_end(now=now)
    ended += offboardings_end(now=now) + offboardings_announce(now=now)
    return ended + workspaces_expire(now=now) + ends_announce(now=now)
