"""Who asks, before anybody has looked: by what they come with, as far as it has opened an account here before.

Nobody can come as somebody else so: what is remembered is what was proved, a cookie or a token as a whole. Whoever is
not known counts by the address, like a stranger, until the first answer.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest

from portal.http.errors import is_of_api

_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Asker:
    """A person, of whom it is known what they count for."""

    person: UUID
    tenant: str = ""
    """Where it is known: the one that what the person reads counts for."""
    operator: bool = False
    name: str = ""
    """By which records know them."""


class Askers:
    """Who came with what: a few thousand, those that were seen last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, Asker] = OrderedDict()

    def of(self, request: HttpRequest) -> Asker | None:
        """Who sends it, if that is known."""
        with self._lock:
            return self._known.get(_credential(request))

    def note(self, request: HttpRequest) -> None:
        """Remember what the answer has found out: ``portal.http.actors.require_pace`` has said who it is, or nobody has."""
        asker: Asker | None = getattr(request, "asker", None)
        credential = _credential(request)
        with self._lock:
            known = self._known.pop(credential, None)
            if asker is None or not credential:
                return
            if known is not None and known.person == asker.person and not asker.tenant:
                asker = replace(asker, tenant=known.tenant)
            self._known[credential] = asker
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)


def _credential(request: HttpRequest) -> bytes:
    """What the request is let in by, so that nobody could read it from here; empty for none."""
    text = request.META.get("HTTP_AUTHORIZATION", "") if is_of_api(request.path) else ""
    text = text or request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
    return hashlib.sha256(text.encode("utf-8", "replace")).digest() if text else b""
