"""Workspaces and their credentials (GW3, GW5, GW6, GW7)."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.db import transaction
from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from access.credentials import IssuedKubeconfig, credential_revoke, kubeconfig_issue
from access.credentials.selectors import credential_visible_to, credentials_of_workspace
from kube.requests.status import Conflict, Forbidden, Invalid, NotFound
from portal.api.authentication import SessionAuthentication
from portal.api.endpoint import (
    AFTER,
    LIMIT,
    ORDER,
    Endpoint,
    choice_parameter,
    created_response,
    is_oldest_first,
    page_parameters,
    page_schema,
    paginated_response,
    parse_uuid,
    secret_response,
)
from portal.api.permissions import api_actor, api_operator, require_tenant, token_tenant
from portal.api.serializers.base import SuspendRequest
from portal.api.serializers.workspaces import (
    CredentialCreateRequest,
    CredentialSerializer,
    IssuedKubeconfigSerializer,
    WorkspaceChangeRequest,
    WorkspaceCreateRequest,
    WorkspaceInitSerializer,
    WorkspaceSerializer,
)
from portal.database.connections import give_back
from portal.pages import labels
from tenants import selectors, services
from tenants.models import Status, Workspace
from tenants.services.workspaces import workspace_locked

_KEY = OpenApiParameter(
    "Idempotency-Key", str, OpenApiParameter.HEADER, description="The same key again gives the same workspace."
)
_POLLS = (0.05, 0.1, 0.15, 0.2, 0.25)


class WorkspaceInit(Endpoint):
    """A workspace for whoever asks, in one request (GW6)."""

    @extend_schema(
        operation_id="initWorkspace",
        summary="Ask for a workspace and wait for it",
        description="Idempotent: the same name, tier or Idempotency-Key again gives the same workspace. "
        "Answers 202 with a Location when the worker needs longer.",
        parameters=[_KEY],
        request=WorkspaceCreateRequest,
        responses={201: WorkspaceInitSerializer, 202: WorkspaceInitSerializer},
    )
    def post(self, request: Request) -> Response:
        """Waits up to ``WORKSPACE_INIT_WAIT`` for the worker."""
        return _created(self, request, WorkspaceInitSerializer)


class WorkspaceList(Endpoint):
    """The workspaces that the caller may see."""

    query_parameters = frozenset({"after", "limit", "order", "tenant", "status", "search", "tier", "cluster"})

    @extend_schema(
        operation_id="listWorkspaces",
        summary="List workspaces, newest first",
        parameters=[
            AFTER,
            LIMIT,
            ORDER,
            OpenApiParameter("tenant", str, description="Of this tenant only."),
            OpenApiParameter("tier", str, description="Of this tier only."),
            OpenApiParameter("cluster", str, description="On this cluster only."),
            OpenApiParameter("status", str, enum=["active", "suspended"]),
            OpenApiParameter(
                "search", str, description="Any part of a name, of a namespace's or a person's name, or a whole UID."
            ),
        ],
        responses={200: page_schema(WorkspaceSerializer)},
    )
    def get(self, request: Request) -> Response:
        """Of the tenants that the caller belongs to; operators see all."""
        after, limit = page_parameters(request)
        query = request.query_params
        status = choice_parameter(request, "status", (Status.ACTIVE, Status.SUSPENDED))
        tenant = query.get("tenant", "") or token_tenant(request)
        require_tenant(request, tenant)
        found = selectors.workspaces_page(
            api_actor(request),
            tenant=tenant,
            status=status,
            search=query.get("search", ""),
            tier=query.get("tier", "")[:63],
            cluster=query.get("cluster", "")[:63],
            after=after,
            limit=limit,
            oldest_first=is_oldest_first(request),
        )
        return paginated_response(request, found.rows, WorkspaceSerializer, found.next)

    @extend_schema(
        operation_id="createWorkspace",
        summary="Ask for a workspace by name",
        parameters=[_KEY],
        request=WorkspaceCreateRequest,
        responses={201: WorkspaceSerializer, 202: WorkspaceSerializer},
    )
    def post(self, request: Request) -> Response:
        """The same service as ``init``."""
        return _created(self, request, WorkspaceSerializer)


class WorkspaceDetail(Endpoint):
    """A workspace of a tenant that the caller may see."""

    conditional = True

    @extend_schema(operation_id="getWorkspace", summary="Read a workspace", responses={200: WorkspaceSerializer})
    def get(self, request: Request, pk: str) -> Response:
        """With its status and receipt."""
        return Response(WorkspaceSerializer(_visible(request, pk)).data)

    @extend_schema(
        operation_id="changeWorkspace",
        summary="Give a workspace another tier, or another end",
        description="A worker sets the new quota. At its end a workspace is suspended and kept; another end, or none, "
        "opens one again that has ended so.",
        request=WorkspaceChangeRequest,
        responses={200: WorkspaceSerializer},
    )
    def patch(self, request: Request, pk: str) -> Response:
        """Both or one of them."""
        found, actor = _visible(request, pk), api_actor(request)
        wanted = self.validated_body(request, WorkspaceChangeRequest)
        with self.unchanged_since(request, lambda: workspace_locked(actor, found.pk)), transaction.atomic():
            if "expires_at" in wanted:
                services.workspace_end_at(
                    actor=actor, workspace_id=found.pk, expires_at=wanted["expires_at"], now=timezone.now()
                )
            if "tier" in wanted:
                services.workspace_change_tier(actor=actor, workspace_id=found.pk, tier=wanted["tier"])
        return self.get(request, pk)

    @extend_schema(
        operation_id="deleteWorkspace",
        summary="Delete a workspace and everything in it",
        request=None,
        responses={202: WorkspaceSerializer},
    )
    def delete(self, request: Request, pk: str) -> Response:
        """Closed at once; a worker does the rest, and the operation at ``Location`` says how far it is."""
        found, actor = _visible(request, pk), api_actor(request)
        with self.unchanged_since(request, lambda: workspace_locked(actor, found.pk)):
            deleted = services.workspace_delete(actor=actor, workspace_id=found.pk)
        operation = deleted.operations.latest("generation")
        location = reverse("api-operation", args=[operation.pk])
        return Response(WorkspaceSerializer(deleted).data, status=202, headers={"Location": location})


class WorkspaceSuspend(Endpoint):
    """The kill switch (GW5)."""

    @extend_schema(
        operation_id="suspendWorkspace",
        summary="Close a workspace (operators)",
        description="Refused everywhere from this moment on; `receipt` grows as the cluster confirms each layer, and "
        "says what goes on. With `stop` the pods end as well. Again: what waits for another attempt is tried at once.",
        request=SuspendRequest,
        responses={200: WorkspaceSerializer},
    )
    def post(self, request: Request, pk: str) -> Response:
        """Refused by portal and API server when this returns; the cluster follows, and ``receipt`` says how far."""
        found = _visible(request, pk)
        actor = api_operator(request)
        wanted = self.validated_body(request, SuspendRequest)
        closed = services.workspace_suspend(actor=actor, workspace_id=found.pk, **wanted)
        return Response(WorkspaceSerializer(closed).data)


class WorkspaceResume(Endpoint):
    """Open a workspace again."""

    @extend_schema(
        operation_id="resumeWorkspace",
        summary="Open a workspace again (operators)",
        request=None,
        responses={200: WorkspaceSerializer},
    )
    def post(self, request: Request, pk: str) -> Response:
        """Credentials from before stay dead."""
        found = _visible(request, pk)
        opened = services.workspace_resume(actor=api_operator(request), workspace_id=found.pk)
        return Response(WorkspaceSerializer(opened).data)


class CredentialList(Endpoint):
    """A workspace's credentials."""

    @extend_schema(
        operation_id="listCredentials",
        summary="Who was issued what, newest first",
        responses={200: page_schema(CredentialSerializer)},
    )
    def get(self, request: Request, pk: str) -> Response:
        """The last two hundred; admins see all, others their own."""
        rows = credentials_of_workspace(api_actor(request), _visible(request, pk), limit=200)
        return paginated_response(request, rows, CredentialSerializer)


class CredentialCreate(Endpoint):
    """A kubeconfig, by any of the cluster's ways."""

    @extend_schema(
        operation_id="issueKubeconfig",
        summary="Issue a kubeconfig, for two hours at most or without a secret",
        description="A token is recorded before it is asked for, shown once, stored nowhere. With `via` `exec` there is "
        "none: `tenantry-login` signs in by the browser, and the file may be kept.",
        request=CredentialCreateRequest,
        responses={201: IssuedKubeconfigSerializer},
    )
    def post(self, request: Request, pk: str) -> Response:
        """With the rights that are asked for, at most the caller's own."""
        found = _visible(request, pk)
        wanted = self.validated_body(request, CredentialCreateRequest)
        issued = kubeconfig_issue(actor=api_actor(request), workspace_id=found.pk, **wanted, now=timezone.now())
        return secret_response(IssuedKubeconfigSerializer(issued).data, status=201)


class CredentialRevoke(Endpoint):
    """End one credential before its time."""

    @extend_schema(
        operation_id="revokeCredential",
        summary="Revoke one credential",
        request=None,
        responses={200: CredentialSerializer},
    )
    def post(self, request: Request, pk: str, jti: str) -> Response:
        """``revocation_confirmed_at`` follows when the cluster has shown it."""
        actor = api_actor(request)
        found = _visible(request, pk)
        if credential_visible_to(actor, jti).workspace_id != found.pk:
            raise NotFound("There is no such credential.", kind="credentials")
        return Response(CredentialSerializer(credential_revoke(actor=actor, jti=jti, now=timezone.now())).data)


class KubeconfigDownload(Endpoint):
    """A GET that issues (GW7): never by a bare cookie, which an image on another site would send too."""

    query_parameters = frozenset({"workspace"})
    # Fetching it issues a credential with all rights of its owner.
    read_methods = frozenset({"HEAD", "OPTIONS"})

    @extend_schema(
        operation_id="getKubeconfig",
        summary="Issue a kubeconfig as YAML",
        description="By what the cluster recommends. Needs an Authorization header, or a session and "
        "`X-Requested-With`. Without `workspace` the caller's only one is meant.",
        parameters=[OpenApiParameter("workspace", OpenApiTypes.UUID)],
        responses={(200, "application/x-yaml"): OpenApiResponse(OpenApiTypes.STR, description="A kubeconfig.")},
    )
    def get(self, request: Request) -> HttpResponse:
        """A file to save, which no cache keeps."""
        by_cookie = isinstance(request.successful_authenticator, SessionAuthentication)
        if by_cookie and "X-Requested-With" not in request.headers:
            raise Forbidden("This needs an Authorization header, or X-Requested-With with a session.")
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"} and by_cookie:
            raise Forbidden("Kubeconfigs are not issued to other sites.")
        found = _workspace_of_query(request)
        issued = kubeconfig_issue(actor=api_actor(request), workspace_id=found.pk, now=timezone.now())
        return _kubeconfig_file(issued, found)

    def head(self, request: Request) -> HttpResponse:
        """204, without looking anything up: a kubeconfig is issued to GET alone."""
        return HttpResponse(status=204)


def _created(endpoint: Endpoint, request: Request, serializer_class: type[WorkspaceSerializer]) -> Response:
    """The workspace of a checked body, once its worker is done or as it is after the bound."""
    data = endpoint.validated_body(request, WorkspaceCreateRequest)
    tenant = data["tenant"] or token_tenant(request)
    require_tenant(request, tenant)
    user: Any = request.user
    key = request.headers.get("Idempotency-Key", "")
    if len(key) > 128 or not key.isprintable():
        raise Invalid("The Idempotency-Key is at most 128 printable characters.", kind="Workspace")
    made = services.workspace_init(
        actor=api_actor(request),
        user=user,
        tier=data["tier"],
        tenant=tenant,
        name=data["name"],
        cluster=data["cluster"],
        idempotency_key=key,
    )
    workspace = _waited_for(made)
    location = reverse("api-workspace", args=[workspace.pk])
    return created_response(serializer_class, workspace, location, accepted=labels.workspace_is_moving(workspace))


def _waited_for(workspace: Workspace) -> Workspace:
    """The workspace once its worker is done, or as it is after the bound; nothing of the database is held between looks."""
    until = time.monotonic() + settings.WORKSPACE_INIT_WAIT
    polls = iter(_POLLS)
    pause = 0.0
    while labels.workspace_is_moving(workspace) and workspace.status == Status.ACTIVE and time.monotonic() < until:
        pause = next(polls, pause)
        give_back()
        time.sleep(min(pause, max(0.0, until - time.monotonic())))
        workspace.refresh_from_db(fields=["status", "phase", "ready_at", "observed_generation"])
    return workspace


def _visible(request: Request, pk: str) -> Workspace:
    found = selectors.workspace_visible_to(api_actor(request), parse_uuid(pk) or pk)
    require_tenant(request, found.tenant_id)
    return found


def _workspace_of_query(request: Request) -> Workspace:
    pk = request.query_params.get("workspace", "")
    if pk:
        return _visible(request, pk)
    mine = selectors.workspaces_visible_to(api_actor(request)).exclude(status=Status.DELETED)
    mine = mine.filter(user_id=request.user.pk)  # type: ignore[misc]
    bound = token_tenant(request)
    found = list((mine.filter(tenant_id=bound) if bound else mine).order_by("-created_at", "-id")[:2])
    if not found:
        raise NotFound("You have no workspace yet; POST /api/v1/workspaces/init makes one.", kind="workspaces")
    if len(found) > 1:
        raise Conflict("You have several workspaces; name one with ?workspace=<id>.", kind="workspaces")
    return found[0]


def _kubeconfig_file(issued: IssuedKubeconfig, workspace: Workspace) -> HttpResponse:
    response = HttpResponse(issued.yaml, content_type="application/x-yaml")
    response["Cache-Control"] = "no-store"
    response["Content-Disposition"] = f'attachment; filename="{workspace.tenant_id}-{workspace.name}.kubeconfig"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
