"""What the OpenAPI documents say that fields and parameters mean."""

from __future__ import annotations

from typing import Any, Final

from tests.conformance.conversation import Conversation
from tests.speaking import Answer

_FIELDS: Final = (
    "Container.imagePullPolicy",
    "ContainerPort.protocol",
    "PersistentVolumeClaimSpec.accessModes",
    "PersistentVolumeSpec.persistentVolumeReclaimPolicy",
    "PodSpec.dnsPolicy",
    "PodSpec.restartPolicy",
    "PodStatus.phase",
    "ResourceQuotaSpec.scopes",
    "ServiceSpec.ipFamilies",
    "ServiceSpec.type",
    "Toleration.effect",
)
_ALPHA: Final = ("shardSelector",)


def meanings(say: Conversation) -> None:
    """The values that fields take, and the words about parameters."""
    say.note("/openapi/v3/api/v1", _values)
    for path in ("apps/v1", "autoscaling/v2", "batch/v1", "discovery.k8s.io/v1", "networking.k8s.io/v1", "policy/v1"):
        say.note(f"/openapi/v3/apis/{path}", _every_value)
    say.note("/openapi/v3/api/v1", lambda answer: _words(answer, answer.body))
    say.note("/openapi/v2", lambda answer: _words(answer, answer.body))


def _values(answer: Answer) -> dict[str, Any]:
    schemas, found = answer["components"]["schemas"], {}
    for path in _FIELDS:
        definition, _, field = path.partition(".")
        schema = schemas[f"io.k8s.api.core.v1.{definition}"]["properties"][field]
        found[path] = [schema["description"], schema.get("enum") or schema["items"]["enum"]]
    return found


def _every_value(answer: Answer) -> dict[str, Any]:
    """The fields of a group's document that take certain values alone."""
    found = {}
    for name, schema in answer["components"]["schemas"].items():
        for field, described in (schema.get("properties") or {}).items():
            values = described.get("enum") or (described.get("items") or {}).get("enum")
            if values and name != "io.k8s.api.core.v1.Node":
                found[f"{name}.{field}"] = values
    return found


def _words(answer: Answer, document: dict[str, Any]) -> dict[str, Any]:
    """The parameters of some operations, with what the documents of version 2 say in one place for all."""
    collection, found = "/api/v1/namespaces/{namespace}/configmaps", {}
    pods = "/api/v1/namespaces/{namespace}/pods/{name}"
    for path, method in (
        (collection, "get"),
        (collection, "post"),
        (collection, "delete"),
        (f"{collection}/{{name}}", "patch"),
        (f"{collection}/{{name}}", "delete"),
        (f"{pods}/log", "get"),
        (f"{pods}/exec", "post"),
        (f"{pods}/attach", "get"),
        (f"{pods}/portforward", "get"),
        (f"{pods}/proxy", "delete"),
        ("/api/v1/namespaces/{namespace}/services/{name}/proxy", "get"),
    ):
        item = answer["paths"][path]
        for parameter in (*item["parameters"], *item[method].get("parameters", ())):
            shared = document.get("parameters", {}).get(parameter.get("$ref", "").rpartition("/")[2], parameter)
            if shared["name"] not in ("body", *_ALPHA):
                found[f"{method} {path} {shared['name']}"] = shared["description"]
    return found
