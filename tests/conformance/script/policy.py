"""The bootstrap policy, and roles that are made of others."""

from __future__ import annotations

from typing import Any

from kube.authorization.bootstrap.namespaces import NAMESPACED_BINDINGS, NAMESPACED_ROLES
from kube.authorization.bootstrappolicy import CLUSTER_ROLES
from tests.conformance.conversation import Conversation
from tests.speaking import Answer

RBAC = "/apis/rbac.authorization.k8s.io/v1"
OURS = ("system:kcp:", "tenantry-")
_OF_A_BUILD = ("system:openshift:", "system:controller:service-ca-cert-publisher")
"""What some builds of kube-apiserver add to the policy of Kubernetes."""

_BOOTSTRAPPED = "labelSelector=kubernetes.io/bootstrapping%3Drbac-defaults"


def policy(say: Conversation) -> None:
    """Every ClusterRole that a cluster is born with, and lists of them in chunks."""
    at = f"{RBAC}/clusterroles"
    for manifest in CLUSTER_ROLES:
        name = manifest["metadata"]["name"]
        if not name.startswith(OURS):
            say.note(f"{at}/{name}", _kubernetes_own)
    for name in ("cluster-admin", "system:basic-user", "system:discovery", "system:monitoring"):
        say.note(f"{RBAC}/clusterrolebindings/{name}", lambda answer: [answer["roleRef"], answer["subjects"]])
    page = say.speaker.send("GET", f"{at}?limit=3")
    say.note(f"{at}?limit=3", _names)
    say.note(f"{at}?limit=3&continue={page['metadata']['continue']}", _names)
    say.note(f"{at}?{_BOOTSTRAPPED}", _kubernetes_names)
    say.note(f"{at}?{_BOOTSTRAPPED}&limit=7", lambda answer: {"names": _walked(say, answer)})
    for query in ("limit=bad", "limit=1&continue=bad", "limit=1&resourceVersion=bad", "continue="):
        say.note(f"{at}?{query}", lambda answer: {"message": answer.body.get("message")})
    say.part("POST", f"{at}?dryRun=All", {"metadata": {"name": "eq-none"}, "rules": []}, _rules_or_none)


def namespacedpolicy(say: Conversation) -> None:
    """Every Role that the namespaces of a cluster are born with, and whom they are bound to."""
    for kind, manifests in (("roles", NAMESPACED_ROLES), ("rolebindings", NAMESPACED_BINDINGS)):
        for manifest in manifests:
            metadata = manifest["metadata"]
            say.note(f"{RBAC}/namespaces/{metadata['namespace']}/{kind}/{metadata['name']}", _in_a_namespace)
        for namespace in ("kube-system", "kube-public"):
            say.note(f"{RBAC}/namespaces/{namespace}/{kind}?{_BOOTSTRAPPED}", _kubernetes_names)


def _in_a_namespace(answer: Answer) -> dict[str, Any]:
    metadata, subjects = answer["metadata"], answer.body.get("subjects") or ()
    said = {name: answer.body.get(name) for name in ("rules", "roleRef")}
    for kind in ("User", "ServiceAccount"):
        said[kind] = [subject["name"] for subject in subjects if subject["kind"] == kind]
    return {**said, "labels": metadata["labels"], "annotations": metadata["annotations"]}


def _rules_or_none(answer: Answer) -> dict[str, Any]:
    return {"rules": answer["rules"], "owned": answer["metadata"]["managedFields"][0]["fieldsV1"]}


def _kubernetes_own(answer: Answer) -> dict[str, Any]:
    """Labels, aggregation and rules, without what the tree of workspaces adds."""
    body = answer.body
    rules = [rule for rule in body["rules"] if not any("kcp.io" in group for group in rule.get("apiGroups", ()))]
    metadata = body["metadata"]
    shown = {"labels": metadata["labels"], "annotations": metadata["annotations"], "rules": rules}
    return {**shown, "aggregationRule": body.get("aggregationRule")}


def _kubernetes_names(answer: Answer) -> dict[str, Any]:
    names = (item["metadata"]["name"] for item in answer["items"])
    return {"names": [name for name in names if not name.startswith((*OURS, *_OF_A_BUILD))]}


def _walked(say: Conversation, answer: Answer) -> list[str]:
    """The names of all pages, from this first on; each but the last is full."""
    found, at = _kubernetes_names(answer)["names"], f"{RBAC}/clusterroles?{_BOOTSTRAPPED}&limit=7"
    while token := answer["metadata"].get("continue"):
        assert len(answer["items"]) == 7
        answer = say.speaker.send("GET", f"{at}&continue={token}")
        found += _kubernetes_names(answer)["names"]
    return found


def _names(answer: Answer) -> dict[str, Any]:
    names = [item["metadata"]["name"] for item in answer["items"]]
    return {"names": names, "more": bool(answer["metadata"].get("continue"))}
