"""The portal on a socket, by its own server: what browsers take WebSockets from."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from portal.http.handler import PortalHandler
from portal.serving import PortalServer
from portal.signin.refusals import Noted


@contextmanager
def served_portal() -> Iterator[tuple[str, PortalServer]]:
    """Its address, by a name for which browsers keep Secure cookies, and its server."""
    server = PortalServer(PortalHandler(Noted().note))
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[listening]),), daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{listening.getsockname()[1]}", server
    finally:
        server.should_exit = True
        thread.join(300)
