"""What the door says of a change to what a cluster has: a dry run of it, sent as whoever asks (AZ11).

The cluster alone knows what is there, and the door judges by that whatever is sent: the pages ask it as they ask for
everything else, so what they learn is what the person would, and it is in the same records.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from gateway.server.judging import DELETIONS, ELSEWHERE, NOT_THERE, PATCH_TYPES, STEP, Sent
from kube.authorization.decisions import Decision, Verdict
from kube.kinds.builtins import BUILTINS
from kube.policies.clusterrefusals import refused_by
from kube.requests.logicalclusters import space_of
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import StatusError
from portal.contents.door import JSON, Door
from tenants.models import Workspace

Doors = Callable[[Workspace], Door]
"""The asker's way into a workspace; raises ``StatusError`` where there is none."""

_METHODS: Final = {"update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}
_JUDGEMENTS: Final = frozenset({400, 403, 404, 409, 413, 415, 422})
"""Statuses that a request has earned; any other is of those who should have judged it."""
_ADMITTED: Final = Decision(Verdict.ALLOW, STEP, "its cluster takes it, in a dry run as you would send it")


def rehearse(info: RequestInfo, sent: Sent | None, doors: Doors) -> Decision:
    """What comes of a change by somebody who may read and write what is there; no opinion where nobody can be asked."""
    resource = BUILTINS.by_group_resource(info.group, info.resource)
    version = info.version or (resource.preferred.name if resource is not None else "")
    workspace = Workspace.objects.filter(tenant_id=info.tenant, k8s_namespace=info.namespace).first()
    if not version or workspace is None or info.cluster != space_of(info.tenant):
        return ELSEWHERE
    patch = sent.patch if sent is not None and info.verb == "patch" else ""
    media = PATCH_TYPES[patch] if patch else JSON
    query = {"dryRun": "All", **({"fieldManager": "kubectl"} if patch == "apply" else {})}
    try:
        door = doors(workspace)
    except StatusError as closed:
        return Decision(Verdict.NO_OPINION, STEP, f"it cannot be tried: {closed.message}")
    try:
        path = door.path(info.group, version, info.resource, info.name, info.subresource)
        body = sent.body if sent is not None else None
        door.fetch(_METHODS[info.verb], path, query, body=body, content_type=media)
    except StatusError as refusal:
        if refusal.code == HTTPStatus.NOT_FOUND and info.verb in DELETIONS:
            return NOT_THERE
        if refusal.code not in _JUDGEMENTS:
            return Decision(Verdict.NO_OPINION, STEP, f"it cannot be tried: {refusal.message}")
        plugin, rule = refused_by(refusal.message)
        return Decision(Verdict.DENY, f"{STEP}/{plugin}" if plugin else STEP, refusal.message, rule)
    return _ADMITTED
