"""Personal access tokens."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from access.credentials import token_create, token_revoke
from access.credentials.tokens import token_of, tokens_of
from access.models import PersonalAccessToken
from kube.requests.status import Forbidden, NotFound
from portal.api.authentication import SessionAuthentication
from portal.api.endpoint import (
    Endpoint,
    page_schema,
    paginated_response,
    secret_response,
)
from portal.api.permissions import api_actor, require_unbound, token_tenant
from portal.api.serializers.tokens import CreatedTokenSerializer, TokenCreateRequest, TokenSerializer
from portal.signin.proofs import MINUTES, require_recent
from tenants import selectors


class TokenList(Endpoint):
    """My personal access tokens."""

    personal = True

    @extend_schema(operation_id="listTokens", summary="List my tokens", responses={200: page_schema(TokenSerializer)})
    def get(self, request: Request) -> Response:
        """Without their texts."""
        user: Any = request.user
        require_unbound(request)
        return paginated_response(request, tokens_of(user), TokenSerializer)

    @extend_schema(
        operation_id="createToken",
        summary="Create a token (with a session only)",
        description="A token cannot make another one: what leaks must end. Nor can a session whose sign-in was more than "
        f"{MINUTES} minutes ago.",
        request=TokenCreateRequest,
        responses={201: CreatedTokenSerializer},
    )
    def post(self, request: Request) -> Response:
        """The answer holds the token, which is shown this once.

        Raises ``Forbidden`` unless asked with a session, soon after its sign-in.
        """
        if not isinstance(request.successful_authenticator, SessionAuthentication):
            raise Forbidden("Tokens are made with a session, not with another token.")
        require_recent(request)
        actor = api_actor(request)
        user: Any = request.user
        data = self.validated_body(request, TokenCreateRequest)
        tenant = selectors.tenant_visible_to(actor, data["tenant"]) if data["tenant"] else None
        created = token_create(
            actor=actor,
            user=user,
            name=data["name"],
            scope=PersonalAccessToken.Scope(data["scope"]),
            expires_at=data["expires_at"],
            now=timezone.now(),
            tenant=tenant,
        )
        return secret_response({**TokenSerializer(created.token).data, "token": created.text}, status=201)


class TokenDetail(Endpoint):
    """A personal access token."""

    personal = True

    @extend_schema(operation_id="revokeToken", summary="Revoke a token", request=None, responses={204: None})
    def delete(self, request: Request, pk: UUID) -> Response:
        """At once. A token may end itself."""
        if token_tenant(request) and request.auth.pk != pk:
            raise NotFound("There is no such token.", kind="tokens")
        token_of(request.user, pk)  # type: ignore[arg-type]
        token_revoke(actor=api_actor(request), token_id=pk, now=timezone.now())
        return Response(status=204)
