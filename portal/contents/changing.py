"""The few things that these pages change, each as kubectl does it, and each only of the object that was shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kube.display.kinds import ServedKind
from portal.contents.door import MERGE, Door

RESTARTED: Final = "kubectl.kubernetes.io/restartedAt"
RESTARTABLE: Final = frozenset({"deployments.apps", "statefulsets.apps", "daemonsets.apps"})
REPLICAS_MAX: Final = 10_000


def restart(door: Door, kind: ServedKind, name: str, *, uid: str, now: datetime) -> None:
    """``kubectl rollout restart``. Raises ``StatusError`` as the API server says it."""
    changed = {"spec": {"template": {"metadata": {"annotations": {RESTARTED: now.isoformat(timespec="seconds")}}}}}
    _patch(door, kind, name, uid, changed)


def scale(door: Door, kind: ServedKind, name: str, *, uid: str, replicas: int) -> None:
    """``kubectl scale``. Raises as ``restart``."""
    _patch(door, kind, name, uid, {"spec": {"replicas": replicas}}, sub="scale")


def delete(door: Door, kind: ServedKind, name: str, *, uid: str) -> None:
    """``kubectl delete``, of the object with this UID and no other of its name. Raises as ``restart``."""
    options = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Background",
        "preconditions": {"uid": uid},
    }
    door.send("DELETE", door.path(kind.group, kind.version, kind.resource, name), options)


def _patch(door: Door, kind: ServedKind, name: str, uid: str, changed: Mapping[str, object], *, sub: str = "") -> None:
    path = door.path(kind.group, kind.version, kind.resource, name, sub)
    door.send("PATCH", path, {"metadata": {"uid": uid}, **changed}, content_type=MERGE)
