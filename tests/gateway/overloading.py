"""Bodies that take long to be judged: every shape of many, in every way in that a body has."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.filters.authorization import authorize_with_trace, require_allowed
from gateway.handlers import dispatch
from gateway.http.bodies import limit_of
from gateway.http.certificates import prepare
from gateway.http.errors import as_status_error, render
from gateway.http.messages import Request, Response, Stream
from gateway.options import Options
from gateway.process.runtime import Runtime
from gateway.process.streams import Recheck
from gateway.server.assembly import build_runtime
from kube.authentication.identity import Principal
from kube.requests.ratelimits import UNLIMITED
from kube.requests.requestinfo import parse, resolve
from kube.requests.status import RequestEntityTooLarge
from tests.gateway.callers import Caller
from tests.gateway.conftest import Server
from tests.kube.protobufbodies import delimited, encoded

JSON: Final = "application/json"
YAML: Final = "application/yaml"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
JSON_PATCH: Final = "application/json-patch+json"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

NAMESPACED: Final = "/api/v1/namespaces/default"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
REVIEW: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True)
class Expensive:
    """One request."""

    name: str
    method: str
    path: str
    media: str
    body: bytes


def pod(name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [_container(0)], **spec}}


def _container(number: int) -> dict[str, Any]:
    return {"name": f"c{number}", "image": "i"}


def _map(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def _role(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules}


def _objects(many: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    numbers = range(many)
    yield "containers", f"{NAMESPACED}/pods", pod("big", containers=[_container(number) for number in numbers])
    yield "bad containers", f"{NAMESPACED}/pods", pod("big", containers=[{"name": "A!"} for _ in numbers])
    yield "tolerations", f"{NAMESPACED}/pods", pod("big", tolerations=[{"key": f"k{n}"} for n in numbers])
    env = [{"name": f"E{number}", "value": "$(A)"} for number in numbers]
    yield "environment", f"{NAMESPACED}/pods", pod("big", containers=[{**_container(0), "env": env}])
    yield "labels", f"{NAMESPACED}/configmaps", _map("big", labels={f"-{number}-": "!" for number in numbers})
    yield "finalizers", f"{NAMESPACED}/configmaps", _map("big", finalizers=[f"-{number}-" for number in numbers])
    yield "data", f"{NAMESPACED}/configmaps", {**_map("big"), "data": {f"!{number}": "" for number in numbers}}
    yield "unknown fields", f"{NAMESPACED}/configmaps", {**_map("big"), **{f"f{number}": 1 for number in numbers}}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    yield "rules", RBAC, _role("big", [{**rule, "resourceNames": [f"n{number}"]} for number in numbers])
    yield "wrong rules", RBAC, _role("big", [{} for _ in numbers])


TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
THINGS: Final = "/apis/overload.example.com/v1/namespaces/default/things"


def kept(many: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """What answers are to be made of: path and body of objects with ``many`` members each, and of their kind."""
    columns = [{"name": f"c{number}", "type": "string", "jsonPath": f".l[*].b{number}"} for number in range(20)]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    spec = {"group": "overload.example.com", "scope": "Namespaced", "names": names}
    yield (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.overload.example.com"},
            "spec": {**spec, "versions": [{**version, "additionalPrinterColumns": columns}]},
        },
    )
    items = [{"a": number} for number in range(many)]
    thing = {"apiVersion": "overload.example.com/v1", "kind": "Thing", "metadata": {"name": "long"}, "l": items}
    yield THINGS, thing
    for number in range(3):
        data = {f"k{index}": "some words" for index in range(many)}
        yield f"{NAMESPACED}/configmaps", {**_map(f"long{number}"), "data": data}


def answers() -> Iterator[tuple[str, str]]:
    """Path and media type of requests whose answers take long to be made of what is kept."""
    for path in (THINGS, f"{NAMESPACED}/configmaps"):
        for media in (TABLE, PARTIAL_LIST):
            yield path, media
        yield f"{path}?labelSelector=a!=b", JSON
        yield f"{path}?labelSelector=a!=b&limit=1", JSON
        yield path, YAML
    for path in (f"{THINGS}/long", f"{NAMESPACED}/configmaps/long0"):
        for media in (TABLE, PARTIAL, YAML):
            yield path, media


def _in_protobuf(name: str, path: str, body: dict[str, Any]) -> Iterator[Expensive]:
    """The same in bytes that look like few values, or like none."""
    known = {field: value for field, value in body.items() if not field.startswith("f")}
    unknown = b"".join(delimited(900 + number % 100, b"") for number in range(len(body) - len(known)))
    wire = encoded(known)
    # What comes behind the object in the wrapper is one more of its fields.
    sent = wire + unknown
    yield Expensive(f"{name} as {PROTOBUF}", "POST", path, PROTOBUF, sent)
    yield Expensive(f"{name} put as {PROTOBUF}", "PUT", f"{path}/big", PROTOBUF, sent)


def _by_aliases(many: int) -> Iterator[Expensive]:
    """YAML that says little and means much: what is written once stands everywhere."""
    each, times = 100, many // 100
    env = ",".join(f"{{name: E{number}}}" for number in range(each))
    others = "".join(f"  - {{<<: *c, name: c{number}}}\n" for number in range(times))
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: big}\nspec:\n  containers:\n"
    text += f"  - &c\n    name: c\n    image: i\n    env: [{env}]\n{others}"
    yield Expensive("aliases", "POST", f"{NAMESPACED}/pods", YAML, text.encode())
    yield Expensive("aliases applied", "PATCH", f"{NAMESPACED}/pods/big?fieldManager=m", APPLY, text.encode())
    listed = f"a: &a [{','.join('1' * each)}]\nb: [{','.join(['*a'] * times)}]\n".encode()
    nested = b"a:\n" + b"".join(b"- " * 200 + b"1\n" for _ in range(times))
    for name, body in (("listed aliases", listed), ("nested lists", nested)):
        yield Expensive(name, "POST", REVIEW, YAML, body)
        yield Expensive(f"{name} in options", "DELETE", f"{NAMESPACED}/pods/victim", YAML, body)


def corpus(many: int) -> Iterator[Expensive]:
    """Requests with about ``many`` members each; the pod ``victim`` of the namespace ``default`` is there."""
    one = f"{NAMESPACED}/pods/victim"
    for name, path, body in _objects(many):
        text = json.dumps(body).encode()
        for media in (JSON, YAML):
            yield Expensive(f"{name} as {media}", "POST", path, media, text)
        yield Expensive(f"{name} applied", "PATCH", f"{path}/big?fieldManager=m", APPLY, text)
        yield Expensive(f"{name} put", "PUT", f"{path}/big", JSON, text)
        yield from _in_protobuf(name, path, body)
    yield from _by_aliases(many)
    numbers = range(many)
    flat = b"a: [" + b"1," * many + b"1]"
    for path in (f"{NAMESPACED}/configmaps", REVIEW):
        yield Expensive(f"yaml to {path}", "POST", path, YAML, flat)
        yield Expensive(f"duplicates to {path}", "POST", path, JSON, b"{" + b'"a":1,' * many + b'"b":1}')
        yield Expensive(f"nothing to {path}", "POST", path, JSON, b"[" + b"{}," * many + b"{}]")
        yield Expensive(f"escapes to {path}", "POST", path, JSON, b'{"a":"' + b'\\"' * many + b'"}')
    yield Expensive("options", "DELETE", one, YAML, flat)
    for media in (MERGE, STRATEGIC):
        containers = json.dumps({"spec": {"containers": [_container(number) for number in numbers]}}).encode()
        yield Expensive(f"containers by {media}", "PATCH", one, media, containers)
        labels = json.dumps({"metadata": {"labels": {f"!{number}": "" for number in numbers}}}).encode()
        yield Expensive(f"labels by {media}", "PATCH", one, media, labels)
    order = {"spec": {"$setElementOrder/containers": [{"name": f"c{number}"} for number in numbers]}}
    order["spec"]["containers"] = [{"name": f"c{number}"} for number in reversed(numbers)]
    yield Expensive("order", "PATCH", one, STRATEGIC, json.dumps(order).encode())
    listed = {"metadata": {"$setElementOrder/finalizers": [f"f{number}" for number in numbers]}}
    listed["metadata"]["finalizers"] = [f"f{number}" for number in numbers]
    yield Expensive("order of texts", "PATCH", one, STRATEGIC, json.dumps(listed).encode())
    copies = [{"op": "add", "path": "/metadata/annotations", "value": {}}] + [
        {"op": "copy", "from": "/metadata/name", "path": f"/metadata/annotations/{number}"}
        for number in range(min(many, 9_000))
    ]
    yield Expensive("copies", "PATCH", one, JSON_PATCH, json.dumps(copies).encode())


def queries() -> Iterator[tuple[str, str]]:
    """Selectors and other parameters, as long as a query may be: with many members, many mistakes, and none."""
    many = ",".join(f"{number:x}" for number in range(11_000))
    yield "values", f"labelSelector=a in ({many})"
    yield "values not wanted", f"labelSelector=a notin ({many}),{','.join(f'a!=v{number}' for number in range(499))}"
    yield "an open list", f"labelSelector=a in ({many}"
    yield "wrong values", f"labelSelector=a in (-{many.replace(',', ',-')})"
    yield "the last value wrong", f"labelSelector=a in ({many},-)"
    yield "empty values", f"labelSelector=a in ({',' * 60_000})"
    yield "values with blanks", f"labelSelector=a in ({' , b' * 10_000})"
    yield "requirements", f"labelSelector={','.join(f'!a{number}/b' for number in range(500))}"
    yield "too many requirements", f"labelSelector={','.join(f'a{number}' for number in range(9_000))}"
    yield "brackets", f"labelSelector={'(' * 60_000}"
    yield "a long word", f"labelSelector={'a' * 60_000}"
    yield "terms", f"fieldSelector={','.join(f'metadata.name!=n{number}' for number in range(100))}"
    yield "no terms", f"fieldSelector={',' * 60_000}"
    yield "empty terms", f"fieldSelector={'=,' * 30_000}"
    yield "a long field", f"fieldSelector=metadata.name={'a' * 60_000}"
    yield "escaped fields", f"fieldSelector=metadata.name={chr(92) * 60_000}"
    yield "escapes", f"labelSelector={'%2c' * 20_000}"
    yield "words", "&".join(["command=%41+b"] * 4_352)
    for kind, text in (("deep", "[" * 3_000), ("long", f"[{'1,' * 1_400}1]"), ("wide", f"{{{'%22a%22:1,' * 400}")):
        yield f"a {kind} token", f"continue={base64.urlsafe_b64encode(text.encode()).decode().rstrip('=')}"


LONG_RULE = f"[{','.join(['1'] * 900)}].size() > 0"


def defined() -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Schemas of a field, all of few values and each long to compile, and a value."""
    one = {"type": "string"}
    patterns = {f"f{number}": {**one, "pattern": f"^[a-z]{{0,4000}}(_{number})?$"} for number in range(45)}
    texts = dict.fromkeys(patterns, "x")
    yield "large patterns", {"type": "object", "properties": patterns}, texts
    junctors = {**one, "anyOf": [{}, *({"pattern": f"^[a-z]{{0,4000}}(_{number})?$"} for number in range(45))]}
    yield "large alternatives", {"type": "object", "properties": {"f": junctors}}, {"f": "x"}
    long = {"x-kubernetes-validations": [{"rule": LONG_RULE}]}
    yield "a long rule", {"type": "object", "x-kubernetes-preserve-unknown-fields": True, **long}, {}
    said = {"x-kubernetes-validations": [{"rule": "true", "messageExpression": f"{LONG_RULE} ? 'a' : 'b'"}]}
    yield "a long message", {"type": "object", "x-kubernetes-preserve-unknown-fields": True, **said}, {}


def multiplied(many: int) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Schemas of a field, and a value for each: both small, and what they make of one another is not."""
    texts = {"type": "array", "items": {"type": "string"}}
    one = {"type": "string"}
    patterns = [{"pattern": f"^x{number}$"} for number in range(many // 4)]
    of_items = [{"items": pattern} for pattern in patterns]
    for junctor in ("allOf", "anyOf", "oneOf"):
        yield f"{junctor} of a list", {**texts, junctor: of_items}, ["y"] * many
        yield f"{junctor} of a long text", {**one, junctor: patterns}, "y" * (many * 1_000)
        nested = [{junctor: of_items[at::8]} for at in range(8)]
        yield f"{junctor} of {junctor}", {**texts, junctor: nested}, ["y"] * many
    yield "not", {**texts, "not": {"anyOf": of_items}}, ["y"] * many
    yield "choices", {"type": "array", "items": {**one, "enum": [f"v{number}" for number in range(many)]}}, ["v"] * many
    long = [f"{number}" * 40 for number in range(many)]
    yield "long choices", {"type": "array", "items": {**one, "enum": long}}, ["v"] * many
    keys = {"type": "object", "additionalProperties": {"type": "array", "items": {**one, "maxLength": 1}}}
    yield "long keys", keys, {"k" * (many * 1_000): ["yy"] * many}
    filled = {"type": "object", "properties": {"a": {**one, "default": "x" * (many * 100)}}}
    yield "a long default", {"type": "array", "items": filled}, [{}] * many
    yield (
        "a long default of a map",
        {"type": "object", "additionalProperties": filled},
        {f"k{number}": {} for number in range(many)},
    )
    fields = {f"f{number}": {**one, "default": "x"} for number in range(many // 4)}
    below = {"type": "object", "properties": fields, "default": {}}
    deep = {"type": "object", "properties": {"a": below}}
    yield "many defaults", {"type": "array", "items": deep}, [{}] * many
    judged = {**texts, "anyOf": [*of_items, {}], "default": ["y"] * (many // 4)}
    yield "a default that is judged", judged, None


OWNER = Principal(name="olga", groups=("tenantry:owner", "system:authenticated"), tenant="acme", authenticator="test")


@pytest.fixture
async def runtime(server: Server, alice: Caller, tmp_path: Path, transactional_db: None) -> AsyncIterator[Runtime]:
    """The parts of a server, in the test's own loop."""
    options = Options(database_url=server.database, data_folder=tmp_path, tenant_limits=UNLIMITED)
    async with build_runtime(options, prepare(options), background=False, heavy=True) as made:
        assert made.heavy
        # What a machine takes for it is measured elsewhere.
        made.heavy.seconds = 600
        yield made


async def _no_recheck() -> None:
    return


async def ask(
    runtime: Runtime,
    asked: Expensive,
    principal: Principal = OWNER,
    accept: str = JSON,
    recheck: Recheck = _no_recheck,
) -> Response:
    """As ``gateway.server.pipeline``, behind authentication."""
    path, _, query = asked.path.partition("?")
    try:
        parsed = parse(asked.method, path.encode(), query.encode())
        info = resolve(parsed, principal.tenant)
        require_allowed(principal, info, await authorize_with_trace(runtime, principal, info))
        if len(asked.body) > limit_of(info):
            raise RequestEntityTooLarge("too large")
        request = Request(
            principal=principal,
            info=info,
            query={name: values[0] for name, values in parsed.parameters.items()},
            headers={b"content-type": asked.media.encode(), b"accept": accept.encode()},
            body=asked.body,
            now=time.time(),
        )
        answer = await dispatch.dispatch(runtime, request, recheck)
    except Exception as error:  # noqa: BLE001 - every failure has an answer
        return render(as_status_error(error))
    if isinstance(answer, Stream):
        return Response(answer.status, b"".join([chunk async for chunk in answer.chunks]))
    return answer
