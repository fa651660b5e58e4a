"""A worker process of the API server, as it is spawned: Django first, then everything that is made of its models."""

from __future__ import annotations

import pickle
import socket
from pathlib import Path

import django


def work(config: bytes, listener: socket.socket, folder: Path, number: int) -> None:
    """Serve what the supervisor has put together, on its socket; the ``number``-th of those that meet in ``folder``."""
    # Not even unpickling can come before: it imports what needs the models.
    django.setup()
    from gateway.process.siblings import Siblings
    from gateway.server.serving import GatewayServer

    made = pickle.loads(config)  # noqa: S301 - the supervisor's own
    made.app.siblings = Siblings(folder, number)
    GatewayServer(made).run(sockets=[listener])
