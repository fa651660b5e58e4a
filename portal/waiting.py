"""Redis is waited for as long as it takes, by a process that says meanwhile that it lives (GW15).

Celery waits for it in many places, each of which holds its loop: where it receives, where it sends a heartbeat, where beat
sends what is due. All of them wait in the connection.
"""

from __future__ import annotations

from typing import Any

import kombu
from celery.app.amqp import AMQP

from portal.scheduling import alive


class Connection(kombu.Connection):
    """Kombu's, which says once a second that the process waits."""

    def _ensure_connection(self, *arguments: Any, **options: Any) -> Any:
        callback = options.get("callback")

        def look() -> None:
            alive()
            if callback is not None:
                callback()

        return super()._ensure_connection(*arguments, **{**options, "callback": look})


class Broker(AMQP):
    """Celery's way to its broker, by such connections."""

    Connection = BrokerConnection = Connection
