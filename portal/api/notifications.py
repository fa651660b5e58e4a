"""What people are told in the portal, and addresses outside by webhooks (GW25)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from audit.selectors import page_of
from kube.requests.status import BadRequest, NotFound
from portal.api.endpoint import (
    AFTER,
    LIMIT,
    Endpoint,
    page_parameters,
    page_schema,
    paginated_response,
    secret_response,
)
from portal.api.permissions import api_actor, require_tenant, token_tenant
from portal.api.serializers.base import RequestSerializer
from tenants import selectors
from tenants.models import Delivery, DeliveryState, NoticeKind, Notification, Webhook
from tenants.services.notices import (
    KEPT_OF_WEBHOOK,
    notifications_read,
    webhook_create,
    webhook_delete,
    webhook_visible_to,
    webhooks_of,
)

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
        """One that is read already stays so; with a token for one tenant, of what is about that one."""
        user: Any = request.user
        one, tenant = self.validated_body(request, ReadRequest).get("id"), token_tenant(request)
        read = notifications_read(user=user, now=timezone.now(), notification_id=one, tenant=tenant)
        return Response({"read": read})


class WebhookCreateRequest(RequestSerializer):
    """Which address is told what; of the whole platform without ``tenant``."""

    url = serializers.CharField(max_length=512, help_text="Begins with https://; every message is signed.")
    tenant = serializers.CharField(max_length=63, required=False, default="", allow_blank=True)
    kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=NoticeKind.choices),
        required=False,
        default=list,
        help_text="Of everything when it is empty.",
    )


class WebhookSerializer(serializers.ModelSerializer[Webhook]):
    """A webhook, without its secret."""

    tenant = serializers.CharField(source="tenant_id", allow_null=True)
    kinds = serializers.ListField(child=serializers.ChoiceField(choices=NoticeKind.choices))

    class Meta:
        model = Webhook
        fields = ("id", "tenant", "url", "kinds", "created_by", "created_at")
        read_only_fields = fields


class CreatedWebhookSerializer(serializers.Serializer[Any]):
    """A new webhook with the secret that its messages are signed with, which is shown this once."""

    webhook = WebhookSerializer()
    secret = serializers.CharField()


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    """A message to a webhook, and what became of it."""

    kind = serializers.ChoiceField(choices=NoticeKind.choices)
    state = serializers.ChoiceField(choices=DeliveryState.choices)

    class Meta:
        model = Delivery
        fields = ("id", "kind", "state", "attempts", "not_before", "answer", "created_at", "finished_at")
        read_only_fields = fields


class WebhookList(Endpoint):
    """The addresses that are told."""

    query_parameters = frozenset({"tenant"})

    @extend_schema(
        operation_id="listWebhooks",
        summary="List the webhooks of a tenant (admins), or of the platform (operators)",
        parameters=[OpenApiParameter("tenant", str, description="Of this tenant; of the platform without it.")],
        responses={200: page_schema(WebhookSerializer)},
    )
    def get(self, request: Request) -> Response:
        """Those of the tenant, or of the platform, the oldest first."""
        tenant = request.query_params.get("tenant", "") or token_tenant(request)
        actor = _of_tenant(request, tenant)
        return paginated_response(request, webhooks_of(actor, tenant), WebhookSerializer)

    @extend_schema(
        operation_id="createWebhook",
        summary="Tell an address what happens in a tenant (admins), or on the platform (operators)",
        description="The secret is shown this once. Whether the address may be spoken to is looked at with every message.",
        request=WebhookCreateRequest,
        responses={201: CreatedWebhookSerializer},
    )
    @sensitive_variables("made", "shown")
    def post(self, request: Request) -> Response:
        """Its messages are signed from the first on."""
        wanted = self.validated_body(request, WebhookCreateRequest)
        tenant = wanted["tenant"] or token_tenant(request)
        actor = _of_tenant(request, tenant)
        made = webhook_create(actor=actor, tenant=tenant, url=wanted["url"], kinds=wanted["kinds"], now=timezone.now())
        shown = CreatedWebhookSerializer({"webhook": made.webhook, "secret": made.secret})
        return secret_response(shown.data, status=201)


class WebhookDetail(Endpoint):
    """An address that is told."""

    conditional = True

    @extend_schema(operation_id="getWebhook", summary="Read a webhook", responses={200: WebhookSerializer})
    def get(self, request: Request, pk: UUID) -> Response:
        """Without its secret."""
        return Response(WebhookSerializer(_webhook(request, pk)).data)

    @extend_schema(operation_id="deleteWebhook", summary="Delete a webhook", request=None, responses={204: None})
    def delete(self, request: Request, pk: UUID) -> Response:
        """What waits for it is not sent."""
        _webhook(request, pk)
        # It is only made and deleted: nothing of it has to be held still, and whoever deletes it may change no row.
        with self.unchanged_since(request, lambda: _webhook(request, pk)):
            webhook_delete(actor=api_actor(request), webhook_id=pk)
        return Response(status=204)


class WebhookDeliveries(Endpoint):
    """What an address was told."""

    @extend_schema(
        operation_id="listWebhookDeliveries",
        summary="List a webhook's last messages and what became of them, newest first",
        responses={200: page_schema(DeliverySerializer)},
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """The last hundred are kept."""
        rows = _webhook(request, pk).deliveries.order_by("-created_at", "-id")[:KEPT_OF_WEBHOOK]
        return paginated_response(request, rows, DeliverySerializer)


def _of_tenant(request: Request, tenant: str) -> Any:
    require_tenant(request, tenant)
    actor = api_actor(request)
    if tenant:
        selectors.tenant_visible_to(actor, tenant)
    return actor


def _webhook(request: Request, pk: UUID) -> Webhook:
    found = webhook_visible_to(api_actor(request), pk)
    if token_tenant(request) not in {"", found.tenant_id}:
        raise NotFound("There is no such webhook.", kind="webhooks")
    return found
