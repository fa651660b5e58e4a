"""The process that the product's parts are forked from, once it has loaded what all of them need.

``python -m bench.campaign.nursery`` reads one JSON object a line and answers each with one. A part is told its own
addresses after the fork, so that two of everything run on one set of settings.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import django
import environ

JUMP, BACK = signal.SIGRTMIN + 1, signal.SIGRTMIN + 2
"""What sets a part's clock an hour on or back by turns, and right again."""

TELL = signal.SIGUSR2
"""What makes a part write into its log where it stands."""

_HOUR = 3600.0


def main() -> None:
    """Load, and do as told until the end of the input."""
    django.setup()
    from portal.management.commands import quickstart
    from portal.quickstart.embedded.children import Fork

    for module in quickstart._PARTS:
        import_module(module)
    children: dict[str, Fork] = {}
    _say({"ready": True})
    for line in sys.stdin:
        told: dict[str, Any] = json.loads(line)
        name = told["name"]
        if told["do"] == "start":
            log = Path(told["log"])
            children[name] = Fork(name, lambda told=told: _live(told), log)
            children[name].start()
            _say({"pid": children[name].process.pid})  # type: ignore[union-attr]
        elif told["do"] == "look":
            child = children[name]
            _say({"code": None if child.alive else child.wait()})
    for child in children.values():
        child.stop()


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _live(told: dict[str, Any]) -> None:
    """Be a part, or one command."""
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connections

    from portal import celery_app
    from portal.management.commands import quickstart

    _mind_the_clock()
    if "database" in told:
        settings.DATABASE_URL = told["database"]
        found = environ.Env.db_url_config(told["database"])
        for databases in (settings.DATABASES, connections.databases):
            databases["default"].update({key: found[key] for key in ("HOST", "PORT")}, OPTIONS={})
    kind = told["kind"]
    if kind == "apiserver":
        call_command("apiserver", *told["flags"], secure_port=told["port"], external_url=settings.APISERVER_URL)
    elif kind == "portal":
        call_command("portal", port=told["port"])
    elif kind == "worker":
        quickstart._work()
    elif kind == "beat":
        celery_app.Beat(schedule=told["schedule"], loglevel="INFO", quiet=True).run()
    elif kind == "command":
        call_command(*told["arguments"])
    else:
        from bench.campaign import inhabitants

        getattr(inhabitants, kind)(**told["arguments"])


def _mind_the_clock() -> None:
    import time_machine

    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # whatever happens, nobody stays behind
    travels: list[Any] = []

    def back(*_: object) -> None:
        while travels:
            travels.pop().stop()

    def jump(*_: object) -> None:
        sooner = bool(travels) or os.getpid() % 2 == 0
        back()
        travel = time_machine.travel(time.time() + (-_HOUR if sooner else _HOUR), tick=True)
        travel.start()
        travels.append(travel)

    faulthandler.register(TELL)
    signal.signal(JUMP, jump)
    signal.signal(BACK, back)


if __name__ == "__main__":
    main()
