"""The one place where failures become answers."""

from __future__ import annotations

import logging
from typing import Any, Final

from gateway.http.messages import Headers, Response
from gateway.http.negotiation import encode, preferred
from kube.requests.status import (
    Cause,
    Expired,
    InternalError,
    NoSuchPage,
    ServiceUnavailable,
    StatusError,
    Timeout,
)
from store.types import OutcomeUnknown, RevisionTooNew, RevisionTooOld, SlowWatcher, StoreError, Unavailable

logger = logging.getLogger(__name__)

_NO_SNIFFING: Final = ((b"x-content-type-options", b"nosniff"),)
_INTERNAL: Final = "an error on the server has prevented the request from succeeding"


def as_status_error(error: BaseException) -> StatusError:
    """What the client may know of ``error``; what it may not know is logged."""
    if isinstance(error, StatusError):
        return error
    if isinstance(error, RevisionTooOld | SlowWatcher):
        return Expired("The resourceVersion for the provided watch or list is too old.")
    if isinstance(error, RevisionTooNew):
        cause = Cause("ResourceVersionTooLarge", "Too large resource version")
        text = f"Timeout: {cause.message}: {error.asked}, current: {error.current}"
        return Timeout(text, causes=[cause], retry_after=1)
    if isinstance(error, OutcomeUnknown):
        # No Retry-After: clients repeat by themselves what they are asked to, and this may have been done.
        return Timeout("the database has not answered in time: whether the request took effect is unknown")
    if isinstance(error, Unavailable):
        return ServiceUnavailable("the store is not available right now, please try again", retry_after=1)
    if isinstance(error, StoreError):
        logger.error("the store refused a request: %s", error)
        return InternalError(_INTERNAL)
    logger.error("unexpected error", exc_info=error)
    return InternalError(_INTERNAL)


def render(error: StatusError, accept: bytes = b"") -> Response:
    """``error`` as a response with its ``Status`` body, for a client that sent this ``Accept`` header."""
    if isinstance(error, NoSuchPage):
        return Response(404, b"404 page not found\n", b"text/plain; charset=utf-8", _NO_SNIFFING)
    headers: Headers = ()
    if error.retry_after is not None:
        headers = ((b"retry-after", str(error.retry_after).encode()),)
    if error.code == 401:
        headers = (*headers, (b"www-authenticate", b'Bearer realm="kubernetes"'))
    wanted = preferred(accept)
    return Response(error.code, encode(error.as_status(), wanted), wanted.media, headers)


def as_event(error: StatusError) -> dict[str, Any]:
    """``error`` as the last event of a watch."""
    return {"type": "ERROR", "object": error.as_status()}
