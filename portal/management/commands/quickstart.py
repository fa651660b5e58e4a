"""``manage.py quickstart``: everything on this machine, set up when needed, stopped in order (contract.md)."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.embedded.children import Child
from portal.embedded.postgresql import PostgreSQL
from portal.embedded.redis import Redis
from portal.quickstart.layout import Layout, QuickstartError, check_port
from portal.quickstart.supervisor import Service, Supervisor

_HOST = "127.0.0.1"


class Command(BaseCommand):
    """Start PostgreSQL, Redis, the API server, the portal, a worker and beat; end them all on SIGINT or SIGTERM."""

    help = "Set up and run everything on this machine."
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Offer the machine-readable form."""
        parser.add_argument("--json", action="store_true", help="print one JSON object once everything is ready")

    def handle(self, **options: Any) -> None:
        """Run until a signal asks for the end."""
        layout = Layout(settings.DATA_DIR)
        say = (lambda _message: None) if options["json"] else self._say
        supervisor = Supervisor(say)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: supervisor.ask_to_stop())
        try:
            with layout.lock():
                self._run(layout, supervisor, as_json=options["json"])
        except QuickstartError as error:
            raise CommandError(str(error)) from None

    def _say(self, message: str) -> None:
        self.stderr.write(message, ending="\n")
        self.stderr.flush()

    def _run(self, layout: Layout, supervisor: Supervisor, *, as_json: bool) -> None:
        check_port(_HOST, settings.PORTAL_PORT, "PORTAL_PORT")
        check_port(_HOST, settings.APISERVER_PORT, "APISERVER_PORT")
        layout.prepare()
        say = (lambda _message: None) if as_json else self._say
        try:
            environment = self._start_databases(layout, supervisor)
            say("Preparing the database…")
            facts = self._bootstrap(layout, environment)
            say("Starting the portal, the API server and the workers…")
            for service in _services(layout, environment):
                if not supervisor.stopping:
                    supervisor.start(service)
            supervisor.wait_ready(patience=60)
            if not supervisor.stopping:
                self._announce(facts, as_json=as_json)
                supervisor.watch()
            say("Stopping…")
        except RuntimeError as error:
            raise QuickstartError(str(error)) from None
        finally:
            supervisor.stop()

    def _start_databases(self, layout: Layout, supervisor: Supervisor) -> dict[str, str]:
        """The environment of all processes, with the URLs of what was given or started here."""
        environment = {
            "TENANTRY_DATA_DIR": str(layout.folder),
            "DJANGO_SETTINGS_MODULE": os.environ.get("DJANGO_SETTINGS_MODULE", "portal.settings"),
            "PYTHONUNBUFFERED": "1",
        }
        for variable, kind in (("DATABASE_URL", PostgreSQL), ("REDIS_URL", Redis)):
            if os.environ.get(variable):
                environment[variable] = os.environ[variable]
                continue
            name = kind.__name__.lower()
            server = kind(layout.folder / name, layout.logs / f"{name}.log")
            supervisor.start(Service(server.child, server.start, server.stop))
            environment[variable] = server.url
        return environment

    def _bootstrap(self, layout: Layout, environment: Mapping[str, str]) -> dict[str, Any]:
        """Migrate and make what a first start needs, in a process that has the database's URL."""
        result = subprocess.run(
            [sys.executable, "manage.py", "bootstrap"],
            cwd=settings.BASE_DIR,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        (layout.logs / "bootstrap.log").write_text(result.stderr)
        if result.returncode:
            raise QuickstartError(f"The database could not be prepared:\n{result.stderr.strip()[-2000:]}")
        facts: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
        return facts

    def _announce(self, facts: dict[str, Any], *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(facts))
            self.stdout.flush()
            return
        password = facts["operator_password"] or "(as printed at the first start)"
        lines = [
            "",
            "Tenantry is ready.",
            "",
            f"  Portal       {facts['portal_url']}",
            f"  Sign in as   {facts['operator_email']}",
            f"  Password     {password}",
            "",
            f"  API server   {facts['apiserver_url']}",
            f"  Operators    kubectl --kubeconfig {facts['admin_kubeconfig']} get tenants",
            "",
            "Ctrl-C stops everything.",
            "",
        ]
        self.stdout.write("\n".join(lines))
        self.stdout.flush()


def _services(layout: Layout, environment: Mapping[str, str]) -> list[Service]:
    """What runs beside the databases, in the order of starting."""
    python = sys.executable
    portal_url = f"http://{_HOST}:{settings.PORTAL_PORT}"
    apiserver_url = f"https://{_HOST}:{settings.APISERVER_PORT}"

    def child(name: str, *command: str, patience: float = 15.0) -> Child:
        return Child(
            name=name, command=command, log=layout.logs / f"{name}.log", environment=environment, patience=patience
        )

    celery = (python, "-m", "celery", "--app", "portal", "--quiet")
    worker = child("worker", *celery, "worker", "--pool", "threads", "--concurrency", "4", "--loglevel", "INFO")
    beat = child("beat", *celery, "beat", "--schedule", str(layout.folder / "beat-schedule"), "--pidfile", "")
    apiserver = child("apiserver", python, "manage.py", "apiserver", *settings.APISERVER_FLAGS)
    portal = child(
        "portal",
        *(python, "-m", "uvicorn", "portal.asgi:application", "--no-access-log", "--no-server-header"),
        *("--host", _HOST, "--port", str(settings.PORTAL_PORT), "--timeout-graceful-shutdown", "5"),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return [
        _service(apiserver, lambda: _answers(f"{apiserver_url}/readyz", _trusting(context))),
        _service(portal, lambda: _answers(f"{portal_url}/readyz", None)),
        _service(worker, lambda: _says(worker.log, b" ready.")),
        _service(beat, lambda: beat.alive),
    ]


def _service(child: Child, ready: Any) -> Service:
    return Service(child, child.start, child.stop, ready)


def _trusting(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context, once the generated certificate authority exists."""
    authority = settings.PKI_DIR / "ca.crt"
    if authority.is_file() and not context.get_ca_certs():
        context.load_verify_locations(authority)
    return context


def _answers(url: str, context: ssl.SSLContext | None) -> bool:
    """Whether a GET is answered with 200."""
    try:
        with urllib.request.urlopen(url, timeout=2, context=context) as answer:  # noqa: S310 # our own URL
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _says(log: Path, words: bytes) -> bool:
    """Whether a process has written these words."""
    return log.is_file() and words in log.read_bytes()
