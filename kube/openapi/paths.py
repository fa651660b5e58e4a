"""The paths of a resource in OpenAPI documents, with the ``x-kubernetes-action`` that kubectl looks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kube.kinds.resources import Resource, Subresource
from kube.openapi.connections import CONNECTIONS
from kube.openapi.parameters import Words, described, parameter

_STATUS: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
_DELETE_OPTIONS: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_PATCH: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"
_PATCH_TYPES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_CUSTOM_PATCH_TYPES: Final = tuple(name for name in _PATCH_TYPES if "strategic" not in name)
"""kubectl sends the patches that it finds here: custom kinds have no strategic ones."""
_BODY_TYPES: Final = ("application/json", "application/yaml")

# verb → (HTTP method, x-kubernetes-action, query parameters)
_WRITE: Final = ("dryRun", "fieldManager", "fieldValidation")
_ON_COLLECTION: Final = {
    "list": (
        "get",
        "list",
        (
            "allowWatchBookmarks",
            "continue",
            "fieldSelector",
            "labelSelector",
            "limit",
            "resourceVersion",
            "resourceVersionMatch",
            "sendInitialEvents",
            "timeoutSeconds",
            "watch",
        ),
    ),
    "create": ("post", "post", _WRITE),
    "deletecollection": (
        "delete",
        "deletecollection",
        (
            "continue",
            "dryRun",
            "fieldSelector",
            "gracePeriodSeconds",
            "labelSelector",
            "limit",
            "orphanDependents",
            "propagationPolicy",
            "resourceVersion",
            "resourceVersionMatch",
            "sendInitialEvents",
            "timeoutSeconds",
        ),
    ),
}
_ON_OBJECT: Final = {
    "get": ("get", "get", ()),
    "update": ("put", "put", _WRITE),
    "patch": ("patch", "patch", (*_WRITE, "force")),
    "delete": ("delete", "delete", ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")),
    "create": ("post", "post", _WRITE),
}


def paths_of(resource: Resource, version: str, models: Mapping[str, str], *, v3: bool) -> dict[str, Any]:
    """Path → operations of a resource; ``models`` maps kinds to the names of their definitions."""
    prefix = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
    base = (
        f"{prefix}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{prefix}/{resource.plural}"
    )
    gvk = {"group": resource.group, "version": version, "kind": resource.kind}
    writer = _Writer(models, _CUSTOM_PATCH_TYPES if resource.custom else _PATCH_TYPES, v3=v3)
    collection = {verb: spec for verb, spec in _ON_COLLECTION.items() if verb in resource.verbs}
    paths: dict[str, Any] = {}
    if collection:
        paths[base] = writer.operations(
            collection, resource.kind, resource.list_kind, gvk=gvk, namespaced=resource.namespaced
        )
    if resource.namespaced and "list" in collection:
        listing = {"list": collection["list"]}
        paths[f"{prefix}/{resource.plural}"] = writer.operations(
            listing, resource.kind, resource.list_kind, gvk=gvk, namespaced=False
        )
    own = {verb: spec for verb, spec in _ON_OBJECT.items() if verb in resource.verbs and verb != "create"}
    if own:
        paths[f"{base}/{{name}}"] = writer.operations(
            own, resource.kind, "", gvk=gvk, namespaced=resource.namespaced, names=("name",)
        )
    served = resource.version(version)
    for part in served.subresources if served else ():
        paths[f"{base}/{{name}}/{part.name}"] = _part(writer, resource, part)
    return paths


def _part(writer: _Writer, resource: Resource, part: Subresource) -> dict[str, Any]:
    gvk = {"group": part.group, "version": part.version, "kind": part.kind}
    verbs = {verb: spec for verb, spec in _ON_OBJECT.items() if verb in part.verbs}
    words = CONNECTIONS.get(f"{resource.plural}/{part.name}")
    if words is not None:
        methods = [method for method, _, _ in verbs.values()]
        return writer.connection(methods, words, gvk=gvk, namespaced=resource.namespaced, read=part.name == "log")
    return writer.operations(verbs, part.kind, "", gvk=gvk, namespaced=resource.namespaced, names=("name",))


class _Writer:
    """Writes operations in one of the two dialects."""

    def __init__(self, models: Mapping[str, str], patch_types: tuple[str, ...], *, v3: bool) -> None:
        self._models = models
        self._patch_types = patch_types
        self._v3 = v3
        self._prefix = "#/components/schemas/" if v3 else "#/definitions/"

    def operations(
        self,
        verbs: Mapping[str, tuple[str, str, tuple[str, ...]]],
        kind: str,
        list_kind: str,
        *,
        gvk: Mapping[str, str],
        namespaced: bool,
        names: Iterable[str] = (),
    ) -> dict[str, Any]:
        """A path's operations, with the parameters of the path itself."""
        item: dict[str, Any] = {}
        for verb, (method, action, queries) in verbs.items():
            answer = self._models.get(list_kind if verb == "list" else kind, "")
            if verb in ("delete", "deletecollection"):
                answer = _STATUS
            item[method] = self._operation(
                verb, action, queries, model=self._models.get(kind, ""), answer=answer, gvk=gvk
            )
        where = [*names, *(("namespace",) if namespaced else ()), "pretty"]
        item["parameters"] = [parameter(name, kind=kind, patch=False, v3=self._v3) for name in where]
        return item

    def connection(
        self,
        methods: Iterable[str],
        words: Mapping[str, Words],
        *,
        gvk: Mapping[str, str],
        namespaced: bool,
        read: bool,
    ) -> dict[str, Any]:
        """The operations of a path that connects to something, or reads its log; all take the same parameters."""
        action = "get" if read else "connect"
        item: dict[str, Any] = {
            method: self._operation(action, action, (), model="", answer="", gvk=gvk) for method in methods
        }
        where = ["name", *(("namespace",) if namespaced else ()), *(("pretty",) if read else ())]
        path = [parameter(name, kind=gvk["kind"], patch=False, v3=self._v3) for name in where]
        item["parameters"] = [*path, *(described(name, each, v3=self._v3) for name, each in words.items())]
        return item

    def _operation(
        self, verb: str, action: str, queries: Iterable[str], *, model: str, answer: str, gvk: Mapping[str, str]
    ) -> dict[str, Any]:
        patch = verb == "patch"
        parameters = [parameter(name, kind=gvk["kind"], patch=patch, v3=self._v3) for name in queries]
        operation: dict[str, Any] = {"description": f"{verb} {gvk['kind']}", "parameters": parameters}
        body, types = self._body(verb, model)
        needed = {"required": True} if verb in ("create", "update", "patch") else {}
        if self._v3:
            if body:
                content = {type_: {"schema": body} for type_ in types}
                operation["requestBody"] = {"content": content, **needed}
            good: dict[str, Any] = {"description": "OK"}
            if answer:
                good["content"] = {"application/json": {"schema": self._reference(answer)}}
        else:
            operation["consumes"] = list(types) if body else ["*/*"]
            operation["produces"] = list(_BODY_TYPES)
            if body:
                parameters.append({"name": "body", "in": "body", **needed, "schema": body})
            good = {"description": "OK"}
            if answer:
                good["schema"] = self._reference(answer)
        operation["responses"] = {"200": good, "401": {"description": "Unauthorized"}}
        operation["x-kubernetes-action"] = action
        operation["x-kubernetes-group-version-kind"] = dict(gvk)
        return operation

    def _body(self, verb: str, model: str) -> tuple[dict[str, str] | None, tuple[str, ...]]:
        if verb == "patch":
            return self._reference(_PATCH), self._patch_types
        if verb in ("delete", "deletecollection"):
            return self._reference(_DELETE_OPTIONS), _BODY_TYPES
        if verb in ("create", "update") and model:
            return self._reference(model), _BODY_TYPES
        return None, ()

    def _reference(self, name: str) -> dict[str, str]:
        return {"$ref": self._prefix + name}
