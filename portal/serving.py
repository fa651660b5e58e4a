"""The portal on a socket: the one way in which it is served, and how it ends while others serve on."""

from __future__ import annotations

from typing import Any, Final

import uvicorn

from gateway.http.protocol import IDLE_SECONDS
from gateway.http.servers import BACKLOG, OrderlyServer
from portal.protocol import LEAVING, PortalProtocol

GRACE_SECONDS: Final = 30
"""How long what runs may take to be finished, once nobody new is let in."""


class PortalServer(OrderlyServer):
    """``application``, an ASGI application, by our own protocol.

    No header is believed but by ``TRUSTED_PROXIES``, and requests are logged by the proxy, if by anybody: addresses hold
    the secrets of links.
    """

    def __init__(self, application: Any, *, shutdown_delay: float = 0) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                http=PortalProtocol,
                ws="none",
                loop="uvloop",
                lifespan="off",
                proxy_headers=False,
                server_header=False,
                access_log=False,
                log_config=None,
                timeout_keep_alive=int(IDLE_SECONDS),
                timeout_graceful_shutdown=GRACE_SECONDS,
                backlog=BACKLOG,
            )
        )
        self._shutdown_delay = shutdown_delay

    @property
    def shutdown_delay(self) -> float:
        """See ``OrderlyServer``."""
        return self._shutdown_delay

    def stop_being_ready(self) -> None:
        """See ``OrderlyServer``: connections and ``/readyz`` look at this mark."""
        self.lifespan.state[LEAVING] = True
