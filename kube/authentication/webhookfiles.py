"""Kubeconfig-format files that say how to reach a webhook, as kube-apiserver takes them (AN7, AZ5).

The cluster is the webhook, the user is how this server shows itself there. What would run a program, skip the check of
the certificate or go through another host is refused instead of left out.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

FILE_MAX: Final = 1024 * 1024

_REFUSED_CLUSTER: Final = ("insecure-skip-tls-verify", "proxy-url")
_REFUSED_USER: Final = ("exec", "auth-provider", "as", "as-uid", "as-groups", "as-user-extra")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class WebhookFileError(ValueError):
    """A file that does not say how to reach a webhook. The message never holds a credential."""


@dataclass(frozen=True, slots=True)
class Source:
    """A piece of PEM or a token: the ``data`` itself, or the ``path`` of the file that holds it."""

    data: bytes = field(default=b"", repr=False)
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookFile:
    """Where the webhook is and how to speak to it; ``None`` for what the file does not give."""

    url: str
    server_name: str = ""
    ca: Source | None = None
    certificate: Source | None = None
    key: Source | None = None
    token: Source | None = None
    basic: tuple[str, str] | None = field(default=None, repr=False)


def parse(data: bytes) -> WebhookFile:
    """The current context of the file. Raises ``WebhookFileError``."""
    if len(data) > FILE_MAX:
        raise WebhookFileError(f"larger than {FILE_MAX} bytes")
    try:
        config = yaml.safe_load(data.decode("utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError):
        raise WebhookFileError("not YAML") from None
    if not isinstance(config, dict) or config.get("kind", "Config") != "Config":
        raise WebhookFileError("not of kind Config")
    context = _named(config, "contexts", "context", _text(config, "current-context"))
    cluster = _named(config, "clusters", "cluster", _text(context, "cluster"))
    user_name = _text(context, "user")
    user = _named(config, "users", "user", user_name) if user_name else {}
    for refused, of in ((_REFUSED_CLUSTER, cluster), (_REFUSED_USER, user)):
        for key in refused:
            if of.get(key):
                raise WebhookFileError(f"{key} is not supported")
    certificate, private = _source(user, "client-certificate"), _source(user, "client-key")
    if (certificate is None) != (private is None):
        raise WebhookFileError("client-certificate and client-key belong together")
    name, password = _text(user, "username"), _text(user, "password")
    return WebhookFile(
        url=checked_url(_text(cluster, "server")),
        server_name=_text(cluster, "tls-server-name"),
        ca=_source(cluster, "certificate-authority"),
        certificate=certificate,
        key=private,
        token=_token(user),
        basic=(name, password) if name else None,
    )


def checked_url(url: str) -> str:
    """The URL of an outside service: ``https``, or plain ``http`` to this very host. Raises ``WebhookFileError``."""
    try:
        parts = urlsplit(url)
        port_is_right = parts.port is None or parts.port > 0
    except ValueError:
        raise WebhookFileError("not a URL") from None
    if not parts.hostname or not port_is_right or "@" in parts.netloc or parts.fragment or not url.isascii():
        raise WebhookFileError("not the URL of a service")
    if any(character <= " " or character == "\x7f" for character in url):
        raise WebhookFileError("not the URL of a service")
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise WebhookFileError("the URL must start with https://")
    return url


def _named(config: Mapping[str, Any], plural: str, singular: str, name: str) -> Mapping[str, Any]:
    entries = config.get(plural)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(singular), dict):
            found: Mapping[str, Any] = entry[singular]
            return found
    raise WebhookFileError(f"no {singular} named {name!r}")


def _text(of: Mapping[str, Any], key: str) -> str:
    value = of.get(key, "")
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WebhookFileError(f"{key} must be text")
    return value


def _source(of: Mapping[str, Any], key: str) -> Source | None:
    encoded, path = _text(of, f"{key}-data"), _text(of, key)
    if encoded:
        try:
            return Source(data=base64.b64decode("".join(encoded.split()), validate=True))
        except (binascii.Error, ValueError):
            raise WebhookFileError(f"{key}-data is not base64") from None
    return Source(path=path) if path else None


def _token(user: Mapping[str, Any]) -> Source | None:
    path, token = _text(user, "tokenFile"), _text(user, "token")
    if path:
        return Source(path=path)
    if token and not token.isprintable():
        raise WebhookFileError("token must be one line")
    return Source(data=token.encode()) if token else None
