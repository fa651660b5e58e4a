"""Operations as resources, to be followed and hurried; and who is asking."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from kube.requests.status import BadRequest, NotFound
from portal.api.endpoint import (
    AFTER,
    LIMIT,
    ORDER,
    Endpoint,
    choice_parameter,
    is_oldest_first,
    page_parameters,
    page_schema,
    paginated_response,
    parse_uuid,
)
from portal.api.permissions import api_actor, api_operator, require_tenant, token_tenant
from portal.api.serializers.operations import AbandonRequest, MeSerializer, OperationSerializer
from portal.api.serializers.workspaces import WorkspaceSerializer
from tenants import selectors, services
from tenants.models import Operation, OperationState

TENANT = OpenApiParameter("tenant", str, description="Of this tenant only.")
WORKSPACE = OpenApiParameter("workspace", OpenApiTypes.UUID, description="Of this workspace only.")
STATE = OpenApiParameter("state", str, enum=OperationState.values)
WAITING = OpenApiParameter("waiting", bool, description="Only those that were tried in vain and have not ended.")


class Me(Endpoint):
    """Who is asking, and what they may."""

    @extend_schema(operation_id="getMe", summary="Who is asking, and what they may", responses={200: MeSerializer})
    def get(self, request: Request) -> Response:
        """By session or token; a token for one tenant knows of that one only."""
        user: Any = request.user
        memberships = user.memberships.order_by("tenant_id")
        if token_tenant(request):
            memberships = memberships.filter(tenant_id=token_tenant(request))
        found = {
            "id": user.pk,
            "email": user.email,
            "name": user.name,
            "operator": api_actor(request).operator,
            "scope": getattr(request.auth, "scope", "") or "",
            "tenant": token_tenant(request),
            "memberships": memberships,
        }
        return Response(MeSerializer(found).data)


class OperationList(Endpoint):
    """What workers were asked to do."""

    query_parameters = frozenset({"tenant", "workspace", "state", "waiting", "order", "after", "limit"})

    @extend_schema(
        operation_id="listOperations",
        summary="List operations, newest first",
        parameters=[TENANT, WORKSPACE, STATE, WAITING, ORDER, AFTER, LIMIT],
        responses={200: page_schema(OperationSerializer)},
    )
    def get(self, request: Request) -> Response:
        """Those of the caller's tenants; operators see all."""
        tenant = request.query_params.get("tenant", "") or token_tenant(request)
        require_tenant(request, tenant)
        waiting = request.query_params.get("waiting", "false")
        if waiting not in ("true", "false"):
            raise BadRequest("waiting is true or false.")
        after, limit = page_parameters(request)
        workspace = request.query_params.get("workspace", "")
        if workspace and parse_uuid(workspace) is None:
            raise BadRequest("workspace is the ID of one.")
        page = selectors.operations_page(
            api_actor(request),
            tenant=tenant,
            workspace=parse_uuid(workspace),
            state=choice_parameter(request, "state", OperationState.values),
            waiting=waiting == "true",
            after=after,
            limit=limit,
            oldest_first=is_oldest_first(request),
        )
        return paginated_response(request, page.rows, OperationSerializer, page.next)


class OperationDetail(Endpoint):
    """An operation of a worker, and how far it is."""

    @extend_schema(operation_id="getOperation", summary="Read an operation", responses={200: OperationSerializer})
    def get(self, request: Request, pk: str) -> Response:
        """To be asked again until ``state`` is ``done``, ``failed`` or ``superseded``."""
        return Response(OperationSerializer(_visible(request, pk)).data)


class OperationRetry(Endpoint):
    """An operation that waits for another attempt."""

    @extend_schema(
        operation_id="retryOperation",
        summary="Try an operation again now",
        request=None,
        responses={202: OperationSerializer},
    )
    def post(self, request: Request, pk: str) -> Response:
        """By the workspace's own user, admins of the tenant, operators; 409 for one that has ended."""
        found = _visible(request, pk)
        retried = services.operation_retry(actor=api_actor(request), operation_id=found.pk)
        return Response(OperationSerializer(retried).data, status=202)


class WorkspaceAbandon(Endpoint):
    """A workspace that cannot be deleted, for its cluster is gone."""

    @extend_schema(
        operation_id="abandonWorkspace",
        summary="Give up a workspace whose cluster is gone (operators)",
        request=AbandonRequest,
        responses={200: WorkspaceSerializer},
    )
    def post(self, request: Request, pk: str) -> Response:
        """Nothing is done on the cluster; 409 unless it is being deleted and the cluster does not answer."""
        actor = api_operator(request)
        body = self.validated_body(request, AbandonRequest)
        found = selectors.workspace_visible_to(actor, pk)
        return Response(
            WorkspaceSerializer(services.workspace_abandon(actor=actor, workspace_id=found.pk, **body)).data
        )


def _visible(request: Request, pk: str) -> Operation:
    found = selectors.operation_visible_to(api_actor(request), parse_uuid(pk))
    try:
        require_tenant(request, found.workspace.tenant_id)
    except NotFound:
        raise NotFound("There is no such operation.", kind="operations") from None
    return found
