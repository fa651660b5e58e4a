"""Objects between the client's body and the store: decoding, the server's own metadata, and the form in a version."""

from __future__ import annotations

import contextlib
import secrets
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Final

import orjson

from gateway.http.messages import LARGE, Request
from gateway.http.negotiation import content_type, require_content_type
from gateway.resources.kinds import Kind, definitions
from gateway.resources.uids import random_uid
from kube.customresources.schemas import with_defaults
from kube.customresources.validation import without_nulls
from kube.customresources.validationcosts import LIGHT, MOST, judging_cost
from kube.kinds import reststrategies
from kube.kinds.builtins import BUILTINS
from kube.kinds.resources import Resource
from kube.objects import conversion, fieldvalidation, protobuf
from kube.objects.defaults import fill_defaults
from kube.objects.warnings.owners import merge_owners
from kube.requests.caches import weight_of
from kube.requests.decoding import HEAVY, MAX_BYTES, decode_json, decode_yaml, duplicate_fields, read_yaml
from kube.requests.fielderrors import invalid, invalid_object
from kube.requests.logicalclusters import full_path, tenant_of
from kube.requests.names import SUFFIX_ALPHABET, SYSTEM_TENANT, generated_name
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import BadRequest, RequestEntityTooLarge
from kube.validation.embeddedvalues import embedded_values
from kube.validation.listlimits import length_causes
from store.types import Key

MEDIA_TYPES: Final = ("application/json", "application/yaml", protobuf.MEDIA_TYPE)

_SHOWN: Final = 30
"""How many bytes of a body that cannot be read are shown."""

_OMITTED: Final = frozenset({"annotations", "finalizers", "labels", "ownerReferences"})
"""What of a custom object's metadata shows only when something is in it."""

_SCHEME: Final = "pkg/runtime/scheme.go:111"


def key_of(info: RequestInfo, resource: Resource, name: str) -> Key:
    """Where the store keeps the object of this name."""
    group, kept = resource.place
    return Key(info.cluster, group, kept, info.namespace if resource.namespaced else "", name)


def decode_body(request: Request, expected: str) -> dict[str, Any]:
    """The body as a JSON object. Raises ``BadRequest`` and ``UnsupportedMediaType`` in kube-apiserver's words."""
    media = require_content_type(request, *MEDIA_TYPES)
    try:
        value = decode(request, media)
    except BadRequest as error:
        raise unrecognized(expected, error.message, request.body) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise unrecognized(expected, not_an_object(value), request.body)
    return value


def not_an_object(value: Any) -> str:
    """What is said of a body that is JSON, and no object."""
    into = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
    problem = f"json: cannot unmarshal {json_type(value)} into Go value of type {into}"
    return f"couldn't get version/kind; json parse error: {problem}"


def json_type(value: Any) -> str:
    """What a JSON value is called in messages."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    return "object" if isinstance(value, dict) else "null"


def unrecognized(expected: str, problem: str, body: bytes) -> BadRequest:
    """The 400 for a body that says not even what it is."""
    shown = "<empty>"
    if body:
        part = body[:_SHOWN]
        shown = part.decode(errors="replace") if body.startswith(b"{") else part.hex()
        shown += " ..." if len(body) > _SHOWN else ""
    return BadRequest(f"the object provided is unrecognized (must be of type {expected}): {problem} ({shown})")


def decode(request: Request, media: str) -> Any:
    """The value of the body, which is of one of ``MEDIA_TYPES``. Raises ``BadRequest`` in kube-apiserver's words."""
    body = request.body
    if media == "application/yaml":
        return request.counted(partial(decode_yaml, body))
    if media == protobuf.MEDIA_TYPE:
        return request.counted(partial(protobuf.decode, body))
    try:
        return decode_json(body)
    except BadRequest as error:
        raise BadRequest(f"couldn't get version/kind; json parse error: {error.message}") from None


def decode_object(request: Request, kind: Kind) -> dict[str, Any]:
    """The body as an object of ``kind``, unknown fields handled as ``fieldValidation`` says, each owner once.

    Raises ``BadRequest`` in kube-apiserver's words.
    """
    value = decode_body(request, kind.name)
    said_twice = repeated(request, value)
    check_body_kind(request, kind, value)
    decoded = decode_fields(request, kind, value, said_twice)
    request.warnings.extend(merge_owners(decoded))
    return decoded


def repeated(request: Request, value: Any) -> list[str]:
    """What a body, decoded as ``value``, says twice, in the words in which it is reported.

    Nothing where nobody wants to know.
    """
    mode, media = validation_mode(request), content_type(request)
    if mode == "Ignore" or media == protobuf.MEDIA_TYPE:
        return []
    if media != "application/yaml":
        return [f'duplicate field "{path}"' for path in duplicate_fields(request.body, value)]
    found = read_yaml(request.body)[1]
    if not found or mode == "Warn":
        return found
    return ["yaml: unmarshal errors:" + "".join(f"\n  {each}" for each in found)]


def validation_mode(request: Request) -> str:
    """``fieldValidation``: Strict, Warn (the default) or Ignore; ``gateway.resources.writeoptions`` has refused anything else."""
    return request.query.get("fieldValidation") or "Warn"


def decode_fields(
    request: Request,
    kind: Kind,
    value: dict[str, Any],
    said_twice: list[str] | None = None,
    *,
    converted: bool = False,
) -> dict[str, Any]:
    """``value`` with the fields that its kind knows; the others are refused, reported or dropped, as asked.

    ``converted`` says that it is what a strategic merge made. Raises ``fieldvalidation.DecodeError``.
    """
    mode = validation_mode(request)
    schema = kind.schema
    if schema is None:
        return value
    if kind.resource.custom:
        decoded = fieldvalidation.prune(value, schema)
    else:
        decoded = fieldvalidation.decode_fields(
            value, schema, kind=kind.name, version=kind.version, converted=converted
        )
    if decoded.unknown or said_twice:
        problems = fieldvalidation.problems(decoded.unknown, said_twice or [])
        if mode == "Strict":
            raise fieldvalidation.DecodeError(kind.name, kind.version, fieldvalidation.strict_decoding_error(problems))
        if mode == "Warn":
            request.warnings.extend(problems)
    result: dict[str, Any] = decoded.value
    metadata = result.setdefault("metadata", {})
    if kind.resource.custom and isinstance(metadata, dict):
        written = {name: part for name, part in metadata.items() if part or name not in _OMITTED}
        result = {**result, "metadata": written} if len(written) < len(metadata) else result
    return result


def check_lengths(kind: Kind, body: dict[str, Any]) -> None:
    """Make sure that no list is too long to be looked through. Raises ``Invalid``."""
    causes = [] if kind.resource.custom else length_causes(body)
    if causes:
        raise invalid_object(kind.resource.group, kind.name, str(body["metadata"].get("name") or ""), causes)


def apply_defaults(request: Request, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    """``body`` with the defaults of its kind: kube-apiserver's, or those of the custom kind's schema (TS15).

    Raises ``TooHeavy`` for what would take long to be filled in or to be judged, and ``RequestEntityTooLarge`` for what
    would take too long wherever it is done.
    """
    if not kind.resource.custom:
        request.weight = max(request.weight, kind.defines(body))
        request.require_light(heavy=request.weight > HEAVY)
        fill_defaults(body)
        request.weight = max(request.weight, embedded_values(body))
        request.require_light(heavy=request.weight > HEAVY)
        return body
    if kind.schema is None:
        return body
    try:
        filled = with_defaults(body, kind.schema, LARGE if request.light else MAX_BYTES)
    except RequestEntityTooLarge:
        request.require_light(heavy=True)
        raise
    cost = judging_cost(kind.schema, filled, LIGHT if request.light else MOST)
    request.weight = max(request.weight, cost)
    request.require_light(heavy=cost > LIGHT)
    if cost > MOST:
        raise RequestEntityTooLarge(
            f"Request entity too large: by the schema of {kind.name} an object of this size takes too much to be judged"
        )
    kept: dict[str, Any] = without_nulls(kind.schema, filled)
    return kept


def check_body_kind(request: Request, kind: Kind, value: dict[str, Any]) -> None:
    """Make sure that a whole object is of ``kind``; what it does not say is taken from the path."""
    if value.get("kind") == kind.name and value.get("apiVersion") == kind.api_version and not kind.resource.custom:
        # As nearly every body.
        _with_metadata(kind, value)
        return
    for field in ("apiVersion", "kind"):
        given = value.get(field)
        if given is not None and not isinstance(given, str):
            problem = f"json: cannot unmarshal {json_type(given)} into Go struct field .{field} of type string"
            raise unrecognized(kind.name, f"couldn't get version/kind; json parse error: {problem}", request.body)
    if kind.resource.custom:
        _check_custom(request, kind, value)
        return
    given_kind, given_version = value.get("kind") or kind.name, value.get("apiVersion") or kind.api_version
    if given_version.count("/") > 1:
        raise unrecognized(kind.name, f"unexpected GroupVersion string: {given_version}", request.body)
    if (given_kind, given_version) != (kind.name, kind.api_version):
        raise not_a(kind.name, kind.resource.group.split(".")[0] or "core", given_kind, given_version)
    value["apiVersion"], value["kind"] = kind.api_version, kind.name
    _with_metadata(kind, value)


def _check_custom(request: Request, kind: Kind, value: dict[str, Any]) -> None:
    """A custom object says itself what it is: nothing is taken from the path. Raises ``BadRequest`` and ``Invalid``."""
    given, version = value.get("kind"), value.get("apiVersion") or ""
    if not given:
        text = request.body[:1024].decode(errors="replace")
        raise unrecognized(kind.name, f"Object 'Kind' is missing in '{text}'", request.body)
    if version != kind.api_version:
        raise BadRequest(
            f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        )
    _with_metadata(kind, value)
    _check_type(kind, given, version, value)


def _check_type(kind: Kind, given: str, version: str, value: dict[str, Any]) -> None:
    """Make sure that a custom object says that it is of ``kind``. Raises ``Invalid``."""
    named = (("kind", given, kind.name), ("apiVersion", version, kind.api_version))
    causes = [invalid(field, said, f"must be {right}") for field, said, right in named if said != right]
    if causes:
        metadata = value.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else ""
        raise invalid_object(version.rpartition("/")[0], given, str(name or ""), causes)


def not_a(expected: str, package: str, given: str, given_version: str) -> BadRequest:
    """The 400 for an object of another kind than the path's, which is ``expected`` of the Go package ``package``."""
    version = given_version.rpartition("/")[2]
    problem = unconvertible(expected, package, given, given_version)
    return BadRequest(f'{given} in version "{version}" cannot be handled as a {expected}: {problem}')


def unconvertible(expected: str, package: str, given: str, given_version: str) -> str:
    """Why an object of another kind cannot be read as the expected one."""
    group, _, version = given_version.rpartition("/")
    if BUILTINS.by_kind(group, version, given) is None and not given.endswith("List"):
        return unregistered(given, given_version)
    return f"converting ({version}.{given}) to ({package}.{expected}): unknown conversion"


def unregistered(kind: str, version: str) -> str:
    """What is said of a kind that nobody knows."""
    return f'no kind "{kind}" is registered for version "{version}" in scheme "{_SCHEME}"'


def check_patched_kind(kind: Kind, value: dict[str, Any], *, converted: bool) -> None:
    """Make sure that what a patch made is of ``kind``, and of no other. Raises ``fieldvalidation.DecodeError``."""
    for field in ("apiVersion", "kind"):
        given = value.get(field)
        if given is not None and not isinstance(given, str):
            problem = f"json: cannot unmarshal {json_type(given)} into Go struct field .{field} of type string"
            raise fieldvalidation.DecodeError(
                kind.name, kind.version, f"couldn't get version/kind; json parse error: {problem}"
            )
    given_kind, given_version = value.get("kind") or kind.name, value.get("apiVersion") or kind.api_version
    if kind.resource.custom:
        _check_type(kind, given_kind, given_version, value)
    elif (given_kind, given_version) != (kind.name, kind.api_version):
        group, _, version = given_version.rpartition("/")
        other = definitions().schema(group, version, given_kind)
        if other is not None:
            fieldvalidation.decode_fields(value, other, kind=given_kind, version=version)
        problem = unconvertible(kind.name, kind.resource.group.split(".")[0] or "core", given_kind, given_version)
        raise fieldvalidation.DecodeError(kind.name, kind.version, problem)
    value["apiVersion"], value["kind"] = kind.api_version, kind.name
    _with_metadata(kind, value, converted=converted)


def _with_metadata(kind: Kind, value: dict[str, Any], *, converted: bool = False) -> None:
    metadata = value.get("metadata")
    if metadata is None:
        value["metadata"] = {}
    elif not isinstance(metadata, dict):
        if converted:
            given = {"number": "int64", "array": "slice"}.get(json_type(metadata), json_type(metadata))
            raise fieldvalidation.DecodeError(kind.name, kind.version, f"cannot restore struct from: {given}")
        into = "value" if kind.resource.custom else f"struct field {kind.name}.metadata"
        problem = f"json: cannot unmarshal {json_type(metadata)} into Go {into} of type v1.ObjectMeta"
        raise fieldvalidation.DecodeError(kind.name, kind.version, problem)


def check_namespace_and_name(info: RequestInfo, kind: Kind, body: dict[str, Any]) -> None:
    """Make sure that the body belongs where the request says, and fill the place in (TS2). Raises ``BadRequest``."""
    metadata = body["metadata"]
    tenant = metadata.pop("tenant", None)
    if tenant and tenant != tenant_of(info.cluster):
        raise BadRequest("the tenant of the provided object does not match the tenant of the request")
    if kind.resource.namespaced:
        namespace = metadata.get("namespace")
        if namespace and namespace != info.namespace:
            raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = info.namespace
    else:
        metadata.pop("namespace", None)


def set_logical_cluster(info: RequestInfo, kind: Kind, body: dict[str, Any], name: str) -> None:
    """Write the tenant and the full path into the object (TS2, TS5)."""
    metadata = body["metadata"]
    tenant = tenant_of(info.cluster)
    if tenant != SYSTEM_TENANT:
        metadata["tenant"] = tenant
    resource = kind.resource
    group = resource.group if resource.storage_group is None else resource.storage_group
    metadata["selfLink"] = full_path(
        info.cluster,
        group,
        resource.storage_version.name,
        resource.plural,
        namespace=info.namespace if resource.namespaced else "",
        name=name,
    )


def new_metadata(request: Request, kind: Kind, body: dict[str, Any]) -> str:
    """Give a new object what the server alone gives: name, uid, times. Returns the name."""
    metadata = body["metadata"]
    name: str = metadata.get("name") or ""
    if not name and metadata.get("generateName"):
        suffix = "".join(secrets.choice(SUFFIX_ALPHABET) for _ in range(5))
        name = metadata["name"] = generated_name(metadata["generateName"], suffix)
    elif not name and kind.resource.storage_key == ("", "limitranges"):
        name = metadata["name"] = random_uid()
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        metadata.pop(field, None)
    if not request.dry_run or not metadata.get("resourceVersion"):
        metadata.pop("resourceVersion", None)
    metadata["uid"] = random_uid()
    metadata["creationTimestamp"] = timestamp(request.now)
    if counts_generations(kind):
        metadata["generation"] = 1
    return name


def counts_generations(kind: Kind) -> bool:
    """Whether objects of the kind carry ``metadata.generation``."""
    return kind.resource.custom or reststrategies.counts_generations(kind.resource.storage_key)


def timestamp(now: float) -> str:
    """Unix seconds in RFC 3339, as Kubernetes writes times."""
    return _second(int(now))


@lru_cache(maxsize=2)
def _second(now: int) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def encode_in_version(data: bytes, kind: Kind) -> bytes:
    """The object in the version of ``kind``: its bytes as they are, unless it is kept in another version.

    Whoever looks at the same object, or is told of the same event, has it made once (DOS-03).
    """
    if kind.is_stored_version:
        return data
    known = kind.shown.get(data)
    return known if known is not None else keep_shown(data, encode_anew(data, kind), kind)


def encode_anew(data: bytes, kind: Kind) -> bytes:
    """The same, whether or not it has been made before: of nobody's but its own, and so for any thread."""
    return orjson.dumps(converted(orjson.loads(data), kind))


def keep_shown(data: bytes, made: bytes, kind: Kind) -> bytes:
    """Remember what ``encode_anew`` has made; returns it."""
    kind.shown.keep(data, made, weight_of((data, made)))
    return made


def converted(body: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """An object in the version of ``kind``, from whichever version it is in."""
    if kind.is_stored_version and body.get("apiVersion") == kind.api_version:
        return body
    if not kind.resource.custom:
        return conversion.converted(body, kind.api_version)
    version = str(body.get("apiVersion", "")).rpartition("/")[2]
    kept = next((each for each in kind.resource.versions if each.name == version), None)
    if kept is not None and kept.schema is not None:
        # Defaults that an object has no room for were not there when it was written: it is shown as it is kept.
        with contextlib.suppress(RequestEntityTooLarge):
            body = with_defaults(body, kept.schema, LARGE)
    if kind.schema is not None:
        body = fieldvalidation.prune(body, kind.schema).value
    return {**conversion.converted(body, kind.api_version), "kind": kind.name}
