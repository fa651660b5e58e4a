"""Rows of the inbox that operators put off (GW28)."""

from __future__ import annotations

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kube.requests.status import NotFound
from portal.api.endpoint import Endpoint
from portal.api.permissions import api_operator
from portal.api.requests import PostponementSerializer
from portal.api.serializers.base import RequestSerializer
from portal.pages.inbox import inbox_line
from tenants.services.operating.postponing import DAYS_MAX, inbox_postpone, inbox_resume


class ResumeRequest(RequestSerializer):
    """Which row, as `GET /api/v1/inbox/` names it."""

    kind = serializers.CharField(max_length=16)
    name = serializers.CharField(max_length=320)


class PostponeRequest(ResumeRequest):
    """Which row, until when, and why."""

    until = serializers.DateTimeField(help_text=f"At most {DAYS_MAX} days ahead.")
    reason = serializers.CharField(max_length=512)


class InboxPostpone(Endpoint):
    """A row that is put off."""

    @extend_schema(
        operation_id="postponeInboxRow",
        summary="Put a row of the inbox off until a date (operators)",
        request=PostponeRequest,
        responses={200: PostponementSerializer},
    )
    def post(self, request: Request) -> Response:
        """For all operators; it is back then, or when its cause changes. Again, the newest words count."""
        actor, now = api_operator(request), timezone.now()
        data = self.validated_body(request, PostponeRequest)
        line = inbox_line(actor, data["kind"], data["name"], now=now)
        if line is None:
            raise NotFound("There is no such row in the inbox.", kind="inbox", name=f"{data['kind']}/{data['name']}")
        return Response(PostponementSerializer(inbox_postpone(actor=actor, cause=line.cause, now=now, **data)).data)


class InboxResume(Endpoint):
    """A row that is brought back."""

    @extend_schema(
        operation_id="resumeInboxRow",
        summary="Bring a row that was put off back into the inbox (operators)",
        request=ResumeRequest,
        responses={204: None},
    )
    def post(self, request: Request) -> Response:
        """At once; one that is not put off stays as it is."""
        inbox_resume(actor=api_operator(request), **self.validated_body(request, ResumeRequest))
        return Response(status=204)
