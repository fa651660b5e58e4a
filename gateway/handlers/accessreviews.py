"""Access reviews: whether somebody may do something (AZ10).

The same few questions are asked again and again: by a kubelet, by a webhook's client, by every page that greys out
buttons. What a body asks is worked out once; the answer never is anything but new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from gateway.filters import authorization
from gateway.http.messages import JSON, Request, Response
from gateway.http.negotiation import negotiate, respond
from gateway.process.runtime import Runtime
from gateway.resources.kinds import Kind
from gateway.resources.objects import check_namespace_and_name, decode_object
from kube.authentication.identity import (
    ANONYMOUS,
    HOME_EXTRA,
    SERVICE_ACCOUNT_PREFIX,
    TENANT_EXTRA,
    UNAUTHENTICATED,
    Principal,
    local_service_account,
    without_virtual_groups,
)
from kube.authorization.decisions import Decision, Verdict
from kube.requests.fielderrors import invalid, invalid_object, required
from kube.requests.logicalclusters import is_valid, space_of, tenant_of
from kube.requests.requestinfo import RequestInfo
from kube.requests.reviewselectors import selected_fields, selected_labels
from kube.requests.status import BadRequest, Cause, Forbidden
from kube.validation.metadata import label_requirement_causes, operator_causes

KINDS: Final = frozenset({"SelfSubjectAccessReview", "SubjectAccessReview", "LocalSubjectAccessReview"})

_GROUP: Final = "authorization.k8s.io"
_RESOURCE: Final = "spec.resourceAttributes"
_URL: Final = "spec.nonResourceAttributes"
_ATTRIBUTES: Final = ("verb", "group", "version", "resource", "subresource", "namespace", "name")
_SHORT: Final = 1024
"""Bytes of a body that is worth remembering; it bounds what the memory can grow to."""

_REMEMBERED: Final = 2048


@dataclass(frozen=True, slots=True)
class _Question:
    """What a review asks: the request that it is about, whose it is (``None``: the caller's own), and its own text.

    ``text`` is the review as JSON up to its status, ``error`` says what of it was not understood.
    """

    info: RequestInfo
    subject: Principal | None
    text: bytes
    error: str


_Asked = tuple[Kind, str, str, bool, bytes]
_questions: dict[_Asked, _Question] = {}


async def review(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """Answer a review; the answer is the review with its status. Raises ``BadRequest``, ``Invalid``, ``Forbidden``."""
    accept = negotiate(request, forms=False)
    question = _question(request, kind)
    subject = question.subject or request.principal
    decision = authorization.decide(runtime, subject, question.info)
    if decision is None:
        # With a trace, for else the chain would try once more not to wait.
        decision = await authorization.authorize(runtime, subject, question.info, [])
    return respond(
        request, question.text + orjson.dumps(_status(decision, question.error)) + b"}", status=201, accept=accept
    )


def _question(request: Request, kind: Kind) -> _Question:
    info, body = request.info, request.body
    plain = len(body) <= _SHORT and not request.query and request.headers.get(b"content-type", JSON) == JSON
    asked = (kind, info.cluster, info.namespace, request.principal.is_system, body)
    found = _questions.get(asked) if plain else None
    if found is None:
        found = _read(request, kind)
        if plain and not request.warnings:
            if len(_questions) >= _REMEMBERED:
                _questions.clear()
            _questions[asked] = found
    return found


def _read(request: Request, kind: Kind) -> _Question:
    body = decode_object(request, kind)
    check_namespace_and_name(request.info, kind, body)
    causes = access_causes(body)
    if causes:
        # Kubernetes names no kind here.
        raise invalid_object(_GROUP, "", "", causes)
    own = kind.name == "SelfSubjectAccessReview"
    subject = None if own else _subject(request, body["spec"], kind.name)
    shown = {"namespace": body["metadata"]["namespace"]} if kind.resource.namespaced else {}
    body["metadata"] = {**shown, "creationTimestamp": None}
    body.pop("status", None)
    info, error = _attributes(request.info.cluster, body["spec"])
    return _Question(info, subject, orjson.dumps(body)[:-1] + b',"status":', error)


def access_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a review that asks whether a user may do something."""
    spec, metadata, kind = body.get("spec") or {}, body["metadata"], body["kind"]
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    causes = []
    if resource is not None and other is not None:
        causes.append(invalid(_URL, _shown(other), "cannot be specified in combination with resourceAttributes"))
    if resource is None and other is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        causes.append(invalid(_RESOURCE, None, detail))
    if kind != "SelfSubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        causes.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    for field in ("fieldSelector", "labelSelector") if resource else ():
        causes += _selector_causes(resource, field)
    local = kind == "LocalSubjectAccessReview"
    if metadata.keys() - {"managedFields", *(("namespace",) if local else ())}:
        causes.append(invalid("metadata", metadata, f"must be empty{' except for namespace' if local else ''}"))
    if local and resource is not None and resource.get("namespace", "") != metadata["namespace"]:
        path = f"{_RESOURCE}.namespace"
        causes.append(invalid(path, resource.get("namespace", ""), "must match metadata.namespace"))
    if local and other is not None:
        causes.append(invalid(_URL, _shown(other), "disallowed on this kind of request"))
    return causes


def _shown(other: Mapping[str, Any]) -> dict[str, Any]:
    return {"Path": other.get("path", ""), "Verb": other.get("verb", "")}


def _selector_causes(resource: Mapping[str, Any], field: str) -> list[Cause]:
    selector = resource.get(field)
    if selector is None:
        return []
    path = f"{_RESOURCE}.{field}"
    raw, requirements = selector.get("rawSelector"), selector.get("requirements")
    causes = []
    if raw and requirements:
        causes.append(invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements"))
    if not raw and not requirements:
        detail = f"when {path} is specified, requirements or rawSelector is required"
        causes.append(required(f"{path}.requirements", detail))
    for index, wanted in enumerate(requirements or ()):
        here = f"{path}.requirements[{index}]"
        if field == "fieldSelector" and not wanted.get("key"):
            causes.append(required(f"{here}.key", "must be specified"))
        # A newer client may know further operators.
        causes += operator_causes(wanted, here, known=False)
        if field == "labelSelector":
            causes += label_requirement_causes(wanted, here)
    return causes


def _status(decision: Decision, error: str) -> dict[str, Any]:
    status: dict[str, Any] = {"allowed": decision.allowed}
    if decision.verdict is Verdict.DENY:
        status["denied"] = True
    reason = decision.reason
    if decision.step and not reason.startswith(decision.step):
        reason = f"{decision.step}: {reason}" if reason else decision.step if not decision.allowed else ""
    if reason:
        status["reason"] = reason
    if error:
        status["evaluationError"] = error
    return status


def attributes_of(cluster: str, spec: Mapping[str, Any]) -> tuple[RequestInfo, str]:
    """The request that a review without causes asks about, in this logical cluster, and what of it cannot be read."""
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    tenant = tenant_of(cluster)
    if resource is None:
        other = other or {}
        verb = str(other.get("verb") or "")
        return RequestInfo(method="", path=str(other.get("path") or ""), cluster=cluster, tenant=tenant, verb=verb), ""
    fields, labels = selected_fields(resource.get("fieldSelector")), selected_labels(resource.get("labelSelector"))
    asked = {name: str(resource.get(name) or "") for name in _ATTRIBUTES}
    # No one has sent it: it has no path.
    info = RequestInfo(
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
        namespace=asked["namespace"],
        name=asked["name"],
        field_selector=fields.text,
        label_selector=labels.text,
    )
    errors = fields.error(f"{_RESOURCE}.fieldSelector"), labels.error(f"{_RESOURCE}.labelSelector")
    return info, "; ".join(filter(None, errors))


def _attributes(cluster: str, spec: Mapping[str, Any]) -> tuple[RequestInfo, str]:
    """``attributes_of``, worked out once where it is short: who asks about many users asks the same of each."""
    asked = orjson.dumps((spec.get("resourceAttributes"), spec.get("nonResourceAttributes")))
    return _known_attributes(cluster, asked) if len(asked) <= _SHORT else attributes_of(cluster, spec)


@lru_cache(maxsize=_REMEMBERED)
def _known_attributes(cluster: str, asked: bytes) -> tuple[RequestInfo, str]:
    resource, other = orjson.loads(asked)
    return attributes_of(cluster, {"resourceAttributes": resource, "nonResourceAttributes": other})


def _subject(request: Request, spec: Mapping[str, Any], kind: str) -> Principal:
    """Who a review asks about. Its tenant is that of the space, unless an operator names another; who has not signed in has none."""
    user, groups = str(spec.get("user") or ""), tuple(map(str, spec.get("groups") or ()))
    extra = spec.get("extra") or {}
    named = extra.get(TENANT_EXTRA) or []
    own = tenant_of(request.info.cluster)
    tenant = str(named[0]) if len(named) == 1 else own
    if len(named) > 1 or (tenant != own and not request.principal.is_system):
        raise Forbidden("only the system tenant may ask about users of other tenants", group=_GROUP, kind=kind)
    try:
        user, home = local_service_account(user, tuple(map(str, extra.get(HOME_EXTRA) or ())))
    except ValueError as error:
        raise BadRequest(f"spec.user and spec.extra[{HOME_EXTRA}]: {error}") from None
    if home == "" and user.startswith(SERVICE_ACCOUNT_PREFIX):
        home = request.info.cluster if tenant == own else space_of(tenant)
    if home and (not is_valid(home) or tenant_of(home) != tenant):
        raise Forbidden("the service account is of no logical cluster of the tenant", group=_GROUP, kind=kind)
    nobodys = user == ANONYMOUS or (not user and UNAUTHENTICATED in groups)
    return Principal(
        name=user,
        uid=str(spec.get("uid") or ""),
        groups=without_virtual_groups(groups),
        extra={key: tuple(map(str, values)) for key, values in extra.items() if key not in (TENANT_EXTRA, HOME_EXTRA)},
        tenant=None if nobodys else tenant,
        authenticator="review",
        cluster=home or None,
    )
