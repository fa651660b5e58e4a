"""Keeps a fixed list of processes running, in order, and stops them in the opposite order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from portal.quickstart.embedded.children import Process, tail
from portal.quickstart.layout import QuickstartError

_WINDOW = 60.0
_RESTARTS_IN_WINDOW = 5
"""A process that dies more often than this in a minute will not get better by being started again."""


@dataclass(slots=True)
class Service:
    """A process, and how it is known to be ready."""

    process: Process
    ready: Callable[[], bool]
    deaths: deque[float] = field(default_factory=deque)


class Supervisor:
    """Brings back processes that die, and stops them all, the last one first."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._services: list[Service] = []
        self._stopping = False

    def look_after(self, process: Process, ready: Callable[[], bool] = lambda: True) -> None:
        """Bring the process back when it dies, and stop it in the end; whoever calls this has started it or will."""
        self._services.append(Service(process, ready))

    def ask_to_stop(self) -> None:
        """Make ``watch`` return; safe to call from a signal handler."""
        self._stopping = True

    @property
    def stopping(self) -> bool:
        """Whether the end has been asked for."""
        return self._stopping

    def wait_ready(self, *, patience: float) -> None:
        """Wait until every service says that it is ready.

        Raises ``QuickstartError`` with the end of the log of the first one that is not in time.
        """
        deadline = time.monotonic() + patience
        for service in self._services:
            while not self._stopping and not service.ready():
                self._mend(service)
                if time.monotonic() > deadline:
                    raise QuickstartError(
                        f"{service.process.name} did not become ready. The end of {service.process.log}:\n"
                        f"{tail(service.process.log)}"
                    )
                time.sleep(0.02)

    def watch(self) -> None:
        """Look after the services until the end is asked for.

        Raises ``QuickstartError`` when one of them keeps dying.
        """
        while not self._stopping:
            for service in self._services:
                self._mend(service)
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop all services, the last one started first."""
        self._stopping = True
        while self._services:
            self._services.pop().process.stop()

    def _mend(self, service: Service) -> None:
        if service.process.alive or self._stopping:
            return
        now = time.monotonic()
        service.deaths.append(now)
        while service.deaths[0] < now - _WINDOW:
            service.deaths.popleft()
        if len(service.deaths) > _RESTARTS_IN_WINDOW:
            raise QuickstartError(
                f"{service.process.name} keeps ending. The end of {service.process.log}:\n{tail(service.process.log)}"
            )
        self._say(f"{service.process.name} ended; starting it again (its log: {service.process.log}).")
        service.process.start()
