"""``manage.py keys``: every key and certificate of an installation in a cluster, as Secrets for ``kubectl create -f -``."""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings

from audit import commands
from portal.quickstart.keys import databases_secrets, keys_make, keys_secrets


class Command(commands.Command):
    """Made anew unless a data folder is named; nothing is kept here, and nothing is sent anywhere."""

    help = "Print the Secrets of an installation in a cluster: keys and certificates."
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where it will run."""
        add = parser.add_argument
        add("--namespace", default="tenantry", help="namespace of the installation")
        add("--release", default="tenantry", help="name of the Helm release: what the Secrets' names begin with")
        add("--url", default=settings.APISERVER_URL, help="where clients will reach the API server (APISERVER_URL)")
        add("--host", action="append", default=[], help="another name or address of the API server; may be repeated")
        add("--folder", type=Path, help="a data folder whose keys these are to be; what is missing is made there")
        add("--bundled", action="store_true", help="passwords of the chart's own small PostgreSQL and Redis as well")

    def handle(self, **options: Any) -> None:
        """Print the Secrets as YAML; keys that the folder lacks are made there."""
        namespace, release = options["namespace"], options["release"]
        service = f"{release}-apiserver"
        names = [service, f"{service}.{namespace}", f"{service}.{namespace}.svc", *options["host"]]
        with tempfile.TemporaryDirectory(prefix="tenantry-keys-") as temporary:
            folder = options["folder"] or Path(temporary)
            keys_make(folder, url=options["url"], names=names)
            made = keys_secrets(folder, namespace=namespace, prefix=release)
        if options["bundled"]:
            made += databases_secrets(namespace=namespace, prefix=release)
        self.stdout.write(yaml.safe_dump_all(made, sort_keys=False), ending="")
