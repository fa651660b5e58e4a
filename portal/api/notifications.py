"""What a person is told in the portal (GW25)."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from audit.selectors import page_of
from kube.requests.status import BadRequest
from portal.api.endpoint import AFTER, LIMIT, Endpoint, page_parameters, page_schema, paginated_response
from portal.api.permissions import token_tenant
from portal.api.serializers.base import RequestSerializer
from tenants.models import NoticeKind, Notification
from tenants.services.notices import notifications_read

UNREAD = OpenApiParameter("unread", bool, description="Only those that are not read yet.")


class NotificationSerializer(serializers.ModelSerializer[Notification]):
    """Something that has happened, and what it is about."""

    kind = serializers.ChoiceField(choices=NoticeKind.choices)
    tenant = serializers.CharField(source="tenant_id", allow_null=True)
    workspace = serializers.UUIDField(source="workspace_id", allow_null=True)
    request = serializers.UUIDField(source="request_id", allow_null=True)

    class Meta:
        model = Notification
        fields = ("id", "kind", "text", "tenant", "workspace", "request", "created_at", "read_at")
        read_only_fields = fields


class ReadRequest(RequestSerializer):
    """Which one was read; all without it."""

    id = serializers.UUIDField(required=False)


class ReadSerializer(serializers.Serializer[Any]):
    """How many were not read before."""

    read = serializers.IntegerField()


class NotificationList(Endpoint):
    """What the caller is told."""

    query_parameters = frozenset({"unread", "after", "limit"})

    @extend_schema(
        operation_id="listNotifications",
        summary="List one's own notifications, newest first",
        parameters=[UNREAD, AFTER, LIMIT],
        responses={200: page_schema(NotificationSerializer)},
    )
    def get(self, request: Request) -> Response:
        """The newest two hundred are kept; a token for one tenant shows those of that one."""
        user: Any = request.user
        rows = Notification.objects.filter(user=user)
        if token_tenant(request):
            rows = rows.filter(tenant_id=token_tenant(request))
        unread = request.query_params.get("unread", "false")
        if unread not in ("true", "false"):
            raise BadRequest("unread is true or false.")
        if unread == "true":
            rows = rows.filter(read_at=None)
        after, limit = page_parameters(request)
        page = page_of(rows, after, limit)
        return paginated_response(request, page.rows, NotificationSerializer, page.next)


class NotificationsRead(Endpoint):
    """What the caller has read."""

    @extend_schema(
        operation_id="readNotifications",
        summary="Mark one notification as read, or all",
        request=ReadRequest,
        responses={200: ReadSerializer},
    )
    def post(self, request: Request) -> Response:
        """One that is read already stays so."""
        user: Any = request.user
        one = self.optional_body(request, ReadRequest).get("id")
        return Response({"read": notifications_read(user=user, now=timezone.now(), notification_id=one)})
