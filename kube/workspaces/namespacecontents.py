"""What every namespace holds: the service account ``default`` and the ConfigMap ``kube-root-ca.crt`` (TS15).

As kube-controller-manager's ``serviceaccount`` and ``root-ca-cert-publisher`` controllers make them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kube.kinds.mergestrategies import DEDUCED
from kube.objects import managedfields
from kube.requests.logicalclusters import full_path, tenant_of
from kube.requests.names import SYSTEM_TENANT

SERVICE_ACCOUNT: Final = ("", "serviceaccounts", "default")
ROOT_CERTIFICATES: Final = ("", "configmaps", "kube-root-ca.crt")
"""Group, resource and name."""

DESCRIPTION: Final = "kubernetes.io/description"
_WORDS: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)
_MANAGER: Final = "kube-controller-manager"

Body = dict[str, Any]


def service_account(space: str, namespace: str, *, uid: str, now: str) -> Body:
    """The service account that pods run as when nothing else is asked. ``now`` is RFC 3339."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(space, namespace, *SERVICE_ACCOUNT, uid, now),
    }


def root_certificates(space: str, namespace: str, bundle: str, *, uid: str, now: str) -> Body:
    """The ConfigMap with which programs verify the API server. ``bundle`` is PEM, ``now`` RFC 3339."""
    metadata = _metadata(space, namespace, *ROOT_CERTIFICATES, uid, now)
    bare = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return managedfields.update(DEDUCED, None, _with(bare, bundle), _write(now))


def is_up_to_date(body: Mapping[str, Any], bundle: str) -> bool:
    """Whether the ConfigMap says what it should, and says what it is for, in whatever words."""
    described = (body["metadata"].get("annotations") or {}).get(DESCRIPTION)
    return bool(described) and body.get("data") == {"ca.crt": bundle}


def restored(body: Body, bundle: str, *, now: str) -> Body | None:
    """The ConfigMap put right; ``None`` where it says that it never changes."""
    if body.get("immutable"):
        return None
    return managedfields.update(DEDUCED, body, _with(body, bundle), _write(now))


def _with(body: Body, bundle: str) -> Body:
    metadata = body["metadata"]
    annotations = {**(metadata.get("annotations") or {}), DESCRIPTION: _WORDS}
    return {**body, "metadata": {**metadata, "annotations": annotations}, "data": {"ca.crt": bundle}}


def _write(now: str) -> managedfields.Write:
    return managedfields.Write(manager=_MANAGER, version="v1", now=now)


def _metadata(space: str, namespace: str, group: str, resource: str, name: str, uid: str, now: str) -> Body:
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "creationTimestamp": now,
        "selfLink": full_path(space, group, "v1", resource, namespace=namespace, name=name),
    }
    tenant = tenant_of(space)
    if tenant != SYSTEM_TENANT:
        metadata["tenant"] = tenant
    return metadata
