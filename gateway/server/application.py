"""The API server as an ASGI application: what it is made of, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from audit import tracing
from gateway.handlers.health import figures
from gateway.http.certificates import Certificates
from gateway.http.requestresponse import RequestResponseCycle
from gateway.options import Options
from gateway.process.garbage import look_for_garbage
from gateway.process.runtime import Runtime
from gateway.process.siblings import Siblings
from gateway.process.streams import STOPPING
from gateway.server import assembly
from gateway.server.pipeline import RequestPipeline
from kube.requests.status import ServiceUnavailable
from store.supervision import Supervised

logger = logging.getLogger(__name__)

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class Application:
    """One API server. Made before the worker processes; its parts are put together in each of them."""

    def __init__(self, options: Options, certificates: Certificates) -> None:
        self._options = options
        self._certificates = certificates
        self._running: contextlib.AsyncExitStack | None = None
        self._runtime: Runtime | None = None
        self._pipeline = RequestPipeline
        self.siblings: Siblings | None = None
        """The other worker processes, where there are any."""
        self.stopping = False
        """Whether clients had better go elsewhere: every answer is the last of its connection."""

    @property
    def shutdown_delay(self) -> float:
        """The seconds for which a server that ends serves on."""
        return self._options.shutdown_delay_duration

    @property
    def runtime(self) -> Runtime:
        """The parts, once the server runs."""
        if self._runtime is None:
            raise ServiceUnavailable("the server is starting", retry_after=1)
        return self._runtime

    def serve(self, cycle: RequestResponseCycle) -> Awaitable[None]:
        """Answer one request."""
        return self._pipeline(self.runtime, cycle).run()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """ASGI's lifespan, by which uvicorn starts and stops what it serves."""
        if scope["type"] != "lifespan":
            raise ValueError("requests come by serve")
        await receive()
        try:
            if tracing.start("tenantry-apiserver"):
                from gateway.server.tracedrequests import TracedPipeline

                self._pipeline = TracedPipeline
            async with contextlib.AsyncExitStack() as held:
                built = assembly.build_runtime(self._options, self._certificates, heavy=True)
                self._runtime = runtime = await held.enter_async_context(built)
                if self.siblings is not None:
                    runtime.siblings = self.siblings
                    await held.enter_async_context(self.siblings.answering(partial(figures, runtime)))
                # What has been loaded stays: looking through it for garbage would stop the server for 100 ms a time.
                gc.collect()
                gc.freeze()
                looks = Supervised("garbage", look_for_garbage)
                looks.start()
                held.push_async_callback(looks.stop)
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:
            logger.exception("the API server cannot start")
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        finally:
            await asyncio.to_thread(tracing.stop)
        await send({"type": "lifespan.shutdown.complete"})

    def stop_being_ready(self) -> None:
        """Serve on, and send clients elsewhere."""
        self.stopping = True
        if self._runtime is not None:
            self._runtime.stopping = True

    def end_streams(self) -> None:
        """End the open watches, logs and shells."""
        if self._runtime is not None:
            self._runtime.open_streams.end_all(STOPPING)
