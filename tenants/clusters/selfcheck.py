"""Proves what a registered cluster must be: the credential, its rights, and each fence in force (GW10, GW12).

Nothing is believed because it was applied: rights are asked of the cluster, fences are tried by dry runs of what they
must refuse, as the gateway and, where a workspace is ready, as its tenant. Every finding comes with what mends it.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kube.authentication.kubeconfig import RegisteredCluster
from kube.authentication.pki import load_certificates
from kube.authentication.serviceaccounttokens import is_token
from kube.objects.publications import ORIGIN
from tenants import manifests
from tenants.clusters import objects
from tenants.clusters.client import Answer, ClusterClient, ClusterUnusable, Outcome, access_to, client_to, object_path
from tenants.clusters.unclaimednamespaces import UnclaimedNamespace, unclaimed_namespaces
from tenants.models import Cluster, Network, Phase, Workspace

GATEWAY: Final = "tenantry-gateway"
OK, FAILED, UNPROVED = "ok", "failed", "unproved"

EXPIRES_SOON: Final = timedelta(days=14)
"""How long before its end a credential is announced."""

_TOKEN_SECONDS: Final = 600
_MANIFESTS: Final = "kubectl apply --server-side -f tenants/manifests/"
_EVENT_RATE: Final = "EventRateLimit"
_LIMIT_EVENTS: Final = "Start the cluster's API servers with EventRateLimit (docs/operators/operations.md, Clusters)"
_RENEW: Final = (
    "Make a new credential (docs/operators/operations.md, The gateway's credential) and rotate it on the cluster's page"
)
_OPTIONAL: Final = frozenset(
    {
        ("", "pods", "deletecollection"),
        ("storage.k8s.io", "storageclasses", "list"),
        # Without them none of these is opened to tenants.
        ("gateway.networking.k8s.io", "gatewayclasses", "list"),
        ("scheduling.k8s.io", "priorityclasses", "list"),
        ("node.k8s.io", "runtimeclasses", "list"),
        ("apiregistration.k8s.io", "apiservices", "list"),
        # Without them nothing is published there.
        *(("", "configmaps", verb) for verb in ("create", "update", "delete")),
        ("", "secrets", "update"),
        *(("", resource, verb) for resource in ("resourcequotas", "limitranges") for verb in ("update", "delete")),
        ("networking.k8s.io", "networkpolicies", "update"),
    }
)
_FORBIDDEN: Final = (
    ("*", "*", "*"),
    ("get", "", "secrets"),
    ("create", "", "pods"),
    ("impersonate", "", "users"),
    ("bind", objects.RBAC, "clusterroles"),
)
_EVENTS_TRIED: Final = 100
_EVENTS_SECONDS: Final = 10.0
"""A limit of five a second that lets fifty through at once refuses one of a hundred within this time."""
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_PROVISIONERS_NONE: Final = frozenset({"", "kubernetes.io/no-provisioner"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: ``ok``, ``failed`` or ``unproved``, in words, and what mends it."""

    name: str
    state: str
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, the StorageClasses that make volumes, the namespaces of nobody, and which cluster it is.

    ``None``: the cluster did not say. ``identity`` is the UID of its namespace kube-system, empty where it did not say.
    """

    findings: tuple[Finding, ...]
    storage_classes: tuple[str, ...] | None = None
    unclaimed: tuple[UnclaimedNamespace, ...] | None = None
    identity: str = ""

    @property
    def error(self) -> str:
        """The first thing that is wrong, in words; empty when nothing is."""
        failed = [finding for finding in self.findings if finding.state == FAILED]
        return failed[0].found if failed else ""

    def rows(self) -> list[dict[str, str]]:
        """The findings as JSON."""
        return [asdict(finding) for finding in self.findings]


def check(cluster: Cluster, *, now: datetime) -> Report:
    """Look at a cluster; reads, reviews and dry runs only, but for one event. The token that a trial needs is never handed on."""
    try:
        access, client = access_to(cluster), client_to(cluster)
    except ClusterUnusable as error:
        return Report((Finding("credential", FAILED, str(error), _RENEW),))
    report = check_credential(access, client, kind=cluster.kind, now=now)
    if cluster.kind == Cluster.Kind.EMBEDDED or any(finding.name == "credential" for finding in report.findings):
        # The embedded one's rules are part of the product (``access/admission/tenancy/workspaceobjectprotection.py``).
        return report
    findings = (*report.findings, *_fences(client, cluster))
    return Report(findings, _storage_classes(client), unclaimed_namespaces(client, now=now), report.identity)


def check_credential(access: RegisteredCluster, client: ClusterClient, *, kind: str, now: datetime) -> Report:
    """Who the credential is, for how long, and whether it has the rights of the gateway and no more; reads and reviews only."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    who = client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    if who.outcome is not Outcome.DONE:
        return Report((Finding("credential", FAILED, who.message or "The cluster refused the credential.", _RENEW),))
    findings = (_user(who), _expiry(access, now), _rights(client, kind), _smallness(client))
    return Report(findings, identity=identity_of(client))


def identity_of(client: ClusterClient) -> str:
    """Which cluster this is, whatever its address and certificates; empty when it does not say."""
    answer = client.get(object_path("", "v1", "namespaces", name="kube-system"))
    return str(answer.metadata.get("uid", ""))[:64]


def _user(answer: Answer) -> Finding:
    info = (answer.body.get("status") or {}).get("userInfo")
    name = str(info.get("username", ""))[:128] if isinstance(info, dict) else ""
    if name == GATEWAY:
        return Finding("user", OK, f"The cluster knows the gateway as {GATEWAY}.")
    found = f"The cluster knows the gateway as {name!r}: the fences bind only the user {GATEWAY}."
    return Finding("user", FAILED, found, f"Register a credential of the user {GATEWAY} (docs/operators/operations.md)")


def _expiry(access: RegisteredCluster, now: datetime) -> Finding:
    end = expiry_of(access)
    if end is None:
        return Finding("expiry", UNPROVED, "The credential has no end: whoever steals it keeps it.", _RENEW)
    words = f"{end:%Y-%m-%d %H:%M} UTC"
    if end <= now:
        return Finding("expiry", FAILED, f"The credential ended on {words}.", _RENEW)
    if end - now < EXPIRES_SOON:
        return Finding("expiry", FAILED, f"The credential ends on {words}, in less than 14 days.", _RENEW)
    return Finding("expiry", OK, f"The credential ends on {words}.")


def expiry_of(access: RegisteredCluster) -> datetime | None:
    """When a credential ends; ``None`` if it never does, or does not say."""
    if access.client_certificate:
        return min(each.not_valid_after_utc for each in load_certificates(access.client_certificate)[:1])
    parts = access.token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return datetime.fromtimestamp(int(claims["exp"]), UTC)
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _rights(client: ClusterClient, kind: str) -> Finding:
    """Every verb of the gateway's role, each asked of the cluster."""
    file = "embedded-gateway-role.yaml" if kind == Cluster.Kind.EMBEDDED else "gateway-role.yaml"
    missing: list[str] = []
    optional: list[str] = []
    asked = 0
    for verb, group, resource, name in _needed(file):
        asked += 1
        if not _may(client, verb, group, resource, name):
            words = f"{verb} {resource}{f'.{group}' if group else ''}"
            (optional if (group, resource, verb) in _OPTIONAL else missing).append(words)
    remedy = f"{_MANIFESTS}tenant-roles.yaml -f tenants/manifests/{file}"
    if missing:
        return Finding("rights", FAILED, f"The credential may not {', '.join(missing)[:400]}.", remedy)
    if optional:
        return Finding("rights", UNPROVED, f"The credential may not {', '.join(optional)}.", remedy)
    return Finding("rights", OK, f"All {asked} rights of the gateway's role are there.")


def _needed(file: str) -> Iterator[tuple[str, str, str, str]]:
    for rule in manifests.load(file)[0]["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    for verb in rule["verbs"]:
                        yield verb, group, resource, name


def _smallness(client: ClusterClient) -> Finding:
    """What the gateway must never hold: a credential of an administrator would make every fence void."""
    held = [f"{verb} {resource}" for verb, group, resource in _FORBIDDEN if _may(client, verb, group, resource, "")]
    if held:
        found = f"The credential may {', '.join(held)}: it is more than the gateway's."
        return Finding("no more rights", FAILED, found, f"Register a credential of the user {GATEWAY} alone")
    words = "The credential reads no secrets, makes no pods, impersonates nobody and binds no role that is not named."
    return Finding("no more rights", OK, words)


def _may(client: ClusterClient, verb: str, group: str, resource: str, name: str) -> bool:
    plain, _, sub = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": plain, "subresource": sub, "name": name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    status = client.create(_REVIEWS, review).body.get("status")
    return isinstance(status, dict) and status.get("allowed") is True


def _fences(client: ClusterClient, cluster: Cluster) -> list[Finding]:
    """Try what each fence must refuse."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenantry-trial"}}
    answer = client.create(f"{object_path('', 'v1', 'namespaces')}?dryRun=All", namespace)
    findings = [_tried("tenantry-gateway-fence", answer)]
    workspace = cluster.workspaces.select_related("tier").filter(phase=Phase.READY).order_by("-created_at").first()
    names = [
        policy["metadata"]["name"]
        for policy in manifests.load("fences.yaml")
        if policy["kind"] == "ValidatingAdmissionPolicy" and policy["metadata"]["name"] != "tenantry-gateway-fence"
    ]
    token = _token(client, workspace) if workspace else ""
    if workspace is None or not token:
        words = "No workspace is ready on this cluster yet: what its tenant may not do cannot be tried."
        return findings + [Finding(name, UNPROVED, words, "Check again when there is a workspace") for name in names]
    tried: dict[str, list[Finding]] = {name: [] for name in names}
    for name, attempt in _attempts(workspace):
        tried[name].append(_tried(name, client.create_as(token, *attempt)))
    # Where one attempt of several gets through, the fence is not in force.
    findings += [min(found, key=lambda finding: finding.state == OK) for found in tried.values()]
    return [*findings, _event_rate(client, token, workspace)] if cluster.limits_events else findings


def _tried(name: str, answer: Answer) -> Finding:
    """A fence is in force when it is the fence that refused."""
    if answer.outcome is Outcome.DENIED and name in answer.message:
        return Finding(name, OK, "Refuses what it must.")
    if not answer.reached or answer.outcome in {Outcome.RETRY, Outcome.UNKNOWN}:
        return Finding(name, UNPROVED, answer.message or "The cluster did not say.", "Check again")
    if answer.outcome is Outcome.DENIED:
        return Finding(name, FAILED, f"Something else refused: {answer.message}", f"{_MANIFESTS}fences.yaml")
    return Finding(
        name, FAILED, f"{name} is not in force: what it must refuse was accepted.", f"{_MANIFESTS}fences.yaml"
    )


def _event_rate(client: ClusterClient, token: str, workspace: Workspace) -> Finding:
    """Whether EventRateLimit is in force where it is said to be: Kubernetes counts events in no quota.

    By as many attempts, one after the other, as a limit that deserves the name lets nobody make. It knows no dry runs, so
    they are of one name: the first leaves an event for an hour, the others find it there.
    """
    begun = time.monotonic()
    path, body = objects.path(workspace, "events"), _event(workspace, "The limit of events is tried.")
    for number in range(_EVENTS_TRIED):
        answer = client.create_as(token, path, body)
        if answer.code == 429 and "limit reached" in answer.message:
            return Finding(_EVENT_RATE, OK, f"EventRateLimit refused the event after {number} others.")
        if answer.outcome not in {Outcome.DONE, Outcome.EXISTS}:
            return Finding(_EVENT_RATE, UNPROVED, answer.message or "The cluster did not say.", "Check again")
    if time.monotonic() - begun > _EVENTS_SECONDS:
        return Finding(_EVENT_RATE, UNPROVED, "The cluster answers too slowly to tell.", "Check again")
    found = f"A tenant may write {_EVENTS_TRIED} events without a pause: EventRateLimit is not in force."
    return Finding(_EVENT_RATE, FAILED, found, _LIMIT_EVENTS)


def _event(workspace: Workspace, message: str) -> dict[str, Any]:
    about = {"kind": "Pod", "name": "trial", "namespace": workspace.k8s_namespace}
    metadata = {"name": "tenantry-trial"}
    return {"apiVersion": "v1", "kind": "Event", "message": message, "metadata": metadata, "involvedObject": about}


def _token(client: ClusterClient, workspace: Workspace) -> str:
    """Ten minutes as the workspace's admin, for the trials alone."""
    path = objects.path(workspace, "serviceaccounts", objects.ACCOUNTS["admin"], sub="token")
    spec = {"expirationSeconds": _TOKEN_SECONDS}
    answer = client.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
    token = (answer.body.get("status") or {}).get("token")
    return token if isinstance(token, str) and is_token(token) else ""


def _attempts(workspace: Workspace) -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    """For each fence something that only it refuses; for those that have grown, of each of their ages."""

    def dry(resource: str, body: Mapping[str, Any], **spec: Any) -> tuple[str, dict[str, Any]]:
        made = {"apiVersion": "v1", **body, "metadata": {"name": "tenantry-trial", **body.get("metadata", {})}, **spec}
        return f"{objects.path(workspace, resource)}?dryRun=All", made

    endless = {
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {"annotations": {"kubernetes.io/service-account.name": "default"}},
    }
    yield "tenantry-token-fence", dry("secrets", endless)
    yield "tenantry-owned-fence", dry("secrets", {"kind": "Secret", "metadata": {"name": "tenantry-anchor-trial"}})
    forged = {"kind": "ConfigMap", "metadata": {"labels": {ORIGIN: str(workspace.id)}}}
    yield "tenantry-published-fence", dry("configmaps", forged)
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "kube-system"}
    role = {"apiGroup": objects.RBAC, "kind": "ClusterRole", "name": "tenantry-tenant-view"}
    bound = {"apiVersion": f"{objects.RBAC}/v1", "kind": "RoleBinding", "roleRef": role, "subjects": [subject]}
    yield "tenantry-binding-fence", dry("rolebindings", bound)
    container = {"name": "c", "image": "tenantry.io/trial"}
    pod = {"containers": [container], "tolerations": [{"operator": "Exists"}], "automountServiceAccountToken": False}
    yield "tenantry-pod-fence", dry("pods", {"kind": "Pod"}, spec=pod)
    service = {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]}
    yield "tenantry-network-fence", dry("services", {"kind": "Service"}, spec=service)
    if workspace.tier.network != Network.OPEN:
        everything = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}
        policy = {"apiVersion": f"{objects.NETWORKING}/v1", "kind": "NetworkPolicy"}
        yield "tenantry-network-fence", dry("networkpolicies", policy, spec=everything)
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}, "volumeName": "trial"}
    yield "tenantry-storage-fence", dry("persistentvolumeclaims", {"kind": "PersistentVolumeClaim"}, spec=claim)
    yield "tenantry-record-fence", dry("events", _event(workspace, "x" * 2000))


def _storage_classes(client: ClusterClient) -> tuple[str, ...] | None:
    """Those that make a volume for each claim and take it away with it; static volumes may be anybody's."""
    items = client.get(object_path("storage.k8s.io", "v1", "storageclasses")).body.get("items")
    if not isinstance(items, list):
        return None
    classes = [item for item in items if str((item.get("metadata") or {}).get("name") or "\0").isprintable()]
    return tuple(
        sorted(
            str(item["metadata"].get("name", ""))[:253]
            for item in classes
            if str(item.get("provisioner", "")) not in _PROVISIONERS_NONE
            and item.get("reclaimPolicy", "Delete") == "Delete"
        )[:100]
    )
