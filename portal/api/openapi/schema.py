"""The OpenAPI document: every operation also says how it fails."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema
from rest_framework import serializers


class FieldProblem(serializers.Serializer[Any]):
    """One wrong member of a body."""

    field = serializers.CharField()
    message = serializers.CharField()
    reason = serializers.CharField(required=False)


class Problem(serializers.Serializer[Any]):
    """A problem of RFC 9457, with the reason and, for a body, its wrong members."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    instance = serializers.CharField()
    request_id = serializers.CharField()
    reason = serializers.CharField(required=False)
    errors = FieldProblem(many=True, required=False)  # type: ignore[assignment]


_FAILURES = {
    "400": "The request is malformed, or a value in it is not acceptable; errors names each member of a body.",
    "401": "No valid session or token.",
    "403": "The role or the token's scope does not allow it.",
    "404": "There is no such thing, or it is not the caller's to know of.",
    "409": "The state of things does not allow it now.",
    "413": "The body is too large.",
    "412": "It has changed since the ETag of If-Match.",
    "415": "The body is neither JSON nor YAML.",
    "429": "Too many requests; Retry-After says how long to wait.",
    "503": "Something this needs is away; try again.",
}


class Schema(AutoSchema):
    """Adds the problems that every operation may answer with."""

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """The declared operation, and the failures beside its answers. What views declare would replace them."""
        operation: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        if operation is None:
            return None
        codes = {"400", "401", "403", "404", "429", "503"}
        if self.method in {"POST", "PATCH", "PUT", "DELETE"}:
            codes |= {"409", "413", "415"}
        elif self.method not in getattr(self.view, "read_methods", {self.method}):
            codes.add("409")
        if getattr(self.view, "conditional", False) and self.method in {"PATCH", "PUT", "DELETE"}:
            codes.add("412")
        problem = self.resolve_serializer(Problem, "response").ref
        for code in sorted(codes):
            answer = {"content": {"application/problem+json": {"schema": problem}}, "description": _FAILURES[code]}
            operation["responses"].setdefault(code, answer)
        return operation

    def map_parsers(self) -> list[str]:
        """JSON alone, as generators need it; YAML is the same in other letters."""
        return ["application/json"]

    def map_renderers(self, attribute: str) -> list[str]:
        """JSON alone, for the same reason."""
        return ["application/json"] if attribute == "media_type" else super().map_renderers(attribute)

    def get_tags(self) -> list[str]:
        """One group a noun."""
        return [self.path.removeprefix("/api/v1/").split("/")[0].replace("-", " ").capitalize()]
