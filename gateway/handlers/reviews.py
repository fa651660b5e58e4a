"""Access reviews: who may do what, who am I, whose token is this (AZ10)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import orjson

from access.authentication.base import Credentials, Refused
from gateway import stages
from gateway.exchange import Request, Response
from gateway.kinds import Kind
from gateway.objects import decode_object, timestamp
from gateway.runtime import Runtime
from kube.identity import SERVICE_ACCOUNT_PREFIX, SYSTEM_TENANT, TENANT_EXTRA, Principal
from kube.jwt import unverified_issuer
from kube.logicalclusters import tenant_of
from kube.requestinfo import RequestInfo
from kube.status import BadRequest, Cause, Forbidden, Invalid, Unauthorized
from kube.validation.causes import invalid_object
from kube.verdicts import Verdict

_GROUP: Final = "authorization.k8s.io"
_AUDIENCES_MAX: Final = 32


async def review(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """Answer a review of any kind; the answer is the review with its status."""
    body = decode_object(request, kind)
    body["status"] = await _ANSWERS[kind.name](runtime, request, body)
    body["metadata"] = {"creationTimestamp": timestamp(request.now) if kind.name == "SelfSubjectReview" else None}
    return Response(201, orjson.dumps(body))


async def _self_access(runtime: Runtime, request: Request, body: dict[str, Any]) -> dict[str, Any]:
    spec = body.get("spec") or {}
    return await _decide(
        runtime, request.principal, attributes_of(request.info.cluster, spec, "SelfSubjectAccessReview")
    )


async def _access(runtime: Runtime, request: Request, body: dict[str, Any]) -> dict[str, Any]:
    spec = body.get("spec") or {}
    subject = _subject(request, spec, "SubjectAccessReview")
    return await _decide(runtime, subject, attributes_of(request.info.cluster, spec, "SubjectAccessReview"))


async def _local_access(runtime: Runtime, request: Request, body: dict[str, Any]) -> dict[str, Any]:
    spec = body.get("spec") or {}
    subject = _subject(request, spec, "LocalSubjectAccessReview")
    info = attributes_of(request.info.cluster, spec, "LocalSubjectAccessReview")
    if not info.is_resource:
        raise _invalid(
            "LocalSubjectAccessReview", "spec.nonResourceAttributes", "Forbidden: disallowed on this kind of request"
        )
    if info.namespace != request.info.namespace:
        raise _invalid(
            "LocalSubjectAccessReview",
            "spec.resourceAttributes.namespace",
            "Invalid value: must match metadata.namespace",
        )
    return await _decide(runtime, subject, info)


async def _decide(runtime: Runtime, subject: Principal, info: RequestInfo) -> dict[str, Any]:
    decision = await stages.authorize(runtime, subject, info)
    status: dict[str, Any] = {"allowed": decision.allowed}
    if decision.verdict is Verdict.DENY:
        status["denied"] = True
    reason = decision.reason
    if decision.step and not reason.startswith(decision.step):
        reason = f"{decision.step}: {reason}" if reason else decision.step if not decision.allowed else ""
    if reason:
        status["reason"] = reason
    return status


def attributes_of(cluster: str, spec: Mapping[str, Any], kind: str) -> RequestInfo:
    """The request that a review asks about, in this logical cluster. Raises ``Invalid``."""
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (other is None):
        raise _invalid(
            kind,
            "spec.resourceAttributes",
            "Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )
    tenant = tenant_of(cluster)
    if resource is None:
        other = other or {}
        verb, path = other.get("verb") or "", other.get("path") or ""
        return RequestInfo(method="", path=path, cluster=cluster, tenant=tenant, verb=verb)
    group, plural, name = (resource.get(field) or "" for field in ("group", "resource", "name"))
    namespace = resource.get("namespace") or ""
    if plural == "namespaces" and not group and name:
        namespace = name
    # No one has sent it: it has no path.
    return RequestInfo(
        method="",
        path="",
        cluster=cluster,
        tenant=tenant,
        verb=resource.get("verb") or "",
        is_resource=True,
        group=group,
        version=resource.get("version") or "",
        resource=plural,
        subresource=resource.get("subresource") or "",
        namespace=namespace,
        name=name,
    )


def _subject(request: Request, spec: Mapping[str, Any], kind: str) -> Principal:
    """Who a review asks about. Its tenant is that of the space, unless an operator names another (contract.md)."""
    user, groups = spec.get("user") or "", tuple(spec.get("groups") or ())
    if not user and not groups:
        raise _invalid(kind, "spec.user", "Invalid value: at least one of user or group must be specified")
    extra = spec.get("extra") or {}
    named = extra.get(TENANT_EXTRA) or []
    own = tenant_of(request.info.cluster)
    tenant = named[0] if len(named) == 1 else own
    if len(named) > 1 or (tenant != own and not request.principal.is_system):
        raise Forbidden("only the system tenant may ask about users of other tenants", group=_GROUP, kind=kind)
    home = request.info.cluster if user.startswith(SERVICE_ACCOUNT_PREFIX) and tenant == own else None
    return Principal(
        name=user,
        uid=spec.get("uid") or "",
        groups=groups,
        extra={key: tuple(values) for key, values in extra.items() if key != TENANT_EXTRA},
        tenant=tenant,
        authenticator="review",
        cluster=home,
    )


async def _rules(runtime: Runtime, request: Request, body: dict[str, Any]) -> dict[str, Any]:
    namespace = (body.get("spec") or {}).get("namespace")
    if not namespace:
        raise BadRequest("no namespace on request")
    principal, cluster = request.principal, request.info.cluster
    resource_rules: list[dict[str, Any]] = []
    other_rules: list[dict[str, Any]] = []
    rules, complete = await runtime.authorization.rules_for(principal, cluster, namespace)
    for rule in rules:
        if rule.resources:
            resource_rules.append(replace(rule, urls=()).as_dict())
        if rule.urls:
            other_rules.append(replace(rule, groups=(), resources=(), names=()).as_dict())
    return {"resourceRules": resource_rules, "nonResourceRules": other_rules, "incomplete": not complete}


async def _self(_runtime: Runtime, request: Request, _body: dict[str, Any]) -> dict[str, Any]:
    return {"userInfo": request.principal.user_info()}


async def _known(runtime: Runtime, token: str, audiences: list[str], now: float) -> tuple[Principal, list[str]] | None:
    """Who the token is of, and which of the audiences it is for.

    Service accounts' tokens can be for others, who ask here whether they are good; any other kind is for this server.
    """
    if audiences and unverified_issuer(token) == runtime.options.service_account_issuer:
        found: dict[str, Principal] = {}
        for audience in audiences:
            with suppress(Refused):
                found[audience] = await runtime.accounts.principal(token, audiences=(audience,), now=now)
        return (next(iter(found.values())), list(found)) if found else None
    try:
        principal = await runtime.authentication.authenticate(Credentials(authorization=f"Bearer {token}"), now=now)
    except Unauthorized:
        return None
    return principal, [audience for audience in audiences if audience in runtime.options.audiences]


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
        return {"user": {}, "error": "the token is not valid"}
    principal, wanted = known
    if audiences and not wanted:
        return {"user": {}, "error": "the token is for another audience"}
    if principal.tenant != own and not (request.principal.is_system and own == SYSTEM_TENANT):
        # A tenant may not find out whose token a foreign one is.
        return {"user": {}, "error": "the token is not valid"}
    status: dict[str, Any] = {"authenticated": True, "user": principal.user_info()}
    if audiences:
        status["audiences"] = wanted
    return status


_ANSWERS: Final = {
    "SelfSubjectAccessReview": _self_access,
    "SubjectAccessReview": _access,
    "LocalSubjectAccessReview": _local_access,
    "SelfSubjectRulesReview": _rules,
    "SelfSubjectReview": _self,
    "TokenReview": _token,
}


def _invalid(kind: str, field: str, message: str) -> Invalid:
    reason = "FieldValueForbidden" if message.startswith("Forbidden") else "FieldValueInvalid"
    return invalid_object(_GROUP, kind, "", [Cause(reason, message, field)])
