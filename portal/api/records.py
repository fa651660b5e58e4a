"""Audit logs and access tokens."""

from __future__ import annotations

from datetime import UTC
from typing import Any
from uuid import UUID

from django.http import StreamingHttpResponse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from access.credentials import token_create, token_revoke
from access.credentials.tokens import token_of, tokens_of
from access.models import PersonalAccessToken
from audit.actions import Action
from audit.models import Outcome
from audit.selectors import Filters
from kube.status import BadRequest, Forbidden, NotFound
from portal.api import serializers as shapes
from portal.api.authentication import SessionAuthentication
from portal.api.endpoint import AFTER, LIMIT, Endpoint, listed, page, window
from portal.api.permissions import api_actor, require_tenant, require_unbound, token_tenant
from portal.auditing import entries_page, export_of, visible_chains
from tenants import selectors


class AuditLogs(Endpoint):
    """GW13."""

    filters = frozenset(
        {"after", "limit", "tenant", "action", "outcome", "actor", "workspace", "since", "until", "text"}
    )

    @extend_schema(
        operation_id="listAuditLogs",
        summary="List security events, newest first",
        description="Operators see every chain, admins of a tenant its own, everybody what they did themselves.",
        parameters=[
            AFTER,
            LIMIT,
            OpenApiParameter("tenant", str, description="The chain: a tenant's name, or `system`."),
            OpenApiParameter("action", str, enum=[action.value for action in Action]),
            OpenApiParameter("outcome", str, enum=Outcome.values),
            OpenApiParameter("actor", str, description="Who did it, by e-mail address."),
            OpenApiParameter("workspace", OpenApiTypes.UUID),
            OpenApiParameter("since", OpenApiTypes.DATETIME, description="Included."),
            OpenApiParameter("until", OpenApiTypes.DATETIME, description="Not included."),
            OpenApiParameter("text", str, description="Words in action, actor and target."),
        ],
        responses={200: listed(shapes.AuditAnswer)},
    )
    def get(self, request: Request) -> Response:
        """One page."""
        after, limit = window(request)
        actor = api_actor(request)
        query = request.query_params
        chain = query.get("tenant", "") or token_tenant(request)
        require_tenant(request, chain)
        workspace_id = None
        if query.get("workspace"):
            found = selectors.workspace_visible_to(actor, query["workspace"])
            require_tenant(request, found.tenant_id)
            workspace_id = found.pk
        outcome = query.get("outcome", "")
        if outcome and outcome not in Outcome.values:
            raise BadRequest(f"The outcome is one of {', '.join(Outcome.values)}.")
        filters = Filters(
            action=query.get("action", "")[:64],
            outcome=outcome,
            actor=query.get("actor", "")[:253],
            text=query.get("text", "")[:128],
            workspace_id=workspace_id,
            since=_moment(query.get("since", "")),
            until=_moment(query.get("until", "")),
        )
        found_page = entries_page(actor, filters, chain=chain, chains=visible_chains(actor), after=after, limit=limit)
        return page(request, found_page.rows, shapes.AuditAnswer, found_page.next)


class AuditExport(Endpoint):
    """A whole chain."""

    filters = frozenset({"tenant", "format"})

    @extend_schema(
        operation_id="exportAuditLogs",
        summary="Export a chain with its hashes",
        parameters=[
            OpenApiParameter("tenant", str, required=True),
            OpenApiParameter("format", str, enum=["jsonl", "csv"]),
        ],
        responses={
            (200, "application/jsonl"): OpenApiResponse(OpenApiTypes.STR),
            (200, "text/csv"): OpenApiResponse(OpenApiTypes.STR),
        },
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Streamed; an event itself."""
        chain = request.query_params.get("tenant", "") or token_tenant(request)
        require_tenant(request, chain)
        if not chain:
            raise BadRequest("Name the tenant.")
        return export_of(api_actor(request), chain, request.query_params.get("format", "jsonl"))


class Tokens(Endpoint):
    """My personal access tokens."""

    @extend_schema(operation_id="listTokens", summary="List my tokens", responses={200: listed(shapes.TokenAnswer)})
    def get(self, request: Request) -> Response:
        """Without their texts."""
        user: Any = request.user
        require_unbound(request)
        return page(request, tokens_of(user), shapes.TokenAnswer)

    @extend_schema(
        operation_id="createToken",
        summary="Create a token (with a session only)",
        description="A token cannot make another one: what leaks must end.",
        request=shapes.TokenBody,
        responses={201: shapes.MintedAnswer},
    )
    def post(self, request: Request) -> Response:
        """Shown once."""
        if not isinstance(request.successful_authenticator, SessionAuthentication):
            raise Forbidden("Tokens are made with a session, not with another token.")
        actor = api_actor(request)
        user: Any = request.user
        data = self.body(request, shapes.TokenBody)
        tenant = selectors.tenant_visible_to(actor, data["tenant"]) if data["tenant"] else None
        minted = token_create(
            actor=actor,
            user=user,
            name=data["name"],
            scope=PersonalAccessToken.Scope(data["scope"]),
            expires_at=data["expires_at"],
            now=timezone.now(),
            tenant=tenant,
        )
        response = Response({**shapes.TokenAnswer(minted.token).data, "token": minted.text}, status=201)
        response["Cache-Control"] = "no-store"
        return response


class OneToken(Endpoint):
    """One of them."""

    @extend_schema(operation_id="revokeToken", summary="Revoke a token", request=None, responses={204: None})
    def delete(self, request: Request, pk: UUID) -> Response:
        """At once. A token may end itself."""
        if token_tenant(request) and request.auth.pk != pk:
            raise NotFound("There is no such token.", kind="tokens")
        token_of(request.user, pk)  # type: ignore[arg-type]
        token_revoke(actor=api_actor(request), token_id=pk, now=timezone.now())
        return Response(status=204)


def _moment(text: str) -> Any:
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
