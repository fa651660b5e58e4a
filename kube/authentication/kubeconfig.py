"""Kubeconfigs: the one that a user downloads (GW3), and the one that an operator registers a cluster with.

A kubeconfig is run by kubectl, not just read: an ``exec`` section in one starts programs. What goes out is therefore
written by a serializer, read again and compared; what comes in may hold data only.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from kube.authentication.serviceaccounttokens import is_token
from kube.requests.names import is_dns_label, is_dns_subdomain

SIZE_MAX: Final = 256 * 1024
DEPTH_MAX: Final = 16

_PEM: Final = re.compile(rb"\s*(?:-----BEGIN [A-Z0-9 ]+-----\r?\n[A-Za-z0-9+/=\r\n]+-----END [A-Z0-9 ]+-----\s*)+")
_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_BEARER: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,16384}")
_NO_NAME: Final = re.compile(r"[^a-z0-9.]+")
_SERVER: Final = re.compile(r"https://[A-Za-z0-9.:\[\]_~!$&'()*+,;=/-]+")

_CLUSTER_FIELDS: Final = frozenset({"server", "certificate-authority-data", "tls-server-name"})
_USER_FIELDS: Final = frozenset({"token", "client-certificate-data", "client-key-data"})


class InvalidKubeconfig(ValueError):
    """A kubeconfig that is not accepted; the message repeats no credential."""


def check_server(url: str) -> str:
    """The URL of an API server: https, a host, no user, query or fragment. Raises ``InvalidKubeconfig``."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidKubeconfig("the server is no URL") from error
    if parts.scheme != "https" or not parts.hostname or not _SERVER.fullmatch(url) or len(url) > 2048 or port == 0:
        raise InvalidKubeconfig("the server must be an https URL without user, query or fragment")
    if "//" in parts.path or any(segment in {".", ".."} for segment in parts.path.split("/")):
        raise InvalidKubeconfig("the server's path is malformed")
    return url


def _pem(encoded: object, what: str, marker: bytes) -> bytes:
    if not isinstance(encoded, str):
        raise InvalidKubeconfig(f"{what} must be base64")
    try:
        pem = base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error) as error:
        raise InvalidKubeconfig(f"{what} must be base64") from error
    if marker not in pem or not _PEM.fullmatch(pem):
        raise InvalidKubeconfig(f"{what} must be PEM")
    return pem


class _Loader(yaml.SafeLoader):
    """YAML as JSON has it: text stays text, no aliases, no key twice."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent) or self._depth > DEPTH_MAX:
            raise InvalidKubeconfig("a kubeconfig has no aliases and no such depth")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) != len(node.value):
            raise InvalidKubeconfig("a key is given twice")
        return mapping


_Loader.yaml_implicit_resolvers = {}
for _first in "tTfF":
    _Loader.add_implicit_resolver(
        "tag:yaml.org,2002:bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), [_first]
    )
for _first in ("n", "N", "~", ""):
    _Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(?:null|Null|NULL|~|)\Z"), [_first])


def _read(text: str) -> Mapping[str, Any]:
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 -- a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, InvalidKubeconfig):
            raise
        raise InvalidKubeconfig("the kubeconfig is no YAML") from None
    if not isinstance(document, dict):
        raise InvalidKubeconfig("the kubeconfig is no object")
    return document


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One context of a file: a namespace, the API server that it is on, and what opens it: a token, or a plugin.

    ``server`` is an https URL, ``certificate_authority`` PEM (empty: the client's own trust store), ``token`` a signed
    token; ``plugin`` is the command of a credential plugin with its arguments, of printable characters, and ``install``
    says how it is installed. ``name`` says in DNS names what is opened and as what, as ``acme.web.editor``.
    """

    name: str
    server: str
    certificate_authority: bytes
    namespace: str
    token: str = field(default="", repr=False)
    plugin: tuple[str, ...] = ()
    install: str = ""

    @property
    def cluster(self) -> str:
        """What the API server is called: its address, as far as a name can hold it."""
        return _NO_NAME.sub("-", self.server.removeprefix("https://").lower()).strip("-.")

    @property
    def context(self) -> str:
        """What it is called, and its user: names of their own, so that several files in ``KUBECONFIG`` shadow nothing."""
        return f"{self.name}@{self.cluster}"


def _user(access: Access) -> dict[str, Any]:
    if not access.plugin:
        if not is_token(access.token):
            raise InvalidKubeconfig("the token is no signed token")
        return {"token": access.token}
    if access.token or not all(part.isascii() and part.isprintable() and part for part in access.plugin):
        raise InvalidKubeconfig("the plugin is malformed")
    command, *arguments = access.plugin
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": command,
            "args": arguments,
            "installHint": access.install,
            "interactiveMode": "IfAvailable",
            "provideClusterInfo": False,
        }
    }


def write_kubeconfig(accesses: Sequence[Access]) -> str:
    """A kubeconfig as YAML (GW3, GW7), a context for each access; the first one is the current context.

    What opens several of them is one user, called as the first of these. Raises ``InvalidKubeconfig`` for anything but
    what ``Access`` promises, so that a hostile cluster's answer never becomes a file, and for two accesses of one name.
    """
    clusters: dict[str, dict[str, str]] = {}
    contexts: dict[str, dict[str, str]] = {}
    users: dict[str, dict[str, Any]] = {}
    opening: dict[tuple[str, tuple[str, ...]], str] = {}
    for access in accesses:
        check_server(access.server)
        if not is_dns_label(access.namespace) or not is_dns_subdomain(access.name):
            raise InvalidKubeconfig("a name is malformed")
        entry = {"server": access.server}
        if access.certificate_authority:
            encoded = base64.b64encode(access.certificate_authority).decode("ascii")
            _pem(encoded, "the certificate authority", _CERTIFICATE)
            entry["certificate-authority-data"] = encoded
        cluster, context = access.cluster, access.context
        if context in contexts or clusters.setdefault(cluster, entry) != entry:
            raise InvalidKubeconfig("a name is given twice")
        user = opening.setdefault((access.token, access.plugin), context)
        if user == context:
            users[user] = _user(access)
        contexts[context] = {"cluster": cluster, "namespace": access.namespace, "user": user}
    document = {
        "apiVersion": "v1",
        "clusters": [{"cluster": entry, "name": name} for name, entry in clusters.items()],
        "contexts": [{"context": entry, "name": name} for name, entry in contexts.items()],
        "current-context": next(iter(contexts), ""),
        "kind": "Config",
        "users": [{"name": name, "user": entry} for name, entry in users.items()],
    }
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=False, width=2**31)
    if _read(text) != document:
        raise InvalidKubeconfig("the kubeconfig does not read as it was written")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredCluster:
    """How to reach a cluster; ``repr`` shows no credential.

    Either ``token`` or both ``client_certificate`` and ``client_key`` are given. The certificates are PEM.
    """

    server: str
    certificate_authority: bytes
    server_name: str = ""
    token: str = field(default="", repr=False)
    client_certificate: bytes = field(default=b"", repr=False)
    client_key: bytes = field(default=b"", repr=False)


def _named(document: Mapping[str, Any], plural: str, name: object, singular: str) -> dict[str, Any]:
    entries = document.get(plural)
    if not isinstance(entries, list) or len(entries) > 100 or not isinstance(name, str):
        raise InvalidKubeconfig(f"the {singular} is missing")
    found = [entry for entry in entries if isinstance(entry, dict) and entry.get("name") == name]
    if len(found) != 1 or not isinstance(found[0].get(singular), dict):
        raise InvalidKubeconfig(f"the {singular} is missing or given twice")
    chosen: dict[str, Any] = found[0][singular]
    return chosen


def read_kubeconfig(text: str) -> RegisteredCluster:
    """What an operator registers a cluster with: the current context of a kubeconfig that holds data only.

    Raises ``InvalidKubeconfig`` for plain http, ``insecure-skip-tls-verify``, ``exec``, ``auth-provider``, files,
    passwords, proxies, impersonation and anything else that is not known to be harmless.
    """
    if len(text) > SIZE_MAX:
        raise InvalidKubeconfig("the kubeconfig is too large")
    document = _read(text)
    if document.get("kind", "Config") != "Config" or document.get("apiVersion", "v1") != "v1":
        raise InvalidKubeconfig("the kubeconfig is not of kind Config, v1")
    context = _named(document, "contexts", document.get("current-context"), "context")
    cluster = _named(document, "clusters", context.get("cluster"), "cluster")
    user = _named(document, "users", context.get("user"), "user")
    for entry, known in ((cluster, _CLUSTER_FIELDS), (user, _USER_FIELDS)):
        unknown = sorted(str(key) for key in set(entry) - known)
        if unknown:
            raise InvalidKubeconfig(f"not allowed here: {', '.join(unknown)[:200]}")
    server, server_name = cluster.get("server"), cluster.get("tls-server-name", "")
    if not isinstance(server, str) or not isinstance(server_name, str):
        raise InvalidKubeconfig("the server is missing")
    if server_name and not is_dns_subdomain(server_name):
        raise InvalidKubeconfig("tls-server-name is no host name")
    authority = _pem(cluster.get("certificate-authority-data"), "certificate-authority-data", _CERTIFICATE)
    token = user.get("token", "")
    pair = [user.get("client-certificate-data"), user.get("client-key-data")]
    if token and pair == [None, None]:
        if not isinstance(token, str) or not _BEARER.fullmatch(token):
            raise InvalidKubeconfig("the token is malformed")
        return RegisteredCluster(
            server=check_server(server), certificate_authority=authority, server_name=server_name, token=token
        )
    if token or None in pair:
        raise InvalidKubeconfig("there must be either a token or a client certificate with its key")
    return RegisteredCluster(
        server=check_server(server),
        certificate_authority=authority,
        server_name=server_name,
        client_certificate=_pem(pair[0], "client-certificate-data", _CERTIFICATE),
        client_key=_pem(pair[1], "client-key-data", b" PRIVATE KEY-----"),
    )
