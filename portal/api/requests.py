"""Requests of people to people, and what waits for a person (GW25)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kube.requests.status import BadRequest, NotFound
from portal.api.endpoint import (
    AFTER,
    LIMIT,
    Endpoint,
    choice_parameter,
    created_response,
    page_parameters,
    page_schema,
    paginated_response,
)
from portal.api.permissions import api_actor, api_overseer, require_tenant, require_unbound, token_tenant
from portal.api.serializers.base import RequestSerializer
from portal.database.scopes import everything
from portal.pages.inbox import inbox_of
from tenants.models import AccessRequest, Approval, Postponement, RequestComment, RequestKind, RequestState, Role
from tenants.requests.selectors import request_visible_to, requests_page
from tenants.services.memberships import BREAK_GLASS_MINUTES, BREAK_GLASS_MINUTES_MAX
from tenants.services.requests import (
    RequestDraft,
    request_approve,
    request_comment,
    request_create,
    request_deny,
    request_withdraw,
)

TENANT = OpenApiParameter("tenant", str, description="About this tenant only.")
STATE = OpenApiParameter("state", str, enum=RequestState.values, description="Only those that are in this state.")
POSTPONED = OpenApiParameter("postponed", bool, description="What is put off instead (operators and auditors).")
MINE = OpenApiParameter("mine", bool, description="Only those that the caller has made.")


class RequestCreateRequest(RequestSerializer):
    """What is asked for, and why; `kind` says which of the other fields matter."""

    kind = serializers.ChoiceField(choices=RequestKind.choices)
    reason = serializers.CharField(max_length=1024)
    tenant = serializers.CharField(
        max_length=63, required=False, default="", help_text="Its name; for `tenant` that of the new one."
    )
    display_name = serializers.CharField(max_length=128, required=False, default="", help_text="Of a new tenant.")
    workspace = serializers.UUIDField(required=False, allow_null=True, default=None, help_text="For `tier`.")
    tier = serializers.CharField(max_length=63, required=False, default="", help_text="For `tier`.")
    role = serializers.ChoiceField(
        choices=Role.choices, required=False, default="", allow_blank=True, help_text="For `role` and `break-glass`."
    )
    hard = serializers.DictField(
        child=serializers.CharField(max_length=40),
        required=False,
        default=dict,
        help_text="For `quota`: what is to be more.",
    )
    minutes = serializers.IntegerField(
        min_value=1,
        max_value=BREAK_GLASS_MINUTES_MAX,
        required=False,
        default=BREAK_GLASS_MINUTES,
        help_text="For `break-glass`, from the approval on.",
    )


class ApproveRequest(RequestSerializer):
    """A word with the yes."""

    answer = serializers.CharField(max_length=512, required=False, default="", allow_blank=True)


class DenyRequest(RequestSerializer):
    """Why a request is denied; whoever asked reads it."""

    answer = serializers.CharField(max_length=512)


class CommentRequest(RequestSerializer):
    """Something to say about a request."""

    text = serializers.CharField(max_length=2048)


class CommentSerializer(serializers.ModelSerializer[RequestComment]):
    """What was said, by whom."""

    class Meta:
        model = RequestComment
        fields = ("author", "text", "created_at")
        read_only_fields = fields


class AccessRequestSerializer(serializers.ModelSerializer[AccessRequest]):
    """A request, and what has become of it."""

    kind = serializers.ChoiceField(choices=RequestKind.choices)
    state = serializers.ChoiceField(choices=RequestState.choices)
    approvers = serializers.ChoiceField(choices=Approval.choices)
    asked_by = serializers.EmailField(source="asked_by.email")
    asked_by_proven = serializers.SerializerMethodField(
        help_text="Whether anybody has shown that the address is theirs; otherwise it may be somebody else who asks."
    )
    tenant = serializers.SerializerMethodField()
    workspace = serializers.UUIDField(source="workspace_id", allow_null=True)
    tier = serializers.CharField(source="tier_id", allow_null=True)
    role = serializers.CharField()
    hard = serializers.DictField(child=serializers.CharField())

    class Meta:
        model = AccessRequest
        fields = (
            "id",
            "kind",
            "state",
            "approvers",
            "asked_by",
            "asked_by_proven",
            "tenant",
            "display_name",
            "workspace",
            "tier",
            "role",
            "hard",
            "minutes",
            "reason",
            "answer",
            "decided_by",
            "decided_at",
            "created_at",
            "expires_at",
        )
        read_only_fields = fields

    def get_asked_by_proven(self, found: AccessRequest) -> bool:
        """As the page warns whoever decides."""
        return not found.asked_by.address_unproven

    def get_tenant(self, found: AccessRequest) -> str:
        """By the name that was asked about, whether there is one or not."""
        return found.tenant_id or found.name


class AccessRequestDetailSerializer(AccessRequestSerializer):
    """The same with what was said."""

    comments = CommentSerializer(many=True)

    class Meta(AccessRequestSerializer.Meta):
        fields = (*AccessRequestSerializer.Meta.fields, "comments")  # type: ignore[assignment]
        read_only_fields = fields  # type: ignore[assignment]


class PostponementSerializer(serializers.ModelSerializer[Postponement]):
    """Until when operators have put a row off, and why."""

    class Meta:
        model = Postponement
        fields = ("reason", "until", "postponed_by", "postponed_at")
        read_only_fields = fields


class InboxLineSerializer(serializers.Serializer[Any]):
    """One thing that waits, and the page where it is done."""

    name = serializers.CharField(help_text="What it is known by among its kind.")
    title = serializers.CharField()
    text = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)
    url = serializers.CharField()
    postponed = PostponementSerializer(allow_null=True)


class InboxGroupSerializer(serializers.Serializer[Any]):
    """Things of one kind: all there are, and the oldest of them."""

    kind = serializers.CharField(source="key")
    title = serializers.CharField()
    headline = serializers.CharField()
    count = serializers.IntegerField()
    lines = InboxLineSerializer(many=True)


class RequestList(Endpoint):
    """What people have asked for."""

    query_parameters = frozenset({"tenant", "state", "mine", "after", "limit"})

    @extend_schema(
        operation_id="listRequests",
        summary="List requests, newest first",
        parameters=[MINE, STATE, TENANT, AFTER, LIMIT],
        responses={200: page_schema(AccessRequestSerializer)},
    )
    def get(self, request: Request) -> Response:
        """The caller's own, and those about tenants that the caller owns; operators see all."""
        tenant = request.query_params.get("tenant", "") or token_tenant(request)
        require_tenant(request, tenant)
        state, mine = request.query_params.get("state", ""), request.query_params.get("mine", "false")
        if state and state not in RequestState.values:
            raise BadRequest(f"The state is one of {', '.join(RequestState.values)}.")
        if mine not in ("true", "false"):
            raise BadRequest("mine is true or false.")
        after, limit = page_parameters(request)
        page = requests_page(
            api_actor(request), mine=mine == "true", state=state, tenant=tenant, after=after, limit=limit
        )
        return paginated_response(request, page.rows, AccessRequestSerializer, page.next)

    @extend_schema(
        operation_id="createRequest",
        summary="Ask for a tenant, a tier, more quota, a role, or break-glass",
        request=RequestCreateRequest,
        responses={201: AccessRequestSerializer},
    )
    def post(self, request: Request) -> Response:
        """Others decide: `approvers` says who."""
        draft = RequestDraft(**self.validated_body(request, RequestCreateRequest))
        if draft.kind in (RequestKind.TENANT, RequestKind.TIER):
            require_unbound(request)
        else:
            require_tenant(request, draft.tenant)
        # Of a tenant that somebody is no member of, only its identity is looked up.
        with everything():
            made = request_create(actor=api_actor(request), draft=draft, now=timezone.now())
            location = request.build_absolute_uri(reverse("api-request", args=[made.pk]))
            return created_response(AccessRequestSerializer, made, location)


class RequestDetail(Endpoint):
    """A request for access, with its comments."""

    @extend_schema(
        operation_id="getRequest",
        summary="Read a request with its comments",
        responses={200: AccessRequestDetailSerializer},
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """To be asked again until ``state`` is another than ``open``."""
        return Response(AccessRequestDetailSerializer(_visible(request, pk)).data)


class RequestApproval(Endpoint):
    """Saying yes to a request."""

    @extend_schema(
        operation_id="approveRequest",
        summary="Approve a request, and carry it out",
        description="With `asked_by_proven` false it may be somebody else who asks than whose address it is.",
        request=ApproveRequest,
        responses={200: AccessRequestSerializer},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """With the caller's rights, all of it or nothing; still open where a second person is needed."""
        answer = self.validated_body(request, ApproveRequest)["answer"]
        _visible(request, pk)
        with everything():
            found = request_approve(actor=api_actor(request), request_id=pk, answer=answer, now=timezone.now())
            return Response(AccessRequestSerializer(found).data)


class RequestDenial(Endpoint):
    """Saying no to a request."""

    @extend_schema(
        operation_id="denyRequest",
        summary="Deny a request, and say why",
        request=DenyRequest,
        responses={200: AccessRequestSerializer},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Whoever asked reads the reason."""
        answer = self.validated_body(request, DenyRequest)["answer"]
        _visible(request, pk)
        found = request_deny(actor=api_actor(request), request_id=pk, answer=answer, now=timezone.now())
        return Response(AccessRequestSerializer(found).data)


class RequestWithdrawal(Endpoint):
    """A request taken back."""

    @extend_schema(
        operation_id="withdrawRequest",
        summary="Withdraw one's own request",
        request=None,
        responses={200: AccessRequestSerializer},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """What is decided stays."""
        _visible(request, pk)
        with everything():
            found = request_withdraw(actor=api_actor(request), request_id=pk, now=timezone.now())
            return Response(AccessRequestSerializer(found).data)


class RequestComments(Endpoint):
    """What is said about a request."""

    @extend_schema(
        operation_id="commentRequest",
        summary="Say something about a request",
        request=CommentRequest,
        responses={201: CommentSerializer},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Whoever asked, and those who decide."""
        text = self.validated_body(request, CommentRequest)["text"]
        _visible(request, pk)
        with everything():
            made = request_comment(actor=api_actor(request), request_id=pk, text=text, now=timezone.now())
        return Response(CommentSerializer(made).data, status=201)


class Inbox(Endpoint):
    """What waits for the caller."""

    query_parameters = frozenset({"postponed"})

    @extend_schema(
        operation_id="getInbox",
        summary="What waits for the caller, by kind",
        parameters=[POSTPONED],
        responses={200: InboxGroupSerializer(many=True)},
    )
    def get(self, request: Request) -> Response:
        """Requests to decide and operations that failed; for operators also all else of the inbox."""
        require_unbound(request)
        postponed = choice_parameter(request, "postponed", ("true", "false")) == "true"
        actor = api_overseer(request) if postponed else api_actor(request)
        found = inbox_of(actor, now=timezone.now(), postponed=postponed)
        return Response(InboxGroupSerializer(found, many=True).data)


def _visible(request: Request, pk: UUID) -> AccessRequest:
    found = request_visible_to(api_actor(request), pk)
    if token_tenant(request) not in {"", found.tenant_id}:
        raise NotFound("There is no such request.", kind="requests")
    return found
