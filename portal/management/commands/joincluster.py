"""``manage.py joincluster``: register the cluster that this runs in, or renew its credential before it ends."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from audit import commands
from kube.requests.status import StatusError
from portal.quickstart.joining import NotJoined, cluster_join


class Command(commands.Command):
    """Asks the cluster for a client certificate of the gateway's user, and registers with it."""

    help = "Register the Kubernetes cluster that this Pod runs in."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What it is to be called."""
        add = parser.add_argument
        add("name", help="the cluster's name in Tenantry")
        add("--client-url", default="", help="where people's kubeconfigs find it; its address inside by default")
        add("--approve", action="store_true", help="approve the request for the certificate as well, where one may")
        add("--patience", type=float, default=600, help="seconds to wait until somebody has approved it")

    def handle(self, **options: Any) -> None:
        """Register the cluster that this runs in."""
        try:
            said = cluster_join(
                name=options["name"],
                client_url=options["client_url"],
                approve=options["approve"],
                patience=options["patience"],
            )
        except (NotJoined, StatusError) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(said)
