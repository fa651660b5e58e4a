"""The process beside a server that handles its heavy requests (``gateway.process.heavyrequests``), as it is started."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import resource
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, Final

import django

if TYPE_CHECKING:
    from gateway.http.messages import Request

_NICE: Final = 10
"""Whoever asks for much stands back where the processor is short."""

_MEMORY_BYTES: Final = 1 << 30
"""Beyond it a request fails; a hundred thousand values take about a third of it."""

_CACHE_BYTES: Final = 64 * 1024 * 1024
_CONNECTIONS: Final = 2


def main() -> None:
    """Answer until nothing more can come."""
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        # What anybody prints belongs into the log.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        # Not even unpickling can come before: it imports what needs the models.
        django.setup()
        asyncio.run(_serve(answers))


async def _serve(answers: BinaryIO) -> None:
    from gateway.process.heavyrequests import LENGTH_BYTES, PROCESSOR_SECONDS, pickled
    from gateway.server.assembly import build_runtime
    from gateway.server.inprocess import answer
    from kube.requests.ratelimits import UNLIMITED
    from store.engine import Options as StoreOptions
    from store.log.leases import Terms

    questions = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(questions), sys.stdin)

    async def receive() -> bytes:
        return await questions.readexactly(int.from_bytes(await questions.readexactly(LENGTH_BYTES)))

    def send(message: bytes) -> None:
        answers.write(len(message).to_bytes(LENGTH_BYTES))
        answers.write(message)
        answers.flush()

    try:
        options, certificates = pickle.loads(await receive())  # noqa: S301 - the server's own
        # Its requests have been charged.
        options = replace(options, tenant_limits=UNLIMITED)
        # Without leases: whoever writes would wait for this process, which works long without looking up. And without the
        # past: nobody watches here, and what one tenant has written last may be more than this process may hold.
        bounds = StoreOptions(
            cache_bytes=_CACHE_BYTES, look_back_events=0, connections=_CONNECTIONS, leases=Terms(spaces=0)
        )
        parts = build_runtime(options, certificates, background=False, throttled=False, store_options=bounds)
        async with parts as runtime:
            gc.collect()
            gc.freeze()
            gc.set_threshold(20_000, 20, 20)
            send(b"")
            while True:
                question = await receive()
                # Whoever asked may be gone, and what holds this process hears of nothing: the signal ends it.
                signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
                request: Request = pickle.loads(question)  # noqa: S301 - the server's own
                answered = await answer(runtime, request)
                send(pickled((answered, request.notes, request.weight)))
                signal.setitimer(signal.ITIMER_PROF, 0)
                del question, request, answered
    except (asyncio.IncompleteReadError, BrokenPipeError):
        return


if __name__ == "__main__":
    main()
