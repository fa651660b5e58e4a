"""The OpenAPI document, and the same as a page in the product's look."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.html import escape
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer

_HERE: Final = "https://portal.invalid"
"""Stands for the address by which the portal was asked, which whoever asks has chosen."""

_document: dict[str, Any] = {}


def document() -> dict[str, Any]:
    """The OpenAPI 3 document; the same for everybody, made once a process."""
    if not _document:
        _document.update(SchemaGenerator().get_schema(request=None, public=True))  # type: ignore[no-untyped-call]
    return _document


@require_safe
def schema(request: HttpRequest) -> HttpResponse:
    """As YAML, or as JSON with ``?format=json``."""
    as_json = request.GET.get("format") == "json"
    return HttpResponse(_written(as_json), content_type=f"application/vnd.oai.openapi{'+json' if as_json else ''}")


@cache
def _written(as_json: bool) -> bytes:
    """Once a process: it takes a fifth of a second, and strangers ask as often as they like."""
    if as_json:
        return json.dumps(document(), indent=2, default=str).encode()
    text: bytes = OpenApiYamlRenderer().render(document(), renderer_context={})  # type: ignore[no-untyped-call]
    return text


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """Every operation with an example, without a script."""
    here = escape(request.build_absolute_uri("/")[:-1])
    context: dict[str, Any] = {"operations": SafeString(_operations().replace(_HERE, here))}
    if not request.user.is_authenticated:
        context["layout"] = "public.html"
    return render(request, "pages/docs.html", context)


@cache
def _operations() -> str:
    """Once a process, as the document: it is nearly all that the page takes, and strangers ask for it too."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(path, method.upper(), operation))
    context = {"groups": [{"name": name, "operations": operations} for name, operations in groups.items()]}
    return render_to_string("pages/docs-operations.html", context)


def _operation(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
    curl = f"curl -H 'Authorization: Bearer tnt_…' {_HERE}{path}"
    if method != "GET":
        curl = curl.replace("curl ", f"curl -X {method} ", 1)
    content = operation.get("requestBody", {}).get("content", {})
    if content:
        shape = content["application/json"]["schema"]
        example = json.dumps(_example(shape))
        curl += f" \\\n  -H 'Content-Type: application/json' -d '{example}'"
    return {
        "id": f"example-{operation['operationId']}",
        "label": f"Example of {method} {path}",
        "method": method,
        "path": path,
        "summary": operation.get("summary", ""),
        "description": operation.get("description", ""),
        "parameters": [
            {"name": item["name"], "description": item.get("description", ""), "where": item["in"]}
            for item in operation.get("parameters", [])
        ],
        "curl": curl,
        "answers": ", ".join(operation["responses"]),
    }


def _example(shape: dict[str, Any]) -> Any:
    if "$ref" in shape:
        shape = document()["components"]["schemas"][shape["$ref"].rsplit("/", 1)[-1]]
    if "allOf" in shape:
        return _example(shape["allOf"][0])
    if shape.get("enum"):
        return shape["enum"][0]
    kind = shape.get("type")
    if kind == "object":
        required = shape.get("required") or list(shape.get("properties", {}))[:1]
        return {name: _example(shape["properties"][name]) for name in required if name in shape.get("properties", {})}
    if kind == "array":
        return []
    return {"integer": 1, "number": 1, "boolean": True}.get(str(kind), "…")
