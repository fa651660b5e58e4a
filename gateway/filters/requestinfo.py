"""Request lines that come again and again are taken apart once; the rules are those of ``kube.requests.requestinfo``."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kube.requests import requestinfo
from kube.requests.requestinfo import ParsedRequest, RequestInfo

_SHORT: Final = 512
"""Bytes of a request line that is worth remembering; it bounds what the memory can grow to."""

_REMEMBERED: Final = 8192


def parse(method: str, raw_path: bytes, query: bytes) -> ParsedRequest:
    """As ``kube.requests.requestinfo.parse``, with short request lines remembered. Raises ``BadRequest``."""
    known = len(raw_path) + len(query) <= _SHORT
    return _parsed(method, raw_path, query) if known else requestinfo.parse(method, raw_path, query)


def resolve(method: str, raw_path: bytes, query: bytes, principal_tenant: str | None) -> RequestInfo:
    """``kube.requests.requestinfo.resolve`` of a request line that ``parse`` has accepted."""
    if len(raw_path) + len(query) <= _SHORT:
        return _resolved(method, raw_path, query, principal_tenant)
    return requestinfo.resolve(requestinfo.parse(method, raw_path, query), principal_tenant)


# Refusals are exceptions, so they are not remembered.
_parsed = lru_cache(maxsize=_REMEMBERED)(requestinfo.parse)


@lru_cache(maxsize=_REMEMBERED)
def _resolved(method: str, raw_path: bytes, query: bytes, principal_tenant: str | None) -> RequestInfo:
    return requestinfo.resolve(_parsed(method, raw_path, query), principal_tenant)
