"""Where the caller is signed in (GW16)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api.accounts.serializers import EndedSessionsSerializer, SessionSerializer
from portal.api.endpoint import Endpoint, page_schema
from portal.api.permissions import api_actor, require_unbound
from portal.signin.sessions import session_end, sessions_end_others, sessions_of


class SessionList(Endpoint):
    """The caller's sessions in the portal."""

    @extend_schema(
        operation_id="listSessions", summary="List my sessions", responses={200: page_schema(SessionSerializer)}
    )
    def get(self, request: Request) -> Response:
        """The last used first."""
        require_unbound(request)
        user: Any = request.user
        rows = sessions_of(user, now=timezone.now())
        shown = SessionSerializer(rows, many=True, context={"key": _key(request)})
        return Response({"results": shown.data, "next": None})


class SessionDetail(Endpoint):
    """A session in the portal."""

    personal = True

    @extend_schema(operation_id="endSession", summary="End a session", request=None, responses={204: None})
    def delete(self, request: Request, pk: UUID) -> Response:
        """One's own, or that of a person whom one may change. Machines that were signed in from it are signed out too."""
        require_unbound(request)
        session_end(actor=api_actor(request), session_id=pk, now=timezone.now())
        return Response(status=204)


class SessionsEndOthers(Endpoint):
    """All of the caller's sessions but this one."""

    personal = True

    @extend_schema(
        operation_id="endOtherSessions",
        summary="End all my sessions but this one",
        description="With a token: all of them.",
        request=None,
        responses={200: EndedSessionsSerializer},
    )
    def post(self, request: Request) -> Response:
        """How many there were."""
        require_unbound(request)
        user: Any = request.user
        ended = sessions_end_others(actor=api_actor(request), user=user, keep=_key(request), now=timezone.now())
        return Response(EndedSessionsSerializer({"ended": ended}).data)


def _key(request: Request) -> str:
    """Of the session that asks; nothing for a token, even where a browser sends both."""
    return "" if request.auth is not None else str(request.session.session_key or "")
