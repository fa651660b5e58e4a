"""``/version``, the probes, ``/metrics``, and what others verify service accounts' tokens by."""

from __future__ import annotations

import platform
from functools import lru_cache
from typing import Final

import orjson

from audit import tracing
from gateway.http.messages import Request, Response
from gateway.process.runtime import Runtime
from kube.authentication.serviceaccounttokens import discovery_document, jwks
from kube.kinds.builtins import KUBERNETES_MINOR
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import NoSuchPage
from store import supervision

_PROBES: Final = ("healthz", "livez", "readyz")
_GO_NAMES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_TEXT: Final = b"text/plain; charset=utf-8"
_ISSUER: Final = "/.well-known/openid-configuration"
_KEYS: Final = "/openid/v1/jwks"
_PATHS: Final = (
    _ISSUER,
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    _KEYS,
    "/readyz",
    "/version",
)
_PUBLIC: Final = ((b"cache-control", b"public, max-age=3600"),)


async def serve(runtime: Runtime, request: Request) -> Response:
    """One of the small paths of the server itself. Raises ``NoSuchPage`` for any other."""
    path = request.info.path
    if path in ("/version", "/version/"):
        return Response(200, _version())
    if path.startswith(("/healthz", "/livez", "/readyz")):
        return _probe(runtime, request)
    if path == "/metrics":
        owner, siblings = request.info.tenant, runtime.siblings
        text = await siblings.figures(owner) if siblings else figures(runtime, owner)
        return Response(200, text, b"text/plain; version=0.0.4")
    if path.rstrip("/") in (_ISSUER, _KEYS):
        return _issuer(runtime, path.rstrip("/"))
    if path == "/":
        groups = runtime.catalogs.of(request.info.cluster).groups()
        served = [
            f"/apis/{group}{'/' + version if version else ''}"
            for group in groups
            if group
            for version in ("", *groups[group])
        ]
        return Response(200, orjson.dumps({"paths": sorted([*_PATHS, *served])}))
    raise NoSuchPage


def figures(runtime: Runtime, tenant: str) -> bytes:
    """What this process has counted, of a tenant, or of all for the system tenant, in Prometheus' text format."""
    if tenant != SYSTEM_TENANT:
        return runtime.metrics.render_tenant(tenant, open_streams=runtime.open_streams.of(tenant))
    return runtime.metrics.render(
        open_streams=len(runtime.open_streams),
        revision=runtime.store.revision,
        silence=runtime.store.silence,
        replaced=runtime.store.histories_replaced,
        dropped=runtime.audit.dropped,
        untraced=tracing.dropped(),
        restarts=supervision.restarts,
        loop=runtime.watchdog.render(),
    )


def _issuer(runtime: Runtime, path: str) -> Response:
    """The description of the service accounts' issuer, or its keys (AN6; OpenID Connect Discovery, RFC 7517)."""
    keys = runtime.service_account_keys.keys
    if path == _KEYS:
        return Response(200, orjson.dumps(jwks(keys)), b"application/jwk-set+json", _PUBLIC)
    options = runtime.options
    return Response(
        200,
        orjson.dumps(discovery_document(options.service_account_issuers[0], options.url + _KEYS, keys)),
        headers=_PUBLIC,
    )


def _probe(runtime: Runtime, request: Request) -> Response:
    """``ok``, or 503 with what is wrong: a live server need not be ready, a ready one follows store and locks.

    ``/livez/<check>`` asks for one check alone, ``verbose`` for all of them by name, ``exclude`` for all but one.
    """
    _, probe, *named = request.info.path.split("/")
    checks = {"ping": True}
    if probe != "livez":
        checks |= {"store": runtime.store.healthy, "suspensions": runtime.suspensions.healthy}
    if probe == "readyz":
        # A server that ends is alive, and must not be killed over the requests that it still answers.
        checks["shutdown"] = not runtime.stopping
    if probe not in _PROBES or len(named) > 1 or (named and named[0] not in checks):
        raise NoSuchPage
    if named:
        checks = {named[0]: checks[named[0]]}
    checks.pop(request.query.get("exclude", ""), None)
    fine = all(checks.values())
    if fine and (named or "verbose" not in request.query):
        return Response(200, b"ok", _TEXT)
    lines = [f"[{'+' if passed else '-'}]{name} {'ok' if passed else 'failed'}" for name, passed in checks.items()]
    lines.append(f"{probe} check {'passed' if fine else 'failed'}\n")
    return Response(200 if fine else 503, "\n".join(lines).encode(), _TEXT)


@lru_cache(maxsize=1)
def _version() -> bytes:
    major, minor = KUBERNETES_MINOR.split(".")
    return orjson.dumps(
        {
            "major": major,
            "minor": minor,
            "emulationMajor": major,
            "emulationMinor": minor,
            "minCompatibilityMajor": major,
            "minCompatibilityMinor": str(int(minor) - 1),
            "gitVersion": f"v{KUBERNETES_MINOR}.0+tenantry",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": platform.python_implementation(),
            "platform": f"{platform.system().lower()}/{_GO_NAMES.get(platform.machine(), platform.machine())}",
        }
    )
