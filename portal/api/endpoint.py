"""What all endpoints share: reading a body, drawing a page of a list, and no answer for what they do not serve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Model
from django.http import QueryDict
from drf_spectacular.utils import OpenApiParameter, inline_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from kube.status import BadRequest

PAGE = 50
AFTER = OpenApiParameter("after", str, description="The cursor of the page: follow `next` of the answer before.")
LIMIT = OpenApiParameter("limit", int, description="Rows a page, 1 to 200; 50 by default.")


class Endpoint(APIView):
    """One route. Query parameters that it does not declare are an error, not a silently wrong answer."""

    filters: frozenset[str] = frozenset()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate and authorise first, then look at the parameters."""
        super().initial(request, *args, **kwargs)
        unknown = sorted(set(request.query_params) - self.filters)
        if unknown:
            raise BadRequest(f"There is no parameter “{unknown[0][:64]}” here.")

    def body(
        self, request: Request, shape: type[serializers.Serializer[Any]], *, partial: bool = False
    ) -> dict[str, Any]:
        """The checked body, with what it leaves out unless ``partial``; raises ``ValidationError`` naming wrong fields."""
        form = shape(data=request.data, partial=partial)
        form.is_valid(raise_exception=True)
        return dict(form.validated_data)


def window(request: Request) -> tuple[str, int]:
    """The cursor and the size of the asked page. Raises ``BadRequest``."""
    text = request.query_params.get("limit", str(PAGE))
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= 200):
        raise BadRequest("The limit is a number from 1 to 200.")
    return request.query_params.get("after", ""), int(text)


def page(
    request: Request, rows: Sequence[Any] | Iterable[Model], shape: type[serializers.Serializer[Any]], cursor: str = ""
) -> Response:
    """A page of a list with the address of the next one."""
    following = None
    if cursor:
        query = QueryDict(mutable=True)
        query.update(request.query_params)
        query["after"] = cursor
        following = request.build_absolute_uri(f"{request.path}?{query.urlencode()}")
    return Response({"results": shape(rows, many=True).data, "next": following})


def listed(shape: type[serializers.Serializer[Any]]) -> Any:
    """The shape of a list, for the OpenAPI document."""
    name = shape.__name__.removesuffix("Answer")
    fields = {"results": shape(many=True), "next": serializers.URLField(allow_null=True)}
    return inline_serializer(f"{name}Page", fields)


def identifier(text: str) -> UUID | None:
    """A UUID, or ``None`` for what is none: the caller answers 404."""
    try:
        return UUID(text)
    except ValueError:
        return None
