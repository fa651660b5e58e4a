"""Who somebody would be at the API server."""

from __future__ import annotations

from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api import serializers as shapes
from portal.api.endpoint import Endpoint
from portal.inspecting import inspect_identity


class Inspect(Endpoint):
    """The identity inspector."""

    @extend_schema(
        operation_id="inspectIdentity",
        summary="Inspect a certificate, subject, token-file line or token",
        description="Who it would be at the API server, by which rule, and why not by the others. Nothing is verified, "
        "stored or logged.",
        request=shapes.InspectBody,
        responses={200: shapes.InspectAnswer},
    )
    @method_decorator(sensitive_variables())
    def post(self, request: Request) -> Response:
        """The identity and the rules."""
        data = self.body(request, shapes.InspectBody)
        response = Response(shapes.InspectAnswer(inspect_identity(data["text"])).data)
        response["Cache-Control"] = "no-store"
        return response
