"""AdmissionReview: what a cluster may write in the namespaces of tenants, whoever writes it there (GW17, AD1 to AD5).

The same plug-ins as for stored namespaces judge. What they keep, whose a host name is now and what is taken of the
tenant's quota, is committed before the answer, with what it rests on, such as the policy; where another process was
faster, the review is judged anew. A dry run is judged alike, and nothing is kept.
"""

from __future__ import annotations

from typing import Any, Final

from access.admission.base import Attributes
from access.admission.keeping import keep
from gateway.filters.auditing import record_of, with_notes
from gateway.http.messages import Request
from gateway.process.runtime import Runtime
from gateway.upstream.placements import Placement
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision, Verdict
from kube.kinds.builtins import BUILTINS
from kube.kinds.resources import Resource, Version
from kube.requests.decoding import HEAVY
from kube.requests.fielderrors import invalid_object
from kube.requests.logicalclusters import tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import StatusError
from kube.validation.listlimits import length_causes
from kube.webhooks.isolation import is_platform
from kube.webhooks.reviews import AdmissionReview, admission_answer, read_admission_review
from store.types import PreconditionFailed

_NAMESPACES: Final = ("", "namespaces")
AUTHENTICATOR: Final = "webhook"
"""By whom those are known who write on a cluster: it has said so."""

_ALLOWED: Final = Decision(Verdict.ALLOW, "admission")


async def answer(runtime: Runtime, request: Request, cluster: str, body: Any) -> dict[str, Any]:
    """The review with its response. Raises ``BadRequest``, and what the store does."""
    review = read_admission_review(body)
    is_namespace = (review.group, review.plural) == _NAMESPACES
    placement = (await runtime.cluster_namespaces.on(cluster)).get(review.name if is_namespace else review.namespace)
    if placement is None and not is_namespace:
        return admission_answer(review.uid, None)
    attributes = _attributes(review, placement, request.now)
    try:
        if request.weight > HEAVY:
            _require_short(review)
        if is_namespace:
            await runtime.cluster_namespace_admission.admit(attributes)
        else:
            await _admit(runtime, attributes)
    except StatusError as refusal:
        if refusal.code >= 500:
            raise
        _record(runtime, request, attributes, refusal.code)
        return admission_answer(review.uid, refusal)
    return admission_answer(review.uid, None, attributes.warnings)


def _require_short(review: AdmissionReview) -> None:
    """Refuse what would be refused at the door, unless it is as long already. Raises ``Invalid``."""
    if BUILTINS.by_group_resource(review.group, review.plural) is None:
        return
    causes = length_causes(review.object or {})
    if causes and not (review.old and length_causes(review.old)):
        raise invalid_object(review.group, review.kind, review.name, causes)


async def _admit(runtime: Runtime, attributes: Attributes) -> None:
    """Judge, and keep what has to be kept, as often as the patience of the review allows. Raises ``StatusError``."""
    while True:
        attributes.warnings.clear()
        attributes.notes.clear()
        attributes.together.clear()
        try:
            operations = await runtime.cluster_admission.admit(attributes)
            if not attributes.dry_run:
                await keep(runtime.store, operations)
        except PreconditionFailed:
            continue
        return


def _attributes(review: AdmissionReview, placement: Placement | None, now: float) -> Attributes:
    space = placement.space if placement is not None else ""
    tenant = tenant_of(space) if placement is not None else ""
    subject = review.subject
    return Attributes(
        principal=Principal(
            name=subject.name,
            uid=subject.uid,
            groups=subject.groups,
            tenant=SYSTEM_TENANT if is_platform(subject) else tenant or None,
            authenticator=AUTHENTICATOR,
        ),
        info=RequestInfo(
            method="",
            path="",
            cluster=space,
            tenant=tenant,
            verb=review.operation.lower(),
            is_resource=True,
            group=review.group,
            version=review.version,
            resource=review.plural,
            subresource=review.subresource,
            namespace=review.namespace,
            name=review.name,
        ),
        resource=BUILTINS.by_group_resource(review.group, review.plural) or _unknown(review),
        schema=None,
        operation=review.operation,
        namespace=review.namespace,
        name=review.name,
        object=review.object,
        old=review.old,
        now=now,
        dry_run=review.dry_run,
    )


def _unknown(review: AdmissionReview) -> Resource:
    """What the cluster alone has, as far as the plug-ins ask."""
    return Resource(
        group=review.group,
        kind=review.kind,
        plural=review.plural,
        singular=review.kind.lower(),
        list_kind=f"{review.kind}List",
        namespaced=True,
        versions=(Version(name=review.version),),
    )


def _record(runtime: Runtime, request: Request, attributes: Attributes, code: int) -> None:
    """A refusal is the tenant's, and in its audit like any other, with the plug-in that refused (AZ11)."""
    principal, tenant = attributes.principal, attributes.info.tenant
    runtime.audit.put_nowait(
        record_of(
            request.audit_id,
            time=request.now,
            latency=0.0,
            principal=Principal(name=principal.name, tenant=tenant or None, authenticator=AUTHENTICATOR),
            info=attributes.info,
            decision=with_notes(_ALLOWED, attributes.notes),
            status=code,
            source_ip="",
            user_agent=request.user_agent,
        )
    )
