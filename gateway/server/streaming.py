"""An answer that goes on: what its source brings goes to the client, and what the client of a tunnel sends to the source.

Thousands are silent most of the time: each has one task, and another only while its client's bytes are on their way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from gateway.http.messages import ClientLeft, Stream
from gateway.http.requestresponse import RequestResponseCycle
from kube.requests.status import StatusError

logger = logging.getLogger(__name__)


async def pass_on(cycle: RequestResponseCycle, stream: Stream) -> None:
    """To the end of the stream, or of its client; the answer has begun. Raises what the source does but ``StatusError``."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a stream is some task's")
    listener = _Listener(cycle, task.cancel, stream.send, stream.gone)
    cycle.listen(listener.on_gone, listener.on_came)
    try:
        async with contextlib.aclosing(stream.chunks) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                await cycle.write(chunk)
    except asyncio.CancelledError:
        # Either the listener has found its client gone or going, and that is an end like another; or the server wants this task
        # to end, which is none of ours to keep back.
        if not listener.ended:
            raise
        task.uncancel()
        if not cycle.disconnected:
            cycle.break_response()
    except StatusError:
        # The answer has begun, so no status can say it any more: to be cut off in the middle is what tells the client.
        cycle.break_response()
    else:
        cycle.end_response()
    finally:
        await listener.stop()


class _Listener:
    """Hands on what the client sends, or throws it away where there is nobody to ``send`` it to.

    ``end`` is called when the client has gone and nothing of what it sent is left, or when it cannot be handed on. Whoever
    takes it is told that it has ``gone``: from then on nothing that is left waits for anybody.
    """

    __slots__ = ("_cycle", "_end", "_feed", "_gone", "_send", "ended")

    def __init__(
        self,
        cycle: RequestResponseCycle,
        end: Callable[[], object],
        send: Callable[[bytes], Awaitable[None]] | None,
        gone: Callable[[], None],
    ) -> None:
        self._cycle = cycle
        self._end = end
        self._send = send
        self._gone = gone
        self._feed: asyncio.Task[None] | None = None
        self.ended = False

    def on_came(self) -> None:
        """The client has sent something."""
        if self._send is None:
            self._cycle.read_nowait()
        elif self._feed is None or self._feed.done():
            self._feed = asyncio.ensure_future(self._hand_on(self._send))
            self._feed.add_done_callback(self._on_handed_on)

    def on_gone(self) -> None:
        """It has hung up: the stream ends once all is handed on, for which a cluster that reads nothing is not waited for."""
        self._gone()
        if self._feed is None or self._feed.done():
            self._feed, self.ended = None, True
            self._end()

    async def stop(self) -> None:
        """The stream has ended."""
        if self._feed is not None and not self._feed.done():
            self._feed.remove_done_callback(self._on_handed_on)
            self._feed.cancel()
            await asyncio.gather(self._feed, return_exceptions=True)
        self._feed = None

    async def _hand_on(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        while data := self._cycle.taken():
            await send(data)

    def _on_handed_on(self, feed: asyncio.Task[None]) -> None:
        if self._feed is not feed or feed.cancelled():
            return
        self._feed = None
        error = feed.exception()
        if error is not None and not isinstance(error, ClientLeft):
            logger.error("what a client has sent cannot be handed on", exc_info=error)
        if error is not None or self._cycle.disconnected:
            self.ended = True
            self._end()
