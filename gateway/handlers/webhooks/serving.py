"""The three webhooks of a registered cluster: who may ask, what is read, and how long an answer may take (GW17)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeVar

import orjson

from access.authentication.clusterwebhooks import PATH, cluster_of
from gateway.handlers.webhooks import admit, authenticate, authorize
from gateway.http.messages import JSON, Request, Response
from gateway.process.runtime import Runtime
from kube.authentication.identity import Principal
from kube.requests.decoding import decode_json
from kube.requests.logicalclusters import tenant_of
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Forbidden, MethodNotAllowed, NoSuchPage, Timeout, UnsupportedMediaType

T = TypeVar("T")

_Answer = Callable[[Runtime, Request, str, Any], Awaitable[dict[str, Any]]]
_HOOKS: Final[Mapping[str, _Answer]] = {
    "admit": admit.answer,
    "authenticate": authenticate.answer,
    "authorize": authorize.answer,
}
_PATIENCE_SECONDS: Final = 5.0
"""Half of the ten seconds that a kube-apiserver waits unless it is configured otherwise."""

_NAMESPACE: Final = re.compile(rb'"namespace"\s*:\s*"([a-z0-9][a-z0-9-]{0,62})"')
_DURATION: Final = re.compile(r"(?:(\d{1,3})m)?(?:(\d{1,3}(?:\.\d{1,9})?)s)?")


def concerns(info: RequestInfo) -> bool:
    """Whether a request is for a webhook."""
    return not info.is_resource and info.path.startswith(PATH)


async def payer(runtime: Runtime, request: Request) -> Principal:
    """Whose is the work on a heavy review: the cluster's about the tenant whose namespace it names, or about nobody.

    The tenant's own requests do not pay for it: a cluster asks what it likes, and would have them refused everywhere.
    A kube-apiserver names the namespace before the object, which names the same: the first that is named tells it, and
    what is heavy need not be decoded for that.
    """
    asking, named = request.principal, _NAMESPACE.search(request.body)
    there = await runtime.cluster_namespaces.on(cluster_of(asking)) if named is not None else {}
    placement = there.get(named[1].decode()) if named is not None else None
    if placement is None:
        return asking
    tenant = tenant_of(placement.space)
    if not runtime.throttle.is_bound(tenant):
        await runtime.tenant_limits.ensure(tenant)
    return replace(asking, tenant=tenant)


def line(payer: Principal) -> str | None:
    """In whose turn heavy work is done: reviews of one cluster about one tenant stand in a line of their own."""
    return f"{payer.name} {payer.tenant or ''}" if cluster_of(payer) else payer.tenant


async def serve(runtime: Runtime, request: Request) -> Response:
    """Answer a review. Raises ``StatusError``; ``Timeout`` when half of what the cluster waits is over; ``TooHeavy``."""
    cluster, _, hook = request.info.path.removeprefix(PATH).partition("/")
    if hook not in _HOOKS:
        raise NoSuchPage
    if request.info.method != "POST":
        raise MethodNotAllowed("webhooks are asked by POST")
    if cluster_of(request.principal) != cluster:
        raise Forbidden(f"the webhooks of the cluster {cluster} are asked with its own credential alone")
    if request.headers.get(b"content-type", JSON).partition(b";")[0].strip() != JSON:
        raise UnsupportedMediaType("reviews are read as application/json")
    request.weigh(request.body)
    request.evaluate_lightly()
    body = decode_json(request.body)
    return Response(200, orjson.dumps(await in_time(request, _answer(runtime, request, cluster, hook, body))))


async def _answer(runtime: Runtime, request: Request, cluster: str, hook: str, body: Any) -> dict[str, Any]:
    await runtime.require_trustworthy()
    if hook == "admit":
        runtime.asking_clusters.note(request.principal.uid)
    return await _HOOKS[hook](runtime, request, cluster, body)


async def in_time(request: Request, answer: Awaitable[T]) -> T:
    """An answer, wherever it is made. Raises ``Timeout`` when half of what the cluster waits is over."""
    try:
        async with asyncio.timeout(patience(request.query.get("timeout", ""))):
            return await answer
    except TimeoutError:
        raise Timeout("the review was not answered within half of the timeout that the cluster gives") from None


@lru_cache(maxsize=64)
def patience(timeout: str) -> float:
    """Half of what the query of a kube-apiserver says it waits, in seconds."""
    found = _DURATION.fullmatch(timeout) if timeout else None
    if found is None or not any(found.groups()):
        return _PATIENCE_SECONDS
    minutes, seconds = found.groups()
    return (60 * int(minutes or 0) + float(seconds or 0)) / 2
