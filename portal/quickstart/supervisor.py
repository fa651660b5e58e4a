"""Keeps a fixed list of processes running, in order, and stops them in the opposite order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from portal.embedded.children import Child
from portal.quickstart.layout import QuickstartError

_WINDOW = 60.0
_RESTARTS_IN_WINDOW = 5
"""A process that dies more often than this in a minute will not get better by being started again."""


@dataclass(slots=True)
class Service:
    """A process, how it is started, stopped, and known to be ready."""

    child: Child
    start: Callable[[], None]
    stop: Callable[[], None]
    ready: Callable[[], bool] = lambda: True
    deaths: deque[float] = field(default_factory=deque)


class Supervisor:
    """Starts services one after the other and brings back those that die."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._services: list[Service] = []
        self._stopping = False

    def start(self, service: Service) -> None:
        """Start a service; it is looked after from now on."""
        self._services.append(service)
        service.start()

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
                        f"{service.child.name} did not become ready. The end of {service.child.log}:\n"
                        f"{service.child.tail()}"
                    )
                time.sleep(0.05)

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
            self._services.pop().stop()

    def _mend(self, service: Service) -> None:
        if service.child.alive or self._stopping:
            return
        now = time.monotonic()
        service.deaths.append(now)
        while service.deaths[0] < now - _WINDOW:
            service.deaths.popleft()
        if len(service.deaths) > _RESTARTS_IN_WINDOW:
            raise QuickstartError(
                f"{service.child.name} keeps ending. The end of {service.child.log}:\n{service.child.tail()}"
            )
        self._say(f"{service.child.name} ended; starting it again (its log: {service.child.log}).")
        service.start()
