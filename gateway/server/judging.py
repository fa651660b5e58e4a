"""What the admission would say of a write, on the database's state of this moment (AZ11).

The handlers and plug-ins of the API server, as for a dry run, on what was read before: nothing is sent, so that webhooks
are not asked, and nothing is kept. For new objects in placed namespaces those plug-ins that a cluster asks about, with the
limits of the tier filled in; what is there already, and what the cluster itself refuses, is not known here: ``ELSEWHERE``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import orjson
from django.conf import settings

from access.admission import configuration
from access.admission.base import CREATE
from access.admission.chain import AdmissionChain
from access.admission.dynamic.webhooks import MutatingAdmissionWebhook, ValidatingAdmissionWebhook
from access.authorization.chain import AuthorizationChain
from access.tenantlimits import StoredBounds, TenantTiers
from gateway.handlers import deleting, patching, subresources, writing
from gateway.handlers.deleting import DeleteOptions
from gateway.handlers.writing import attributes_of, candidate_of, prepare_new
from gateway.http.messages import JSON, Request
from gateway.http.negotiation import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from gateway.options import WORKSPACE_DEPTH
from gateway.process.keyedlocks import KeyedLocks
from gateway.process.runtime import Runtime
from gateway.resources import objects
from gateway.resources.kinds import Catalogs, Kind
from gateway.server.admission import Admission, build_admission
from gateway.server.explanation import Snapshot, authorization_on
from gateway.upstream.placements import Placement, placement_in
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision, Verdict
from kube.quota.limitranges import with_defaults
from kube.requests.decoding import TooHeavy
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import BadRequest, NotFound, StatusError
from store import synchronous
from store.interface import Store
from store.types import Key, Range
from tenants.clusters.objects import limit_range
from tenants.models import Workspace

STEP: Final = "admission"
_ADMITTED: Final = Decision(Verdict.ALLOW, STEP, "no step of it refuses the object")
_CUSTOM: Final = Decision(Verdict.NO_OPINION, STEP, "objects of custom kinds are judged when they are sent")
ELSEWHERE: Final = Decision(
    Verdict.NO_OPINION,
    STEP,
    "what is there its cluster alone knows: send it with --dry-run=server, or ask by the form of the page Explain",
)
"""Of changes in placed namespaces: the door may be asked for a dry run."""
_TOO_MUCH: Final = Decision(Verdict.NO_OPINION, STEP, "too much to be tried here: send it with --dry-run=server")
NOT_THERE: Final = Decision(
    Verdict.NO_OPINION, STEP, "there is nothing of the name, so that nothing refuses its deletion"
)
_PODS: Final = ("", "pods")
_NAMESPACES: Final = ("", "namespaces")
_PARTS: Final = frozenset({"scale", "status"})
_BODIES: Final = frozenset({"create", "update", "patch"})
DELETIONS: Final = frozenset({"delete", "deletecollection"})
"""Verbs that need nothing sent to be judged."""

STRATEGIC: Final = "strategic"
PATCH_TYPES: Final = {STRATEGIC: STRATEGIC_PATCH, "merge": MERGE_PATCH, "json": JSON_PATCH, "apply": APPLY_PATCH}
"""By the names that ``kubectl patch --type`` has for them."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a write sends: an object, or the changes of a patch and of which type they are."""

    body: Any
    patch: str = STRATEGIC


@dataclass(frozen=True, slots=True)
class _Rehearsal:
    """What of a server the handlers need who write nothing."""

    store: Snapshot
    admission: AdmissionChain
    authorization: AuthorizationChain
    write_locks: KeyedLocks


def judge(principal: Principal, info: RequestInfo, sent: Sent | None, *, now: float) -> Decision:
    """What admission says of a write; a refusal names the step, the rule and the amounts.

    Of a deletion too, for which nothing needs to be ``sent``; of one of a whole collection, what it says of the first
    object that it refuses. Raises ``BadRequest`` for a request that writes no object.
    """
    deletes = info.is_resource and info.verb in DELETIONS
    if not deletes:
        if not info.is_resource or info.verb not in _BODIES or (info.verb == "create") is bool(info.name):
            raise BadRequest(
                "An object is judged with POST to the path of its collection, with PUT or PATCH to its own."
            )
        if sent is None:
            raise BadRequest("What it sends is no object.")
    if info.subresource and (deletes or info.verb == "create" or info.subresource not in _PARTS):
        raise BadRequest("What is sent to this part of an object is judged when it is sent.")
    placement = None if deletes and (info.group, info.resource) == _NAMESPACES else _placement(info)
    limits = _limits(placement) if placement is not None and (info.group, info.resource) == _PODS else None
    store = Snapshot(info.cluster)
    return store.settled(lambda: _judged(store, principal, info, sent, now, placement, limits))


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
    sent: Sent | None,
    now: float,
    placement: Placement | None,
    limits: Mapping[str, Any] | None,
) -> Decision:
    if placement is not None and info.verb != "create":
        return ELSEWHERE
    catalogs = Catalogs()
    if not info.version:
        found = catalogs.of(info.cluster).by_group_resource(info.group, info.resource)
        info = replace(info, version=found.preferred.name) if found is not None else info
    kind = catalogs.kind(info.cluster, info.group, info.version, info.resource)
    if kind is None or not kind.resource.persistent:
        return _CUSTOM
    request = _request(principal, info, sent, now)
    authorization = authorization_on(store)
    async with authorization.running():
        # Judging reads; nobody commits what it would keep.
        chains = _admission(cast("Store", store), authorization, catalogs)
        try:
            if placement is None:
                rehearsal = _Rehearsal(store, chains.stored, authorization.chain, KeyedLocks())
                await _write(cast("Runtime", rehearsal), request, kind)
            else:
                read = objects.decode_object(request, kind)
                name = prepare_new(request, kind, read)
                new = candidate_of(request, kind, read)
                if limits is not None:
                    new = with_defaults(limits, new)
                await chains.placed.admit(attributes_of(request, kind, CREATE, name, new, None))
        except TooHeavy:
            return _TOO_MUCH
        except NotFound as missing:
            if info.verb in DELETIONS and not request.notes:
                return NOT_THERE
            return _refused(request, missing)
        except StatusError as refusal:
            return _refused(request, refusal)
    return _ADMITTED


def _refused(request: Request, refusal: StatusError) -> Decision:
    return request.notes[-1] if request.notes else Decision(Verdict.DENY, STEP, refusal.message)


def _request(principal: Principal, info: RequestInfo, sent: Sent | None, now: float) -> Request:
    patch = sent.patch if sent is not None and info.verb == "patch" else ""
    media = PATCH_TYPES[patch].encode() if patch else JSON
    query = {"dryRun": "All", **({"fieldManager": "kubectl"} if patch == "apply" else {})}
    return Request(
        principal=principal,
        info=info,
        query=query,
        parameters={name: (value,) for name, value in query.items()},
        headers={b"content-type": media},
        raw_headers=((b"content-type", media),),
        body=orjson.dumps(sent.body) if sent is not None else b"",
        now=now,
        # What copies may make of an object is tried beside the API server, which has a process for it.
        light=patch == "json",
    )


async def _write(rehearsal: Runtime, request: Request, kind: Kind) -> None:
    if request.info.verb in DELETIONS:
        await _delete(rehearsal, request, kind)
        return
    if request.info.subresource == "scale":
        await subresources.scale(rehearsal, request, kind)
        return
    handle = {"create": writing.create, "update": writing.update, "patch": patching.patch}[request.info.verb]
    await handle(rehearsal, request, kind)


async def _delete(rehearsal: Runtime, request: Request, kind: Kind) -> None:
    """One object, or each of a collection until one is refused."""
    info, options = request.info, deleting.read_options(request) if request.body else DeleteOptions()
    if info.verb == "delete":
        keys = [objects.key_of(info, kind.resource, info.name)]
    else:
        listing = await rehearsal.store.list(Range(info.cluster, *kind.resource.place, info.namespace or None))
        keys = [stored.key for stored in listing.items]
    for key in keys:
        await deleting.delete_object(rehearsal, request, kind, key, options)


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
        room=StoredBounds(TenantTiers(store), settings.TENANT_STORED_MEBIBYTES).room,
        workspace_depth=WORKSPACE_DEPTH,
        disabled=(MutatingAdmissionWebhook.name, ValidatingAdmissionWebhook.name),
    )
