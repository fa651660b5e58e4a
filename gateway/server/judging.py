"""What the admission would say of a new object, on the database's state of this moment (AZ11).

The plug-ins of the API server, on what was read before: nothing is sent, and nothing is kept. For placed namespaces those
that a cluster asks about, with the limits of the tier filled in; what the cluster itself refuses is not known here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast

import orjson
from django.conf import settings

from access.admission import configuration
from access.admission.base import CREATE
from gateway.handlers.writing import attributes_of, candidate_of, prepare_new
from gateway.http.messages import JSON, Request
from gateway.options import WORKSPACE_DEPTH
from gateway.process.keyedlocks import KeyedLocks
from gateway.resources import objects
from gateway.resources.kinds import Catalogs
from gateway.server.admission import Admission, build_admission
from gateway.server.explanation import Snapshot, authorization_on
from gateway.upstream.placements import Placement, placement_in
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision, Verdict
from kube.quota.limitranges import with_defaults
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import BadRequest, StatusError
from store import synchronous
from store.interface import Store
from store.types import Key
from tenants.clusters.objects import limit_range
from tenants.models import Workspace

STEP: Final = "admission"
_ADMITTED: Final = Decision(Verdict.ALLOW, STEP, "no step of it refuses the object")
_UNKNOWN: Final = Decision(Verdict.NO_OPINION, STEP, "objects of custom kinds are judged when they are sent")
_PODS: Final = ("", "pods")


def judge(principal: Principal, info: RequestInfo, body: Mapping[str, Any], *, now: float) -> Decision:
    """What admission says of an object that a ``create`` would send; a refusal names the step, the rule and the amounts.

    Raises ``BadRequest`` for a request that makes no object.
    """
    if not info.is_resource or info.verb != "create" or info.subresource:
        raise BadRequest("An object is judged with POST to the path of its collection.")
    placement = _placement(info)
    limits = _limits(placement) if placement is not None and (info.group, info.resource) == _PODS else None
    store = Snapshot(info.cluster)
    return store.settled(lambda: _judged(store, principal, info, body, now, placement, limits))


def _placement(info: RequestInfo) -> Placement | None:
    key = Key(info.cluster, "", "namespaces", "", info.namespace)
    stored = synchronous.get(key) if info.namespace else None
    return placement_in(stored.data, key) if stored is not None else None


def _limits(placement: Placement) -> dict[str, Any] | None:
    """The LimitRange that the namespace has on its cluster."""
    workspace = Workspace.objects.select_related("tier", "tenant", "cluster", "user").filter(pk=placement.workspace)
    found = workspace.first()
    return limit_range(found) if found is not None else None


async def _judged(
    store: Snapshot,
    principal: Principal,
    info: RequestInfo,
    body: Mapping[str, Any],
    now: float,
    placement: Placement | None,
    limits: Mapping[str, Any] | None,
) -> Decision:
    catalogs = Catalogs()
    kind = catalogs.kind(info.cluster, info.group, info.version, info.resource)
    if kind is None:
        return _UNKNOWN
    request = Request(
        principal=principal,
        info=info,
        query={"dryRun": "All"},
        parameters={"dryRun": ("All",)},
        headers={b"content-type": JSON},
        raw_headers=((b"content-type", JSON),),
        body=orjson.dumps(body),
        now=now,
    )
    authorization = authorization_on(store)
    async with authorization.running():
        try:
            read = objects.decode_object(request, kind)
            name = prepare_new(request, kind, read)
            new = candidate_of(request, kind, read)
            if limits is not None:
                new = with_defaults(limits, new)
            # Judging reads; nobody commits what it would keep.
            chains = _admission(cast("Store", store), authorization, catalogs)
            chain = chains.stored if placement is None else chains.placed
            await chain.admit(attributes_of(request, kind, CREATE, name, new, None))
        except StatusError as refusal:
            return request.notes[-1] if request.notes else Decision(Verdict.DENY, STEP, refusal.message)
    return _ADMITTED


def _admission(store: Store, authorization: Any, catalogs: Catalogs) -> Admission:
    async def built_in(_cluster: str) -> None:
        return

    async def untold(_space: str, _namespace: str) -> Sequence[Mapping[str, Any]]:
        return ()

    async def unseen(_space: str) -> Collection[str]:
        return ()

    return build_admission(
        store,
        authorization,
        configuration.read(settings.ADMISSION_CONTROL_CONFIG_FILE),
        catalogs=catalogs,
        ensure=built_in,
        locks=KeyedLocks(),
        namespace_quotas=untold,
        hosts=unseen,
        workspace_depth=WORKSPACE_DEPTH,
    )
