"""Pages that show a secret each time they are opened: never compressed, for lengths would tell of it (BREACH)."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponse

P = ParamSpec("P")
_View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def shows_secret(view: _View[P]) -> _View[P]:
    """Mark what the view answers, for ``portal.middleware.PageCompressionMiddleware``."""

    def marked(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        response = view(request, *args, **kwargs)
        response.shows_secret = True  # type: ignore[attr-defined]
        return response

    return update_wrapper(marked, view)
