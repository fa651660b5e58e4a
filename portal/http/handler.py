"""Django behind the portal's connections: what it is told of a body is what came of it."""

from __future__ import annotations

import os
from typing import IO, Any

from django.core.handlers.asgi import ASGIHandler, ASGIRequest


class PortalRequest(ASGIRequest):
    """A request whose ``CONTENT_LENGTH`` is the size of its body, whatever its sender said, or left unsaid.

    A body in chunks has no length in its head, and whoever reads the head alone takes it for none: what was asked for
    in it would not be kept, and what is given without asking may be more (GW3).
    """

    def __init__(self, scope: dict[str, Any], body_file: IO[bytes]) -> None:
        super().__init__(scope, body_file)
        self.META["CONTENT_LENGTH"] = str(body_file.seek(0, os.SEEK_END))
        body_file.seek(0)


class PortalHandler(ASGIHandler):
    """Django's handler, which has read a body whole before it makes a request of it."""

    request_class = PortalRequest
