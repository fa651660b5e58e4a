"""``manage.py webhooks``: what a cluster needs to ask the product, and the credential that it asks with (GW17)."""

from __future__ import annotations

import base64
from argparse import ArgumentParser
from datetime import timedelta
from pathlib import Path
from string import Template
from typing import Any, Final
from urllib.parse import urlsplit

from django.core.management.base import CommandError
from django.utils import timezone

from access.credentials.portaltokens import own_apiserver
from access.credentials.webhooks import OVERLAP, webhook_credential_rotate
from audit import commands
from audit.recorder import Actor
from kube.authentication.portaltokens import AUDIENCE, cluster_audience
from kube.requests.status import StatusError
from tenants.models import Cluster

_TEMPLATE: Final = Path(__file__).parent.parent / "webhooks.yaml"
_FOLDER: Final = "/etc/kubernetes/tenantry"
_WHEN_AWAY: Final = {
    "Fail": "nothing passes the quota while Tenantry is away, and nothing is made or changed there until it is back.",
    "Ignore": "what is written while Tenantry is away is neither judged nor held up; it counts once somebody has looked.",
}
"""The failure policies for what is written in namespaces of workspaces, and what each keeps."""
_OPERATOR: Final = Actor(name="system:command", operator=True)


class Command(commands.Command):
    """Prints manifests without a secret, and a new credential alone."""

    help = "Print what a cluster asks the webhooks by (manifests), or exchange its credential (rotate)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What each verb takes."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        manifests = verbs.add_parser("manifests", allow_abbrev=False, help="print the cluster's configuration as YAML")
        manifests.add_argument("cluster")
        manifests.add_argument("--server", default="", help="where the cluster reaches the product's API server")
        manifests.add_argument("--ca-file", type=Path, help="the CA of that address (PEM)")
        manifests.add_argument("--folder", default=_FOLDER, help=f"where the files will be ({_FOLDER})")
        manifests.add_argument(
            "--failure-policy", choices=sorted(_WHEN_AWAY), default="Fail", help="of what is written in workspaces"
        )
        rotate = verbs.add_parser(
            "rotate", allow_abbrev=False, help="print a new credential; the older ones end after a while"
        )
        rotate.add_argument("cluster")
        hours = OVERLAP.total_seconds() / 3600
        rotate.add_argument("--overlap", type=float, default=hours, metavar="HOURS", help=f"that while ({hours:g})")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the manifests, or the configuration, that the arguments ask for."""
        try:
            text = self._rotate(options) if options["verb"] == "rotate" else self._manifests(options)
        except StatusError as error:
            raise CommandError(error.message) from None
        except OSError as error:
            raise CommandError(f"{error.filename}, {error.strerror}") from None
        self.stdout.write(text, ending="" if text.endswith("\n") else "\n")

    def _rotate(self, options: dict[str, Any]) -> str:
        if not 0 <= options["overlap"] <= 24 * 366:
            raise CommandError("--overlap: from 0 hours to a year")
        overlap = timedelta(hours=options["overlap"])
        return webhook_credential_rotate(
            actor=_OPERATOR, cluster=options["cluster"], overlap=overlap, now=timezone.now()
        )

    def _manifests(self, options: dict[str, Any]) -> str:
        if not Cluster.objects.filter(name=options["cluster"], kind=Cluster.Kind.EXTERNAL).exists():
            raise CommandError(f"there is no registered cluster {options['cluster']}")
        server, ca_file = options["server"], options["ca_file"]
        own = None if server and ca_file else own_apiserver()
        if own is not None:
            server = server or own.client_url or own.server
        ca = ca_file.read_bytes() if ca_file else own.ca_data.encode() if own is not None else b""
        return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
            cluster=options["cluster"],
            url=server.rstrip("/"),
            ca=base64.b64encode(ca).decode(),
            folder=options["folder"].rstrip("/"),
            audience=AUDIENCE,
            own=cluster_audience(options["cluster"]),
            address=urlsplit(server).netloc,
            policy=options["failure_policy"],
            why=_WHEN_AWAY[options["failure_policy"]],
        )
