"""Accounts (GW8): read by operators and auditors, changed by operators."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from audit.selectors import page_of
from portal.api.accounts.serializers import (
    CreatedResetSerializer,
    EndedSerializer,
    ResetRequest,
    SessionSerializer,
    UserChangeRequest,
    UserCreateRequest,
    UserDetailSerializer,
    UserSerializer,
)
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
    secret_response,
)
from portal.api.permissions import api_operator, api_overseer
from portal.signin import accounts, factors, resets
from portal.signin.ranks import person_below, person_named
from portal.signin.sessions import sessions_of
from tenants.models import User

_NAMES = {"operator": "is_staff", "auditor": "is_auditor"}


class UserList(Endpoint):
    """The accounts of people."""

    query_parameters = frozenset({"search", "status", "operator", "auditor", "order", "after", "limit"})

    @extend_schema(
        operation_id="listUsers",
        summary="List accounts, newest first (operators, auditors)",
        parameters=[
            OpenApiParameter("search", str, description="Any part of a name or an address."),
            OpenApiParameter("status", str, enum=User.Status.values),
            OpenApiParameter("operator", bool, description="Only operators, or only others."),
            OpenApiParameter("auditor", bool, description="Only auditors, or only others."),
            ORDER,
            AFTER,
            LIMIT,
        ],
        responses={200: page_schema(UserSerializer)},
    )
    def get(self, request: Request) -> Response:
        """With what they are on the platform."""
        api_overseer(request)
        after, limit = page_parameters(request)
        words, rows = request.query_params.get("search", "")[:128], User.objects.all()
        if words:
            rows = rows.filter(Q(email__icontains=words) | Q(name__icontains=words))
        if status := choice_parameter(request, "status", User.Status.values):
            rows = rows.filter(status=status)
        for name, field in _NAMES.items():
            if said := choice_parameter(request, name, ("true", "false")):
                rows = rows.filter(**{field: said == "true"})
        page = page_of(rows, after, limit, oldest_first=is_oldest_first(request))
        return paginated_response(request, page.rows, UserSerializer, page.next)

    @extend_schema(
        operation_id="createUser",
        summary="Create an account (operators)",
        request=UserCreateRequest,
        responses={201: UserSerializer},
    )
    def post(self, request: Request) -> Response:
        """One code path with pages and the console."""
        actor = api_operator(request)
        made = accounts.user_create(actor=actor, **_named(self.validated_body(request, UserCreateRequest)))
        return created_response(UserSerializer, made, f"/api/v1/users/{made.pk}/")


class UserDetail(Endpoint):
    """A person's account."""

    conditional = True
    settable = ("name", "status", "operator", "auditor", "superuser", "password_given")

    @extend_schema(
        operation_id="getUser", summary="Read an account (operators, auditors)", responses={200: UserDetailSerializer}
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """With the memberships. 404 for nobody."""
        return Response(UserDetailSerializer(person_named(api_overseer(request), pk)).data)

    @extend_schema(
        operation_id="changeUser",
        summary="Change name, status or rights of an account (operators)",
        request=UserChangeRequest,
        responses={200: UserDetailSerializer},
    )
    def patch(self, request: Request, pk: UUID) -> Response:
        """Superusers by superusers alone; nobody their own rights."""
        actor = api_operator(request)
        changes = _named(self.validated_body(request, UserChangeRequest, partial=True))
        with self.unchanged_since(request, lambda: person_below(actor, pk)):
            changed = accounts.user_change(actor=actor, user_id=pk, **changes)
        return Response(UserDetailSerializer(changed).data)


class UserReset(Endpoint):
    """A new password for somebody else."""

    @extend_schema(
        operation_id="resetPassword",
        summary="Let somebody set a new password (operators)",
        description="The link or password is shown this once: only a digest is kept.",
        request=ResetRequest,
        responses={201: CreatedResetSerializer},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """A link leaves the present password alone until it is used; a given password takes its place at once."""
        actor, now = api_operator(request), timezone.now()
        shown: dict[str, Any] = {"link": "", "password": "", "expires_at": None}
        said = self.validated_body(request, ResetRequest)
        how: dict[str, Any] = {"user_id": pk, "now": now, "keep_factors": said["keep_factors"]}
        if said["way"] == "password":
            shown["password"] = resets.password_give(actor=actor, **how)
        else:
            made = resets.password_link_create(actor=actor, **how)
            shown["link"] = request.build_absolute_uri(reverse("reset-by", args=[made.secret]))
            shown["expires_at"] = made.reset.expires_at
        return secret_response(CreatedResetSerializer(shown).data, status=201)


class UserEndAccess(Endpoint):
    """The end of all that opens anything for somebody."""

    @extend_schema(
        operation_id="endAccess",
        summary="End all access of a person (operators)",
        description="Disables the account and ends sessions, machines signed in for kubectl, tokens, credentials, links.",
        request=None,
        responses={200: EndedSerializer},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """A receipt of what was ended; again is fine."""
        ended, entry = accounts.access_end(actor=api_operator(request), user_id=pk)
        return Response(EndedSerializer({**asdict(ended), "audit_entry": entry}).data)


class UserSecondFactor(Endpoint):
    """The second factor of somebody who has lost it."""

    @extend_schema(
        operation_id="removeSecondFactor",
        summary="Remove somebody's second factor (operators)",
        request=None,
        responses={204: None},
    )
    def delete(self, request: Request, pk: UUID) -> Response:
        """The password alone opens the account then."""
        factors.factor_remove(actor=api_operator(request), user_id=pk)
        return Response(status=204)


class UserSessions(Endpoint):
    """Where somebody is signed in."""

    @extend_schema(
        operation_id="listUserSessions",
        summary="List a person's sessions (operators, auditors)",
        responses={200: page_schema(SessionSerializer)},
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """The last used first."""
        person = person_named(api_overseer(request), pk)
        return paginated_response(request, sessions_of(person, now=timezone.now()), SessionSerializer)


def _named(said: dict[str, Any]) -> dict[str, Any]:
    return {_NAMES.get(name, name): value for name, value in said.items()}
