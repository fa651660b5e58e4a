"""Speaks to clusters as the gateway: the official client's configuration, our own TLS context and typed outcomes.

One connection pool per cluster and credential, deadlines on every call that no drip of bytes prolongs, no retries and no
redirects inside (the operation decides about trying again), answers of 4 MiB at most, and whatever comes is hostile
until it has been read as the Kubernetes object that was asked for. A credential is never in an error, a log or a
``repr``.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit
from uuid import UUID

import orjson

from audit import tracing
from kube.authentication.kubeconfig import InvalidKubeconfig, RegisteredCluster, read_kubeconfig
from tenants.clusters import encryption
from tenants.clusters.deadline import HurriedSocket, deadline
from tenants.models import Cluster

MAX_ANSWER: Final = 4 * 1024 * 1024
CONNECT_SECONDS: Final = 3.0
CALL_SECONDS: Final = 5.0
"""The whole of one call. Leases of operations are longer, so that no call outlives its lease, and short enough for a
suspension to begin within 10 s of a worker's death."""

PATIENCE_SECONDS: Final = 20.0
"""All calls of one look at a cluster, or one turn of an operation; what is left is done in another."""

_LONGEST_RETRY_AFTER: Final = 300.0
_OTHER_UID: Final = re.compile(r"UID in (the )?precondition")


class Outcome(StrEnum):
    """What came of a call."""

    DONE = "done"
    ABSENT = "absent"
    EXISTS = "exists"
    RETRY = "retry"
    """Refused for now: try again, not before ``retry_after``."""
    DENIED = "denied"
    """Refused for good, until somebody changes something."""
    UNKNOWN = "unknown"
    """Nobody can tell whether it was done: read back."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a call, its JSON (an issued token may be in it: not in ``repr``), and words for people."""

    outcome: Outcome
    code: int = 0
    body: dict[str, Any] = field(default_factory=dict, repr=False)
    message: str = ""
    retry_after: float | None = None
    reached: bool = True

    @property
    def metadata(self) -> dict[str, Any]:
        """The object's metadata, an empty one if there is none."""
        found = self.body.get("metadata")
        return found if isinstance(found, dict) else {}


class ClusterUnusable(Exception):
    """The cluster cannot even be asked: no credential, or one that cannot be opened. The text is for people."""


class ClusterClient:
    """Calls one cluster, in one tenant's space of it if it is the embedded one.

    ``before_call`` runs before every call, with whether it changes something: an operation checks its fence there.
    ``bearer`` replaces the gateway's credential by a token: the canary of a suspension. Once all calls together have
    taken ``patience`` seconds the cluster counts as one that does not answer: a slow one holds up nobody for long.
    """

    def __init__(
        self, pool: _Pool, prefix: str, *, before_call: Callable[[bool], None] | None = None, patience: float
    ) -> None:
        self._pool = pool
        self._prefix = prefix
        self._before_call = before_call
        self._patience = patience

    def get(self, path: str) -> Answer:
        """Read one object or list; another one than was asked for is UNKNOWN."""
        answer = self._call("GET", path)
        if answer.outcome is Outcome.DONE and not _is_asked_for(path, answer.body):
            return Answer(Outcome.UNKNOWN, answer.code, message="The cluster answered with something else.")
        return answer

    def version(self) -> Answer:
        """Ask the API server which one it is; ``gitVersion`` of the body."""
        return self._call("GET", "/version")

    def create(self, path: str, body: Mapping[str, Any]) -> Answer:
        """POST an object to its collection or subresource."""
        return self._call("POST", path, body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Answer:
        """A JSON merge patch."""
        return self._call("PATCH", path, body, media_type="application/merge-patch+json")

    def delete(self, path: str, *, uid: str = "", propagation: str = "Background") -> Answer:
        """Delete one object. DONE does not say that it is gone.

        With ``uid`` only that one is meant: it is ABSENT when another stands under its name.
        """
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        answer = self._call("DELETE", path, options)
        if uid and answer.code == 409 and _OTHER_UID.search(answer.message):
            return Answer(Outcome.ABSENT, answer.code, message=answer.message)
        return answer

    def delete_all(self, path: str, *, grace_seconds: int) -> Answer:
        """Delete what is in a collection, each within ``grace_seconds``; the answer lists what was still there."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace_seconds}
        return self._call("DELETE", path, options)

    def create_as(self, token: str, path: str, body: Mapping[str, Any]) -> Answer:
        """POST with ``token`` instead of the gateway's credential."""
        return self._call("POST", path, body, bearer=token)

    def get_as(self, token: str, path: str) -> Answer:
        """Read one object or list with ``token`` instead of the gateway's credential."""
        return self._call("GET", path, bearer=token)

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        media_type: str = "application/json",
        bearer: str = "",
    ) -> Answer:
        if self._patience <= 0:
            return Answer(Outcome.RETRY, message="The cluster answers too slowly.", reached=False)
        if self._before_call is not None:
            self._before_call(method != "GET")
        headers = {"Accept": "application/json", "User-Agent": "tenantry"}
        token = bearer or self._pool.access.token
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None
        if body is not None:
            headers["Content-Type"] = media_type
            data = json.dumps(body).encode()
        begun = time.monotonic()
        try:
            with tracing.span(method, calls=True, http__request__method=method, **self._pool.named) as span:
                if span is not None:
                    headers["traceparent"] = tracing.traceparent()
                answer = self._pool.request(method, f"{self._prefix}{path}", headers, data, as_client=not bearer)
                if span is not None:
                    span.set_attribute("http.response.status_code", answer.code)
                return answer
        finally:
            self._patience -= time.monotonic() - begun


class _Pool:
    """The connections to one cluster with one credential."""

    def __init__(self, access: RegisteredCluster) -> None:
        # The client library takes a second to import, and web processes rarely need it.
        import urllib3
        from kubernetes import client

        self.access = access
        configuration = client.Configuration()
        configuration.host = access.server.rstrip("/")
        self._host = configuration.host
        asked = urlsplit(self._host)
        self.named: dict[str, str | int] = {"server__address": asked.hostname or "", "server__port": asked.port or 443}
        self._library = urllib3
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, total=CALL_SECONDS)
        common: dict[str, Any] = {"num_pools": 2, "maxsize": 32, "retries": False, "timeout": timeout}
        if access.server_name:
            common |= {"server_hostname": access.server_name, "assert_hostname": access.server_name}
        self._own = urllib3.PoolManager(ssl_context=_hurried(access, with_certificate=True), **common)
        # A canary's token must not be helped by the gateway's certificate.
        self._bare = urllib3.PoolManager(ssl_context=_hurried(access, with_certificate=False), **common)

    def request(
        self, method: str, path: str, headers: dict[str, str], data: bytes | None, *, as_client: bool
    ) -> Answer:
        """One call; every failure is an outcome."""
        errors = self._library.exceptions
        manager = self._own if as_client else self._bare
        try:
            with deadline(CALL_SECONDS):
                response = manager.request(
                    method, self._host + path, body=data, headers=headers, preload_content=False, redirect=False
                )
                try:
                    raw = response.read(MAX_ANSWER + 1, decode_content=True)
                except BaseException:
                    response.close()
                    raise
            if len(raw) > MAX_ANSWER:
                # A half-read connection must not serve another call.
                response.close()
            else:
                response.release_conn()
        except (errors.NewConnectionError, errors.ConnectTimeoutError, errors.NameResolutionError) as error:
            return Answer(Outcome.RETRY, message=f"The cluster cannot be reached: {_words(error)}.", reached=False)
        except errors.SSLError:
            message = "The cluster's certificate does not fit the registered certificate authority."
            return Answer(Outcome.RETRY, message=message, reached=False)
        except (errors.HTTPError, OSError, ValueError) as error:
            message = f"The cluster's answer did not arrive: {_words(error)}."
            return Answer(Outcome.UNKNOWN, message=message, reached=False)
        return _read(method, response.status, response.headers, raw)


def client_for(
    cluster: Cluster,
    tenant: str,
    *,
    before_call: Callable[[bool], None] | None = None,
    patience: float = PATIENCE_SECONDS,
) -> ClusterClient:
    """A client for what a tenant has on a cluster.

    On the embedded cluster the tenant's space is ``/clusters/root:<tenant>``. Raises ``ClusterUnusable``.
    """
    if not tenant:
        raise ValueError("a tenant is needed")
    prefix = f"/clusters/root:{quote(tenant, safe='')}" if cluster.kind == Cluster.Kind.EMBEDDED else ""
    return ClusterClient(_pool_of(cluster), prefix, before_call=before_call, patience=patience)


def client_to(cluster: Cluster) -> ClusterClient:
    """A client for the cluster itself, in nobody's space of it. Raises ``ClusterUnusable``."""
    return ClusterClient(_pool_of(cluster), "", patience=PATIENCE_SECONDS)


def client_with(access: RegisteredCluster) -> ClusterClient:
    """A client for the cluster itself with a credential that is not kept yet."""
    return ClusterClient(_Pool(access), "", patience=PATIENCE_SECONDS)


def access_to(cluster: Cluster) -> RegisteredCluster:
    """What the stored credential is; it stays in memory. Raises ``ClusterUnusable``."""
    return _pool_of(cluster).access


class Place(NamedTuple):
    """Where a registered cluster is, and whom it has to show to be: what has another is another one, whatever its name."""

    cluster: UUID
    server: str
    authority: bytes
    server_name: str


def place_of(cluster: Cluster) -> Place:
    """By the stored credential. Raises ``ClusterUnusable``."""
    access = access_to(cluster)
    return Place(cluster.pk, access.server, access.certificate_authority, access.server_name)


def object_path(
    group: str, version: str, resource: str, *, namespace: str | None = None, name: str | None = None, sub: str = ""
) -> str:
    """The URL path of an object or collection. An empty namespace or name is a defect, and no request."""
    parts = ["api", version] if not group else ["apis", group, version]
    if namespace is not None:
        parts += ["namespaces", namespace]
    parts.append(resource)
    if name is not None:
        parts.append(name)
    if sub:
        parts.append(sub)
    if not all(parts) or any(part in {".", ".."} for part in parts):
        raise ValueError("an empty or dotted part would change what the path means")
    return "/" + "/".join(quote(part, safe=":") for part in parts)


_pools: dict[UUID, tuple[bytes, _Pool]] = {}
_pools_lock = threading.Lock()


def _pool_of(cluster: Cluster) -> _Pool:
    """The pool for the cluster's present credential; a replaced one is forgotten."""
    sealed = bytes(cluster.sealed_credential) if cluster.sealed_credential else b""
    if not sealed:
        raise ClusterUnusable(f"The cluster {cluster.name} has no credential: register its kubeconfig again.")
    with _pools_lock:
        known = _pools.get(cluster.pk)
        if known is not None and known[0] == sealed:
            return known[1]
    try:
        access = read_kubeconfig(encryption.decrypt(sealed))
    except encryption.DecryptionError as error:
        raise ClusterUnusable(str(error)) from None
    except InvalidKubeconfig:
        raise ClusterUnusable(f"The credential of {cluster.name} is damaged: register its kubeconfig again.") from None
    if access.server != cluster.server:
        raise ClusterUnusable(f"The credential of {cluster.name} was made for another server.")
    pool = _Pool(access)
    with _pools_lock:
        _pools[cluster.pk] = (sealed, pool)
    return pool


def _hurried(access: RegisteredCluster, *, with_certificate: bool) -> ssl.SSLContext:
    context = tls_context(access, with_certificate=with_certificate)
    context.sslsocket_class = HurriedSocket
    return context


def tls_context(access: RegisteredCluster, *, with_certificate: bool) -> ssl.SSLContext:
    """What proves the cluster to us and, where its credential is a certificate and it is wanted, us to the cluster."""
    context = ssl.create_default_context(cadata=access.certificate_authority.decode("ascii"))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if with_certificate and access.client_certificate:
        # OpenSSL reads keys from files only; this one lives in memory and is gone when it is closed.
        file = os.memfd_create("credential", os.MFD_CLOEXEC)
        try:
            os.write(file, access.client_certificate + b"\n" + access.client_key)
            context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)
    return context


def _read(method: str, code: int, headers: Mapping[str, str], raw: bytes) -> Answer:
    """What an HTTP answer means for an operation."""
    body: dict[str, Any] | None = None
    if len(raw) <= MAX_ANSWER:
        try:
            loaded = orjson.loads(raw)
            body = loaded if _is_object(loaded) else None
        except orjson.JSONDecodeError:
            body = None
    retry_after = _seconds(headers.get("Retry-After"))
    said = _printable((body or {}).get("message"))
    reason = _printable((body or {}).get("reason"))
    if 200 <= code < 300:
        # What is said of the version is no object.
        if body is None or not (body.get("kind") or body.get("apiVersion") or body.get("gitVersion")):
            return Answer(Outcome.UNKNOWN, code, message="The cluster's answer was not Kubernetes.")
        return Answer(Outcome.DONE, code, body)
    if code == 404 and body is not None and reason == "NotFound":
        return Answer(Outcome.ABSENT, code, message=said)
    if code == 409 and reason == "AlreadyExists":
        return Answer(Outcome.EXISTS, code, message=said)
    if code in {409, 429} or (code == 403 and "being terminated" in said):
        return Answer(
            Outcome.RETRY, code, message=f"The cluster asks to try again: {said or code}", retry_after=retry_after
        )
    if code == 401:
        return Answer(Outcome.DENIED, code, message="The cluster does not accept the gateway's credential.")
    if code in {400, 403, 405, 422} and body is not None:
        return Answer(Outcome.DENIED, code, message=f"The cluster refused: {said or reason or code}")
    outcome = Outcome.RETRY if method == "GET" or code == 503 else Outcome.UNKNOWN
    return Answer(outcome, code, message=f"The cluster answered {code}.", retry_after=retry_after)


def _is_object(value: object) -> bool:
    """Whether every part of an object, or of a list's, that the gateway reads is of the type that it has."""
    if not isinstance(value, dict):
        return False
    metadata, items = value.get("metadata") or {}, value.get("items") or []
    if not isinstance(metadata, dict) or not isinstance(items, list) or not all(map(_is_object, items)):
        return False
    for name in ("name", "uid", "deletionTimestamp", "continue"):
        text = metadata.get(name)
        # Names of Roles and RoleBindings may hold anything; the others are made by the cluster.
        if text is not None and not (isinstance(text, str) and (name == "name" or text.isprintable())):
            return False
    for name in ("labels", "annotations"):
        texts = metadata.get(name) or {}
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            return False
    parts = ["spec", *(["status"] if value.get("kind") != "Status" else [])]
    return all(isinstance(value.get(part) or {}, dict) for part in parts)


def _is_asked_for(path: str, body: Mapping[str, Any]) -> bool:
    if str(body.get("kind")).endswith("List"):
        return True
    metadata = body.get("metadata") or {}
    return bool(metadata.get("uid")) and metadata.get("name") == unquote(path.partition("?")[0].rpartition("/")[2])


def _printable(text: object) -> str:
    """What a cluster says, as it can be stored and shown."""
    said = text[:300] if isinstance(text, str) else ""
    return "".join(char if char.isprintable() else " " for char in said)


def _seconds(value: str | None) -> float | None:
    """``Retry-After`` in whole seconds, bounded; a date there is as good as none."""
    if value is None or not value.strip().isdigit():
        return None
    return min(float(value.strip()[:9]), _LONGEST_RETRY_AFTER)


def _words(error: Exception) -> str:
    """The kind of a transport error; its text may quote headers."""
    name = type(error).__name__.removesuffix("Error")
    return {"NewConnection": "connection refused", "ConnectTimeout": "no connection in time"}.get(name, name)
