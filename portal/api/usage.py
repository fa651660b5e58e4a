"""What a tenant and its workspaces used, hour by hour, and what it costs (AD7)."""

from __future__ import annotations

from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from kube.quota.charges import Price
from kube.requests.status import BadRequest
from portal.access.usage import charges_file, hours_between, usage_file
from portal.api.endpoint import (
    AFTER,
    LIMIT,
    Endpoint,
    page_parameters,
    page_schema,
    paginated_response,
    parse_timestamp,
)
from portal.api.permissions import api_actor, api_operator, api_overseer, require_tenant
from portal.api.serializers.usage import BillSerializer, PriceSerializer, PricesRequest, UsageHourSerializer
from tenants import selectors, services
from tenants.charges import bill_of_tenant, bills_of_month, month_of, prices_all
from tenants.services.prices import prices_hold

_FORMATS = ("json", "csv", "openmetrics")


class TenantUsageHours(Endpoint):
    """The hours of a tenant or of one of its workspaces."""

    query_parameters = frozenset({"since", "until", "namespace", "format"})

    @extend_schema(
        operation_id="listUsageHours",
        summary="Read what a tenant, or one of its workspaces, used hour by hour",
        description="Counted every hour, kept for a year. The last day, where nothing is said. `namespace` names a "
        "workspace's; without it the tenant as a whole.",
        parameters=[
            OpenApiParameter("since", OpenApiTypes.DATETIME),
            OpenApiParameter("until", OpenApiTypes.DATETIME),
            OpenApiParameter("namespace", str),
            OpenApiParameter("format", str, enum=list(_FORMATS)),
        ],
        responses={
            (200, "application/json"): page_schema(UsageHourSerializer),
            (200, "text/csv"): OpenApiResponse(OpenApiTypes.STR),
            (200, "application/openmetrics-text"): OpenApiResponse(OpenApiTypes.STR),
        },
    )
    def get(self, request: Request, name: str) -> Response | HttpResponse:
        """Oldest first. Raises ``BadRequest``."""
        require_tenant(request, name)
        found = selectors.tenant_visible_to(api_actor(request), name)
        query = request.query_params
        form = query.get("format", "json")
        if form not in _FORMATS:
            raise BadRequest(f"The format is one of {', '.join(_FORMATS)}.")
        since, until = (parse_timestamp(query.get(each, "")) for each in ("since", "until"))
        rows = hours_between(found, since, until, query.get("namespace", "")[:63], timezone.now())
        return paginated_response(request, rows, UsageHourSerializer) if form == "json" else usage_file(rows, form)


_MONTH = OpenApiParameter("month", str, description="As 2026-11; this one, where nothing is said.")


class TenantCharges(Endpoint):
    """What a tenant's use of a month costs."""

    query_parameters = frozenset({"month"})

    @extend_schema(
        operation_id="getTenantCharges",
        summary="Read what a tenant's use of a month costs",
        parameters=[_MONTH],
        responses={200: BillSerializer},
    )
    def get(self, request: Request, name: str) -> Response:
        """By the prices of that month. Raises ``BadRequest``."""
        require_tenant(request, name)
        found = selectors.tenant_visible_to(api_actor(request), name)
        month = month_of(request.query_params.get("month", ""), timezone.now())
        return Response(BillSerializer(bill_of_tenant(found, month)).data)


class Charges(Endpoint):
    """What all tenants' use of a month costs."""

    query_parameters = frozenset({"month", "format", "after", "limit"})

    @extend_schema(
        operation_id="listCharges",
        summary="Read what tenants' use of a month costs (operators)",
        parameters=[_MONTH, AFTER, LIMIT, OpenApiParameter("format", str, enum=["json", "csv"])],
        responses={
            (200, "application/json"): page_schema(BillSerializer),
            (200, "text/csv"): OpenApiResponse(OpenApiTypes.STR),
        },
    )
    def get(self, request: Request) -> Response | StreamingHttpResponse:
        """By the names of the tenants, those that have ended too; as CSV all of them. Raises ``BadRequest``."""
        api_overseer(request)
        query = request.query_params
        month = month_of(query.get("month", ""), timezone.now())
        form = query.get("format", "json")
        if form not in ("json", "csv"):
            raise BadRequest("The format is json or csv.")
        if form == "csv":
            return charges_file(month)
        after, limit = page_parameters(request)
        found, cursor = bills_of_month(month, after=after, limit=limit)
        return paginated_response(request, found, BillSerializer, cursor)


class Prices(Endpoint):
    """What is charged for what tenants use."""

    conditional = True

    @extend_schema(operation_id="listPrices", summary="List the prices", responses={200: page_schema(PriceSerializer)})
    def get(self, request: Request) -> Response:
        """The prices that are set, a measure each."""
        return paginated_response(request, prices_all(), PriceSerializer)

    @extend_schema(
        operation_id="setPrices",
        summary="Put these in place of all prices (operators)",
        request=PricesRequest,
        responses={200: page_schema(PriceSerializer)},
    )
    def put(self, request: Request) -> Response:
        """This month and later ones are charged by them; what months before cost stays."""
        actor = api_operator(request)
        given = self.validated_body(request, PricesRequest)["prices"]
        with self.unchanged_since(request, prices_hold):
            services.prices_change(actor=actor, prices=[Price(**each) for each in given], now=timezone.now())
        return paginated_response(request, prices_all(), PriceSerializer)
