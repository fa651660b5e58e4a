"""A request line, resolved."""

from __future__ import annotations

from kube.requests.requestinfo import RequestInfo, parse, resolve


def ask(
    path: str | bytes,
    method: str = "GET",
    *,
    query: bytes = b"",
    tenant: str | None = "t1",
) -> RequestInfo:
    raw = path.encode() if isinstance(path, str) else path
    return resolve(parse(method, raw, query), tenant)
