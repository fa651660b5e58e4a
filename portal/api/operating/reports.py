"""What operators and auditors look through now and then (GW28)."""

from __future__ import annotations

from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access.reports import DAYS, DAYS_USUAL, REPORTS, asked_of
from portal.api.endpoint import AFTER, LIMIT, Endpoint, page_parameters, page_schema, paginated_response
from portal.api.permissions import api_overseer

_DAYS = OpenApiParameter("days", int, enum=list(DAYS), description=f"Not used for so long; {DAYS_USUAL} by default.")
_MONTH = OpenApiParameter("month", str, description="As 2026-11; this one, where nothing is said.")


class DormantPersonSerializer(serializers.Serializer[Any]):
    """An account that may sign in, and of which nothing was used."""

    id = serializers.UUIDField()
    email = serializers.CharField()
    name = serializers.CharField()
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)


class DormantWorkspaceSerializer(serializers.Serializer[Any]):
    """A workspace without a request through the API server, or a credential issued, in the hours of use."""

    id = serializers.UUIDField()
    tenant = serializers.CharField()
    name = serializers.CharField()
    namespace = serializers.CharField()
    owner = serializers.CharField()
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)


class QuotaShareSerializer(serializers.Serializer[Any]):
    """What a tenant uses of one name of its quota: cores, bytes, pieces."""

    tenant = serializers.CharField()
    resource = serializers.CharField()
    used = serializers.FloatField()
    hard = serializers.FloatField()
    share = serializers.FloatField()


class CostSerializer(serializers.Serializer[Any]):
    """What a tenant's month costs; a text, so that it is not rounded on its way."""

    tenant = serializers.CharField()
    total = serializers.CharField()


class _Listing(Endpoint):
    kind: ClassVar[str]
    row: ClassVar[type[serializers.Serializer[Any]]]

    def listed(self, request: Request) -> Response:
        """A page of the report. Raises ``Forbidden``, ``BadRequest``."""
        api_overseer(request)
        query = request.query_params
        asked = asked_of(query.get("days", ""), query.get("month", ""), timezone.now())
        after, limit = page_parameters(request)
        rows, cursor = REPORTS[self.kind].rows(asked, after[:320], limit)
        return paginated_response(request, rows, self.row, cursor)


class DormantPeople(_Listing):
    """People who have not been there for long."""

    query_parameters = frozenset({"days", "after", "limit"})
    kind = "dormant-people"
    row = DormantPersonSerializer

    @extend_schema(
        operation_id="listDormantPeople",
        summary="List accounts of which nothing was used for long (operators, auditors)",
        parameters=[_DAYS, AFTER, LIMIT],
        responses={200: page_schema(DormantPersonSerializer)},
    )
    def get(self, request: Request) -> Response:
        """Without a sign-in, session, machine, token or credential in use. By e-mail address."""
        return self.listed(request)


class DormantWorkspaces(_Listing):
    """Workspaces that nobody uses."""

    query_parameters = frozenset({"days", "after", "limit"})
    kind = "dormant-workspaces"
    row = DormantWorkspaceSerializer

    @extend_schema(
        operation_id="listDormantWorkspaces",
        summary="List workspaces that nobody has used for long (operators, auditors)",
        parameters=[_DAYS, AFTER, LIMIT],
        responses={200: page_schema(DormantWorkspaceSerializer)},
    )
    def get(self, request: Request) -> Response:
        """No request through the API server and no credential issued. By tenant and name."""
        return self.listed(request)


class QuotasNearlyUsed(_Listing):
    """Quotas that are nearly full."""

    query_parameters = frozenset({"after", "limit"})
    kind = "quota-nearly-used"
    row = QuotaShareSerializer

    @extend_schema(
        operation_id="listQuotasNearlyUsed",
        summary="List quotas of which more than 90 % is used (operators, auditors)",
        parameters=[AFTER, LIMIT],
        responses={200: page_schema(QuotaShareSerializer)},
    )
    def get(self, request: Request) -> Response:
        """At the end of the last full hour. By tenant and name of the quota."""
        return self.listed(request)


class QuotasHardlyUsed(_Listing):
    """Quotas that are nearly empty."""

    query_parameters = frozenset({"after", "limit"})
    kind = "quota-hardly-used"
    row = QuotaShareSerializer

    @extend_schema(
        operation_id="listQuotasHardlyUsed",
        summary="List quotas of which less than 10 % is used (operators, auditors)",
        parameters=[AFTER, LIMIT],
        responses={200: page_schema(QuotaShareSerializer)},
    )
    def get(self, request: Request) -> Response:
        """At the end of the last full hour. By tenant and name of the quota."""
        return self.listed(request)


class Costs(_Listing):
    """What tenants cost."""

    query_parameters = frozenset({"month", "after", "limit"})
    kind = "costs"
    row = CostSerializer

    @extend_schema(
        operation_id="listCosts",
        summary="List what a month costs by tenant (operators, auditors)",
        parameters=[_MONTH, AFTER, LIMIT],
        responses={200: page_schema(CostSerializer)},
    )
    def get(self, request: Request) -> Response:
        """By the prices of that month; `/charges/` has what each measure makes of it. By the names of the tenants."""
        return self.listed(request)
