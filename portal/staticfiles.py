"""Static files: under hashed names that browsers keep for ever once they are collected, as they are before."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from django.conf import settings
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.cache import patch_vary_headers
from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedOnceCollected(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Reads the manifest that ``collectstatic`` wrote (``manage.py bootstrap`` runs it); the quickstart has none."""

    def url(self, name: str | None, force: bool = False) -> str:
        """The address of a file."""
        if not self.hashed_files:
            return StaticFilesStorage.url(self, name)
        return str(super().url(name, force))


_TEXTS: Final = ("text/css", "text/javascript", "image/svg+xml", "application/javascript")
_KEPT: Final = ("Content-Type", "Cache-Control", "Last-Modified", "Access-Control-Allow-Origin")


class CompressingMiddleware:
    """Compresses static files that nobody has collected, as ``collectstatic`` would have: the quickstart's pages are small too."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The file, smaller for who takes it so."""
        response = self.get_response(request)
        if not settings.WHITENOISE_USE_FINDERS or not request.path.startswith(settings.STATIC_URL):
            return response
        kind = response.get("Content-Type", "").partition(";")[0]
        if request.method != "GET" or response.status_code != 200 or kind not in _TEXTS:
            return response
        patch_vary_headers(response, ["Accept-Encoding"])
        if "gzip" not in request.headers.get("Accept-Encoding", "") or not response.streaming:
            return response
        body = _smaller(b"".join(response.streaming_content))  # type: ignore[attr-defined]
        # The file alone: to close the response would say that the request is over.
        response.file_to_stream.close()  # type: ignore[attr-defined]
        headers = {name: response[name] for name in (*_KEPT, "Vary") if response.has_header(name)}
        return HttpResponse(body, headers={**headers, "Content-Encoding": "gzip", "Content-Length": str(len(body))})


@lru_cache(maxsize=256)
def _smaller(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)
