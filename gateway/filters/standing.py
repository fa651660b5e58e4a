"""Whether a right stands when its turn comes: what is sent, shown or begun after a wait rests on what is known by then (GW5).

What this process knows of a right counts only while it would hear of the right's end: one that hears nothing refuses.
"""

from __future__ import annotations

from gateway.http.errors import as_status_error
from gateway.http.messages import Request
from gateway.process.runtime import Runtime
from gateway.process.streams import OpenStream, Recheck
from kube.authentication.identity import Principal


async def require_standing(runtime: Runtime, principal: Principal, recheck: Recheck) -> None:
    """Raise what ``recheck`` does, and ``ServiceUnavailable`` while revocations may be missed.

    Who may not any more is told so first: that is known, whatever else is not.
    """
    await recheck()
    if not principal.is_system and not runtime.trustworthy:
        await runtime.require_trustworthy()
        await recheck()


async def require_beginning(runtime: Runtime, principal: Principal) -> None:
    """Whether a stream may begin now that has waited for its beginning, while it can still be refused by a status.

    Raises ``ServiceUnavailable`` while the end of its right would not be heard, and ``RateLimited`` where as many are open
    by now as may be: all that waited at once were let in while none of them was open.
    """
    if not principal.is_system:
        await runtime.require_trustworthy()
    runtime.throttle.require_room(principal)


async def begin(runtime: Runtime, request: Request, recheck: Recheck, *, definition: str = "") -> OpenStream:
    """Register a stream before anything of it is shown; it has ended where the right to it stands no more.

    From here on every revocation finds it. What was taken away before that has found no stream: it is asked once more.
    Whoever has it takes it off the list (``OpenStreams.close``).
    """
    streams = runtime.open_streams
    stream = streams.open(request.principal, request.info, recheck, cut=request.cut, definition=definition)
    try:
        await require_standing(runtime, request.principal, recheck)
    except Exception as error:  # noqa: BLE001 - whatever happens, the stream must not go on
        stream.end(as_status_error(error))
    except BaseException:
        streams.close(stream)
        raise
    return stream
