"""One request's answer, as it comes from a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from gateway.http.lanes import OVERHEAD
from gateway.http.messages import Headers
from gateway.http.requestresponse import HIGH_WATER


class BrokenExchange(Exception):
    """There is no answer, or no rest of one; the text says why. ``unseen`` is set when no byte of an answer has come."""

    def __init__(self, why: str, *, unseen: bool = False, late: bool = False) -> None:
        super().__init__(why)
        self.unseen = unseen
        self.late = late


class UpgradeRefused(BrokenExchange):
    """Another protocol was asked for, and the answer is a refusal without an end."""

    def __init__(self, status: int) -> None:
        super().__init__("nobody can tell where its answer ends")
        self.status = status


class Reading(Protocol):
    """What an exchange asks of its connection."""

    def pause_reading(self) -> None:
        """Let the cluster wait."""
        ...

    def resume_reading(self, exchange: Exchange) -> None:
        """Read on, if it is this exchange that reading waits for."""
        ...

    async def turn(self) -> None:
        """Wait for another turn of those that this cluster has."""
        ...

    def abort(self) -> None:
        """Hang up at once."""
        ...


class Exchange:
    """One request's answer, as it comes: the head once ``wait_for_head`` has returned, then the body piece by piece.

    As an iterator it yields whatever has come since, and raises what ``told`` makes of the reason in place of a body's
    missing rest. Thousands are waited for at once: a generator for each would cost as much as all that is here.
    ``patience`` is how many seconds all waits together may last, so that no drip of bytes prolongs it; ``None`` is for
    answers that may pause.
    """

    __slots__ = (
        "_chunks",
        "_connection",
        "_error",
        "_headers",
        "_size",
        "_waiter",
        "complete",
        "length",
        "patience",
        "status",
        "told",
    )

    def __init__(self, connection: Reading, patience: float | None) -> None:
        self._connection = connection
        self.patience = patience
        self.told: Callable[[BrokenExchange], Exception] = _as_it_is
        self.status = 0
        self.length: int | None = None
        self.complete = False
        self._headers: Headers = ()
        self._chunks: list[bytes] = []
        self._size = 0
        self._error: BrokenExchange | None = None
        self._waiter: asyncio.Future[None] | None = None

    # What the connection tells.

    def feed_head(self, status: int, headers: Headers, length: int | None) -> None:
        """The head is there."""
        self.status, self._headers, self.length = status, headers, length
        self._wake()

    def feed_data(self, data: bytes) -> None:
        """More of the body is there; the cluster waits once enough of it does."""
        self._chunks.append(data)
        self._size += len(data) + OVERHEAD
        if self._size > HIGH_WATER:
            self._connection.pause_reading()
        self._wake()

    def feed_eof(self) -> None:
        """All of the body is there."""
        self.complete = True
        self._wake()

    def fail(self, error: BrokenExchange) -> None:
        """Nothing more will come."""
        if not self.complete and self._error is None:
            self._error = error
            self._wake()

    # What the reader asks for.

    async def wait_for_head(self) -> Headers:
        """Wait for the head; its headers, which are kept by whoever asks, once. Raises ``BrokenExchange``."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._change()
        headers, self._headers = self._headers, ()
        return headers

    def read_nowait(self) -> bytes:
        """What has come of the body and has not been taken yet."""
        chunks, self._chunks, self._size = self._chunks, [], 0
        self._connection.resume_reading(self)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def __aiter__(self) -> Exchange:
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self.complete:
                raise StopAsyncIteration
            if self._error is not None:
                raise self.told(self._error) from None
            await self._change()
        return self.read_nowait()

    async def aclose(self) -> None:
        """Give the answer up, as ``abort``: what asyncio calls when a loop over the body ends early."""
        self.abort()

    async def turn(self) -> None:
        """Wait for another turn, for whoever reads what has come in many small parts: see ``gateway.http.lanes``."""
        await self._connection.turn()

    def interrupt(self) -> None:
        """Let whoever waits for more go, with ``BrokenExchange``."""
        self.fail(BrokenExchange("it is no longer wanted"))

    def abort(self) -> None:
        """No more is wanted: the connection ends with an exchange that has not ended."""
        if not self.complete:
            self._connection.abort()

    def _change(self) -> Awaitable[None]:
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter if self.patience is None else self._patiently(self._waiter, self.patience)

    async def _patiently(self, waiter: asyncio.Future[None], patience: float) -> None:
        loop = asyncio.get_running_loop()
        # A loop need not tell when what is due at once will be called.
        due = loop.time() + patience
        timer = loop.call_later(patience, self._run_out)
        try:
            await waiter
        finally:
            # Unless the answer turned out to be one that may pause.
            if self.patience is not None:
                self.patience = max(0.0, due - loop.time())
            timer.cancel()

    def _run_out(self) -> None:
        self.fail(BrokenExchange("it did not answer in time", late=True))
        self._connection.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _as_it_is(error: BrokenExchange) -> Exception:
    return error
