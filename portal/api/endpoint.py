"""What all endpoints share: checked bodies and query parameters, pages of lists, responses of creations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Model
from django.http import HttpResponse, HttpResponseBase, QueryDict
from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter, inline_serializer
from rest_framework import serializers
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from kube.requests.status import BadRequest
from portal.http.conditions import entity_tag, is_known, require_match

PAGE = 50
AFTER = OpenApiParameter("after", str, description="The cursor of the page: follow `next` of the answer before.")
LIMIT = OpenApiParameter("limit", int, description="Rows a page, 1 to 200; 50 by default.")

ORDER = OpenApiParameter(
    "order", str, enum=["-created_at", "created_at"], description="Newest or oldest first; the newest by default."
)


class Endpoint(APIView):
    """One route. Query parameters that it does not declare are an error, not a silently wrong answer."""

    query_parameters: frozenset[str] = frozenset()
    read_methods: frozenset[str] = frozenset(SAFE_METHODS)
    """The methods that change nothing and give nothing out to act with: any scope of a token opens them."""
    personal = False
    """Whether it changes the caller's own account alone: auditors may, too."""
    conditional = False
    """Whether PUT, PATCH and DELETE ask ``unchanged_since``; ``If-Match`` is refused elsewhere, rather than not kept."""
    settable: tuple[str, ...] = ()
    """Of what is shown, the members that PUT sets, where the others move by themselves: ``If-Match`` is about these."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate and authorise first, then look at the parameters."""
        super().initial(request, *args, **kwargs)
        unknown = sorted(set(request.query_params) - self.query_parameters)
        if unknown:
            raise BadRequest(f"There is no parameter “{unknown[0][:64]}” here.")
        if "If-Match" in request.headers and not self.conditional and request.method not in SAFE_METHODS:
            raise BadRequest("This route keeps no If-Match: it would be done whatever has changed meanwhile.")
        is_known(request.headers.get("If-None-Match", "*"), "")

    def finalize_response(  # type: ignore[override] # what passes here is not always DRF's own
        self, request: Request, response: HttpResponseBase, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """With the entity tag of what is shown; 304 for whoever has it already."""
        response = super().finalize_response(request, response, *args, **kwargs)  # type: ignore[arg-type]
        reading = request.method in {"GET", "HEAD"}
        shows = reading or (self.conditional and request.method in {"PUT", "PATCH"})
        if not isinstance(response, Response) or response.status_code != 200 or not shows:
            return response
        if response.has_header("Cache-Control"):
            return response
        form: str = response.accepted_renderer.format
        tag = entity_tag(response.data, settable=self.settable, form="" if form == "json" else form)
        response["ETag"] = tag
        wanted = request.headers.get("If-None-Match")
        if reading and wanted is not None and is_known(wanted[:4097], tag):
            headers = {name: response[name] for name in ("ETag", "Vary") if response.has_header(name)}
            return HttpResponse(status=304, headers=headers)
        return response

    @contextmanager
    def unchanged_since(self, request: Request, lock: Callable[[], object]) -> Iterator[None]:
        """What is done in here is done to what ``If-Match`` names, or not at all; without one it is done as things are.

        ``lock`` holds the resource still, as the service does. Raises ``ChangedMeanwhile`` (412), ``BadRequest``.
        """
        wanted = request.headers.get("If-Match")
        if wanted is None:
            yield
            return
        with transaction.atomic():
            lock()
            shown = self.get(request, **self.kwargs).data  # type: ignore[attr-defined]
            require_match(wanted, entity_tag(shown, settable=self.settable))
            yield

    def validated_body(
        self, request: Request, serializer_class: type[serializers.Serializer[Any]], *, partial: bool = False
    ) -> dict[str, Any]:
        """The checked body, without defaults for what it leaves out when ``partial``; no body says nothing of anything.

        Raises ``ValidationError`` that names the wrong members.
        """
        serializer = serializer_class(data=request.data, partial=partial)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)


def page_parameters(request: Request) -> tuple[str, int]:
    """The cursor and the size of the page that is asked for. Raises ``BadRequest``."""
    text = request.query_params.get("limit", str(PAGE))
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= 200):
        raise BadRequest("The limit is a number from 1 to 200.")
    return request.query_params.get("after", ""), int(text)


def choice_parameter(request: Request, name: str, choices: Collection[str]) -> str:
    """What the query says of ``name``, empty for nothing. Raises ``BadRequest`` that lists what there is."""
    said = request.query_params.get(name, "")
    if said and said not in choices:
        raise BadRequest(f"{name} is one of {', '.join(choices)}.")
    return said


def is_oldest_first(request: Request) -> bool:
    """What ``order`` says. Raises ``BadRequest``."""
    return choice_parameter(request, "order", ("-created_at", "created_at")) == "created_at"


def paginated_response(
    request: Request,
    rows: Sequence[Any] | Iterable[Model],
    serializer_class: type[serializers.Serializer[Any]],
    cursor: str = "",
) -> Response:
    """A page of a list; ``next`` is the address of the following one, ``null`` without a ``cursor``."""
    following = None
    if cursor:
        query = QueryDict(mutable=True)
        query.update(request.query_params)
        query["after"] = cursor
        following = request.build_absolute_uri(f"{request.path}?{query.urlencode()}")
    return Response({"results": serializer_class(rows, many=True).data, "next": following})


@cache
def page_schema(serializer_class: type[serializers.Serializer[Any]]) -> Any:
    """What ``paginated_response`` gives, for the OpenAPI document."""
    name = serializer_class.__name__.removesuffix("Serializer")
    fields = {"results": serializer_class(many=True), "next": serializers.URLField(allow_null=True)}
    return inline_serializer(f"{name}Page", fields)


def created_response(
    serializer_class: type[serializers.Serializer[Any]], instance: Model, location: str, *, accepted: bool = False
) -> Response:
    """201 with what was created and its address; 202 when it is only ``accepted`` and a worker is still busy with it."""
    status = 202 if accepted else 201
    return Response(serializer_class(instance).data, status=status, headers={"Location": location})


def secret_response(data: Any, *, status: int = 200) -> Response:
    """A response that no cache keeps."""
    return Response(data, status=status, headers={"Cache-Control": "no-store"})


def parse_uuid(text: str) -> UUID | None:
    """A UUID, or ``None`` for what is none: the caller answers 404."""
    try:
        return UUID(text)
    except ValueError:
        return None


def parse_timestamp(text: str) -> datetime | None:
    """A time with its zone, ``None`` for an empty text. Raises ``BadRequest``."""
    if not text:
        return None
    try:
        moment = parse_datetime(text)
        if moment is not None and moment.tzinfo is not None:
            # Zones can push the first and the last day of all beyond what a database holds.
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise BadRequest("Times are RFC 3339 with a zone, for example 2026-01-31T08:00:00Z.")
