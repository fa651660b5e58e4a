"""The bootstrap policy, and roles that are made of others."""

from __future__ import annotations

from typing import Any

from kube.authorization.bootstrappolicy import CLUSTER_ROLES
from tests.conformance.conversation import Conversation
from tests.speaking import Answer

RBAC = "/apis/rbac.authorization.k8s.io/v1"
OURS = ("system:kcp:", "tenantry-")


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


def _kubernetes_own(answer: Answer) -> dict[str, Any]:
    """Labels, aggregation and rules, without what the tree of workspaces adds."""
    body = answer.body
    rules = [rule for rule in body["rules"] if not any("kcp.io" in group for group in rule.get("apiGroups", ()))]
    metadata = body["metadata"]
    shown = {"labels": metadata["labels"], "annotations": metadata["annotations"], "rules": rules}
    return {**shown, "aggregationRule": body.get("aggregationRule")}


def _names(answer: Answer) -> dict[str, Any]:
    names = [item["metadata"]["name"] for item in answer["items"]]
    return {"names": names, "more": bool(answer["metadata"].get("continue"))}
