"""Reviews of identities: who am I, what may I do, whose token is this (AZ10)."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from access.authentication.base import Credentials, Refused
from gateway.handlers import accessreviews
from gateway.http.messages import Request, Response
from gateway.http.negotiation import negotiate, respond
from gateway.process.runtime import Runtime
from gateway.resources.kinds import Kind
from gateway.resources.objects import decode_object, timestamp
from kube.authentication.identity import Principal
from kube.authentication.serviceaccounttokens import unverified_issuer
from kube.authorization.rbac import TENANTED
from kube.requests.logicalclusters import tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import BadRequest, Unauthorized

_AUDIENCES_MAX: Final = 32


_NOT_ALL: Final = "not everything that decides here can say all that it allows: ask about one request (kubectl auth can-i VERB RESOURCE)"


def review(runtime: Runtime, request: Request, kind: Kind) -> Awaitable[Response]:
    """Answer a review of any kind; the answer is the review with its status."""
    answer = accessreviews.review if kind.name in accessreviews.KINDS else _review
    return answer(runtime, request, kind)


async def _review(runtime: Runtime, request: Request, kind: Kind) -> Response:
    body = decode_object(request, kind)
    body["status"] = await _ANSWERS[kind.name](runtime, request, body)
    body["metadata"] = {"creationTimestamp": timestamp(request.now) if kind.name == "SelfSubjectReview" else None}
    return respond(request, body, status=201, accept=negotiate(request, forms=False))


async def _rules(runtime: Runtime, request: Request, body: dict[str, Any]) -> dict[str, Any]:
    namespace = (body.get("spec") or {}).get("namespace")
    if not namespace:
        raise BadRequest("no namespace on request")
    body["spec"] = {}
    principal, cluster = request.principal, request.info.cluster
    held = await runtime.authorization.rules_for(principal, cluster, namespace)
    error = "; ".join(filter(None, (held.error, "" if held.complete else _NOT_ALL)))
    # Two authorizers may grant the same.
    of_resources = dict.fromkeys(replace(rule, urls=(), scope=TENANTED) for rule in held.rules if rule.resources)
    of_urls = dict.fromkeys(
        replace(rule, groups=(), resources=(), names=(), scope=TENANTED) for rule in held.rules if rule.urls
    )
    return {
        "resourceRules": [rule.as_dict() for rule in of_resources],
        "nonResourceRules": [rule.as_dict() for rule in of_urls],
        "incomplete": not held.complete,
        **({"evaluationError": error} if error else {}),
    }


async def _self(_runtime: Runtime, request: Request, _body: dict[str, Any]) -> dict[str, Any]:
    return {"userInfo": request.principal.seen_from(request.info.cluster).user_info()}


async def _known(runtime: Runtime, token: str, audiences: list[str], now: float) -> tuple[Principal, list[str]] | None:
    """Who the token is of, and which of the audiences it is for.

    Service accounts' tokens can be for others, who ask here whether they are good; any other kind is for this server.
    """
    shown = Credentials(authorization=f"Bearer {token}")
    if shown.bearer is None:
        return None
    if audiences and unverified_issuer(shown.bearer) in runtime.options.service_account_issuers:
        found: dict[str, Principal] = {}
        for audience in audiences:
            with suppress(Refused):
                account = await runtime.accounts.principal(shown.bearer, audiences=(audience,), now=now)
                if runtime.authentication.counts(account):
                    found[audience] = account
        return (next(iter(found.values())), list(found)) if found else None
    try:
        principal = await runtime.authentication.authenticate(shown, now=now)
    except Unauthorized:
        return None
    return principal, [
        audience for audience in audiences or runtime.options.audiences if audience in runtime.options.audiences
    ]


async def _token(runtime: Runtime, request: Request, body: dict[str, Any]) -> dict[str, Any]:
    spec = body.get("spec") or {}
    token, audiences = spec.get("token"), spec.get("audiences") or []
    if not isinstance(token, str) or not token:
        raise BadRequest("token is required for TokenReview in authentication")
    body["spec"] = {**spec, "token": ""}
    if not isinstance(audiences, list) or not all(isinstance(audience, str) for audience in audiences):
        raise BadRequest("spec.audiences is not a list of strings")
    if len(audiences) > _AUDIENCES_MAX:
        raise BadRequest(f"spec.audiences has more than {_AUDIENCES_MAX} entries")
    own = tenant_of(request.info.cluster)
    known = await _known(runtime, token, audiences, request.now)
    if known is None:
        return {"user": {}, "error": "invalid bearer token"}
    principal, wanted = known
    if audiences and not wanted:
        return {"user": {}, "error": "the token is for another audience"}
    if principal.tenant != own and not (request.principal.is_system and own == SYSTEM_TENANT):
        # A tenant may not find out whose token a foreign one is.
        return {"user": {}, "error": "invalid bearer token"}
    user = principal.seen_from(request.info.cluster).user_info()
    return {"authenticated": True, "user": user, "audiences": wanted}


_ANSWERS: Final = {
    "SelfSubjectRulesReview": _rules,
    "SelfSubjectReview": _self,
    "TokenReview": _token,
}
