"""``serviceaccounts/{name}/token``: a token for an account, bound and short-lived (AN6).

A node has tokens for its own pods alone, each bound to the pod that it is for (AZ4).
"""

from __future__ import annotations

import uuid
from typing import Any, Final

import orjson

from access.admission.base import CREATE, Sent
from access.admission.tenancy.workspaceobjectprotection import check_token
from gateway.handlers.reading import find
from gateway.handlers.writing import attributes_of, write_of
from gateway.http.messages import Request, Response
from gateway.process.runtime import Runtime
from gateway.resources.kinds import Kind
from gateway.resources.objects import decode_object, key_of, timestamp
from kube.authentication.serviceaccounttokens import Reference, ServiceAccountClaims, sign
from kube.authorization.nodegraph import node_of
from kube.objects import managedfields
from kube.requests.fielderrors import invalid, invalid_object
from kube.requests.logicalclusters import tenant_of
from kube.requests.names import SYSTEM_TENANT, is_dns_subdomain
from kube.requests.status import BadRequest, Cause, Conflict, Forbidden, Invalid, NotFound
from store.types import Key

_SHORTEST: Final = 600
_DEFAULT: Final = 3600
_AUDIENCES_MAX: Final = 32
_BINDABLE: Final = {"Node": "nodes", "Pod": "pods", "Secret": "secrets"}


async def create_token(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """Answer a TokenRequest. Raises ``Invalid``, ``NotFound``, ``Conflict`` in kube-apiserver's words."""
    info = request.info
    check_token(request.principal, info)
    token_kind = kind.part("token")
    body = decode_object(request, token_kind)
    metadata = body["metadata"]
    if metadata.get("namespace") not in (None, "", info.namespace):
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if metadata.get("name") not in (None, "", info.name):
        cause = invalid("metadata.name", metadata["name"], "must match the service account name if specified")
        raise invalid_object("authentication.k8s.io", "TokenRequest", info.name, [cause])
    spec = body.setdefault("spec", {})
    spec.setdefault("expirationSeconds", _DEFAULT)
    attributes = attributes_of(request, kind, CREATE, info.name, None, None)
    attributes.sent = Sent(
        operation=CREATE,
        group=token_kind.resource.group,
        version=token_kind.version,
        kind=token_kind.name,
        object={**body, "kind": token_kind.name, "apiVersion": token_kind.api_version},
    )
    await runtime.part_admission.admit(attributes)
    owners = managedfields.update(token_kind.structure, None, body, write_of(request, token_kind))
    stored = await find(runtime, key_of(info, kind.resource, info.name), kind)
    metadata = orjson.loads(stored.data)["metadata"]
    if "deletionTimestamp" in metadata:
        raise NotFound(f'serviceaccounts "{info.name}" not found', kind="serviceaccounts", name=info.name)
    if (asked := body["metadata"].get("uid")) and asked != metadata["uid"]:
        raise Conflict(
            f'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "{info.name}": the UID in the token '
            f"request ({str(asked)[:64]}) does not match the UID of the service account ({metadata['uid']})",
            group="authentication.k8s.io",
            kind="TokenRequest",
            name=info.name,
        )
    audiences = _audiences(spec, runtime.options.audiences)
    seconds = min(_seconds(spec), runtime.options.max_token_lifetime)
    bound = await _bound(runtime, request, spec)
    now, tenant = int(request.now), tenant_of(info.cluster)
    claims = ServiceAccountClaims(
        issuer=runtime.options.service_account_issuers[0],
        audiences=audiences,
        # Of the second in which the tenant was opened again this is a new one.
        issued_at=max(now, int(runtime.suspensions.not_before(tenant))),
        not_before=now,
        expires_at=now + seconds,
        token_id=str(uuid.uuid4()),
        tenant=tenant,
        cluster=info.cluster,
        namespace=info.namespace,
        account=Reference(info.name, metadata["uid"]),
        **bound,
    )
    token = sign(claims, runtime.service_account_keys.signer)
    shown: dict[str, Any] = {
        "name": info.name,
        "namespace": info.namespace,
        "uid": str(uuid.uuid4()),
        "creationTimestamp": timestamp(now),
        "managedFields": owners["metadata"].get("managedFields"),
    }
    if claims.tenant != SYSTEM_TENANT:
        shown["tenant"] = claims.tenant
    answer = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": shown,
        "spec": {
            "audiences": list(audiences),
            "expirationSeconds": seconds,
            "boundObjectRef": spec.get("boundObjectRef"),
        },
        "status": {"token": token, "expirationTimestamp": timestamp(now + seconds)},
    }
    return Response(201, orjson.dumps(answer), headers=((b"cache-control", b"no-store"),))


def _audiences(spec: dict[str, Any], default: tuple[str, ...]) -> tuple[str, ...]:
    audiences = spec.get("audiences") or list(default)
    fits = isinstance(audiences, list) and len(audiences) <= _AUDIENCES_MAX
    if not fits or not all(isinstance(audience, str) and 0 < len(audience) <= 2048 for audience in audiences):
        raise BadRequest("spec.audiences is not a list of strings")
    return tuple(audiences)


def _seconds(spec: dict[str, Any]) -> int:
    seconds: int = spec["expirationSeconds"]
    if seconds < _SHORTEST:
        raise _invalid(f"Invalid value: {seconds}: may not specify a duration less than 10 minutes")
    if seconds > 1 << 32:
        raise _invalid(f"Invalid value: {seconds}: may not specify a duration larger than 2^32 seconds")
    return seconds


def _invalid(message: str) -> Invalid:
    causes = [Cause("FieldValueInvalid", message, "spec.expirationSeconds")]
    return invalid_object("authentication.k8s.io", "TokenRequest", "", causes)


def _refused(request: Request, why: str) -> Forbidden:
    name = request.info.name
    return Forbidden(f'serviceaccounts "{name}" is forbidden: {why}', kind="serviceaccounts", name=name)


async def _bound(runtime: Runtime, request: Request, spec: dict[str, Any]) -> dict[str, Reference]:
    """What the token is bound to, by its claim; of a pod also the node that it is on."""
    info, principal, reference = request.info, request.principal, spec.get("boundObjectRef")
    node = node_of(principal.name, principal.groups) if principal.is_system else ""
    if node and (reference or {}).get("kind") != "Pod":
        raise _refused(request, "node requested token not bound to a pod")
    if not reference:
        return {}
    version, kind, name = (str(reference.get(field) or "") for field in ("apiVersion", "kind", "name"))
    resource = _BINDABLE.get(kind)
    if resource is None or version not in ("v1", "") or not name:
        version = version if "/" in version else f"/{version}"
        raise BadRequest(f"cannot bind token to object of type {version}, Kind={kind}")
    key = Key(info.cluster, "", resource, "" if kind == "Node" else info.namespace, name)
    # What has no name that it could have is not there.
    stored = await runtime.store.get(key) if is_dns_subdomain(name) else None
    if stored is None:
        raise NotFound(f'{resource} "{name}" not found', kind=resource, name=name)
    body = orjson.loads(stored.data)
    on = (body.get("spec") or {}).get("nodeName") or ""
    if kind == "Pod" and (body.get("spec") or {}).get("serviceAccountName", "default") != info.name:
        raise BadRequest(
            f'cannot bind token for serviceaccount "{info.name}" to pod running with different serviceaccount name.'
        )
    uid = body["metadata"]["uid"]
    if reference.get("uid") and reference["uid"] != uid:
        raise Conflict(
            f'Operation cannot be fulfilled on {kind} "{name}": the UID in the bound object reference '
            f"({str(reference['uid'])[:64]}) does not match the UID in record. The object might have been deleted and "
            "then recreated",
            kind=kind,
            name=name,
        )
    if node and on != node:
        raise _refused(request, "node requested token bound to a pod scheduled on a different node")
    bound = {kind.lower(): Reference(name, uid)}
    if kind == "Pod" and is_dns_subdomain(on):
        bound["node"] = Reference(on, await _node_uid(runtime, info.cluster, on))
    return bound


async def _node_uid(runtime: Runtime, cluster: str, name: str) -> str:
    """The UID of a node, empty where none is registered by this name."""
    key = Key(cluster, "", "nodes", "", name)
    stored = await runtime.store.get(key, cached=True) or await runtime.store.get(key)
    return str(orjson.loads(stored.data)["metadata"]["uid"]) if stored is not None else ""
