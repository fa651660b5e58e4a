"""Pods, workloads and labels that the Pod Security Standards are asked about, for every form of every check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kube.objects.patches import deep_copy, merge_patch
from tests.conformance.conversation import Conversation
from tests.conformance.script.media import MERGE, STRATEGIC

PODS: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parents[1] / "podsecurity.yaml").read_text())
LABEL = "pod-security.kubernetes.io/"

_CONTAINER = {
    "image": "i",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
_SPEC = {
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
}


def pod(change: dict[str, Any]) -> dict[str, Any]:
    """The pod that keeps every standard, but for this change."""
    metadata = merge_patch({"name": "p", "labels": {"app": "p"}}, change.get("metadata") or {})
    spec = merge_patch(deep_copy(_SPEC), change.get("spec") or {})
    for field, name in (("containers", "c"), ("initContainers", "i")):
        spec[field] = [merge_patch({"name": name, **deep_copy(_CONTAINER)}, change.get(name) or {})]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def versions(since: list[int]) -> Iterator[str]:
    """The versions around which a check changes, and the latest."""
    for minor in sorted({each for start in since for each in (start - 1, start) if each >= 0}):
        yield f"v1.{minor}"
    yield "latest"


def podsecurity(say: Conversation) -> None:
    """Every pod under each standard: refused by baseline, and warned of by restricted."""
    made: dict[str, str] = {}

    def namespace(**labels: str) -> str:
        """The path of a namespace with these labels, by mode."""
        name = f"{say.namespace}-" + "-".join(labels.values()).replace(".", "-")
        if name not in made:
            body = {"metadata": {"name": name, "labels": {LABEL + mode: value for mode, value in labels.items()}}}
            say.speaker.send("POST", "/api/v1/namespaces", body)
            accounts = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            say.until(lambda: say.speaker.send("GET", accounts).status == 200)
            made[name] = f"/api/v1/namespaces/{name}"
        return made[name]

    for check in PODS.values():
        for change in check["pods"]:
            for version in versions(check["since"]):
                baseline = namespace(**{"enforce": "baseline", "enforce-version": version, "warn": "privileged"})
                restricted = namespace(**{"warn": "restricted", "warn-version": version})
                say.verdict("POST", f"{baseline}/pods?dryRun=All", pod(change))
                say.verdict("POST", f"{restricted}/pods?dryRun=All", pod(change))
    _workloads(say, namespace(enforce="restricted"))
    _updates(say, namespace(enforce="baseline", warn="privileged"))
    _labels(say)


def _workloads(say: Conversation, namespace: str) -> None:
    """What makes pods is never refused: its author is warned."""
    name = namespace.rpartition("/")[2]
    bad = pod({"spec": {"hostNetwork": True, "restartPolicy": "Always"}})
    template = {"metadata": bad["metadata"], "spec": bad["spec"]}
    selected = {"selector": {"matchLabels": {"app": "p"}}, "template": template}
    ended = {"template": merge_patch(template, {"spec": {"restartPolicy": "Never"}})}
    for group, plural, kind, spec in (
        ("apps", "deployments", "Deployment", selected),
        ("apps", "replicasets", "ReplicaSet", selected),
        ("apps", "statefulsets", "StatefulSet", {**selected, "serviceName": "x"}),
        ("batch", "jobs", "Job", ended),
        ("batch", "cronjobs", "CronJob", {"schedule": "* * * * *", "jobTemplate": {"spec": ended}}),
    ):
        body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "w"}, "spec": spec}
        say.verdict("POST", f"/apis/{group}/v1/namespaces/{name}/{plural}?dryRun=All", body)
    controller = {"metadata": {"name": "w"}, "spec": {"selector": {"app": "p"}, "template": template}}
    say.verdict("POST", f"{namespace}/replicationcontrollers?dryRun=All", controller)
    say.verdict("POST", f"{namespace}/replicationcontrollers?dryRun=All", {"metadata": {"name": "w"}, "spec": {}})
    say.verdict("POST", f"{namespace}/podtemplates?dryRun=All", {"metadata": {"name": "w"}, "template": template})
    deployments = f"/apis/apps/v1/namespaces/{name}/deployments"
    say.verdict("POST", deployments, {"metadata": {"name": "w"}, "spec": selected})
    say.verdict("PATCH", f"{deployments}/w", {"spec": {"replicas": 0}}, MERGE)
    say.verdict("PATCH", f"{deployments}/w/scale", {"spec": {"replicas": 2}}, MERGE)


def _updates(say: Conversation, namespace: str) -> None:
    """An image or a container makes another pod of it; a label does not, though the pod is bad."""
    name = namespace.rpartition("/")[2]
    bad = pod({"metadata": {"name": "bad"}, "spec": {"hostPID": True}})
    say.verdict("POST", f"{namespace}/pods", bad)
    free = f"{name}-free"
    say.speaker.send("POST", "/api/v1/namespaces", {"metadata": {"name": free}})
    account = f"/api/v1/namespaces/{free}/serviceaccounts/default"
    say.until(lambda: say.speaker.send("GET", account).status == 200)
    at = f"/api/v1/namespaces/{free}"
    for each in ("bad", "worse", "good"):
        change = {"metadata": {"name": each}, "spec": {} if each == "good" else {"hostPID": True}}
        say.verdict("POST", f"{at}/pods", pod(change))
    say.verdict("POST", f"{at}/pods", pod({"metadata": {"name": "root"}, "spec": {"securityContext": None}}))
    for labels in (
        {"enforce": "baseline"},
        {"enforce": "privileged"},
        {"enforce": "restricted"},
        {"enforce": "restricted", "enforce-version": "v1.20"},
        {"enforce": "baseline", "enforce-version": "v1.20"},
        {"enforce": "bad"},
        {"warn": "bad", "audit-version": "v2.0"},
        {"enforce-version": "1.25"},
        {"enforce": "baseline", "enforce-version": "latest"},
    ):
        change = {"metadata": {"labels": {LABEL + mode: value for mode, value in labels.items()}}}
        say.verdict("PATCH", f"/api/v1/namespaces/{free}", change, MERGE)
    say.until(lambda: say.speaker.send("POST", f"{at}/pods?dryRun=All", bad).status == 403)
    say.verdict("PATCH", f"{at}/pods/bad", {"metadata": {"labels": {"a": "b"}}}, MERGE)
    say.verdict("PATCH", f"{at}/pods/bad", {"spec": {"containers": [{"name": "c", "image": "j"}]}}, STRATEGIC)
    debug = {"name": "e", "image": "i", "securityContext": {"privileged": True}}
    for each in ("bad", "good"):
        path = f"{at}/pods/{each}/ephemeralcontainers"
        say.verdict("PATCH", path, {"spec": {"ephemeralContainers": [debug]}}, STRATEGIC)
    say.verdict("PATCH", f"{at}/pods/good", {"spec": {"containers": [{"name": "c", "image": "j"}]}}, STRATEGIC)
    say.verdict("PATCH", f"{at}/pods/bad/status", {"status": {"phase": "Running"}}, MERGE)
    say.verdict("DELETE", f"{at}/pods/worse", {"gracePeriodSeconds": 0})


def _labels(say: Conversation) -> None:
    """Levels and versions that are none."""
    for number, labels in enumerate(
        (
            {"enforce": "Baseline"},
            {"enforce": ""},
            {"audit": "none", "warn": "none"},
            {"warn-version": "v1.01"},
            {"audit-version": "newest", "enforce-version": "v1"},
            {"enforce": "restricted", "enforce-version": "v1.99"},
            {"enforce": "privileged", "warn": "restricted", "audit": "baseline", "mode": "x"},
        )
    ):
        body = {
            "metadata": {
                "name": f"{say.namespace}-l{number}",
                "labels": {LABEL + mode: value for mode, value in labels.items()},
            }
        }
        say.verdict("POST", "/api/v1/namespaces?dryRun=All", body)
