"""What the programs around an API server need, as ClusterRoles of the bootstrap policy (KC7)."""

from __future__ import annotations

from typing import Any, Final

from kube.authorization.policyobjects import ALL, EVENTS, READ, role, rule

CONTROLLER_MANAGER: Final = "system:kube-controller-manager"
SCHEDULER: Final = "system:kube-scheduler"
"""The users that these programs are, and the names of their roles."""

COMPONENT_ROLES: Final[tuple[dict[str, Any], ...]] = (
    role(
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        rule("create", "certificates.k8s.io", "certificatesigningrequests/nodeclient"),
    ),
    role(
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        rule("create", "certificates.k8s.io", "certificatesigningrequests/selfnodeclient"),
    ),
    role(
        "system:certificates.k8s.io:kube-apiserver-client-approver",
        rule("approve", "certificates.k8s.io", "signers", names=("kubernetes.io/kube-apiserver-client",)),
    ),
    role(
        "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
        rule("approve", "certificates.k8s.io", "signers", names=("kubernetes.io/kube-apiserver-client-kubelet",)),
    ),
    role(
        "system:certificates.k8s.io:kubelet-serving-approver",
        rule("approve", "certificates.k8s.io", "signers", names=("kubernetes.io/kubelet-serving",)),
    ),
    role(
        "system:certificates.k8s.io:legacy-unknown-approver",
        rule("approve", "certificates.k8s.io", "signers", names=("kubernetes.io/legacy-unknown",)),
    ),
    role(
        "system:heapster",
        rule(READ, "", "events", "namespaces", "nodes", "pods"),
        rule(READ, "extensions", "deployments"),
    ),
    role(
        "system:kube-aggregator",
        rule(READ, "", "endpoints", "services"),
    ),
    role(
        CONTROLLER_MANAGER,
        EVENTS,
        rule("create", "coordination.k8s.io", "leases"),
        rule("get update", "coordination.k8s.io", "leases", names=("kube-controller-manager",)),
        rule("create", "", "secrets", "serviceaccounts"),
        rule("delete", "", "secrets"),
        rule("get", "", "configmaps", "namespaces", "secrets", "serviceaccounts"),
        rule("update", "", "secrets", "serviceaccounts"),
        rule("create", "authentication.k8s.io", "tokenreviews"),
        rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        rule("list watch", "*", "*"),
        rule("create", "", "serviceaccounts/token"),
    ),
    role(
        "system:kube-dns",
        rule("list watch", "", "endpoints", "services"),
    ),
    role(
        SCHEDULER,
        EVENTS,
        rule("create", "coordination.k8s.io", "leases"),
        rule("get list update watch", "coordination.k8s.io", "leases", names=("kube-scheduler",)),
        rule(ALL, "coordination.k8s.io", "leasecandidates"),
        rule(READ, "", "nodes"),
        rule("delete get list watch", "", "pods"),
        rule("create", "", "bindings", "pods/binding"),
        rule("patch update", "", "pods/status"),
        rule(READ, "", "replicationcontrollers", "services"),
        rule(READ, ("apps", "extensions"), "replicasets"),
        rule(READ, "apps", "statefulsets"),
        rule(READ, "policy", "poddisruptionbudgets"),
        rule(READ, "", "persistentvolumeclaims", "persistentvolumes"),
        rule("create", "authentication.k8s.io", "tokenreviews"),
        rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        rule(READ, "storage.k8s.io", "csinodes"),
        rule(READ, "storage.k8s.io", "volumeattachments"),
        rule(READ, "", "namespaces"),
        rule(READ, "storage.k8s.io", "csidrivers"),
        rule(READ, "storage.k8s.io", "csistoragecapacities"),
        rule(READ, "resource.k8s.io", "deviceclasses"),
        rule("get list patch update watch", "resource.k8s.io", "resourceclaims"),
        rule("get list patch update watch", "resource.k8s.io", "resourceclaims/status"),
        rule("update", "", "pods/finalizers"),
        rule(READ, "resource.k8s.io", "resourceslices"),
        rule("create delete", "resource.k8s.io", "resourceclaims"),
        rule("patch update", "resource.k8s.io", "resourceclaims/binding"),
    ),
    role(
        "system:kubelet-api-admin",
        rule(READ, "", "nodes"),
        rule("proxy", "", "nodes"),
        rule("*", "", "nodes/log", "nodes/metrics", "nodes/proxy", "nodes/stats"),
        rule("*", "", "nodes/configz", "nodes/healthz", "nodes/pods"),
    ),
    role(
        "system:node",
        rule("create", "authentication.k8s.io", "tokenreviews"),
        rule("create", "authorization.k8s.io", "localsubjectaccessreviews", "subjectaccessreviews"),
        rule(READ, "", "services"),
        rule("create get list watch", "", "nodes"),
        rule("patch update", "", "nodes/status"),
        rule("patch update", "", "nodes"),
        EVENTS,
        rule(READ, "", "pods"),
        rule("create delete", "", "pods"),
        rule("patch update", "", "pods/status"),
        rule("create", "", "pods/eviction"),
        rule(READ, "", "configmaps", "secrets"),
        rule("get", "", "persistentvolumeclaims", "persistentvolumes"),
        rule("get", "", "endpoints"),
        rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
        rule("create delete get patch update", "coordination.k8s.io", "leases"),
        rule("get", "storage.k8s.io", "volumeattachments"),
        rule("create", "", "serviceaccounts/token"),
        rule("get patch update", "", "persistentvolumeclaims/status"),
        rule(READ, "storage.k8s.io", "csidrivers"),
        rule("create delete get patch update", "storage.k8s.io", "csinodes"),
        rule(READ, "node.k8s.io", "runtimeclasses"),
        rule("get", "resource.k8s.io", "resourceclaims"),
        rule("deletecollection", "resource.k8s.io", "resourceslices"),
        rule("get", "", "serviceaccounts"),
    ),
    role(
        "system:node-bootstrapper",
        rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
    ),
    role(
        "system:node-problem-detector",
        rule("get", "", "nodes"),
        rule("patch", "", "nodes/status"),
        EVENTS,
    ),
    role(
        "system:node-proxier",
        rule("list watch", "", "endpoints", "services"),
        rule(READ, "", "nodes"),
        EVENTS,
        rule("list watch", "networking.k8s.io", "servicecidrs"),
        rule("list watch", "discovery.k8s.io", "endpointslices"),
    ),
    role(
        "system:persistent-volume-provisioner",
        rule("create delete get list watch", "", "persistentvolumes"),
        rule("get list update watch", "", "persistentvolumeclaims"),
        rule(READ, "storage.k8s.io", "storageclasses"),
        rule("watch", "", "events"),
        EVENTS,
    ),
    role(
        "system:volume-scheduler",
        rule("get list patch update watch", "", "persistentvolumes"),
        rule(READ, "storage.k8s.io", "storageclasses"),
        rule("get list patch update watch", "", "persistentvolumeclaims"),
    ),
)
"""Schedulers, kubelets, proxies, provisioners, and who approves and signs certificates, by name."""
