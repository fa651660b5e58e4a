"""From the raw bytes of a request line to the one value that everything downstream uses.

``parse`` knows nothing of the caller, ``resolve`` fills in whose space a short path means (SPACES, resource URL
endpoint resolution; TS4 to TS7, TS13, TS14, KC13). Verbs are derived as ``k8s.io/apiserver`` derives them. A path that
two readers could read in two ways is refused here and reaches no handler: nothing is collapsed, folded or repaired.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from kube.requests.fieldselectors import FieldTerm, exact_match
from kube.requests.logicalclusters import ROOT, full_path, is_valid, space_of, tenant_of
from kube.requests.names import SYSTEM_TENANT, is_dns_label, is_dns_subdomain, is_tenant_name, path_segment
from kube.requests.quoting import unescaped
from kube.requests.status import BadRequest, MethodNotAllowed, NotFound, StatusError

PATH_MAX: Final = 8192
"""Bytes of a path."""

QUERY_MAX: Final = 65536
"""Bytes of a query: label selectors of generated clients are long."""

PARAMETERS_MAX: Final = 256
"""Parameters of a query, but for the words of a command."""

WORDS_MAX: Final = 4096
"""Words of a command that is run in a container: each is a parameter."""

ALL_TENANTS: Final = "*"

_VERBS: Final = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "OPTIONS": "",
}
"""As ``RequestInfoFactory`` has them: only a rule for all verbs covers OPTIONS."""
_PLAIN: Final = re.compile(rb"(?:/[A-Za-z0-9_~!$&'()*+,;=:@.-]+)+/?|/")
_ENCODED: Final = re.compile(rb"(?:/(?:[A-Za-z0-9_~!$&'()*+,;=:@.-]|%[0-9A-Fa-f]{2})+)+/?")
_ENCODED_DOT: Final = re.compile(rb"%2[Ee]")
_BAD_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_IDENTIFIER: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_QUERY: Final = re.compile(rb"[\x21-\x7e]*")
_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f/\\\u2028\u2029\ufffe\uffff]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

_TENANT_SUBRESOURCES: Final = frozenset({"status", "finalize"})
_NO_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
_NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})
_RBAC: Final = "rbac.authorization.k8s.io"
_SELECTING: Final = frozenset({"list", "watch", "deletecollection"})
"""The verbs that heed selectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """A resolved request (SPACES, resource URL endpoint resolution; TS4 to TS7, TS13).

    ``cluster`` is the logical cluster: ``root`` is the system space, ``root:<tenant>`` a tenant's space,
    ``root:<tenant>:<workspace>`` a workspace. ``tenant`` is ``system`` for the system space.
    ``path`` is the full path, rebuilt from the resolved parts; for a non-resource request it is the path
    inside the logical cluster (``/healthz``, ``/openapi/v3/api/v1``).
    ``verb`` is Kubernetes' request verb: get, list, watch, create, update, patch, delete, deletecollection for
    resources, none with OPTIONS of what is proxied; the lower-case HTTP method otherwise.
    ``name`` may come from a field selector ``metadata.name=…`` when the verb is list or watch, as in Kubernetes.
    ``namespace`` of a Namespace object is its own name, as in Kubernetes.
    ``rest`` is what follows ``…/proxy/``, percent-encoded as it goes upstream, without the leading slash.
    ``field_selector`` and ``label_selector`` are those of what is listed, watched or deleted as a collection, as the query
    writes them: one that cannot be read is still to be refused.
    ``all_tenants`` is set for the system tenant's reading across tenants (TS14).
    ``through`` is the logical cluster of the export that it is for the content of, and that gives the right to it (KC6);
    empty for what is asked for where it is. ``inside`` is, of a request for an export's content, what is really read or
    written: the request as it would be in the consumer, or for all consumers across tenants.
    """

    method: str
    path: str
    cluster: str
    tenant: str
    verb: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    rest: str = ""
    field_selector: str = ""
    label_selector: str = ""
    all_tenants: bool = False
    through: str = ""
    inside: RequestInfo | None = None
    connects: bool = field(init=False)
    """Whether it is for a connection into a pod, by which whoever has it can change what runs there."""
    is_long_running: bool = field(init=False)
    """Whether the answer may go on for as long as it likes."""

    def __post_init__(self) -> None:
        part = self.subresource if self.resource == "pods" and not self.group else ""
        connects = part in {"exec", "attach", "portforward"}
        object.__setattr__(self, "connects", connects)
        long = connects or part == "log" or self.verb == "watch" or self.is_proxied
        object.__setattr__(self, "is_long_running", long)

    @property
    def is_proxied(self) -> bool:
        """Whether it is for what listens behind a pod or a service, and none of the API server's own."""
        return self.subresource == "proxy" and not self.group

    @property
    def node(self) -> str:
        """The node of a field selector ``spec.nodeName=…``: of pods, or of slices of devices (AZ4)."""
        return exact_match(self.field_selector, "spec.nodeName") or ""


class ParsedRequest(NamedTuple):
    """A request line in parts, before it is known whose space a short path means.

    ``cluster`` is what ``/clusters/<path>`` said, ``tenant`` what ``tenants/<tenant>`` said (``*``: all of them), each
    ``None`` when absent. ``parameters`` are the decoded query parameters, ``query`` the first value of each, which is
    the one that Kubernetes heeds; the legacy ``watch/`` prefix is translated into them, so that they and the resolved
    path say everything.
    """

    method: str
    path: str
    cluster: str | None
    tenant: str | None
    verb: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    rest: str = ""
    parameters: Mapping[str, tuple[str, ...]] = _NO_PARAMETERS
    query: Mapping[str, str] = _NO_QUERY
    inside: ParsedRequest | None = None
    """What is asked for inside of an export's content."""

    @property
    def is_proxied(self) -> bool:
        """See ``RequestInfo``."""
        return self.subresource == "proxy" and not self.group


def not_found() -> NotFound:
    """The 404 of a path that nothing serves, in Kubernetes' words."""
    error = NotFound("the server could not find the requested resource")
    error.always_detailed = True
    return error


def _not_allowed() -> MethodNotAllowed:
    return MethodNotAllowed("the server does not allow this method on the requested resource")


def _malformed(why: str) -> BadRequest:
    return BadRequest(f"the request path is malformed: {why}")


def _segments(raw_path: bytes) -> list[str]:
    """The decoded segments; a trailing slash leaves an empty last one. Raises for what is not canonical."""
    if len(raw_path) > PATH_MAX:
        raise StatusError("the request path is too long", code=414, reason="BadRequest")
    if _PLAIN.fullmatch(raw_path):
        segments = raw_path[1:].decode("ascii").split("/")
        if b"/." in raw_path and ("." in segments or ".." in segments):
            raise _malformed("dot segments")
        return segments
    if not _ENCODED.fullmatch(raw_path):
        if not raw_path.startswith(b"/"):
            raise _malformed("it does not begin with a slash")
        if b"//" in raw_path:
            raise _malformed("empty segments")
        raise _malformed("characters that must be percent-encoded, or a broken percent-encoding")
    if _ENCODED_DOT.search(raw_path):
        raise _malformed("percent-encoded dots")
    try:
        segments = [unquote_to_bytes(part).decode("utf-8") for part in raw_path[1:].split(b"/")]
    except UnicodeDecodeError as error:
        raise _malformed("percent-encoded bytes that are not UTF-8") from error
    for segment in segments:
        if segment in {".", ".."}:
            raise _malformed("dot segments")
        if _FORBIDDEN.search(segment):
            raise _malformed("percent-encoded slashes or control characters")
    return segments


def query_parameters(query: bytes) -> Mapping[str, tuple[str, ...]]:
    """The decoded parameters of a query, every value in order. Raises ``BadRequest`` for a malformed one.

    A semicolon is no separator, as in Go and in WHATWG.
    """
    if not query:
        return _NO_PARAMETERS
    if len(query) > QUERY_MAX:
        raise StatusError("the query is too long", code=414, reason="BadRequest")
    if not _QUERY.fullmatch(query) or _BAD_PERCENT.search(query):
        raise BadRequest("the query is malformed")
    most = PARAMETERS_MAX + min(query.count(b"command="), WORDS_MAX)
    if (number := query.count(b"&") + 1) > most:
        raise BadRequest(f"the query has {number} parameters, of which {most} are read")
    pairs = [pair.partition(b"=") for pair in query.split(b"&") if pair]
    try:
        keys, values = unescaped([pair[0] for pair in pairs]), unescaped([pair[2] for pair in pairs])
    except ValueError as error:
        raise BadRequest("the query is malformed: what it encodes is no UTF-8") from error
    parameters: dict[str, list[str]] = {}
    for key, value in zip(keys, values, strict=True):
        parameters.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in parameters.items()}


def _first_values(parameters: Mapping[str, tuple[str, ...]]) -> Mapping[str, str]:
    return {name: values[0] for name, values in parameters.items()} if parameters else _NO_QUERY


def _is_watch(parameters: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether ``watch`` is asked for: any first value but ``false`` and ``0`` counts (URL-20)."""
    values = parameters.get("watch")
    return values is not None and values[0].lower() not in {"false", "0"}


def _selected_name(parameters: Mapping[str, tuple[str, ...]]) -> str:
    """The name that a field selector pins down, empty when it pins none."""
    selectors = parameters.get("fieldSelector")
    name = exact_match(selectors[0], "metadata.name") if selectors else None
    return name if name and not path_segment(name) and not _CONTROL.search(name) else ""


def _cluster_prefix(segments: list[str]) -> str:
    """The logical cluster of ``/clusters/<path>/…``. Raises ``NotFound`` for none that can exist."""
    if len(segments) < 2 or not is_valid(segments[1]):
        raise not_found()
    return segments[1]


def parse(method: str, raw_path: bytes, query: bytes = b"") -> ParsedRequest:
    """Take a request line apart (TS4, KC13; verbs as Kubernetes' ``RequestInfoFactory``).

    ``raw_path`` is the undecoded path of the request line without its query. Percent-encoding is decoded once.
    Raises ``BadRequest`` for a path with dot segments, empty segments, encoded slashes, control characters or bytes
    that are not UTF-8, ``NotFound`` for one that names nothing, ``MethodNotAllowed`` for an unknown method and for OPTIONS
    of anything but what is proxied, a ``StatusError`` of 414 for a path or query that is too long.
    """
    parsed = _taken_apart(method, raw_path, query)
    if method == "OPTIONS" and not parsed.is_proxied:
        raise _not_allowed()
    return parsed


def _taken_apart(method: str, raw_path: bytes, query: bytes) -> ParsedRequest:
    segments = _segments(raw_path)
    if method not in _VERBS:
        raise _not_allowed()
    parameters = query_parameters(query)
    cluster = None
    if segments[0] == "clusters":
        cluster = _cluster_prefix(segments)
        segments = segments[2:] or [""]
    elif segments[:2] == ["services", "apiexport"]:
        return _export_content(method, raw_path, query, segments)
    trailing = len(segments) > 1 and not segments[-1]
    parts = segments[:-1] if trailing else segments
    root = parts[0]
    first = 2 if root == "apis" else 1
    if root not in {"api", "apis"} or len(parts) < first + 2:
        path = "/" + "/".join(segments)
        if b"%" in raw_path and not (path.isascii() and _PLAIN.fullmatch(path.encode())):
            raise not_found()
        return ParsedRequest(
            method, path, cluster, None, method.lower(), parameters=parameters, query=_first_values(parameters)
        )
    group = "" if first == 1 else parts[1]
    version = parts[first]
    if (group and not is_dns_subdomain(group)) or not _IDENTIFIER.fullmatch(version):
        raise not_found()
    return _resource(method, cluster, group, version, parts[first + 1 :], parameters=parameters, trailing=trailing)


def _export_content(method: str, raw_path: bytes, query: bytes, segments: list[str]) -> ParsedRequest:
    """``/services/apiexport/<path>/<export>/clusters/<consumer or *>/api…``: the provider's view of its export (KC6).

    It is a request for the export's subresource ``content`` in the provider's logical cluster, with the verb of what
    is asked for inside; ``rest`` keeps where. Raises as ``parse``.
    """
    if len(segments) < 7 or b"%" in raw_path or segments[4] != "clusters" or segments[6] not in {"api", "apis"}:
        raise not_found()
    path, export, consumer = segments[2], segments[3], segments[5]
    if not is_valid(path) or not is_dns_subdomain(export) or not (consumer == ALL_TENANTS or is_valid(consumer)):
        raise not_found()
    inner = parse(method, b"/" + b"/".join(raw_path.split(b"/")[7:]), query)
    if inner.tenant is not None:
        raise not_found()
    return inner._replace(
        path="",
        cluster=path,
        is_resource=True,
        group="apis.kcp.io",
        version="v1alpha1",
        resource="apiexports",
        subresource="content",
        namespace="",
        name=export,
        rest="/".join(segments[4:]),
        inside=inner,
    )


def _resource(
    method: str,
    cluster: str | None,
    group: str,
    version: str,
    parts: list[str],
    *,
    parameters: Mapping[str, tuple[str, ...]],
    trailing: bool,
) -> ParsedRequest:
    """What follows the version: ``[watch/][tenants/<t>/][namespaces/<n>/]<resource>[/<name>[/<subresource>]]``."""
    verb = _VERBS[method]
    watched = parts[0] == "watch"
    if watched:
        parts = parts[1:]
        if not parts:
            raise not_found()
        if verb != "get":
            raise _not_allowed()
        verb = "watch"
    elif parts[0] == "proxy":
        raise not_found()

    tenant = None
    if parts[0] == "tenants" and len(parts) > 2 and not (len(parts) == 3 and parts[2] in _TENANT_SUBRESOURCES):
        tenant = parts[1]
        parts = parts[2:]
        if tenant != ALL_TENANTS and not is_tenant_name(tenant):
            raise not_found()
        if parts[0] == "tenants":
            raise not_found()

    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if not is_dns_label(namespace):
            raise NotFound(f'namespaces "{namespace}" not found', kind="namespaces", name=namespace)
        if len(parts) > 2 and parts[2] not in _TENANT_SUBRESOURCES:
            parts = parts[2:]
            if parts[0] == "namespaces" or (parts[0] == "tenants" and not group):
                raise not_found()

    resource, name, subresource, rest = _object(parts, group, trailing=trailing)
    if watched:
        if subresource:
            raise not_found()
        parameters = {**parameters, "watch": ("true",)}
        if name:
            selected = ",".join((str(FieldTerm("metadata.name", name)), *parameters.get("fieldSelector", ())[:1]))
            parameters["fieldSelector"] = (selected,)
    if tenant == ALL_TENANTS:
        if namespace or name:
            raise not_found()
        if verb not in {"get", "watch"}:
            raise MethodNotAllowed("only reading is possible across tenants")
    if not name:
        if verb == "get":
            verb = "watch" if _is_watch(parameters) else "list"
            name = _selected_name(parameters)
        elif verb == "delete":
            verb = "deletecollection"
    return ParsedRequest(
        method,
        "",
        cluster,
        tenant,
        verb,
        True,
        group,
        version,
        resource,
        subresource,
        namespace,
        name,
        rest,
        parameters,
        _first_values(parameters),
    )


def _object(parts: list[str], group: str, *, trailing: bool) -> tuple[str, str, str, str]:
    """Resource, name, subresource and the rest of a proxied path."""
    resource = parts[0]
    if not _IDENTIFIER.fullmatch(resource) or resource in _TENANT_SUBRESOURCES:
        # Behind a tenant or a namespace its path would be read as a part of that object.
        raise not_found()
    if len(parts) == 1:
        return resource, "", "", ""
    name = parts[1]
    if "%" in name:
        raise not_found()
    if group != _RBAC and not name.isalnum() and any(character.isspace() for character in name):
        # Only RBAC objects may have blanks in their names.
        raise _malformed("blanks")
    if len(parts) == 2:
        return resource, name, "", ""
    subresource = parts[2]
    if not _IDENTIFIER.fullmatch(subresource):
        raise not_found()
    if len(parts) == 3 and not (trailing and subresource == "proxy"):
        return resource, name, subresource, ""
    if subresource != "proxy":
        raise not_found()
    rest = "/".join(quote(part, safe="!$&'()*+,;=:@~") for part in parts[3:])
    return resource, name, subresource, rest + "/" if trailing and rest else rest


def _is_webhook(parsed: ParsedRequest) -> bool:
    return not parsed.is_resource and parsed.path.startswith("/webhooks/")


def resolve(parsed: ParsedRequest, principal_tenant: str | None) -> RequestInfo:
    """Fill in the space that a request means (TS7); decides no access.

    The order: what the path says, ``/clusters/<path>`` or ``tenants/<tenant>``, is the space; else a caller of another
    tenant than ``system`` means its own space. What is left is the system space, which a gate opens for its own users
    alone (TS13). Whose tenant is the default one, the authentication has said before.
    Tenant objects, and the webhooks of clusters, are in the system space whoever asks. Raises ``NotFound`` when the path names two spaces.
    """
    cluster, tenant = parsed.cluster, parsed.tenant
    if cluster is not None and tenant is not None and cluster not in {ROOT, f"{ROOT}:{tenant}"}:
        raise not_found()
    if tenant is not None:
        owner = SYSTEM_TENANT if tenant == ALL_TENANTS else tenant
        cluster = space_of(owner)
    elif cluster is not None:
        owner = tenant_of(cluster)
    elif (parsed.resource == "tenants" and not parsed.group and not parsed.namespace) or _is_webhook(parsed):
        owner, cluster = SYSTEM_TENANT, ROOT
    else:
        owner = principal_tenant or SYSTEM_TENANT
        cluster = space_of(owner)
    if not parsed.is_resource:
        path = parsed.path
    elif tenant == ALL_TENANTS:
        prefix = "/api" if not parsed.group else f"/apis/{parsed.group}"
        path = f"{prefix}/{parsed.version}/tenants/*/{parsed.resource}"
    else:
        path = full_path(
            cluster,
            parsed.group,
            parsed.version,
            parsed.resource,
            namespace=parsed.namespace,
            name="" if parsed.verb in {"list", "watch"} else parsed.name,
            subresource=parsed.subresource,
        )
        if parsed.rest:
            path = f"{path}/{parsed.rest}"
    inside = _inside(parsed.inside, cluster, parsed.rest.split("/")[1]) if parsed.inside is not None else None
    # What is asked for inside of an export is not what the right to its content is about.
    heeds = parsed.is_resource and parsed.verb in _SELECTING and not parsed.rest
    return RequestInfo(
        method=parsed.method,
        path=path,
        cluster=cluster,
        tenant=owner,
        verb=parsed.verb,
        is_resource=parsed.is_resource,
        group=parsed.group,
        version=parsed.version,
        resource=parsed.resource,
        subresource=parsed.subresource,
        namespace=parsed.namespace,
        name=parsed.name,
        rest=parsed.rest,
        field_selector=parsed.query.get("fieldSelector", "") if heeds else "",
        label_selector=parsed.query.get("labelSelector", "") if heeds else "",
        all_tenants=tenant == ALL_TENANTS,
        inside=inside,
    )


def _inside(parsed: ParsedRequest, provider: str, consumer: str) -> RequestInfo:
    across = consumer == ALL_TENANTS
    asked = resolve(parsed._replace(cluster=provider if across else consumer), None)
    return replace(asked, all_tenants=across, through=provider)
