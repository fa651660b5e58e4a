"""The portal as a client of the product's API server: over TLS, as the person, with a token of one answer's life (GW27).

Every read and every change goes through the chain that kubectl goes through, and is in the same records under the
person's name. There is no other way from these pages to an object.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlencode

import orjson
from django.http import HttpRequest
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from access.credentials.portalsessions import session_login, session_token
from access.credentials.portaltokens import own_apiserver
from access.models import Login
from audit import tracing
from kube.display.text import visible
from kube.requests.status import ServiceUnavailable, StatusError
from portal.database.scopes import everything
from portal.http.actors import actor_of
from tenants.clusters.client import object_path
from tenants.clusters.deadline import HurriedSocket, deadline
from tenants.models import Cluster, Workspace

CONNECT_SECONDS: Final = 2.0
CALL_SECONDS: Final = 8.0
"""The whole of one call: longer than the API server waits for a cluster that cannot be reached."""

ANSWER_SECONDS: Final = 12.0
"""All calls of one answer: a page of many parts waits no longer for a slow cluster, and no process of the portal with it."""

MOST: Final = 8 * 1024 * 1024
"""Of one answer."""

JSON: Final = "application/json"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
MERGE: Final = "application/merge-patch+json"

_AWAY: Final = "The API server cannot be reached. Nothing is lost; try again in a minute."
_SLOW: Final = (
    "The API server, or the cluster behind it, has not answered in time. Nothing is lost; try again in a minute."
)
_PIECE: Final = 65536
_TOKEN_LIFE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Door:
    """One person's way to one workspace's namespace, for as long as one answer is made.

    The token opens what the person may reach in the tenant; the paths that are made here are in the namespace.
    """

    server: Cluster
    namespace: str
    credential: str
    request_id: str
    _token: str = field(repr=False)
    _ends: float

    def path(self, group: str, version: str, resource: str, name: str | None = None, sub: str = "") -> str:
        """Of a collection in the namespace, an object, or a part of it. Raises ``NotFound`` for no name."""
        return path_in(self.namespace, group, version, resource, name, sub)

    def read(self, path: str, query: Mapping[str, str | int] | None = None, *, accept: str = JSON) -> dict[str, Any]:
        """A document. Raises ``StatusError`` with the API server's own words, or ours where it has none."""
        return _document(self.fetch("GET", path, query, accept=accept))

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | Sequence[Any],
        query: Mapping[str, str | int] | None = None,
        *,
        content_type: str = JSON,
    ) -> dict[str, Any]:
        """A change, or a question that has a body. Raises as ``read``."""
        return _document(self.fetch(method, path, query, body=body, content_type=content_type))

    @sensitive_variables()
    def fetch(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        *,
        accept: str = JSON,
        body: Mapping[str, Any] | Sequence[Any] | None = None,
        content_type: str = JSON,
    ) -> bytes:
        """What the API server answers, 8 MiB at most. Raises as ``read``; without asking where the answer has taken too long."""
        headers = {
            "Accept": accept,
            "Authorization": f"Bearer {self._token}",
            "User-Agent": f"tenantry-portal ({self.request_id})",
        }
        data = None
        if body is not None:
            headers["Content-Type"], data = content_type, orjson.dumps(body)
        asked = {name: value for name, value in (query or {}).items() if value != ""}
        url = f"{self.server.server.rstrip('/')}{path}{'?' if asked else ''}{urlencode(asked)}"
        left = min(CALL_SECONDS, self._ends - time.monotonic())
        if left <= 0:
            raise ServiceUnavailable(_SLOW, retry_after=5)
        with tracing.span(method, calls=True, http__request__method=method) as span, deadline(left):
            if span is not None:
                headers["traceparent"] = tracing.traceparent()
            status, raw, retry_after = _exchange(self.server, method, url, headers, data, seconds=left)
            if span is not None:
                span.set_attribute("http.response.status_code", status)
        if not 200 <= status < 300:
            raise _refusal(status, raw, retry_after)
        return raw


@sensitive_variables()
def door_of(request: HttpRequest, workspace: Workspace) -> Door:
    """The way of the signed-in person into a workspace.

    Raises ``NotFound`` for who is no member, ``Conflict`` where the tenant is closed, ``Forbidden`` where the portal's
    credential was revoked, ``ServiceUnavailable`` where the portal has no key.
    """
    now = timezone.now()
    server, login = login_of(request, now=now)
    token, credential = session_token(
        actor=actor_of(request), login=login, tenant=workspace.tenant_id, now=now, expires_at=now + _TOKEN_LIFE
    )
    request_id = str(getattr(request, "request_id", ""))
    ends = time.monotonic() + ANSWER_SECONDS
    return Door(server, workspace.k8s_namespace, credential, request_id, token, ends)


def login_of(request: HttpRequest, *, now: datetime) -> tuple[Cluster, Login]:
    """The product's own API server, and the session as a login to it. Raises as ``session_login``."""
    user: Any = request.user
    with everything():  # a login is nobody's row until it is there
        login = session_login(actor=actor_of(request), user=user, session_key=str(request.session.session_key), now=now)
    return own_apiserver(), login


def path_in(namespace: str, group: str, version: str, resource: str, name: str | None = None, sub: str = "") -> str:
    """Of a collection in a namespace, an object, or a part of it. Raises ``NotFound`` for no name."""
    try:
        return object_path(group, version, resource, namespace=namespace, name=name, sub=sub)
    except ValueError:
        raise StatusError("This is no name of an object.", code=404, reason="NotFound") from None


@sensitive_variables()
def _exchange(
    server: Cluster, method: str, url: str, headers: Mapping[str, str], data: bytes | None, *, seconds: float
) -> tuple[int, bytes, str]:
    """Status, body and ``Retry-After`` of one call."""
    import urllib3  # most pages of the portal need no client

    options: dict[str, Any] = {"preload_content": False, "redirect": False, "retries": False}
    options["timeout"] = urllib3.Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds)
    try:
        response = _pool(server.ca_data).request(method, url, body=data, headers=dict(headers), **options)
    except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError):
        raise ServiceUnavailable(_AWAY, retry_after=5) from None
    except urllib3.exceptions.TimeoutError:
        raise ServiceUnavailable(_SLOW, retry_after=5) from None
    except urllib3.exceptions.SSLError:
        raise ServiceUnavailable(
            "The API server's certificate does not fit what is registered: manage.py bootstrap."
        ) from None
    except (urllib3.exceptions.HTTPError, OSError, ValueError):
        raise ServiceUnavailable(_AWAY, retry_after=5) from None
    pieces, size = [], 0
    try:
        while piece := response.read1(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > MOST:
                raise StatusError(f"The answer is larger than {MOST // 1024 // 1024} MiB: use kubectl.", code=413)
    except BaseException as error:
        # A connection that was not read to its end serves no other call.
        response.close()
        if isinstance(error, (urllib3.exceptions.HTTPError, OSError)):
            raise ServiceUnavailable(_SLOW, retry_after=5) from None
        raise
    response.release_conn()
    return response.status, b"".join(pieces), response.headers.get("Retry-After", "")


@lru_cache(maxsize=4)
def _pool(authority: str) -> Any:
    """Connections that trust this authority alone. Raises ``ServiceUnavailable`` for one that is none."""
    import urllib3

    try:
        context = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError):
        raise ServiceUnavailable(
            "The API server's certificate authority cannot be read: manage.py bootstrap."
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslsocket_class = HurriedSocket
    return urllib3.PoolManager(num_pools=2, maxsize=32, ssl_context=context)


def _document(raw: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise StatusError("The cluster's answer was not Kubernetes.", code=502, reason="BadGateway")
    return found


def _refusal(status: int, raw: bytes, retry_after: str) -> StatusError:
    """The ``Status`` that was answered, in its own words."""
    try:
        said = orjson.loads(raw)
    except orjson.JSONDecodeError:
        said = {}
    message, reason = (said.get(name) if isinstance(said, dict) else "" for name in ("message", "reason"))
    code = status if 400 <= status < 600 else 502
    return StatusError(
        visible(message, most=2000) if isinstance(message, str) and message else f"The API server answered {status}.",
        code=code,
        reason=reason if isinstance(reason, str) else "",
        retry_after=int(retry_after) if retry_after.isdigit() and len(retry_after) < 6 else None,
    )
