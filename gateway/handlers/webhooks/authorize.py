"""SubjectAccessReview: what tenants may on a cluster that they speak to directly (GW17).

1. Whoever is nobody's but the cluster's own (nodes, system accounts, its admins) is left to its other authorizers.
2. Locks of the tenant and of the workspace deny, with the reason, and freezes what writes; then the wall between tenants.
3. A person inside gets what the door would give: the decision of the space's own chain, as far as the role of workspaces on
   the cluster covers it; and so does a service account of the tenant's space, where its tokens are taken (``authenticate``).
   Beyond that, and for service accounts of the cluster's namespaces, the cluster's own RBAC decides.

Everything that decides is in memory, kept right by notifications.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from access.authentication.base import Refused
from access.authorization.tenancy.placednamespaces import STEP as PLACED
from access.authorization.tenancy.suspension import STEP as SUSPENSION
from access.authorization.tenancy.suspension import is_write
from gateway.filters.auditing import record_of
from gateway.handlers.accessreviews import attributes_of
from gateway.handlers.placednamespaces.forwarding import role_of
from gateway.http.messages import Request
from gateway.process.runtime import Runtime
from gateway.upstream.placements import Placement
from kube.authentication.identity import (
    FOREIGN_ACCOUNT_PREFIX,
    HOME_EXTRA,
    SERVICE_ACCOUNT_PREFIX,
    TENANT_EXTRA,
    Principal,
    account_groups,
    local_service_account,
    without_virtual_groups,
)
from kube.authorization.decisions import Decision, Verdict
from kube.requests.logicalclusters import is_valid, space_of, tenant_of
from kube.requests.names import SYSTEM_TENANT, is_tenant_name
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Forbidden
from kube.webhooks.isolation import PERSON, STEP, account_namespace, at_the_wall
from kube.webhooks.reviews import Subject, access_answer, read_access_review

_NOT_OURS: Final = Decision(Verdict.NO_OPINION, STEP, "the user is no tenant's")
_UNSAID: Final = Decision(Verdict.DENY, STEP, f'extra["{TENANT_EXTRA}"] must name one tenant')
_ELSEWHERE: Final = Decision(Verdict.DENY, STEP, "the tenant has nothing on this cluster")
_INSIDE: Final = Decision(Verdict.NO_OPINION, STEP, "the account is in its own tenant's namespaces")
_NO_ACCOUNT: Final = Decision(Verdict.DENY, STEP, "the service account is none that the cluster is to know")
_AUTHENTICATOR: Final = "webhook"


async def answer(runtime: Runtime, request: Request, cluster: str, body: Any) -> dict[str, Any]:
    """The review with its status. Raises ``BadRequest``, ``ServiceUnavailable``."""
    review = read_access_review(body)
    placements = await runtime.cluster_namespaces.on(cluster)
    home = placements.get(account_namespace(review.subject.name))
    tenants = review.subject.tenants
    if home is not None:
        tenants = (tenant_of(home.space),)
    elif not tenants and not review.subject.name.startswith(PERSON):
        return access_answer(_NOT_OURS)
    if tenants == (SYSTEM_TENANT,):
        return access_answer(_NOT_OURS)
    if len(tenants) != 1 or not is_tenant_name(tenants[0]):
        return access_answer(_UNSAID)
    asked, _ = attributes_of(space_of(tenants[0]), review.spec)
    if asked.connects:
        # A cluster asks for ``create`` since 1.35, older ones by the method: who may read may not type.
        asked = replace(asked, verb="create")
    if (asked.group, asked.resource, asked.namespace) == ("", "namespaces", ""):
        # Whoever lists or watches one namespace by its name names no other place; all others name it as theirs.
        asked = replace(asked, namespace=asked.name)
    owned = home or placements.get(asked.namespace)
    inside = owned is not None and tenant_of(owned.space) == tenants[0]
    if not inside and not await runtime.cluster_namespaces.of(tenants[0], cluster):
        # What became of a tenant that has nothing there is no business of the cluster's, nor does its audit tell of it.
        return access_answer(_ELSEWHERE)
    principal = _principal(review.subject, tenants[0])
    if principal is None:
        return access_answer(_NO_ACCOUNT)
    decision = await _decision(runtime, request, cluster, principal, asked, home)
    if decision.verdict is Verdict.DENY:
        _record(runtime, request, principal, asked, decision)
    return access_answer(decision)


async def _decision(
    runtime: Runtime, request: Request, cluster: str, principal: Principal, asked: RequestInfo, home: Placement | None
) -> Decision:
    placements = await runtime.cluster_namespaces.on(cluster)
    placement = placements.get(asked.namespace)
    owner = tenant_of(placement.space) if placement is not None else None
    # What holds a namespace of the tenant's on another cluster is no business of this one's.
    locked_in = asked.namespace if owner == principal.tenant else ""
    for namespace in (home.namespace if home is not None else "", locked_in):
        reason = runtime.suspensions.reason(asked.cluster, namespace)
        if reason is not None:
            return Decision(Verdict.DENY, SUSPENSION, f"locked: {reason}" if reason else "locked")
    if is_write(asked):
        frozen = runtime.suspensions.freeze(asked.cluster, locked_in)
        if frozen is not None:
            return Decision(Verdict.DENY, SUSPENSION, f"frozen: {frozen}")
    if principal.credential_id:
        # What the credential is good for now, not what it was when the cluster asked about the token.
        try:
            holder = await runtime.people.holder(principal.credential_id, now=request.now)
        except Refused as refusal:
            return Decision(Verdict.DENY, STEP, str(refusal))
        if holder.tenant != principal.tenant or holder.uid != principal.uid:
            return Decision(Verdict.DENY, STEP, "the credential is somebody else's")
        principal = holder
    if principal.cluster is not None:
        if cluster not in runtime.options.webhook_service_accounts:
            return _NO_ACCOUNT
        try:
            await runtime.accounts.require_account(principal)
        except Refused as refusal:
            return Decision(Verdict.DENY, STEP, str(refusal))
    openings = runtime.clusters.openings(cluster) if asked.is_resource and not asked.namespace else ()
    at_wall = at_the_wall(str(principal.tenant), asked, owner, openings)
    if at_wall is not None:
        return _INSIDE if at_wall.allowed and home is not None else at_wall
    if home is not None or placement is None:
        return _INSIDE
    decision = await runtime.authorization.authorize(principal, asked)
    if decision.step == PLACED and not decision.allowed:
        # What accounts do not hold is left to the cluster's own RBAC; what is denied whatever they hold is not.
        beyond = await runtime.authorization.after(PLACED).authorize(principal, asked)
        return beyond if beyond.verdict is Verdict.DENY else Decision(Verdict.NO_OPINION, STEP, decision.reason)
    if not decision.allowed:
        return decision
    try:
        await role_of(runtime, principal, asked, placement)
    except Forbidden as refusal:
        return Decision(Verdict.NO_OPINION, STEP, refusal.message)
    return decision


def _principal(subject: Subject, tenant: str) -> Principal | None:
    """Who is meant, ``None`` for an account of no logical cluster of the tenant."""
    name, person = subject.name.removeprefix(PERSON), subject.name.startswith(PERSON)
    groups, home = without_virtual_groups(subject.groups), ""
    if person and name.startswith((FOREIGN_ACCOUNT_PREFIX, SERVICE_ACCOUNT_PREFIX)):
        try:
            name, home = local_service_account(name, subject.extra.get(HOME_EXTRA, ()))
        except ValueError:
            return None
        if not is_valid(home) or tenant_of(home) != tenant:
            return None
        groups = (*groups, *account_groups(name))
    return Principal(
        name=name,
        uid=subject.uid,
        groups=groups,
        tenant=tenant,
        authenticator=_AUTHENTICATOR,
        cluster=home or None,
        credential_id=subject.credential_id if person and not home else "",
    )


def _record(runtime: Runtime, request: Request, principal: Principal, asked: RequestInfo, decision: Decision) -> None:
    """A refusal is the tenant's, and in its audit like any other."""
    path = request.info.path
    runtime.audit.put_nowait(
        record_of(
            request.audit_id,
            time=request.now,
            latency=0.0,
            principal=principal,
            info=replace(asked, path=path),
            decision=decision,
            status=403,
            source_ip="",
            user_agent=request.user_agent,
        )
    )
