"""Requests whose work would hold the event loop: handed whole to one process beside it, tenant by tenant in turn.

A thread would not do: it takes the interpreter's lock from the loop thousands of times a second, and a decoder of a large
body does not give it back. The process is started with the first such request and kept while there are more. It is another
server without a socket (``gateway.server.heavyworker``), so a request is handled there by the very same code.

1. What crosses is pickled: the request with its bytes, and the finished answer. Neither is looked into on this side.
2. One request is under way at a time. The end of the process, however it comes, costs that request alone; the next one
   starts another process.
3. Whoever asked may go: the request is brought to its end, since nobody could tell how far it has come.
4. The process ends by itself when this one is gone, or when a request takes more than ``PROCESSOR_SECONDS``.
"""

from __future__ import annotations

import asyncio
import copyreg
import io
import logging
import os
import pickle
import sys
from collections import ChainMap
from types import MappingProxyType
from typing import Any, Final

from access.outsidebudget import begin_budget
from gateway.http.certificates import Certificates
from gateway.http.messages import Request, Response
from gateway.options import Options
from gateway.process.fairexecutor import FairExecutor
from gateway.process.streams import PROMPT_SECONDS, Recheck
from kube.requests.status import InternalError, Timeout

logger = logging.getLogger(__name__)

_MODULE: Final = "gateway.server.heavyworker"
PROCESSOR_SECONDS: Final = 30
"""How much of the processor one request may take."""

SECONDS: Final = 60.0
"""How long a process may be silent over a request before it is given up."""

_START_SECONDS: Final = 300.0

IDLE_SECONDS: Final = 600.0
"""How long the process is kept without a request: its memory is as much as the server's own."""

_END_SECONDS: Final = 2.0
LENGTH_BYTES: Final = 8
"""Of what stands before each message."""


class HeavyRequests:
    """The process and those who wait for it. Use it in one event loop, and ``close`` it at the end."""

    def __init__(self, options: Options, certificates: Certificates) -> None:
        self._parts = options, certificates
        self.seconds = SECONDS
        self._executor = FairExecutor()
        self._process: asyncio.subprocess.Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._ending: asyncio.Future[None] | None = None

    @property
    def done(self) -> int:
        """How many requests have been handled, or given up."""
        return self._executor.done

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return self._process.pid if self._process is not None else None

    async def answer(self, request: Request, recheck: Recheck, tenant: str | None) -> Response:
        """The answer to an authorised request that has been charged to a tenant, in that one's turn.

        Raises ``TooManyRequests`` when too many of its tenant wait, ``Timeout`` (504) and ``InternalError`` when the
        process did not answer or ended: whether a write took effect is then unknown. And what ``recheck`` raises.
        """
        asked = asyncio.get_running_loop().time()

        async def work() -> Response:
            if asyncio.get_running_loop().time() - asked > PROMPT_SECONDS:
                begin_budget()
                await recheck()
            answer: Response
            said = await self._ask(pickled(request.portable()))
            answer, notes, request.weight = pickle.loads(said)  # noqa: S301 - our own process'
            request.notes.extend(notes)
            return answer

        return await self._executor.run(tenant, work)

    async def close(self) -> None:
        """End the process."""
        if self._idle is not None:
            self._idle.cancel()
        await self._executor.close()
        await self._end()

    async def _ask(self, question: bytes) -> bytes:
        if self._idle is not None:
            self._idle.cancel()
        try:
            async with asyncio.timeout(_START_SECONDS):
                process = await self._running()
            async with asyncio.timeout(self.seconds):
                await send(process, question)
                answer = await receive(process)
        except TimeoutError:
            logger.error("the process for heavy requests has not answered, and is replaced")  # noqa: TRY400 - it is no defect
            self._kill()
            raise Timeout("the request took too long: whether it took effect is unknown") from None
        except (OSError, asyncio.IncompleteReadError):
            logger.error("the process for heavy requests has ended, and is replaced")  # noqa: TRY400 - it is no defect
            self._kill()
            # No Retry-After: what ended one process would end the next.
            raise InternalError("the request could not be completed: whether it took effect is unknown") from None
        except asyncio.CancelledError:
            self._kill()
            raise
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._let_go)
        return answer

    async def _running(self) -> asyncio.subprocess.Process:
        process = self._process
        if process is None or _has_ended(process.pid):
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                _MODULE,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={
                    **os.environ,
                    "DATABASE_URL": self._parts[0].database_url,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                },
                # Ctrl-C is for the server, which then ends it in order.
                start_new_session=True,
            )
            await send(process, pickled(self._parts))
            await receive(process)
        return process

    def _let_go(self) -> None:
        self._ending = asyncio.ensure_future(self._executor.run(None, self._end))

    async def _end(self) -> None:
        """Let the process end in order, which it does when nothing more can come."""
        process = self._process
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            self._kill()
        self._process = None

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        self._process = None


def _has_ended(process: int) -> bool:
    """Asked of the system: the loop may hear of it later."""
    try:
        return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


async def send(process: asyncio.subprocess.Process, message: bytes) -> None:
    """Hand a message over, its length first."""
    assert process.stdin is not None  # noqa: S101 - it was made with one
    process.stdin.writelines((len(message).to_bytes(LENGTH_BYTES), message))
    await process.stdin.drain()


async def receive(process: asyncio.subprocess.Process) -> bytes:
    """The next message. Raises ``asyncio.IncompleteReadError`` where there is none."""
    assert process.stdout is not None  # noqa: S101 - it was made with one
    return await process.stdout.readexactly(int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES)))


def pickled(value: Any) -> bytes:
    """A message: the requests, answers and parts that go between the processes."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(value)
    return buffer.getvalue()


def _view(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)


_REDUCERS: Final = ChainMap[type, Any]({MappingProxyType: lambda view: (_view, (dict(view),))}, copyreg.dispatch_table)
