"""``manage.py portal``: the portal's pages and its REST API."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any, Final

from django.conf import settings
from django.core.management.base import CommandError

from audit import commands
from gateway.http.servers import PortTaken, bind
from kube.requests.durations import parse_seconds

_REMEDY: Final = "choose another with --port or PORTAL_PORT"


def _duration(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


class Command(commands.Command):
    """Serves people until it is told to stop, behind a proxy that ends TLS and passes WebSockets on."""

    help = "Run the portal."
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """As the API server's, where it has them."""
        parser.add_argument("--bind-address", default="127.0.0.1", help="address to listen on")
        parser.add_argument("--port", type=int, default=settings.PORTAL_PORT, help="port to listen on (PORTAL_PORT)")
        parser.add_argument(
            "--shutdown-delay-duration",
            type=_duration,
            default=0.0,
            help="how long to serve on, not ready any more, before an end: until whoever sends requests here knows",
        )

    def handle(self, **options: Any) -> None:
        """Serve."""
        try:
            listener = bind(options["bind_address"], options["port"], remedy=_REMEDY)
        except PortTaken as error:
            raise CommandError(str(error)) from None
        # It refuses to be loaded with a key that everybody knows.
        from portal.asgi import application
        from portal.serving import PortalServer

        server = PortalServer(application, shutdown_delay=options["shutdown_delay_duration"])
        server.run(sockets=[listener])
