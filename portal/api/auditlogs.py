"""The audit log, listed and exported (GW13), and the list of recorded sessions (GW21)."""

from __future__ import annotations

from typing import Final

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from audit.actions import Action
from audit.models import Outcome
from audit.selectors import Filters
from kube.requests.status import BadRequest
from portal.access.auditlog import entries_page, export_of, require_chain, visible_chains
from portal.api.endpoint import (
    AFTER,
    LIMIT,
    Endpoint,
    page_parameters,
    page_schema,
    paginated_response,
    parse_timestamp,
)
from portal.api.permissions import api_actor, require_tenant, token_tenant
from portal.api.serializers.auditlogs import AuditEntrySerializer, RecordingSerializer
from tenants import selectors
from tenants.recordings import recordings_page

_FILTERS: Final = (
    OpenApiParameter("tenant", str, description="The chain: a tenant's name, or `system`."),
    OpenApiParameter("action", str, enum=[action.value for action in Action]),
    OpenApiParameter("outcome", str, enum=Outcome.values),
    OpenApiParameter("actor", str, description="Who did it, by e-mail address."),
    OpenApiParameter("workspace", OpenApiTypes.UUID),
    OpenApiParameter("since", OpenApiTypes.DATETIME, description="Included."),
    OpenApiParameter("until", OpenApiTypes.DATETIME, description="Not included."),
    OpenApiParameter("text", str, description="Words in action, actor and target."),
)
_FILTER_NAMES: Final = frozenset(parameter.name for parameter in _FILTERS)


class AuditLogList(Endpoint):
    """The events that the caller may see."""

    query_parameters = _FILTER_NAMES | {"after", "limit"}

    @extend_schema(
        operation_id="listAuditLogs",
        summary="List security events, newest first",
        description="Operators see every chain, admins of a tenant its own, everybody what they did themselves.",
        parameters=[
            AFTER,
            LIMIT,
            *_FILTERS,
        ],
        responses={200: page_schema(AuditEntrySerializer)},
    )
    def get(self, request: Request) -> Response:
        """Raises ``BadRequest`` for a filter that cannot be read, ``NotFound``."""
        after, limit = page_parameters(request)
        actor = api_actor(request)
        chain, filters = _asked(request)
        found = entries_page(actor, filters, chain=chain, chains=visible_chains(actor), after=after, limit=limit)
        return paginated_response(request, found.rows, AuditEntrySerializer, found.next)


class AuditLogExport(Endpoint):
    """The same events as a file."""

    query_parameters = _FILTER_NAMES | {"format"}

    @extend_schema(
        operation_id="exportAuditLogs",
        summary="Export events with their hashes, oldest first",
        description="What the list shows under the same filters. A tenant's chain without other filters can be verified.",
        parameters=[*_FILTERS, OpenApiParameter("format", str, enum=["jsonl", "csv"])],
        responses={
            (200, "application/jsonl"): OpenApiResponse(OpenApiTypes.STR),
            (200, "text/csv"): OpenApiResponse(OpenApiTypes.STR),
        },
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Streamed, with their hashes; the export is an event itself. Raises ``BadRequest``, ``NotFound``, ``Forbidden``."""
        actor = api_actor(request)
        chains = visible_chains(actor)
        chain, filters = _asked(request)
        if request.query_params.get("tenant"):
            # A file of a tenant's name is its log, not what somebody did of it.
            require_chain(actor, chain, chains)
        form = request.query_params.get("format", "jsonl")
        return export_of(actor, filters, form, chain=chain, chains=chains)


class RecordingList(Endpoint):
    """The recorded sessions in pods that the caller may see."""

    query_parameters = frozenset({"tenant", "after", "limit"})

    @extend_schema(
        operation_id="listRecordings",
        summary="List recorded sessions in pods, newest first",
        description="Operators see all, admins of a tenant its own. `sha256` is that of the file that the portal plays and "
        "gives away, as the event of its end in the audit log names it; while a session goes on `ended_at` is null.",
        parameters=[AFTER, LIMIT, OpenApiParameter("tenant", str)],
        responses={200: page_schema(RecordingSerializer)},
    )
    def get(self, request: Request) -> Response:
        """Raises ``BadRequest``, ``NotFound``."""
        after, limit = page_parameters(request)
        tenant = request.query_params.get("tenant", "") or token_tenant(request)
        require_tenant(request, tenant)
        rows, cursor = recordings_page(api_actor(request), tenant=tenant, after=after, limit=limit)
        return paginated_response(request, rows, RecordingSerializer, cursor)


def _asked(request: Request) -> tuple[str, Filters]:
    """The chain (empty: all that the caller sees) and the filters. Raises ``BadRequest``, ``NotFound``."""
    query = request.query_params
    chain = query.get("tenant", "") or token_tenant(request)
    require_tenant(request, chain)
    workspace_id = None
    if query.get("workspace"):
        found = selectors.workspace_visible_to(api_actor(request), query["workspace"])
        require_tenant(request, found.tenant_id)
        workspace_id = found.pk
    outcome = query.get("outcome", "")
    if outcome and outcome not in Outcome.values:
        raise BadRequest(f"The outcome is one of {', '.join(Outcome.values)}.")
    return chain, Filters(
        action=query.get("action", "")[:64],
        outcome=outcome,
        actor=query.get("actor", "")[:253],
        text=query.get("text", "")[:128],
        workspace_id=workspace_id,
        since=parse_timestamp(query.get("since", "")),
        until=parse_timestamp(query.get("until", "")),
    )
