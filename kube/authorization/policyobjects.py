"""How the objects of the bootstrap policy are written."""

from __future__ import annotations

from typing import Any, Final

from kube.authorization.rbac import GROUP

READ: Final = "get list watch"
WRITE: Final = "create delete deletecollection patch update"
ALL: Final = f"{WRITE} {READ}"

_LABEL: Final = f"{GROUP}/aggregate-to-"


def rule(verbs: str, group: str | tuple[str, ...], *resources: str, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """These verbs, with spaces between them, on resources of a group or of several."""
    groups = [group] if isinstance(group, str) else list(group)
    made = {"verbs": sorted(verbs.split()), "apiGroups": groups, "resources": list(resources)}
    return {**made, "resourceNames": list(names)} if names else made


def urls(verbs: str, *paths: str) -> dict[str, Any]:
    """These verbs on paths that are no resources."""
    return {"verbs": sorted(verbs.split()), "nonResourceURLs": sorted(paths)}


EVENTS: Final = rule("create patch update", ("", "events.k8s.io"), "events")


def role(
    name: str, *rules: dict[str, Any], joins: str = "", aggregates: str = "", namespace: str = ""
) -> dict[str, Any]:
    """A ClusterRole, or the Role of a namespace.

    ``joins`` and ``aggregates`` name the aggregated role that it adds to, and that it is.
    """
    metadata = _metadata(name, namespace)
    if joins:
        metadata["labels"][_LABEL + joins] = "true"
    manifest: dict[str, Any] = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": metadata,
        "rules": list(rules),
    }
    if aggregates:
        manifest["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {_LABEL + aggregates: "true"}}]}
    return manifest


def binding(name: str, to: str, *subjects: str, kind: str = "Group", namespace: str = "") -> dict[str, Any]:
    """A ClusterRoleBinding of groups, or of users, to a ClusterRole; in a namespace a RoleBinding to a Role of it."""
    scope = "" if namespace else "Cluster"
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": f"{scope}RoleBinding",
        "metadata": _metadata(name, namespace),
        "roleRef": {"apiGroup": GROUP, "kind": f"{scope}Role", "name": to},
        "subjects": [{"apiGroup": GROUP, "kind": kind, "name": subject} for subject in subjects],
    }


def _metadata(name: str, namespace: str) -> dict[str, Any]:
    place = {"namespace": namespace} if namespace else {}
    return {
        "name": name,
        **place,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }
