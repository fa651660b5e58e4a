"""Quotas and limit ranges refuse what a real kube-apiserver refuses, in the same words (AD2)."""

from __future__ import annotations

import time
from copy import deepcopy
from datetime import UTC, datetime
from random import Random
from typing import Any

from kube.quota.limitranges import violations, with_defaults
from kube.quota.quantities import parse_quantity
from kube.quota.usage import QuotaExceeded, check, demand, read_quota
from tests.speaking import Speaker

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU = "example.com/gpu"
SMALL = {"cpu": ["100m", "1", "0", "2500m"], "memory": ["64Mi", "1Gi", "1G"], "ephemeral-storage": ["1Gi"]}
LARGE = {"cpu": "4", "memory": "4Gi", "ephemeral-storage": "2Gi"}
HARD = {
    "pods": ["1", "2"],
    "requests.cpu": ["1", "500m", "5"],
    "cpu": ["3"],
    "limits.cpu": ["2", "8"],
    "memory": ["1Gi", "512Mi"],
    "limits.memory": ["1Gi", "9Gi"],
    "requests.ephemeral-storage": ["1Gi"],
    "count/pods": ["1"],
    f"requests.{GPU}": ["1", "2"],
    "services": ["0"],
}
BOUNDS = {
    "min": ("50m", "10Mi"),
    "max": ("3", "3Gi"),
    "maxLimitRequestRatio": ("2", "3"),
    "default": ("2", "2Gi"),
    "defaultRequest": ("1", "1Gi"),
}


def _resources(random: Random) -> dict[str, dict[str, str]]:
    requests = {name: random.choice(values) for name, values in SMALL.items() if random.random() < 0.6}
    limits = {name: LARGE[name] for name in SMALL if random.random() < 0.6}
    if random.random() < 0.3:
        requests[GPU] = limits[GPU] = "1"
    return {"requests": requests, "limits": limits}


def _pod(random: Random) -> dict[str, Any]:
    def container(name: str) -> dict[str, Any]:
        return {"name": name, "image": "i", "resources": _resources(random)}

    spec: dict[str, Any] = {"containers": [container(name) for name in "abc"[: random.randrange(1, 4)]]}
    if random.random() < 0.4:
        sidecar = {"restartPolicy": "Always"} if random.random() < 0.5 else {}
        spec["initContainers"] = [{**container(name), **sidecar} for name in "xy"[: random.randrange(1, 3)]]
    if random.random() < 0.3:
        spec["activeDeadlineSeconds"] = 10
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def _defaulted(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod as it reaches admission: a limit without a request is the request too."""
    pod = deepcopy(pod)
    for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
        resources = container["resources"]
        resources["requests"] = {**resources["limits"], **resources["requests"]}
    return pod


def _limit_range(random: Random) -> dict[str, Any]:
    kind = random.choice(["Container", "Pod"])
    fields = [field for field in BOUNDS if kind == "Container" or "default" not in field]
    limit: dict[str, Any] = {"type": kind}
    for field in fields:
        if random.random() < 0.5:
            pairs = zip(("cpu", "memory"), BOUNDS[field], strict=True)
            limit[field] = {name: value for name, value in pairs if random.random() < 0.6}
    return {"metadata": {"name": "l"}, "spec": {"limits": [limit]}}


def _reason(pod: dict[str, Any], limits: dict[str, Any] | None, quota: dict[str, Any], used: dict[str, str]) -> str:
    if limits is not None:
        pod = with_defaults(limits, pod)
        beyond = violations(limits, "pods", pod)
        if beyond:
            return beyond
    rule = read_quota(quota)
    try:
        check(rule, demand(rule, "", "pods", pod, now=NOW), {name: parse_quantity(v) for name, v in used.items()})
    except QuotaExceeded as error:
        return str(error)
    return ""


def _words(message: str) -> list[str]:
    """The parts of a message; the real server lists what limit ranges say in random order.

    What stands before the list belongs to none of its parts, whichever comes first.
    """
    before, _, said = message.partition(" is forbidden: ")
    return [before, *sorted(said.replace("[", "").replace("]", "").split(", "))]


def test_generated_pods_are_admitted_or_refused_as_by_the_real_server(server: Speaker) -> None:
    compared = refused = 0
    for seed in range(80):
        random = Random(seed)
        namespace = f"/api/v1/namespaces/q{seed}"
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": f"q{seed}"}})
        hard = {name: random.choice(values) for name, values in HARD.items() if random.random() < 0.35}
        quota: dict[str, Any] = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
        if random.random() < 0.4:
            quota["spec"]["scopes"] = [random.choice(["Terminating", "NotTerminating", "BestEffort", "NotBestEffort"])]
        status, kept = server.request("POST", f"{namespace}/resourcequotas", quota)
        if status != 201:
            continue
        used = {name: random.choice(["0", "0", "1"]) for name in hard}
        kept["status"] = {"hard": hard, "used": used}
        assert server.request("PUT", f"{namespace}/resourcequotas/q/status", kept)[0] == 200
        limits = None
        if random.random() < 0.5:
            status, made = server.request("POST", f"{namespace}/limitranges", _limit_range(random))
            limits = made if status == 201 else None
        pod = _pod(random)
        reason = _reason(_defaulted(pod), limits, quota, used)
        ours = f'pods "p" is forbidden: {reason}' if reason else ""
        # The real server's admission learns of quotas and limit ranges by watching: it may need a moment.
        for _ in range(600):
            status, answer = server.request("POST", f"{namespace}/pods?dryRun=All", pod)
            theirs = answer["message"] if status >= 400 else ""
            if status == 422 or _words(ours) == _words(theirs):
                break
            time.sleep(0.1)
        if status == 422:
            continue
        assert _words(ours) == _words(theirs), seed
        compared += 1
        refused += status == 403
    assert compared > 40
    assert 10 < refused < compared
