"""The portal on a socket, by its own protocol, as ``uvicorn`` serves it: what browsers take WebSockets from."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from django.core.handlers.asgi import ASGIHandler


@contextmanager
def served_portal() -> Iterator[tuple[str, uvicorn.Server]]:
    """Its address, by a name for which browsers keep Secure cookies, and its server."""
    config = uvicorn.Config(
        ASGIHandler(), http="portal.protocol:PortalProtocol", ws="none", lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[listening]),), daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{listening.getsockname()[1]}", server
    finally:
        server.should_exit = True
        thread.join(20)
