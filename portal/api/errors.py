"""Every failure of the API as ``application/problem+json`` (RFC 9457), in one place."""

from __future__ import annotations

import logging
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpResponse
from rest_framework import exceptions
from rest_framework.views import set_rollback

from kube.requests.status import Invalid, StatusError
from portal.http import errors

logger = logging.getLogger(__name__)


def handle(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """The problem for ``error``; ``None`` lets a defect go up to the 500 page, which says nothing."""
    request = context["request"]._request  # noqa: SLF001 (the Django request below)
    if isinstance(error, Http404):
        error = exceptions.NotFound()
    elif isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    elif isinstance(error, RequestDataTooBig):
        return errors.problem(request, 413, "The body is larger than one mebibyte.", reason="RequestEntityTooLarge")
    elif isinstance(error, SuspiciousOperation):
        return errors.problem(request, 400, reason="BadRequest")
    if isinstance(error, StatusError):
        set_rollback()
        fields = [{"field": cause.field, "message": cause.message, "reason": cause.reason} for cause in error.causes]
        # A body that is wrong is 400 here, whoever found it out: 422 is Kubernetes' word for it.
        code = 400 if isinstance(error, Invalid) else error.code
        response = errors.problem(request, code, error.message, reason=error.reason, fields=fields)
        if error.retry_after is not None:
            response["Retry-After"] = str(error.retry_after)
        return response
    if isinstance(error, exceptions.APIException):
        set_rollback()
        if isinstance(error, exceptions.ValidationError):
            fields = list(_fields(error.detail, ""))
            detail = "; ".join(
                f"{item['field']}: {item['message']}" if item["field"] else item["message"] for item in fields[:5]
            )
            return errors.problem(request, 400, detail, reason="Invalid", fields=fields)
        response = errors.problem(request, error.status_code, str(error.detail), reason=_reason(error))
        header = getattr(error, "auth_header", None)
        if header:
            response["WWW-Authenticate"] = header
        if isinstance(error, exceptions.MethodNotAllowed):
            response["Allow"] = ", ".join(context["view"].allowed_methods)
        return response
    return None


def _reason(error: exceptions.APIException) -> str:
    code = error.default_code if isinstance(error.default_code, str) else "error"
    return "".join(part.capitalize() for part in code.split("_"))


def _fields(detail: Any, path: str) -> Any:
    if isinstance(detail, dict):
        for name, inner in detail.items():
            here = path if name == "non_field_errors" else f"{path}.{name}".strip(".")
            yield from _fields(inner, here)
    elif isinstance(detail, list):
        for index, inner in enumerate(detail):
            yield from _fields(inner, f"{path}[{index}]" if isinstance(inner, dict) else path)
    else:
        yield {"field": path, "message": str(detail)[:300]}
