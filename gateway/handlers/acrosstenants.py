"""Lists and watches of one kind across tenants, which the store alone answers (TS14, GW4).

What is in namespaces on clusters is in none of them: to merge every tenant's would be to ask every cluster about each of its
namespaces, with each one's own token. So whoever may miss something is told so, as in one tenant where a cluster does not
answer: people, who read tables, by a warning, and everybody else, who would take a part for the whole, by a refusal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gateway.handlers import acrossnamespaces
from gateway.http.messages import Request
from gateway.http.negotiation import negotiate
from gateway.process.runtime import Runtime
from gateway.process.streams import Recheck
from kube.authorization.rbac import Attributes
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import BadRequest, Expired, ServiceUnavailable

_MISSING: Final = (
    'what namespaces on clusters hold of "{}" is in no {} across tenants: ask in one tenant, at /clusters/root:NAME'
)


async def heed(runtime: Runtime, request: Request, recheck: Recheck) -> Recheck:
    """Have nobody miss what is on clusters unawares: a watch of what is stored alone ends when there comes to be more.

    Raises ``BadRequest`` for what no table is asked for.
    """
    info, come = request.info, runtime.placements.come(None)
    if await _is_placed(runtime, info):
        missing = _MISSING.format(info.resource, info.verb)
        if not negotiate(request).is_table:
            raise BadRequest(missing)
        request.warnings.append(missing)
        return recheck

    async def again() -> None:
        nonlocal come
        await recheck()
        now = runtime.placements.come(None)
        if now != come:
            if await _is_placed(runtime, info):
                raise Expired(acrossnamespaces.CHANGED)
            come = now

    return again


async def _is_placed(runtime: Runtime, info: RequestInfo) -> bool:
    """Whether any cluster with a namespace in use may hold objects of the kind that are shown to its tenant."""
    for cluster in await runtime.placements.clusters_in_use():
        try:
            roles = await runtime.clusters.roles(cluster)
        except ServiceUnavailable:
            return True
        if roles.least(Attributes.of(replace(info, all_tenants=False))) is not None:
            return True
    return False
