"""An old primary that comes back beside the new one takes writes too: whoever has met the new one does not go back.

PostgreSQL's timeline grows with each promotion. A process remembers the newest that it has met at an address, and nothing
else: one that begins afterwards has to be kept from the old primary by whoever promotes the new one (docs/reliability.md).
"""

from __future__ import annotations

import logging
from typing import Final

from psycopg import OperationalError

logger = logging.getLogger(__name__)

TIMELINE: Final = "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)"
"""Of the server that is asked; a standby has none to write on, and fails."""

_newest: dict[str, str] = {}
_refused: set[str] = set()


def admit(address: str, timeline: str) -> None:
    """Let a new connection be used; raises ``psycopg.OperationalError`` for a server that was superseded."""
    newest = _newest.get(address, "")
    if timeline < newest:
        if timeline not in _refused:
            _refused.add(timeline)
            logger.error("a superseded PostgreSQL server takes writes: timeline %s, behind %s", timeline, newest)
        raise OperationalError(f"the server is on timeline {timeline}, which {newest} has superseded")
    _newest[address] = timeline
