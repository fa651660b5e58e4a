"""Keys and bodies that the store's tests write."""

from __future__ import annotations

from typing import Any

from store.types import Key, Range

PODS = Range("root:acme", "", "pods")


def pod(name: str, namespace: str = "default", space: str = "root:acme") -> Key:
    return Key(space, "", "pods", namespace, name)


def body(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}
