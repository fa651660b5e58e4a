"""Access reviews: who may do what, who am I, whose token is this (AZ10)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from access.authentication.base import Credentials, Refused
from gateway import stages
from gateway.exchange import Request, Response
from gateway.kinds import Kind
from gateway.negotiation import negotiate, respond
from gateway.objects import check_place, decode_object, timestamp
from gateway.runtime import Runtime
from kube.identity import SERVICE_ACCOUNT_PREFIX, SYSTEM_TENANT, TENANT_EXTRA, Principal
from kube.jwt import unverified_issuer
from kube.logicalclusters import tenant_of
from kube.rbac import TENANTED
from kube.requestinfo import RequestInfo
from kube.status import BadRequest, Cause, Forbidden, Unauthorized
from kube.validation.causes import invalid, invalid_object, required
from kube.verdicts import Verdict

_GROUP: Final = "authorization.k8s.io"
_ACCESS: Final = frozenset({"SelfSubjectAccessReview", "SubjectAccessReview", "LocalSubjectAccessReview"})
_URL: Final = "spec.nonResourceAttributes"
_AUDIENCES_MAX: Final = 32
_ATTRIBUTES: Final = ("verb", "group", "version", "resource", "subresource", "namespace", "name")


async def review(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """Answer a review of any kind; the answer is the review with its status."""
    body = decode_object(request, kind)
    if kind.name in _ACCESS:
        check_place(request.info, kind, body)
    body["status"] = await _ANSWERS[kind.name](runtime, request, body)
    created = timestamp(request.now) if kind.name == "SelfSubjectReview" else None
    shown = {"namespace": body["metadata"]["namespace"]} if kind.resource.namespaced else {}
    body["metadata"] = {**shown, "creationTimestamp": created}
    return respond(request, body, status=201, accept=negotiate(request, forms=False))


async def _access(runtime: Runtime, request: Request, body: dict[str, Any]) -> dict[str, Any]:
    causes = access_causes(body)
    if causes:
        # Kubernetes names no kind here.
        raise invalid_object(_GROUP, "", "", causes)
    info = attributes_of(request.info.cluster, body["spec"])
    own = body["kind"] == "SelfSubjectAccessReview"
    subject = request.principal if own else _subject(request, body["spec"], body["kind"])
    return await _decide(runtime, subject, info)


def access_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a review that asks whether a user may do something."""
    spec, metadata, kind = body.get("spec") or {}, body["metadata"], body["kind"]
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    url = {"Path": (other or {}).get("path", ""), "Verb": (other or {}).get("verb", "")}
    causes = []
    if resource is not None and other is not None:
        causes.append(invalid(_URL, url, "cannot be specified in combination with resourceAttributes"))
    if resource is None and other is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        causes.append(invalid("spec.resourceAttributes", None, detail))
    if kind != "SelfSubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        causes.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    for field in ("fieldSelector", "labelSelector"):
        causes += _selector_causes((resource or {}).get(field), f"spec.resourceAttributes.{field}")
    local = kind == "LocalSubjectAccessReview"
    if metadata.keys() - {"managedFields", *(("namespace",) if local else ())}:
        causes.append(invalid("metadata", metadata, f"must be empty{' except for namespace' if local else ''}"))
    if local and resource is not None and resource.get("namespace", "") != metadata["namespace"]:
        path = "spec.resourceAttributes.namespace"
        causes.append(invalid(path, resource.get("namespace", ""), "must match metadata.namespace"))
    if local and other is not None:
        causes.append(invalid(_URL, url, "disallowed on this kind of request"))
    return causes


def _selector_causes(selector: dict[str, Any] | None, path: str) -> list[Cause]:
    if selector is None:
        return []
    raw, requirements = selector.get("rawSelector"), selector.get("requirements")
    if raw and requirements:
        return [invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements")]
    if not raw and not requirements:
        detail = f"when {path} is specified, requirements or rawSelector is required"
        return [required(f"{path}.requirements", detail)]
    return [
        required(f"{path}.requirements[{index}].key", "must be specified")
        for index, requirement in enumerate(requirements or ())
        if not requirement.get("key")
    ]


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


def attributes_of(cluster: str, spec: Mapping[str, Any]) -> RequestInfo:
    """The request that a review without causes asks about, in this logical cluster."""
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    tenant = tenant_of(cluster)
    if resource is None:
        other = other or {}
        verb = str(other.get("verb") or "")
        return RequestInfo(method="", path=str(other.get("path") or ""), cluster=cluster, tenant=tenant, verb=verb)
    asked = {name: str(resource.get(name) or "") for name in _ATTRIBUTES}
    namespace = asked["namespace"]
    if asked["resource"] == "namespaces" and not asked["group"] and asked["name"]:
        namespace = asked["name"]
    # No one has sent it: it has no path.
    return RequestInfo(
        method="",
        path="",
        cluster=cluster,
        tenant=tenant,
        verb=asked["verb"],
        is_resource=True,
        group=asked["group"],
        version=asked["version"],
        resource=asked["resource"],
        subresource=asked["subresource"],
        namespace=namespace,
        name=asked["name"],
    )


def _subject(request: Request, spec: Mapping[str, Any], kind: str) -> Principal:
    """Who a review asks about. Its tenant is that of the space, unless an operator names another (contract.md)."""
    user, groups = str(spec.get("user") or ""), tuple(str(group) for group in spec.get("groups") or ())
    extra = spec.get("extra") or {}
    named = extra.get(TENANT_EXTRA) or []
    own = tenant_of(request.info.cluster)
    tenant = str(named[0]) if len(named) == 1 else own
    if len(named) > 1 or (tenant != own and not request.principal.is_system):
        raise Forbidden("only the system tenant may ask about users of other tenants", group=_GROUP, kind=kind)
    home = request.info.cluster if user.startswith(SERVICE_ACCOUNT_PREFIX) and tenant == own else None
    return Principal(
        name=user,
        uid=str(spec.get("uid") or ""),
        groups=groups,
        extra={key: tuple(map(str, values)) for key, values in extra.items() if key != TENANT_EXTRA},
        tenant=tenant,
        authenticator="review",
        cluster=home,
    )


async def _rules(runtime: Runtime, request: Request, body: dict[str, Any]) -> dict[str, Any]:
    namespace = (body.get("spec") or {}).get("namespace")
    if not namespace:
        raise BadRequest("no namespace on request")
    body["spec"] = {}
    principal, cluster = request.principal, request.info.cluster
    rules, complete = await runtime.authorization.rules_for(principal, cluster, namespace)
    # Two authorizers may grant the same.
    of_resources = dict.fromkeys(replace(rule, urls=(), scope=TENANTED) for rule in rules if rule.resources)
    of_urls = dict.fromkeys(
        replace(rule, groups=(), resources=(), names=(), scope=TENANTED) for rule in rules if rule.urls
    )
    return {
        "resourceRules": [rule.as_dict() for rule in of_resources],
        "nonResourceRules": [rule.as_dict() for rule in of_urls],
        "incomplete": not complete,
    }


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
    return {"authenticated": True, "user": principal.user_info(), "audiences": wanted}


_ANSWERS: Final = {
    "SelfSubjectAccessReview": _access,
    "SubjectAccessReview": _access,
    "LocalSubjectAccessReview": _access,
    "SelfSubjectRulesReview": _rules,
    "SelfSubjectReview": _self,
    "TokenReview": _token,
}
