"""Request lines that come again and again are taken apart once; the rules are those of ``kube.requests.paths``."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kube.requests import paths
from kube.requests.paths import ParsedRequest
from kube.requests.requestinfo import RequestInfo

_SHORT: Final = 512
"""Bytes of a request line that is worth remembering; it bounds what the memory can grow to."""

_REMEMBERED: Final = 8192


def parse(method: str, raw_path: bytes, query: bytes) -> ParsedRequest:
    """``kube.requests.paths.parse``."""
    known = len(raw_path) + len(query) <= _SHORT
    return _parsed(method, raw_path, query) if known else paths.parse(method, raw_path, query)


def resolve(
    method: str, raw_path: bytes, query: bytes, principal_tenant: str | None, default_tenant: str | None
) -> RequestInfo:
    """``kube.requests.paths.resolve`` of a request line that ``parse`` has accepted."""
    if len(raw_path) + len(query) <= _SHORT:
        return _resolved(method, raw_path, query, principal_tenant, default_tenant)
    return paths.resolve(paths.parse(method, raw_path, query), principal_tenant, default_tenant)


# Refusals are exceptions, so they are not remembered.
_parsed = lru_cache(maxsize=_REMEMBERED)(paths.parse)


@lru_cache(maxsize=_REMEMBERED)
def _resolved(
    method: str, raw_path: bytes, query: bytes, principal_tenant: str | None, default_tenant: str | None
) -> RequestInfo:
    return paths.resolve(_parsed(method, raw_path, query), principal_tenant, default_tenant)
