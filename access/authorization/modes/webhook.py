"""An outside service that is asked by SubjectAccessReview (AZ5; authorization.k8s.io/v1)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from access.authentication.digests import Digests
from access.authorization.base import allow, deny, no_opinion, passes
from access.authorization.options import AUTHORIZED_SECONDS, UNAUTHORIZED_SECONDS
from access.httpclient import Webhook
from access.outsidebudget import Unreachable
from access.ttlcache import CAPACITY, TTLCache
from kube.authentication.identity import HOME_EXTRA, TENANT_EXTRA, Principal
from kube.authorization.decisions import Decision
from kube.requests.requestinfo import RequestInfo
from kube.requests.reviewselectors import field_requirements, label_requirements

CLUSTER_EXTRA: Final = "multi-tenancy.k8s.io/cluster"
"""The key of ``extra`` that names the logical cluster that the request is about."""

REASON_MAX: Final = 1024
_PAUSES: Final = (0.2, 0.4)
_VERSION: Final = "authorization.k8s.io/v1"


STEP: Final = "Webhook"
_SILENT: Final = passes(STEP, "the webhook has no opinion")


class WebhookAuthorizer:
    """Asks once per question and remembers: an ALLOW for ``authorized_ttl`` seconds, all else ``unauthorized_ttl``.

    The user's tenant goes along in ``spec.extra`` and is part of what is remembered: two tenants' users of one name
    are two users. Without a usable answer in time the request is denied, or, with ``fails_open``, left to the modes that
    come after.
    """

    name = STEP

    def __init__(
        self,
        webhook: Webhook,
        *,
        authorized_ttl: float = AUTHORIZED_SECONDS,
        unauthorized_ttl: float = UNAUTHORIZED_SECONDS,
        fails_open: bool = False,
        capacity: int = CAPACITY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._webhook = webhook
        self._fails_open = fails_open
        self._clock = clock
        self._digests = Digests()
        self._answers: TTLCache[Decision] = TTLCache(
            success=authorized_ttl,
            failure=unauthorized_ttl,
            capacity=capacity,
            is_yes=lambda decision: decision is not None and decision.allowed,
        )

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """The webhook's verdict; DENY when it gives none, or what the failure policy says."""
        spec = spec_of(principal, request)
        key = self._digests.of(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS))
        try:
            decision = await self._answers.ask(key, self._clock(), lambda: self._ask(spec))
        except Unreachable:
            return (no_opinion if self._fails_open else deny)(self.name, "the webhook gives no answer")
        return decision or _SILENT

    async def close(self) -> None:
        """Give the connections back."""
        await self._webhook.close()

    async def _ask(self, spec: dict[str, Any]) -> Decision:
        status = await self._webhook.review(_VERSION, "SubjectAccessReview", spec, pauses=_PAUSES)
        return self._verdict(status)

    def _verdict(self, status: Mapping[str, Any]) -> Decision:
        # What is not said is no, as in Kubernetes; what is neither true nor false is no answer.
        allowed, denied = status.get("allowed"), status.get("denied")
        if not (isinstance(allowed, bool | None) and isinstance(denied, bool | None)):
            raise Unreachable("the answer is not a SubjectAccessReview")
        said = status.get("reason")
        reason = said[:REASON_MAX] if isinstance(said, str) else ""
        # Who says both yes and no says no.
        if denied:
            return deny(self.name, reason or "denied by the webhook")
        if allowed:
            return allow(self.name, reason or "allowed by the webhook")
        return no_opinion(self.name, reason) if reason else _SILENT


def spec_of(principal: Principal, request: RequestInfo) -> dict[str, Any]:
    """The ``spec`` that asks about this request.

    In ``extra`` are the tenant of the user and the logical cluster of a service account, which has another name outside.
    """
    principal = principal.seen_from(request.cluster)
    extra = {key: list(values) for key, values in principal.extra.items()}
    extra.pop(TENANT_EXTRA, None)
    extra.pop(HOME_EXTRA, None)
    if principal.cluster is not None:
        extra[HOME_EXTRA] = [principal.cluster]
    if principal.tenant is not None:
        extra[TENANT_EXTRA] = [principal.tenant]
    extra[CLUSTER_EXTRA] = [request.cluster]
    spec: dict[str, Any] = {"user": principal.name, "groups": list(principal.groups), "extra": extra}
    if principal.uid:
        spec["uid"] = principal.uid
    if not request.is_resource:
        spec["nonResourceAttributes"] = {"path": request.path, "verb": request.verb}
        return spec
    fields = {
        "verb": request.verb,
        "group": request.group,
        "version": request.version,
        "resource": request.resource,
        "subresource": request.subresource,
        "namespace": request.namespace,
        "name": request.name,
    }
    attributes: dict[str, Any] = {field: value for field, value in fields.items() if value}
    for field, requirements in (
        ("fieldSelector", field_requirements(request.field_selector)),
        ("labelSelector", label_requirements(request.label_selector)),
    ):
        if requirements:
            attributes[field] = {"requirements": requirements}
    spec["resourceAttributes"] = attributes
    return spec
