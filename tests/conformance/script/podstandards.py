"""A pod that just keeps each Pod Security Standard, and one that just does not, at every version where that changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from kube.objects.patches import deep_copy, merge_patch
from tests.conformance.conversation import Conversation
from tests.conformance.script.podsecurity import LABEL, pod

TABLE: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parents[1] / "podstandards.yaml").read_text())
LEVELS = ("baseline", "restricted")

_WINDOWS: dict[str, Any] = {
    "spec": {"os": {"name": "windows"}, "securityContext": {"seccompProfile": None}},
    "c": {"securityContext": None},
    "i": {"securityContext": None},
}
_KINDS = (
    ("apps", "deployments", "Deployment"),
    ("apps", "replicasets", "ReplicaSet"),
    ("apps", "statefulsets", "StatefulSet"),
    ("batch", "jobs", "Job"),
    ("batch", "cronjobs", "CronJob"),
    ("", "replicationcontrollers", "ReplicationController"),
    ("", "podtemplates", "PodTemplate"),
)


@dataclass(frozen=True)
class Edge:
    """A change of a pod; where it is forbidden, one of ``says`` is said."""

    name: str
    row: Mapping[str, Any]
    says: Collection[str]

    def is_forbidden(self, level: str, minor: int | None) -> bool:
        """Whether a level forbids it, in a version or the latest."""
        start, end = self._interval(level)
        if start is None or minor is None:
            return start is not None and end is None
        return start <= minor and (end is None or minor < end)

    def versions(self, level: str) -> list[int | None]:
        """The last version before each change of the rule and the first of it, and the latest."""
        changes = [change for change in self._interval(level) if change is not None]
        return [*sorted({0, *(at for change in changes for at in (change - 1, change) if at >= 0)}), None]

    def _interval(self, level: str) -> tuple[int | None, int | None]:
        start, end = (*self.row.get(level, ()), None, None)[:2]
        return start, end

    def pods(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The pods that do it, by who does it in them."""
        change = _WINDOWS if self.row.get("windows") else {name: self.row.get(name) for name in ("spec", "metadata")}
        if "c" not in self.row:
            yield "pod", pod(change)
            return
        containers = {"c": self.row["c"], "i": {**self.row["c"], **_going_on(self.row)}}
        if not self.row.get("every"):
            for name, patch in containers.items():
                yield name, pod({**change, name: patch})
        yield "all", pod({**change, **containers})


def _going_on(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"restartPolicy": "Always"} if row.get("sidecar") else {}


def edges() -> Iterator[Edge]:
    """Every row of the table."""
    for check, told in TABLE.items():
        for number, row in enumerate(told["pods"]):
            yield Edge(f"{check}-{number}", row, told["says"])


def podstandards(say: Conversation) -> None:
    """Each of them made, and as the template of what makes pods, where its level is enforced."""
    made: set[str] = set()
    turn = count()

    def namespace(level: str, minor: int | None) -> str:
        version = "latest" if minor is None else f"v1.{minor}"
        name = f"{say.namespace}-{level}-{version.replace('.', '-')}"
        if name not in made:
            labels = {f"{LABEL}enforce": level, f"{LABEL}enforce-version": version}
            say.speaker.send("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            say.until(lambda: say.speaker.send("GET", account).status == 200)
            made.add(name)
        return name

    for edge in edges():
        pods = list(edge.pods())
        for level in LEVELS:
            for minor in edge.versions(level):
                number = next(turn)
                where, body = pods[number % len(pods)]
                group, plural, kind = _KINDS[number % len(_KINDS)]
                root = f"/apis/{group}/v1" if group else "/api/v1"
                name, asked = namespace(level, minor), f"?dryRun=All&pod={edge.name}-{where}"
                say.verdict("POST", f"/api/v1/namespaces/{name}/pods{asked}", body)
                say.verdict("POST", f"{root}/namespaces/{name}/{plural}{asked}", maker(group, kind, body))


def maker(group: str, kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """An object of a kind that makes such pods."""
    template: dict[str, Any] = {name: body[name] for name in ("metadata", "spec")}
    spec: dict[str, Any] = {"selector": {"matchLabels": {"app": "p"}}, "template": template}
    if kind in ("Job", "CronJob"):
        spec = {"template": merge_patch(deep_copy(template), {"spec": {"restartPolicy": "Never"}})}
    if kind == "CronJob":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": spec}}
    if kind == "ReplicationController":
        spec["selector"] = {"app": "p"}
    given = {"template": template} if kind == "PodTemplate" else {"spec": spec}
    version = f"{group}/v1" if group else "v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, **given}
