"""Is the portal alive, is it ready, and its numbers: for load balancers and Prometheus."""

from __future__ import annotations

import hmac

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.db import Error, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from portal.database.migrations import database_is_migrated
from portal.protocol import LEAVING

_migrated = False


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """The process answers. Asks nobody else, so that a dead database does not restart healthy processes."""
    return HttpResponse("ok", content_type="text/plain")


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """The database answers and is migrated, no end is near. 503 names what is not so, without addresses.

    Redis is none of it: every portal would be taken out at once, the kill switch with them, and pages go on without it.
    """
    checks = {"database": _database(), "migrations": _migrations(), "shutdown": _serves_on(request)}
    ready = all(checks.values())
    body = {"ready": ready, "checks": {name: "ok" if fine else "failed" for name, fine in checks.items()}}
    return JsonResponse(body, status=200 if ready else 503)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus' text format: to this host and to whoever knows ``METRICS_TOKEN``."""
    given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
    token = settings.METRICS_TOKEN.encode()
    # A proxy on this host speaks for strangers: only what came here directly is local.
    local = request.META.get("REMOTE_ADDR") in {"127.0.0.1", "::1"} and request.came_directly  # type: ignore[attr-defined]
    if not (hmac.compare_digest(given, token) if token else local):
        return HttpResponse("not found", status=404, content_type="text/plain")
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)


def _serves_on(request: HttpRequest) -> bool:
    scope = request.scope if isinstance(request, ASGIRequest) else {}
    return not scope.get("state", {}).get(LEAVING)


def _database() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Error:
        return False
    return True


def _migrations() -> bool:
    global _migrated  # noqa: PLW0603 (migrations are never taken back under a running process)
    if not _migrated:
        try:
            _migrated = database_is_migrated()
        except Error:
            return False
    return _migrated
