"""Django behind the portal's connections: what it is told of a body is what came of it, and how many are at work at once.

Every request that Django answers takes a thread, and mostly a connection of the database, so it needs a place before:
of its person and the person's tenant, or of the address that a stranger comes from, and of all. Whoever finds none
waits without a thread. Operators have places of their own: the kill switch is there while tenants ask for anything.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from typing import IO, Any, Final

from django.conf import settings
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.http import FileResponse, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from audit.addresses import network_of
from portal.http import errors, metrics
from portal.http.askers import Asker, Askers
from portal.http.places import Key, Places, until_answered
from portal.http.proxies import believe, sender_of

AT_WORK: Final = {
    "others": 48,
    "operators": 16,
    "strangers": 24,
    "person": 12,
    "tenant": 24,
    "address": 12,
    "probes": 16,
    "prober": 8,
}
"""Requests of one process: of all but operators, of operators, of those who are not known (yet), and of each of a kind."""

WAITING: Final = {kind: 8 * most for kind, most in AT_WORK.items()}
"""How many may wait for a place, each with its body."""

WAIT_SECONDS: Final = 2.0
_RETRY_AFTER: Final = 2

_OWN: Final = frozenset({"person", "tenant", "address", "prober"})
_PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})


class PortalRequest(ASGIRequest):
    """A request whose ``CONTENT_LENGTH`` is the size of its body, whatever its sender said, or left unsaid.

    A body in chunks has no length in its head, and whoever reads the head alone takes it for none: what was asked for
    in it would not be kept, and what is given without asking may be more (GW3).
    """

    def __init__(self, scope: dict[str, Any], body_file: IO[bytes]) -> None:
        super().__init__(scope, body_file)
        self.META["CONTENT_LENGTH"] = str(body_file.seek(0, os.SEEK_END))
        body_file.seek(0)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A request that was read whole, or what is wrong with it, and its place."""

    body: IO[bytes]
    made: tuple[ASGIRequest | None, HttpResponseBase | None]
    place: ExitStack


Refused = Callable[[HttpRequest, HttpResponseBase, Asker | None], None]
"""What is told of each request that finds no place, in the event loop, and by whom it comes as far as that is known."""

_begun: Final[ContextVar[_Begun]] = ContextVar("begun")


class PortalHandler(ASGIHandler):
    """Django's handler, which has read a body whole before it makes a request of it, and a place before it takes a thread.

    A place lasts until the answer is made; of what is read while it is sent, until it was sent. It is never given back
    while a thread is at work, also where nobody waits for the answer any more (DOS-03).
    """

    request_class = PortalRequest

    def __init__(self, refused: Refused) -> None:
        super().__init__()
        self._refused = refused
        self._askers = Askers()
        self._places = Places(AT_WORK)
        self._room = Places(WAITING)

    async def __call__(
        self, scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Answer a request, or say when to come again."""
        try:
            body = await super().read_body(receive)
        except RequestAborted:
            return
        request, error = super().create_request(scope, body)
        keys = self._keys(request)
        clock = metrics.Clock()
        with ExitStack() as answered:
            place = await self._place(keys)
            if place is not None:
                answered.enter_context(place)
                _begun.set(_Begun(body, (request, error), place))
                until_answered.set(answered)
                # Returns when the request's thread has ended.
                await super().__call__(scope, receive, send)
            else:
                body.close()
                refusal = self._refusal(request, keys)
                metrics.observe(request, refusal, clock.seconds())  # type: ignore[arg-type] # what is none has a place
                await self.send_response(refusal, send)

    async def read_body(self, receive: Any) -> IO[bytes]:
        """What was read before there was a place."""
        return _begun.get().body

    def create_request(self, scope: Any, body_file: Any) -> Any:
        """What was made of it."""
        return _begun.get().made

    async def run_get_response(self, request: Any) -> Any:
        """The answer; once it is made, the place is another's, and what is sent takes its time without one."""
        response = await super().run_get_response(request)
        self._askers.note(request)
        if not response.streaming or isinstance(response, FileResponse):
            _begun.get().place.close()
        return response

    def _keys(self, request: ASGIRequest | None) -> tuple[Key, ...]:
        """What it counts for: nothing, where it is no request, or no more than a static file is asked for."""
        if request is None or request.path.startswith(settings.STATIC_URL):
            return ()
        asker = self._askers.of(request)
        address = network_of(sender_of(request.META, settings.TRUSTED_PROXIES))
        if request.path in _PROBES:
            # Whether a process lives is asked while those who ask whether it is ready wait for the database.
            return (("probes", request.path), ("prober", (request.path, address)))
        if asker is None:
            return (("others", ""), ("strangers", ""), ("address", address))
        if asker.operator:
            return (("operators", ""), ("person", asker.person))
        of_tenant: tuple[Key, ...] = (("tenant", asker.tenant),) if asker.tenant else ()
        return (("others", ""), ("person", asker.person), *of_tenant)

    async def _place(self, keys: tuple[Key, ...]) -> ExitStack | None:
        place = self._places.take(*keys)
        room = self._room.take(*keys) if place is None else None
        if room is None:
            return place
        with room:
            return await self._places.wait(*keys, seconds=WAIT_SECONDS)

    def _refusal(self, request: Any, keys: tuple[Key, ...]) -> HttpResponse:
        """429 for who has as many at work as anybody may, 503 where others have; numbered and told of like any other."""
        believe(request, settings.TRUSTED_PROXIES)
        request.request_id = uuid.uuid4().hex
        if _OWN.intersection(self._places.full(*keys)):
            code, said = 429, "Too many requests of yours, or of your tenant, are being answered: wait for some."
        else:
            code, said = 503, "Too many requests are being answered; try again in a moment."
        refusal = errors.without_page(request, code, said, retry_after=_RETRY_AFTER)
        refusal["X-Request-ID"] = request.request_id
        self._refused(request, refusal, self._askers.of(request))
        return refusal
