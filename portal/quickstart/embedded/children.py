"""Child processes that never outlive their parent, even when the parent is killed with SIGKILL."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_FORK = multiprocessing.get_context("fork")


def _die_with_parent(parent: int, signal_number: int) -> None:
    """In the child, before exec: ask the kernel for ``signal_number`` when the parent dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)


class Process(Protocol):
    """What a supervisor needs of a process."""

    name: str
    log: Path

    def start(self) -> None:
        """Start it, its output appended to ``log``, in a process group of its own: Ctrl-C reaches only the parent."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""

    def stop(self) -> None:
        """Ask it to end, wait, and kill its group if it does not."""


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log, for an error message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


@dataclass(slots=True)
class Program:
    """Another program.

    ``stop_signal`` is what asks it to end in good order; after ``patience`` seconds it is killed. ``user`` is the
    system user to become (only root may).
    """

    name: str
    command: Sequence[str]
    log: Path
    stop_signal: int = signal.SIGTERM
    patience: float = 15.0
    user: str | None = None
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """As ``Process``."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        parent = os.getpid()
        account: dict[str, object] = {}
        if self.user is not None:
            account = {"user": self.user, "group": self.user, "extra_groups": []}
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(  # type: ignore[call-overload] # keywords for the account vary  # noqa: S603
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=lambda: _die_with_parent(parent, self.stop_signal),  # noqa: PLW1509 # one thread forks
                **account,
            )

    @property
    def alive(self) -> bool:
        """As ``Process``."""
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """As ``Process``."""
        if self.process is None:
            return
        if self.alive:
            self.process.send_signal(self.stop_signal)
            try:
                self.process.wait(self.patience)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.process = None


@dataclass(slots=True)
class Fork:
    """A function of this program in a process of its own, which begins with every module that is loaded here.

    The parent must have one thread and no connection open when it starts it.
    """

    name: str
    run: Callable[[], object]
    log: Path
    patience: float = 15.0
    process: multiprocessing.process.BaseProcess | None = None

    def start(self) -> None:
        """As ``Process``."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.process = _FORK.Process(target=self._run, args=(os.getpid(),), name=self.name)
        self.process.start()

    @property
    def alive(self) -> bool:
        """As ``Process``."""
        return self.process is not None and self.process.is_alive()

    def wait(self) -> int:
        """Wait for its end; returns its exit code, 0 when the function returned."""
        if self.process is None:
            return 0
        self.process.join()
        return self.process.exitcode or 0

    def stop(self) -> None:
        """As ``Process``."""
        if self.process is None:
            return
        if self.alive:
            self.process.terminate()
            self.process.join(self.patience)
            if self.alive:
                os.killpg(self.process.pid or 0, signal.SIGKILL)
                self.process.join()
        self.process = None

    def _run(self, parent: int) -> None:
        os.setpgid(0, 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)  # the parent's handlers are about the parent
        _die_with_parent(parent, signal.SIGTERM)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_NAME, self.name.encode(), 0, 0, 0)  # what top shows
        with self.log.open("ab") as output:
            for descriptor in (1, 2):
                os.dup2(output.fileno(), descriptor)
        self.run()
