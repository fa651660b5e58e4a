"""A worker process of the API server, as it is spawned: Django first, then everything that is made of its models."""

from __future__ import annotations

import pickle
import socket

import django


def work(config: bytes, listener: socket.socket) -> None:
    """Serve what the supervisor has put together, on its socket."""
    # Not even unpickling can come before: it imports what needs the models.
    django.setup()
    from gateway.server.serving import GatewayServer

    GatewayServer(pickle.loads(config)).run(sockets=[listener])  # noqa: S301 - the supervisor's own
