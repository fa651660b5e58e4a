"""``manage.py quickstart``: everything on this machine, set up when needed, stopped in order.

The parts are forked from this process once it has loaded what all of them need: nothing is loaded twice, while the
databases start beside it. One of them that dies is back at once.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError, CommandParser

from audit import commands
from portal import celery_app
from portal.quickstart.embedded.children import Fork, tail
from portal.quickstart.embedded.postgresql import PostgreSQL
from portal.quickstart.embedded.redis import Redis
from portal.quickstart.layout import Layout, QuickstartError, check_port
from portal.quickstart.supervisor import Supervisor

_HOST = "127.0.0.1"
_PARTS = (
    *("portal.asgi", "portal.serving", "portal.urls", "portal.management.commands.portal", "uvicorn.loops.uvloop"),
    *("gateway.server.serving", "gateway.management.commands.apiserver"),
    *("celery.apps.worker", "celery.apps.beat", "celery.concurrency.thread", "kombu.transport.redis"),
)
"""What the parts are made of, beside the models."""


class Command(commands.Command):
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
            if layout.make_secrets():
                # The settings were read before there were any.
                os.execv(sys.executable, sys.orig_argv)  # noqa: S606 # ourselves, as we were called
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
            self._start_databases(layout, supervisor)
            say("Preparing the database…")
            facts = self._bootstrap(layout)
            say("Starting the portal, the API server and the workers…")
            for part, ready in _parts(layout):
                if not supervisor.stopping:
                    part.start()
                    supervisor.look_after(part, ready)
            supervisor.wait_ready(patience=60)
            if not supervisor.stopping:
                self._announce(facts, as_json=as_json)
                supervisor.watch()
            say("Stopping…")
        except RuntimeError as error:
            raise QuickstartError(str(error)) from None
        finally:
            supervisor.stop()

    def _start_databases(self, layout: Layout, supervisor: Supervisor) -> None:
        """Start what no URL names, and load what everything else needs meanwhile."""
        servers = []
        for variable, kind in (("DATABASE_URL", PostgreSQL), ("REDIS_URL", Redis)):
            if not os.environ.get(variable):
                name = kind.__name__.lower()
                server = kind(layout.folder / name, layout.logs / f"{name}.log")
                supervisor.look_after(server)
                server.launch()
                servers.append(server)
        for module in _PARTS:
            import_module(module)
        for server in servers:
            server.wait()

    def _bootstrap(self, layout: Layout) -> dict[str, Any]:
        """Migrate and make what a first start needs. The answer may hold a password: it goes through no file."""
        from portal.quickstart.bootstrap import bootstrap

        reader, writer = os.pipe()
        child = Fork(
            "bootstrap",
            lambda: os.write(writer, json.dumps(asdict(bootstrap())).encode()),
            layout.logs / "bootstrap.log",
        )
        child.start()
        os.close(writer)
        with os.fdopen(reader) as pipe:
            answer = pipe.read()
        if child.wait():
            raise QuickstartError(f"The database could not be prepared:\n{tail(child.log)}")
        facts: dict[str, Any] = json.loads(answer)
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


def _parts(layout: Layout) -> list[tuple[Fork, Callable[[], bool]]]:
    """What runs beside the databases, in the order of starting, and how each is known to be ready."""
    portal_url = f"http://{_HOST}:{settings.PORTAL_PORT}"
    apiserver_url = f"https://{_HOST}:{settings.APISERVER_PORT}"
    schedule = layout.folder / "beat-schedule"

    def fork(name: str, run: Callable[[], object]) -> Fork:
        return Fork(name, run, layout.logs / f"{name}.log")

    apiserver = fork("apiserver", lambda: call_command("apiserver"))
    portal = fork("portal", lambda: call_command("portal"))
    worker = fork("worker", _work)
    beat = fork("beat", lambda: celery_app.Beat(schedule=str(schedule), loglevel="INFO", quiet=True).run())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return [
        (apiserver, lambda: _answers(f"{apiserver_url}/readyz", _trusting(context))),
        (portal, lambda: _answers(f"{portal_url}/readyz", None)),
        (worker, lambda: _says(worker.log, b" ready.")),
        (beat, lambda: beat.alive),
    ]


def _work() -> None:
    # There is no other worker to look for, which would take a second.
    alone: dict[str, Any] = {"without_mingle": True, "without_gossip": True}
    celery_app.Worker(pool="threads", concurrency=4, loglevel="INFO", quiet=True, **alone).start()


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
