"""Where a cluster's host is: looked up beside everything else, for one whose name does not resolve holds up no other (D8).

The loop's own look-ups share a few threads, and none that has begun can be taken back.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Sequence
from typing import Final

FRESH_SECONDS: Final = 30.0
"""How long nobody asks again; who connects later has them looked up beside, and goes where the host was."""


class Addresses:
    """Of one host, in one event loop; one thread at a time looks them up, whoever and however many ask."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._known: Sequence[str] = (host,) if _is_literal(host) else ()
        self._fresh_until = float("inf") if self._known else float("-inf")
        self._failed: dict[str, None] = {}
        """Where nobody was found, the one of last at the end."""
        self._looking: asyncio.Future[None] | None = None

    async def get(self) -> Sequence[str]:
        """Those that were found last, where nobody was of late behind the others; who is the first waits for them.

        Raises what ``socket.getaddrinfo`` does.
        """
        if asyncio.get_running_loop().time() >= self._fresh_until:
            looking = self._look_up()
            if not self._known:
                await asyncio.shield(looking)
        failed = [address for address in self._failed if address in self._known]
        return [*(address for address in self._known if address not in self._failed), *failed]

    def failed(self, address: str) -> None:
        """Nobody was found at this one: the others come first."""
        self._failed.pop(address, None)
        self._failed[address] = None

    def doubt(self) -> None:
        """Nobody was found there: have them looked up for who comes next."""
        if not _is_literal(self._host):
            self._look_up()

    def _look_up(self) -> asyncio.Future[None]:
        if self._looking is not None:
            return self._looking
        loop = asyncio.get_running_loop()
        looking: asyncio.Future[None] = loop.create_future()
        # Nobody may wait for it by the time that it fails.
        looking.add_done_callback(lambda done: done.cancelled() or done.exception())

        def end(found: Sequence[str], error: Exception | None) -> None:
            self._looking = None
            if error is not None:
                looking.set_exception(error)
                return
            self._known, self._fresh_until = found, loop.time() + FRESH_SECONDS
            self._failed = {address: None for address in self._failed if address in found}
            looking.set_result(None)

        def work() -> None:
            found: Sequence[str] = ()
            failure: Exception | None = None
            try:
                each = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                found = tuple(dict.fromkeys(str(address[0]) for *_, address in each))
            except (OSError, ValueError) as error:
                failure = error
            # The process may have ended its loop meanwhile.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(end, found, failure)

        self._looking = looking
        # A daemon: no end of the process waits for a name.
        threading.Thread(target=work, name=f"address of {self._host}", daemon=True).start()
        return looking


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
