"""A cluster's answer on its way to the client: whole, streamed, or as a tunnel that ends with the right to it (GW4, GW5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Final

import orjson

from gateway.filters.standing import begin, require_beginning, require_standing
from gateway.handlers.placednamespaces.dryruns import refusal_of
from gateway.http.lanes import STEPS
from gateway.http.messages import JSON, Headers, Request, Response, Stream
from gateway.process.runtime import Runtime
from gateway.process.streams import PROMPT_SECONDS, OpenStream, Recheck
from gateway.upstream.client import Answer
from gateway.upstream.lastwords import LastWords, LogWords, NoWords, of_tunnel, of_watch
from gateway.upstream.recording.tunnel import RecordedTunnel
from gateway.upstream.tunnel import Tunnel
from kube.requests.status import StatusError

_REFUSALS: Final = frozenset({403, 422})
_STATUS_MAX: Final = 64 * 1024
"""Bytes of a refusal that are read for the trace; kube-apiserver's are far shorter."""

_MEDIA: Final = b"content-type"
_BYTES: Final = b"application/octet-stream"
_NO_PAGE: Final = (
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"x-content-type-options", b"nosniff"),
)
"""A cluster may answer with a page, which a browser must not take for one of this host: a certificate goes with each request."""


async def relay(
    runtime: Runtime,
    request: Request,
    cluster: str,
    answer: Answer | Tunnel | RecordedTunnel,
    recheck: Recheck,
    *,
    since: float,
) -> Response | Stream:
    """The answer for the client. Nothing is shown on a decision older than a moment: ``since``, by the loop's clock.

    What has not come whole is registered, and ends with the right to it. Raises what ``recheck`` does, ``RateLimited``
    where as many streams are open by now as may be, and ``ServiceUnavailable`` for what is read, and for streams, while the
    end of the right would not be heard.
    """
    info = request.info
    # The cluster has been asked: what it was asked with, and the head of its answer, are not kept for as long as that lasts.
    request.parameters, request.raw_headers = {}, ()
    if isinstance(answer, Tunnel | RecordedTunnel):
        await _require_beginning(runtime, request, answer)
        agreed, answer.headers = answer.headers, ()
        standing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        chunks = _guarded(runtime, request, answer, _words_of_tunnel(request, agreed), recheck, standing)
        return Stream(chunks, headers=agreed, status=101, send=partial(_send, answer, standing), gone=answer.let_go)
    media = next((value for name, value in answer.headers if name == _MEDIA), _BYTES if info.is_proxied else JSON)
    headers: Headers = (*(pair for pair in answer.headers if pair[0] != _MEDIA), *_NO_PAGE)
    if info.method == "HEAD" and answer.length is not None:
        headers = (*headers, (b"content-length", b"%d" % answer.length))
    whole = answer.read_nowait()
    if answer.status in _REFUSALS and not info.is_proxied:
        request.notes.append(refusal_of(cluster, _message(whole or b"")))
    if whole is not None and info.method != "HEAD":
        if asyncio.get_running_loop().time() - since > PROMPT_SECONDS:
            # Who has written is not told to try again: it has been done.
            await (require_standing(runtime, request.principal, recheck) if request.is_reading else recheck())
        return Response(answer.status, whole, media, headers)
    words: LastWords = NoWords()
    if info.is_long_running:
        await _require_beginning(runtime, request, answer)
    if info.is_long_running and not info.is_proxied and answer.status == 200:
        words = of_watch(media) if info.verb == "watch" else LogWords()
    chunks = _guarded(runtime, request, replace(answer, headers=()), words, recheck)
    return Stream(chunks, media, headers, answer.status, long_running=info.is_long_running)


def _words_of_tunnel(request: Request, agreed: Headers) -> LastWords:
    if request.info.is_proxied:
        # Whatever is spoken there has no channel of ours, by whichever name.
        return of_tunnel(tuple(pair for pair in agreed if pair[0] != b"sec-websocket-protocol"))
    # In what form a cluster writes events is not told after a 101: JSON, unless something else was asked for.
    accept = request.headers.get(b"accept", b"")
    return of_tunnel(agreed, of_events=request.info.verb == "watch" and (not accept or b"json" in accept))


async def _require_beginning(runtime: Runtime, request: Request, answer: Answer | Tunnel | RecordedTunnel) -> None:
    """As ``require_beginning``, for what has waited for its cluster; the answer of one that may not begin is closed."""
    try:
        await require_beginning(runtime, request.principal)
    except BaseException as error:
        if isinstance(answer, RecordedTunnel):
            answer.close(error.message if isinstance(error, StatusError) else "the client did not wait")
        else:
            answer.close()
        raise


def _message(body: bytes) -> str:
    """What a refusal says, where it is JSON; protobuf says nothing here."""
    try:
        status = orjson.loads(body) if len(body) <= _STATUS_MAX else None
    except orjson.JSONDecodeError:
        status = None
    said = status.get("message") if isinstance(status, dict) else None
    return said if isinstance(said, str) else "the cluster refuses this"


async def _send(tunnel: Tunnel | RecordedTunnel, standing: asyncio.Future[None], data: bytes) -> None:
    """What a client types is a write: it waits until the right to the stream has been asked for anew."""
    await standing
    await tunnel.write(data)


async def _guarded(
    runtime: Runtime,
    request: Request,
    source: Answer | Tunnel | RecordedTunnel,
    words: LastWords,
    recheck: Recheck,
    standing: asyncio.Future[None] | None = None,
) -> AsyncIterator[bytes]:
    """What a source says for as long as the right to it stands; ``standing`` is told once it does."""
    stream: OpenStream | None = None
    try:
        # 1. Registered before anything is shown.
        stream = await begin(runtime, request, recheck)
        stream.ended.add_done_callback(lambda _: source.interrupt())
        if isinstance(source, RecordedTunnel):
            source.end_with(stream.end)
        if standing is not None and not stream.ended.done():
            standing.set_result(None)
        async for data in source.chunks:
            # 2. Asked before each piece is shown, which is written before anything else happens: nothing is sent of what
            #    the caller may no longer see.
            if stream.ended.done():
                break
            steps = words.see(data)
            yield data
            if steps > STEPS:
                await source.turn()
        if stream.ended.done() and (last_word := stream.last_word) is not None:
            raise last_word
    except StatusError:
        if stream is None or not stream.ended.done():
            raise
        last_word = stream.last_word
        if last_word is None and words.is_whole:
            return
        if last_word is not None and (said := words.say(last_word)):
            yield said
        raise
    finally:
        # 3. Reached by every end, the client's going included (the generator is closed): nothing stays registered.
        if stream is not None:
            runtime.open_streams.close(stream)
        if isinstance(source, RecordedTunnel):
            source.close("" if stream is None or stream.ended.cancelled() else stream.ended.result().message)
        else:
            source.close()
