"""CRDs that the tests install, and the objects of them."""

from __future__ import annotations

from typing import Any

from tests.gateway.callers import Caller, eventually

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(
    kind: str,
    spec: dict[str, Any] | None = None,
    *,
    group: str = "example.com",
    scope: str = "Namespaced",
    **version: Any,
) -> dict[str, Any]:
    """A CRD whose objects have a ``spec`` of this schema and a free ``status``."""
    plural = f"{kind.lower()}s"
    schema = {
        "type": "object",
        "properties": {
            "spec": spec or {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "kind": kind},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
            ],
        },
    }


def custom(kind: str, name: str, spec: dict[str, Any] | None = None, *, version: str = "v1", **metadata: Any) -> Any:
    body = {"apiVersion": f"example.com/{version}", "kind": kind, "metadata": {"name": name, **metadata}}
    return body if spec is None else {**body, "spec": spec}


def install(caller: Caller, crd: dict[str, Any]) -> dict[str, Any]:
    """Create a CRD; its answer."""
    answer = caller.post(CRDS, crd)
    assert answer.status == 201, answer.body
    return answer.body


def remove(caller: Caller, name: str) -> None:
    """Delete a CRD and wait until it is gone."""
    caller.delete(f"{CRDS}/{name}")
    assert eventually(lambda: caller.get(f"{CRDS}/{name}").status == 404)


def collection(plural: str, namespace: str = "default", version: str = "v1") -> str:
    return f"/apis/example.com/{version}/namespaces/{namespace}/{plural}"
