"""``manage.py bootstrap``: migrate and make what a new release needs; running it again changes nothing."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management import call_command

from audit import commands
from portal.quickstart.bootstrap import bootstrap


class Command(commands.Command):
    """Print the facts as one JSON object on the last line."""

    help = "Migrate the database and make the system space, tiers, the embedded cluster and the first operator."
    requires_migrations_checks = False
    requires_system_checks = ()

    def handle(self, **_options: Any) -> None:
        """Prepare the installation; what is there already stays."""
        if settings.STATIC_COLLECTED is None:
            call_command("collectstatic", interactive=False, verbosity=0, ignore_patterns=["rest_framework"])
        self.stdout.write(json.dumps(asdict(bootstrap())))
