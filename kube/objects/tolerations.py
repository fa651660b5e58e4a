"""What a pod tolerates of its node unless it says otherwise."""

from __future__ import annotations

from typing import Any

_TROUBLES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def outliving(tolerations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """These, and for each trouble of a node that none of them is about: for five minutes, as Kubernetes adds it.

    The list itself where nothing is missing.
    """
    for key in _TROUBLES:
        if not any(_is_about(toleration, key) for toleration in tolerations):
            missing = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            tolerations = [*tolerations, missing]
    return tolerations


def _is_about(toleration: dict[str, Any], key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")
