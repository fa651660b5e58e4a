"""The built-in resources of Kubernetes 1.37 and Tenantry's own kinds, as data (TS1, TS15, AD4, KC13).

Scopes follow the table of Arktos, the fork of Kubernetes with tenants:
what is ``SYSTEM`` lives in the system space alone, what is ``SHOWN`` is read elsewhere as
far as operators show it; everything else, cluster-scoped or not, each space holds for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kube.kinds.resources import ALL_VERBS, READ_VERBS, Catalog, Resource, Subresource, TenantScope, Version

KUBERNETES_MINOR: Final = "1.37"
"""The Kubernetes minor whose API is served; the schemas come from the same one."""

_STATUS_VERBS: Final = ("get", "patch", "update")
_PROXY_VERBS: Final = ("create", "delete", "get", "patch", "update")
_CONNECT_VERBS: Final = ("create", "get")
_CREATE: Final = ("create",)
_SYSTEM: Final = TenantScope.SYSTEM
_SHOWN: Final = TenantScope.SHOWN
_SINGULARS: Final = {"Endpoints": "endpoints"}

# name → (group, version, kind, verbs); an empty kind is the parent's own.
_PARTS: Final[dict[str, tuple[str, str, str, tuple[str, ...]]]] = {
    "status": ("", "", "", _STATUS_VERBS),
    "finalize": ("", "", "", ("update",)),
    "ephemeralcontainers": ("", "", "", _STATUS_VERBS),
    "resize": ("", "", "", _STATUS_VERBS),
    "approval": ("", "", "", _STATUS_VERBS),
    "scale": ("autoscaling", "v1", "Scale", _STATUS_VERBS),
    "binding": ("", "v1", "Binding", _CREATE),
    "eviction": ("policy", "v1", "Eviction", _CREATE),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", _CREATE),
    "log": ("", "v1", "Pod", ("get",)),
    "attach": ("", "v1", "PodAttachOptions", _CONNECT_VERBS),
    "exec": ("", "v1", "PodExecOptions", _CONNECT_VERBS),
    "portforward": ("", "v1", "PodPortForwardOptions", _CONNECT_VERBS),
    "pods/proxy": ("", "v1", "PodProxyOptions", _PROXY_VERBS),
    "services/proxy": ("", "v1", "ServiceProxyOptions", _PROXY_VERBS),
    "nodes/proxy": ("", "v1", "NodeProxyOptions", _PROXY_VERBS),
}


def _part(plural: str, name: str, group: str, version: str, kind: str) -> Subresource:
    part_group, part_version, part_kind, verbs = _PARTS.get(name) or _PARTS[f"{plural}/{name}"]
    if part_kind:
        group, version, kind = part_group, part_version, part_kind
    return Subresource(name=name, kind=kind, group=group, version=version, verbs=verbs)


def _resource(
    group: str,
    kind: str,
    plural: str,
    *,
    parts: str = "",
    short: str = "",
    categories: str = "",
    namespaced: bool = True,
    versions: str = "v1",
    storage: str = "",
    verbs: Iterable[str] = ALL_VERBS,
    scope: TenantScope = TenantScope.TENANT,
    storage_group: str | None = None,
) -> Resource:
    names = versions.split()
    return Resource(
        group=group,
        kind=kind,
        plural=plural,
        singular=_SINGULARS.get(kind, kind.lower()),
        list_kind=f"{kind}List",
        namespaced=namespaced,
        versions=tuple(
            Version(
                name=name,
                storage=name == (storage or names[0]),
                subresources=tuple(_part(plural, part, group, name, kind) for part in parts.split()),
            )
            for name in names
        ),
        verbs=tuple(verbs),
        short_names=tuple(short.split()),
        categories=tuple(categories.split()),
        tenant_scope=scope,
        storage_group=storage_group,
    )


def _core() -> Iterable[Resource]:
    yield _resource("", "Binding", "bindings", verbs=_CREATE)
    yield _resource(
        "",
        "ComponentStatus",
        "componentstatuses",
        short="cs",
        namespaced=False,
        verbs=("get", "list"),
        scope=_SYSTEM,
    )
    yield _resource("", "ConfigMap", "configmaps", short="cm")
    yield _resource("", "Endpoints", "endpoints", short="ep")
    yield _resource("", "Event", "events", short="ev")
    yield _resource("", "LimitRange", "limitranges", short="limits")
    yield _resource(
        "",
        "Namespace",
        "namespaces",
        short="ns",
        namespaced=False,
        parts="finalize status",
        verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    )
    yield _resource("", "Node", "nodes", short="no", namespaced=False, parts="proxy status", scope=_SYSTEM)
    yield _resource("", "PersistentVolumeClaim", "persistentvolumeclaims", short="pvc", parts="status")
    yield _resource("", "PersistentVolume", "persistentvolumes", short="pv", namespaced=False, parts="status")
    yield _resource(
        "",
        "Pod",
        "pods",
        short="po",
        categories="all",
        parts="attach binding ephemeralcontainers eviction exec log portforward proxy resize status",
    )
    yield _resource("", "PodTemplate", "podtemplates")
    yield _resource(
        "",
        "ReplicationController",
        "replicationcontrollers",
        short="rc",
        categories="all",
        parts="scale status",
    )
    yield _resource("", "ResourceQuota", "resourcequotas", short="quota", parts="status")
    yield _resource("", "Secret", "secrets")
    yield _resource("", "ServiceAccount", "serviceaccounts", short="sa", parts="token")
    yield _resource("", "Service", "services", short="svc", categories="all", parts="proxy status")
    yield _resource("", "Tenant", "tenants", short="te", namespaced=False, parts="status finalize", scope=_SYSTEM)


def _workloads() -> Iterable[Resource]:
    yield _resource("apps", "ControllerRevision", "controllerrevisions")
    yield _resource("apps", "DaemonSet", "daemonsets", short="ds", categories="all", parts="status")
    yield _resource("apps", "Deployment", "deployments", short="deploy", categories="all", parts="scale status")
    yield _resource("apps", "ReplicaSet", "replicasets", short="rs", categories="all", parts="scale status")
    yield _resource("apps", "StatefulSet", "statefulsets", short="sts", categories="all", parts="scale status")
    yield _resource("batch", "CronJob", "cronjobs", short="cj", categories="all", parts="status")
    yield _resource("batch", "Job", "jobs", categories="all", parts="status")
    yield _resource(
        "autoscaling",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        short="hpa",
        categories="all",
        versions="v2 v1",
        parts="status",
    )
    yield _resource("policy", "PodDisruptionBudget", "poddisruptionbudgets", short="pdb", parts="status")
    yield _resource("scheduling.k8s.io", "PriorityClass", "priorityclasses", short="pc", namespaced=False, scope=_SHOWN)
    yield _resource("node.k8s.io", "RuntimeClass", "runtimeclasses", namespaced=False, scope=_SHOWN)
    yield _resource("coordination.k8s.io", "Lease", "leases")
    yield _resource("discovery.k8s.io", "EndpointSlice", "endpointslices")
    yield _resource("events.k8s.io", "Event", "events", short="ev", storage_group="")


def _infrastructure() -> Iterable[Resource]:
    networking, storage, dra = "networking.k8s.io", "storage.k8s.io", "resource.k8s.io"
    yield _resource(networking, "IngressClass", "ingressclasses", namespaced=False)
    yield _resource(networking, "Ingress", "ingresses", short="ing", parts="status")
    yield _resource(networking, "IPAddress", "ipaddresses", short="ip", namespaced=False, scope=_SYSTEM)
    yield _resource(networking, "NetworkPolicy", "networkpolicies", short="netpol")
    yield _resource(networking, "ServiceCIDR", "servicecidrs", namespaced=False, parts="status", scope=_SYSTEM)
    yield _resource(storage, "CSIDriver", "csidrivers", namespaced=False, scope=_SYSTEM)
    yield _resource(storage, "CSINode", "csinodes", namespaced=False, scope=_SYSTEM)
    yield _resource(storage, "CSIStorageCapacity", "csistoragecapacities")
    yield _resource(storage, "StorageClass", "storageclasses", short="sc", namespaced=False)
    yield _resource(storage, "VolumeAttachment", "volumeattachments", namespaced=False, parts="status")
    yield _resource(storage, "VolumeAttributesClass", "volumeattributesclasses", short="vac", namespaced=False)
    yield _resource(dra, "DeviceClass", "deviceclasses", namespaced=False, scope=_SYSTEM)
    yield _resource(dra, "ResourceClaim", "resourceclaims", parts="status")
    yield _resource(dra, "ResourceClaimTemplate", "resourceclaimtemplates")
    yield _resource(dra, "ResourceSlice", "resourceslices", namespaced=False, scope=_SYSTEM)


def _access() -> Iterable[Resource]:
    rbac, admission = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
    authentication, authorization = "authentication.k8s.io", "authorization.k8s.io"
    yield _resource(rbac, "ClusterRoleBinding", "clusterrolebindings", namespaced=False)
    yield _resource(rbac, "ClusterRole", "clusterroles", namespaced=False)
    yield _resource(rbac, "RoleBinding", "rolebindings")
    yield _resource(rbac, "Role", "roles")
    yield _resource(authentication, "SelfSubjectReview", "selfsubjectreviews", namespaced=False, verbs=_CREATE)
    yield _resource(authentication, "TokenReview", "tokenreviews", namespaced=False, verbs=_CREATE)
    yield _resource(authorization, "LocalSubjectAccessReview", "localsubjectaccessreviews", verbs=_CREATE)
    for kind in ("SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview"):
        yield _resource(authorization, kind, f"{kind.lower()}s", namespaced=False, verbs=_CREATE)
    yield _resource(
        "certificates.k8s.io",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        short="csr",
        namespaced=False,
        parts="approval status",
    )
    for kind, plural in (
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
        ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ):
        yield _resource(admission, kind, plural, categories="api-extensions", namespaced=False, scope=_SYSTEM)
    yield _resource(
        admission,
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        categories="api-extensions",
        namespaced=False,
        parts="status",
        scope=_SYSTEM,
    )
    yield _resource(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        short="crd crds",
        categories="api-extensions",
        namespaced=False,
        parts="status",
    )
    yield _resource(
        "apiregistration.k8s.io",
        "APIService",
        "apiservices",
        categories="api-extensions",
        namespaced=False,
        parts="status",
    )
    flow = "flowcontrol.apiserver.k8s.io"
    yield _resource(flow, "FlowSchema", "flowschemas", namespaced=False, verbs=READ_VERBS, scope=_SYSTEM)
    yield _resource(
        flow,
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        namespaced=False,
        verbs=READ_VERBS,
        scope=_SYSTEM,
    )


def _own() -> Iterable[Resource]:
    tenancy, apis = "tenancy.kcp.io", "apis.kcp.io"
    alpha: Final = "v1alpha1"
    yield _resource(
        tenancy,
        "Workspace",
        "workspaces",
        short="ws",
        categories="kcp",
        namespaced=False,
        versions=alpha,
        parts="status",
    )
    yield _resource(
        tenancy,
        "WorkspaceType",
        "workspacetypes",
        categories="kcp",
        namespaced=False,
        versions=alpha,
        parts="status",
    )
    yield _resource(
        "core.kcp.io",
        "LogicalCluster",
        "logicalclusters",
        categories="kcp",
        namespaced=False,
        versions=alpha,
        parts="status",
    )
    for kind, plural, parts in (
        ("APIBinding", "apibindings", "status"),
        ("APIExport", "apiexports", "status"),
        ("APIResourceSchema", "apiresourceschemas", ""),
    ):
        yield _resource(apis, kind, plural, categories="kcp", namespaced=False, versions=alpha, parts=parts)
    yield _resource(
        "tenancy.tenantry.io",
        "TenantQuota",
        "tenantquotas",
        short="tq",
        namespaced=False,
        versions=alpha,
        parts="status",
    )
    yield _resource(
        "abac.authorization.kubernetes.io",
        "Policy",
        "policies",
        namespaced=False,
        versions="v1beta1",
    )


OWN: Final = tuple(_own())
"""Tenantry's own kinds."""

BUILTINS: Final = Catalog((*_core(), *_workloads(), *_infrastructure(), *_access(), *OWN))
"""The system space's resources: every built-in kind and ``Tenant``."""

TENANT_BUILTINS: Final = BUILTINS.for_tenants()
"""The built-in resources of a tenant space."""
