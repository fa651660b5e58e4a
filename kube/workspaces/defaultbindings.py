"""The APIs that workspaces of a type have from the beginning: its ``defaultAPIBindings`` (KC10, KC11).

Whoever writes the type must hold ``bind`` on each export. The identity of what was there then is kept in the type's status,
and workspaces are bound to that very export, never to another that takes its name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kube.requests.fielderrors import invalid
from kube.requests.logicalclusters import full_path, is_valid, tenant_of
from kube.requests.names import SYSTEM_TENANT, is_dns_subdomain
from kube.requests.status import Cause
from kube.workspaces.apiexports import BINDINGS, FINALIZER, GROUP, VERSION

FIELD: Final = "defaultAPIBindings"
LIFECYCLE: Final = "defaultAPIBindingLifecycle"
DEFAULT_BINDING: Final = "internal.tenancy.kcp.io/default-binding"
"""Annotation of a binding that a workspace began with: the type that asks for it."""

INITIALIZER: Final = "system:apibindings"
"""Who initializes workspaces that begin with bindings: the server, until all of them are in force."""

CONDITION: Final = "APIBindingsInitialized"
MAX: Final = 16
_NAME_MAX: Final = 240

Body = dict[str, Any]


class Export(NamedTuple):
    """An export that workspaces of a type begin with. ``identity`` is that of the one that the type's author might bind."""

    path: str
    name: str
    identity: str = ""


def wanted(spec: Mapping[str, Any], home: str) -> list[Export]:
    """The exports that a type names; those without a path are in ``home``, its own logical cluster."""
    return [Export(_text(one, "path") or home, _text(one, "export")) for one in _entries(spec)]


def causes(spec: Mapping[str, Any], home: str) -> list[Cause]:
    """What is wrong with what a type names."""
    found: list[Cause] = []
    entries = _entries(spec)
    if len(entries) > MAX:
        found.append(invalid(f"spec.{FIELD}", len(entries), f"at most {MAX}"))
    if spec.get(LIFECYCLE) not in (None, "InitializeOnly"):
        detail = "only InitializeOnly is known: what workspaces have been given is theirs"
        found.append(invalid(f"spec.{LIFECYCLE}", spec[LIFECYCLE], detail))
    for position, (path, name, _) in enumerate(wanted(spec, home)):
        if not is_valid(path) or not is_dns_subdomain(name):
            found.append(invalid(f"spec.{FIELD}[{position}]", entries[position], "must name an export"))
        elif tenant_of(path) not in (tenant_of(home), SYSTEM_TENANT):
            detail = "must be of the tenant whose type it is, or of the system space"
            found.append(invalid(f"spec.{FIELD}[{position}].path", path, detail))
    return found


def known(body: Mapping[str, Any]) -> list[Export]:
    """The exports of a type with their identities, as its status keeps them."""
    entries = (body.get("status") or {}).get(FIELD) or ()
    return [Export(one["path"], one["export"], one["identityHash"]) for one in entries]


def shown(exports: Iterable[Export]) -> list[Body]:
    """The same as a status keeps it."""
    return [{"path": path, "export": name, "identityHash": identity} for path, name, identity in exports]


def binding(
    cluster: str, export: Export, claims: Sequence[Mapping[str, Any]], *, kind: str, uid: str, now: str
) -> tuple[tuple[str, str, str, str], Body]:
    """The place and the body of the binding to one export in a new workspace of the type ``kind``.

    ``claims`` are what the export claims; they are accepted where it is of the workspace's own tenant or of the system
    space, and left to the workspace where it is another's.
    """
    name = f"{export.name[:_NAME_MAX]}-{hashlib.sha256(f'{export.path}:{export.name}'.encode()).hexdigest()[:5]}"
    accepts = tenant_of(export.path) in (tenant_of(cluster), SYSTEM_TENANT)
    spec: Body = {"reference": {"export": {"path": export.path, "name": export.name}}}
    if accepts and claims:
        spec["permissionClaims"] = [{**claim, "state": "Accepted"} for claim in claims]
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "APIBinding",
        "metadata": {
            "name": name,
            "uid": uid,
            "creationTimestamp": now,
            "generation": 1,
            "tenant": tenant_of(cluster),
            "selfLink": full_path(cluster, *BINDINGS[:1], VERSION, BINDINGS[1], name=name),
            "annotations": {DEFAULT_BINDING: kind},
            "finalizers": [FINALIZER],
        },
        "spec": spec,
        "status": {"phase": "Binding", "exportIdentityHash": export.identity},
    }
    return (*BINDINGS, "", name), body


def unfinished(bindings: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of those bindings of a workspace that it began with and that are not in force yet."""
    return sorted(
        str(one["metadata"]["name"])
        for one in bindings
        if DEFAULT_BINDING in (one["metadata"].get("annotations") or {})
        and "deletionTimestamp" not in one["metadata"]
        and (one.get("status") or {}).get("phase") != "Bound"
    )


def condition(waiting: Sequence[str], *, now: str) -> Body:
    """What a workspace says about the bindings that it began with."""
    if not waiting:
        return _condition("True", "Bound", "", now)
    return _condition("False", "WaitingOnAPIBindings", f"not in force yet: {', '.join(waiting)}", now)


def no_room(message: str, *, now: str) -> Body:
    """What a workspace says that cannot begin for want of room for its bindings."""
    return _condition("False", "QuotaExceeded", message, now)


def _condition(status: str, reason: str, message: str, now: str) -> Body:
    return {"type": CONDITION, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}


def _text(entry: Mapping[str, Any], field: str) -> str:
    """The field's text; what is none of a kind is a name that nothing has."""
    value = entry.get(field)
    return value if isinstance(value, str) else "" if value is None else "?"


def _entries(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = spec.get(FIELD)
    return [one if isinstance(one, Mapping) else {} for one in found] if isinstance(found, list) else []
