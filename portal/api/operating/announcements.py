"""What operators say to everybody, or to those whom it concerns (GW28)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from audit.selectors import page_of
from kube.requests.status import BadRequest
from portal.api.endpoint import (
    AFTER,
    LIMIT,
    Endpoint,
    created_response,
    page_parameters,
    page_schema,
    paginated_response,
)
from portal.api.permissions import api_operator, api_overseer
from portal.api.serializers.base import RequestSerializer
from tenants.models import Announcement, Audience, Severity, Tenant, Tier
from tenants.services.operating.announcements import (
    NAMES_MAX,
    SHOWN_MAX,
    TEXT_MAX,
    Said,
    announcement_change,
    announcement_create,
    announcement_dismiss,
    announcement_end,
    announcement_visible_to,
    announcements_for,
    announcements_of,
)

ALL = OpenApiParameter(
    "all", bool, description="All that there are, newest first: operators and auditors. Else what is meant for you now."
)


class AnnouncementSerializer(serializers.ModelSerializer[Announcement]):
    """What is said. To whom is for overseers to read: others get what is meant for them."""

    severity = serializers.ChoiceField(choices=Severity.choices)

    class Meta:
        model = Announcement
        fields = ("id", "text", "severity", "dismissible", "starts_at", "ends_at")
        read_only_fields = fields


class AnnouncementDetailSerializer(serializers.ModelSerializer[Announcement]):
    """The same with whom it is meant for."""

    severity = serializers.ChoiceField(choices=Severity.choices)
    audience = serializers.ChoiceField(choices=Audience.choices)
    tenants: serializers.SlugRelatedField[Tenant] = serializers.SlugRelatedField(
        slug_field="name", many=True, read_only=True
    )
    tiers: serializers.SlugRelatedField[Tier] = serializers.SlugRelatedField(
        slug_field="name", many=True, read_only=True
    )

    class Meta:
        model = Announcement
        fields = (
            *("id", "text", "severity", "dismissible", "starts_at", "ends_at"),
            *("audience", "tenants", "tiers", "created_by", "created_at"),
        )
        read_only_fields = fields


class AnnouncementListedSerializer(AnnouncementSerializer):
    """What is said, and to whom where ``all`` was asked for: the document's form of both answers."""

    audience = serializers.ChoiceField(choices=Audience.choices, required=False)
    tenants = serializers.ListField(child=serializers.CharField(), required=False)
    tiers = serializers.ListField(child=serializers.CharField(), required=False)
    created_by = serializers.CharField(required=False)
    created_at = serializers.DateTimeField(required=False)

    class Meta(AnnouncementSerializer.Meta):
        fields = AnnouncementDetailSerializer.Meta.fields  # type: ignore[assignment]


class AnnouncementRequest(RequestSerializer):
    """What shall be said, to whom, from when until when."""

    text = serializers.CharField(max_length=TEXT_MAX, help_text="One line of plain text.")
    severity = serializers.ChoiceField(choices=Severity.choices, required=False, default=Severity.INFO)
    audience = serializers.ChoiceField(choices=Audience.choices, required=False, default=Audience.EVERYBODY)
    tenants = serializers.ListField(
        child=serializers.CharField(max_length=63), required=False, default=list, max_length=NAMES_MAX
    )
    tiers = serializers.ListField(
        child=serializers.CharField(max_length=63), required=False, default=list, max_length=NAMES_MAX
    )
    starts_at = serializers.DateTimeField(required=False, allow_null=True, default=None, help_text="At once without.")
    ends_at = serializers.DateTimeField(
        required=False, allow_null=True, default=None, help_text="Until somebody ends it without."
    )
    dismissible = serializers.BooleanField(required=False, default=True)


class AnnouncementList(Endpoint):
    """What is said now, or all of it."""

    query_parameters = frozenset({"all", "after", "limit"})

    @extend_schema(
        operation_id="listAnnouncements",
        summary="List what is announced",
        parameters=[ALL, AFTER, LIMIT],
        responses={200: page_schema(AnnouncementListedSerializer)},
    )
    def get(self, request: Request) -> Response:
        """What is meant for the caller and was not put away, as on top of the pages; ``audience`` is left out there."""
        wanted = request.query_params.get("all", "false")
        if wanted not in ("true", "false"):
            raise BadRequest("all is true or false.")
        after, limit = page_parameters(request)
        if wanted == "false":
            user: Any = request.user
            mine = announcements_for(user, now=timezone.now())[:SHOWN_MAX]
            return paginated_response(request, mine, AnnouncementSerializer)
        page = page_of(announcements_of(api_overseer(request)), after, limit)
        return paginated_response(request, page.rows, AnnouncementDetailSerializer, page.next)

    @extend_schema(
        operation_id="createAnnouncement",
        summary="Announce something",
        request=AnnouncementRequest,
        responses={201: AnnouncementDetailSerializer},
    )
    def post(self, request: Request) -> Response:
        """Operators only; at most twenty at a time that are not over."""
        actor = api_operator(request)
        said = Said(**self.validated_body(request, AnnouncementRequest))
        made = announcement_create(actor=actor, said=said, now=timezone.now())
        return created_response(AnnouncementDetailSerializer, made, f"/api/v1/announcements/{made.pk}/")


class AnnouncementDetail(Endpoint):
    """One of them."""

    conditional = True

    @extend_schema(
        operation_id="getAnnouncement",
        summary="Show an announcement",
        responses={200: AnnouncementDetailSerializer},
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """Operators and auditors."""
        return Response(AnnouncementDetailSerializer(announcement_visible_to(api_overseer(request), pk)).data)

    @extend_schema(
        operation_id="changeAnnouncement",
        summary="Say an announcement otherwise",
        request=AnnouncementRequest,
        responses={200: AnnouncementDetailSerializer},
    )
    def put(self, request: Request, pk: UUID) -> Response:
        """The whole of it; whoever has put it away sees it again when its words are new. Operators only."""
        actor = api_operator(request)
        said = Said(**self.validated_body(request, AnnouncementRequest))
        with self.unchanged_since(
            request, lambda: Announcement.objects.select_for_update(no_key=True).filter(pk=pk).first()
        ):
            found = announcement_change(actor=actor, announcement_id=pk, said=said, now=timezone.now())
        return Response(AnnouncementDetailSerializer(found).data)


class AnnouncementEnd(Endpoint):
    """One that is to be said no more."""

    @extend_schema(
        operation_id="endAnnouncement",
        summary="End an announcement",
        request=None,
        responses={200: AnnouncementDetailSerializer},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Operators only; one that is over stays so."""
        found = announcement_end(actor=api_operator(request), announcement_id=pk, now=timezone.now())
        return Response(AnnouncementDetailSerializer(found).data)


class AnnouncementDismiss(Endpoint):
    """One that the caller has read."""

    personal = True

    @extend_schema(
        operation_id="dismissAnnouncement",
        summary="Put an announcement away for oneself",
        request=None,
        responses={204: None},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """It is on no page of the caller's any more."""
        user: Any = request.user
        announcement_dismiss(user=user, announcement_id=pk, now=timezone.now())
        return Response(status=204)
