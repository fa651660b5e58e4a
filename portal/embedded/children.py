"""Child processes that never outlive their parent, even when the parent is killed with SIGKILL."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def _die_with_parent(parent: int, signal_number: int) -> None:
    """In the child, before exec: ask the kernel for ``signal_number`` when the parent dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)


@dataclass(slots=True)
class Child:
    """One process: its command, where its output goes, and how it wants to be stopped.

    ``stop_signal`` is what asks it to end in good order; after ``patience`` seconds it is killed. ``user`` is the
    system user to become (only root may).
    """

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_signal: int = signal.SIGTERM
    patience: float = 15.0
    user: str | None = None
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0

    def start(self) -> None:
        """Start the process, its output appended to ``log``.

        It has a process group of its own, so that Ctrl-C reaches only the parent, which stops its children in order.
        """
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
                env={**os.environ, **self.environment},
                process_group=0,
                preexec_fn=lambda: _die_with_parent(parent, self.stop_signal),  # noqa: PLW1509 # one thread forks
                **account,
            )
        self.started_at = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """Ask the process to end, wait, and kill its group if it does not."""
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

    def tail(self, lines: int = 15) -> str:
        """The last lines of the log, for an error message."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""
