"""Where the kinds that make pods keep what those look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

TEMPLATES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "Pod"): (),
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): ("spec", "template"),
    ("apps", "DaemonSet"): ("spec", "template"),
    ("apps", "Deployment"): ("spec", "template"),
    ("apps", "ReplicaSet"): ("spec", "template"),
    ("apps", "StatefulSet"): ("spec", "template"),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("batch", "Job"): ("spec", "template"),
}
"""By group and kind, the path to what has a pod's metadata and spec."""


def pod_of(group: str, kind: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The pod that an object is, or the template of those that it makes; ``None`` where it has neither."""
    path = TEMPLATES.get((group, kind))
    part: Any = None if path is None else body
    for name in path or ():
        part = part.get(name) if isinstance(part, Mapping) else None
    return part if isinstance(part, Mapping) else None
