"""Schemas, exports and bindings as their owners send them, for tests about bound APIs."""

from __future__ import annotations

from typing import Any

from tests.gateway.callers import Caller, eventually
from tests.gateway.organization import made

APIS = "/apis/apis.kcp.io/v1alpha1"
WIDGETS = "/apis/example.org/v1/namespaces/default/widgets"


def schema(kind: str, *, prefix: str = "v1", scope: str = "Namespaced", **fields: Any) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    properties = {"spec": {"type": "object", "properties": {"size": {"type": "integer"}, **fields}}}
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIResourceSchema",
        "metadata": {"name": f"{prefix}.{plural}.example.org"},
        "spec": {
            "group": "example.org",
            "names": {"plural": plural, "kind": kind},
            "scope": scope,
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"type": "object", "properties": properties}}
            ],
        },
    }


def export(name: str, *schemas: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIExport",
        "metadata": {"name": name},
        "spec": {"latestResourceSchemas": list(schemas), **spec},
    }


def binding(name: str, target: str, **spec: Any) -> dict[str, Any]:
    path, _, short = target.rpartition(":")
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIBinding",
        "metadata": {"name": name},
        "spec": {"reference": {"export": {"path": path, "name": short}}, **spec},
    }


def widget(name: str, size: Any = 1, kind: str = "Widget") -> dict[str, Any]:
    return {"apiVersion": "example.org/v1", "kind": kind, "metadata": {"name": name}, "spec": {"size": size}}


def status_of(caller: Caller, prefix: str, name: str) -> dict[str, Any]:
    return dict(caller.get(f"{prefix}{APIS}/apibindings/{name}").body.get("status") or {})


def binds(caller: Caller, prefix: str, name: str, target: str, **spec: Any) -> None:
    made(caller.post(f"{prefix}{APIS}/apibindings", binding(name, target, **spec)))
    assert eventually(lambda: status_of(caller, prefix, name).get("phase") == "Bound"), status_of(caller, prefix, name)
