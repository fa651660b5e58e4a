"""Every key and certificate that an installation in a cluster needs, made at once and printed as Secrets."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from audit.checkpoints import private_keys
from gateway.http.certificates import client_kubeconfig, prepare
from gateway.options import Options
from portal.quickstart.layout import Layout, write_once
from portal.quickstart.ownapiserver import GATEWAY_USER

MONITORING_USER: Final = "tenantry-monitoring"
"""Prometheus, to the API server: of the group that Kubernetes has for it."""

_RUNNING: Final = (
    *("ca.crt", "client-ca.crt", "server.crt", "server.key", "service-account.key", "portal-tokens.key"),
    *("audit-checkpoints.key", "audit-checkpoints.key.pub", f"{GATEWAY_USER}.crt", f"{GATEWAY_USER}.key"),
)
"""What parts mount; the keys of the authorities are in a Secret that no Pod does."""


def keys_make(folder: Path, *, url: str, names: Sequence[str] = ()) -> None:
    """Everything that is missing in a data folder. ``url`` is the API server's, ``names`` what else it is called."""
    Layout(folder).make_secrets()
    write_once(folder / "metrics-token", secrets.token_urlsafe(32))
    host = urlsplit(url).hostname
    options = Options(
        database_url="", data_folder=folder, external_url=url, certificate_names=(*((host,) if host else ()), *names)
    )
    prepare(options)
    client_kubeconfig(options, GATEWAY_USER, organizations=["tenant:system"])
    client_kubeconfig(options, MONITORING_USER, organizations=["tenant:system"], units=["system:monitoring"])
    private_keys(folder / "pki" / "audit-checkpoints.key")


def keys_secrets(folder: Path, *, namespace: str, prefix: str) -> list[dict[str, Any]]:
    """What ``keys_make`` has made, as Secrets: for the parts, for the authorities' owner, and for Prometheus."""
    pki = folder / "pki"
    authority = {
        # The names that cert-manager's CA issuer asks for.
        "tls.crt": _read(pki / "ca.crt"),
        "tls.key": _read(pki / "ca.key"),
        **_files(pki, ("client-ca.crt", "client-ca.key")),
        "admin.kubeconfig": _read(folder / "admin.kubeconfig"),
    }
    monitoring = {
        "tls.crt": _read(pki / f"{MONITORING_USER}.crt"),
        "tls.key": _read(pki / f"{MONITORING_USER}.key"),
        "ca.crt": _read(pki / "ca.crt"),
        "token": _read(folder / "metrics-token"),
    }
    running = {**_files(pki, _RUNNING), **_files(folder, ("secret-key", "sealing-key", "metrics-token"))}
    return [
        _secret(namespace, f"{prefix}-keys", running),
        _secret(namespace, f"{prefix}-authority", authority, kind="kubernetes.io/tls"),
        _secret(namespace, f"{prefix}-monitoring", monitoring, kind="kubernetes.io/tls"),
    ]


def databases_secrets(*, namespace: str, prefix: str) -> list[dict[str, Any]]:
    """Passwords of the small PostgreSQL and Redis that the chart can bring along."""
    owner, product, cache = (secrets.token_urlsafe(24) for _ in range(3))
    at = f"{prefix}-postgresql:5432/tenantry"
    database = {
        "url": f"postgresql://tenantry_product:{product}@{at}",
        "migration-url": f"postgresql://tenantry:{owner}@{at}",
        "password": owner,
    }
    settings = ('save ""', "maxmemory 200mb", "maxmemory-policy noeviction", f"requirepass {cache}")
    redis = {"url": f"redis://:{cache}@{prefix}-redis:6379/0", "redis.conf": "\n".join((*settings, ""))}
    return [
        _secret(namespace, f"{prefix}-database", {name: text.encode() for name, text in database.items()}),
        _secret(namespace, f"{prefix}-redis", {name: text.encode() for name, text in redis.items()}),
    ]


def _read(path: Path) -> bytes:
    return path.read_bytes()


def _files(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    return {name: _read(folder / name) for name in names}


def _secret(namespace: str, name: str, data: Mapping[str, bytes], *, kind: str = "Opaque") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": kind,
        "data": {key: base64.b64encode(value).decode() for key, value in sorted(data.items())},
    }
