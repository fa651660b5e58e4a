"""What else than the request itself its caller must be allowed to do."""

from __future__ import annotations

from dataclasses import replace

from gateway.http.messages import Request
from gateway.process.runtime import Runtime
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Forbidden


async def authorize(runtime: Runtime, request: Request, verb: str) -> Decision:
    """The chain's decision about another verb on what the request is about."""
    return await runtime.authorization.authorize(request.principal, replace(request.info, verb=verb))


async def require(runtime: Runtime, request: Request, verb: str) -> None:
    """Raises ``Forbidden`` unless the caller may do this too: an update that creates is also a creation (AZ1)."""
    decision = await authorize(runtime, request, verb)
    if not decision.allowed:
        raise forbidden(request.principal, replace(request.info, verb=verb), decision)


def forbidden(principal: Principal, info: RequestInfo, decision: Decision) -> Forbidden:
    """The 403 in the words that kubectl's users know."""
    why = f": {decision.reason}" if decision.reason else ""
    if not info.is_resource:
        return Forbidden(f'forbidden: User "{principal.name}" cannot {info.verb} path "{info.path}"{why}')
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    qualified = f"{info.resource}.{info.group}" if info.group else info.resource
    shown = f'{qualified} "{info.name}" is' if info.name else f"{qualified} is"
    where = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    return Forbidden(
        f'{shown} forbidden: User "{principal.name}" cannot {info.verb} resource "{resource}" '
        f'in API group "{info.group}" {where}{why}',
        group=info.group,
        kind=info.resource,
        name=info.name,
    )
