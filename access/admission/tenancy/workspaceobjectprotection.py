"""What belongs to a workspace itself is nobody's but the gateway's: by name and by type, a label can be taken off (GW5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from access.admission.base import CREATE, DELETE, Attributes, NoopPlugin
from kube.authentication.identity import SERVICE_ACCOUNT_PREFIX, Principal
from kube.kinds import openings
from kube.requests.logicalclusters import ROOT, is_tenant_space
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Forbidden
from kube.webhooks.isolation import PERSON
from store.garbagecollection import gains_owners
from store.types import Operation
from tenants.clusters import objects

_SECRETS: Final = ("", "secrets")
_NAMESPACES: Final = ("", "namespaces")
_ACCOUNTS: Final = ("", "serviceaccounts")
_BINDINGS: Final = (objects.RBAC, "rolebindings")
_CONCERNED: Final = frozenset({*objects.OWNED, _SECRETS, _NAMESPACES, *openings.KINDS})
_OURS: Final = "tenantry.io/"
UNOWNED: Final = "a workspace has no owners: it ends when it is deleted"
_HOLDING: Final = frozenset({_SECRETS, _ACCOUNTS, _BINDINGS})
"""Kinds that a suspension removes: a finalizer would keep it from taking hold."""


class WorkspaceObjectProtection(NoopPlugin):
    """Refuses tenants the accounts, bindings, anchors, quota, limits, network policy and labels of their workspaces.

    The same rules as on registered clusters (``tenants/manifests/fences.yaml``), for whoever has which rights.
    """

    name = "WorkspaceOwnership"
    kinds = _CONCERNED

    def __init__(self, is_workspaces: Callable[[str], object] = objects.NAMESPACE.fullmatch) -> None:
        """``is_workspaces`` says of a namespace, by its name, whether a workspace owns things in it."""
        self._is_workspaces = is_workspaces

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` where a tenant's user writes what a workspace owns, and says whose it is."""
        kind = (attributes.resource.group, attributes.resource.plural)
        if attributes.cluster == ROOT or attributes.principal.is_system:
            return ()
        if kind in openings.KINDS:
            refusal = _of_opened(attributes)
        else:
            refusal = _of_namespace(attributes) if kind == _NAMESPACES else self._of_content(attributes, kind)
        if refusal:
            raise attributes.forbidden(refusal)
        return ()

    def _of_content(self, attributes: Attributes, kind: tuple[str, str]) -> str:
        if not self._is_workspaces(attributes.namespace):
            return ""
        if attributes.name in objects.OWNED.get(kind, ()) or (kind == _SECRETS and _is_anchor(attributes)):
            return "this belongs to the workspace itself: only the gateway makes, changes or deletes it"
        body = attributes.object
        if body is None or attributes.subresource:
            return ""
        if marks_of(attributes.old) != marks_of(body):
            return "only the gateway marks what belongs to a workspace"
        if kind in _HOLDING and (body.get("metadata") or {}).get("finalizers"):
            return "rights and credentials in a workspace may have no finalizers"
        if kind == _BINDINGS and attributes.principal.name.startswith(SERVICE_ACCOUNT_PREFIX):
            return _of_subjects(attributes, body)
        return ""


def _of_namespace(attributes: Attributes) -> str:
    before, after = marks_of(attributes.old), marks_of(attributes.object)
    if attributes.operation == DELETE:
        embedded = before and objects.CLUSTER_LABEL not in before
        return "the workspace is deleted with its namespace, not the other way round" if embedded else ""
    if attributes.operation == CREATE and is_tenant_space(attributes.cluster):
        # It orders a workspace there (``gateway.handlers.placednamespaces.namespaceorders``).
        after.pop(objects.CLUSTER_LABEL, None)
    if before != after:
        return "only the gateway marks what belongs to a workspace"
    if before and _described(attributes.old) != _described(attributes.object):
        return "what describes a workspace is changed in the portal"
    if before and gains_owners(attributes.old, attributes.object):
        return UNOWNED
    return ""


def _described(body: Mapping[str, Any] | None) -> dict[str, str]:
    annotations = ((body or {}).get("metadata") or {}).get("annotations") or {}
    return {name: value for name, value in annotations.items() if name.startswith(_OURS)}


def _of_opened(attributes: Attributes) -> str:
    before, after = (marks_of(body).get(objects.CLUSTER_LABEL) for body in (attributes.old, attributes.object))
    if before is not None:
        return f'it is the cluster "{before}"\'s, opened to be read'
    return "only the gateway shows what a cluster opens" if after is not None else ""


def _of_subjects(attributes: Attributes, body: Mapping[str, Any]) -> str:
    """What lives in the workspace gives rights to its own kind only."""
    for subject in body.get("subjects") or ():
        own = subject.get("kind") == "ServiceAccount" and subject.get("namespace") == attributes.namespace
        person = subject.get("kind") == "User" and str(subject.get("name")).startswith(PERSON)
        if not (own or person) or subject.get("name") in objects.OWNED[_ACCOUNTS]:
            return "a RoleBinding of a workspace binds only its own ServiceAccounts, and people as tenantry:<name>"
    return ""


def _is_anchor(attributes: Attributes) -> bool:
    bodies = [body for body in (attributes.old, attributes.object) if body is not None]
    if attributes.name.startswith(objects.ANCHOR_PREFIX):
        return True
    return any(body.get("type") == objects.ANCHOR_TYPE for body in bodies)


def marks_of(body: Mapping[str, Any] | None) -> dict[str, str]:
    """The labels that say whose something is; on a namespace also those that say what its pods may be."""
    labels = ((body or {}).get("metadata") or {}).get("labels") or {}
    managed = labels.get(objects.MANAGED_BY) == objects.PRODUCT
    return {
        name: value
        for name, value in labels.items()
        if name in {objects.CLUSTER_LABEL, objects.WORKSPACE_LABEL, objects.TENANT_LABEL}
        or (managed and (name == objects.MANAGED_BY or name.startswith(objects.POD_SECURITY)))
    }


def check_token(principal: Principal, info: RequestInfo) -> None:
    """Raises ``Forbidden`` when anybody but the gateway asks for a token of a workspace's own accounts."""
    if objects.is_own_account(info.namespace, info.name) and info.cluster != ROOT and not principal.is_system:
        raise Forbidden(
            f'serviceaccounts "{info.name}" is forbidden: only the gateway issues tokens for the workspace\'s own accounts',
            kind="serviceaccounts",
            name=info.name,
        )
