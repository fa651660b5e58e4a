"""Reads the kubeconfig that an operator registers: only what needs no program and no file (GW12)."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import yaml
from cryptography import x509

from kube.status import Cause, Invalid

MAX_SIZE = 256 * 1024


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a cluster. The last three are secrets: never in a ``repr``, a log or an error."""

    server: str
    ca: str
    certificate: str
    key: str
    token: str

    def __repr__(self) -> str:
        return f"Access({self.server})"


def read_kubeconfig(text: str) -> Access:
    """The current context of ``text``.

    Raises ``Invalid`` naming the field for anything but an https server with an inline CA and an inline client
    certificate or token: no exec or auth-provider plugins, no file names, no proxy, no skipped verification.
    """
    config = _mapping(_parse(text), "")
    context_name = config.get("current-context")
    context = _mapping(_named(config, "contexts", context_name, "context"), f"contexts[{context_name}]")
    cluster = _mapping(_named(config, "clusters", context.get("cluster"), "cluster"), "cluster")
    user = _mapping(_named(config, "users", context.get("user"), "user"), "user")
    for section, where in ((cluster, "cluster"), (user, "user")):
        for field in section:
            if field not in _FIELDS[where]:
                raise _invalid(f"{where}.{field}", "this is not supported in a registered kubeconfig")
    access = Access(
        server=check_server(str(cluster.get("server") or "")),
        ca=check_ca(_decoded(cluster, "certificate-authority-data", "cluster")),
        certificate=_decoded(user, "client-certificate-data", "user"),
        key=_decoded(user, "client-key-data", "user"),
        token=str(user.get("token") or ""),
    )
    if bool(access.certificate) != bool(access.key) or not (access.certificate or access.token):
        raise _invalid("user", "a client certificate with its key, or a token, is needed")
    if not access.token.isprintable() or not access.token.isascii():
        raise _invalid("user.token", "this is no bearer token")
    return access


def check_server(url: str) -> str:
    """``url`` without a trailing slash if it is a plain https URL, else ``Invalid``."""
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        raise _invalid("cluster.server", "this is no URL") from None
    if parts.scheme != "https" or not parts.hostname or not port_is_fine:
        raise _invalid("cluster.server", "the server must be an https URL")
    if parts.username or parts.password or parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise _invalid("cluster.server", "the URL may hold a host, a port and a path, nothing else")
    if len(url) > 512 or any(segment in {".", ".."} for segment in parts.path.split("/")):
        raise _invalid("cluster.server", "the path must be plain")
    return url.rstrip("/")


def check_ca(pem: str) -> str:
    """``pem`` if it holds at least one certificate, else ``Invalid``."""
    try:
        if x509.load_pem_x509_certificates(pem.encode()):
            return pem
    except ValueError:
        pass
    raise _invalid("cluster.certificate-authority-data", "an inline certificate authority (PEM, base64) is needed")


_FIELDS = {
    "cluster": {"server", "certificate-authority-data", "extensions"},
    "user": {"client-certificate-data", "client-key-data", "token"},
}


def _parse(text: str) -> Any:
    if len(text) > MAX_SIZE:
        raise _invalid("kubeconfig", f"more than {MAX_SIZE} characters")
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise _invalid("kubeconfig", "aliases are not supported")
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        # The parser's words quote the text, and the text holds a key.
        raise _invalid("kubeconfig", "this is no YAML") from None


def _mapping(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise _invalid(field or "kubeconfig", "an object is needed")
    return value


def _named(config: dict[str, Any], section: str, name: Any, key: str) -> Any:
    items = config.get(section)
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict) and item.get("name") == name and isinstance(name, str):
            return item.get(key)
    raise _invalid(section, "the current context names nothing here")


def _decoded(section: dict[str, Any], field: str, where: str) -> str:
    value = section.get(field) or ""
    try:
        return base64.b64decode(str(value), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise _invalid(f"{where}.{field}", "this is no base64 of PEM") from None


def _invalid(field: str, message: str) -> Invalid:
    causes = [Cause("FieldValueInvalid", message, field)]
    return Invalid(f"Cluster is invalid: {field}: {message}", kind="Cluster", causes=causes)
