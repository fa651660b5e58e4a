"""Bodies in Kubernetes' protobuf encoding, for the kinds that kubectl's own generators send in it (TS15).

kubectl encodes ``create namespace``, ``create token``, ``auth can-i`` and their siblings so, and does not fall back to
JSON. Only what is described here is read; a field that is not is refused, never dropped. Answers are JSON, which such
clients accept too. See https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kube.documents import decode_json
from kube.status import BadRequest, UnsupportedMediaType

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"
_MAX_DEPTH: Final = 64
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# One entry a field: number, name, type. ``*`` repeats; ``?`` marks an optional value, which counts even when it is
# zero; ``&`` is merged into its parent; ``{…}`` maps text to the type. Types: - what the server does not take from
# clients (a status), s text, i integer, b boolean, y bytes, q quantity, t time, x integer or text, f raw JSON,
# else a message.
_MESSAGES: Final[Mapping[str, str]] = {
    "TypeMeta": "1 apiVersion s,2 kind s",
    "Meta": (
        "1 name s,2 generateName s,3 namespace s,4 selfLink s,5 uid s,6 resourceVersion s,7 generation i,"
        "8 creationTimestamp t,9 deletionTimestamp t,10 deletionGracePeriodSeconds ?i,11 labels {s},12 annotations {s},"
        "13 ownerReferences *Owner,14 finalizers *s,17 managedFields *ManagedFields"
    ),
    "ManagedFields": "1 manager s,2 operation s,3 apiVersion s,4 time ?t,6 fieldsType s,7 fieldsV1 ?f,8 subresource s",
    "Owner": "1 kind s,3 name s,4 uid s,5 apiVersion s,6 controller ?b,7 blockOwnerDeletion ?b",
    "Selector": "1 matchLabels {s},2 matchExpressions *Requirement",
    "Requirement": "1 key s,2 operator s,3 values *s",
    "ObjectReference": "1 kind s,2 namespace s,3 name s,4 uid s,5 apiVersion s,6 resourceVersion s,7 fieldPath s",
    "LocalReference": "1 name s",
    "Nothing": "",
    "v1/Namespace": "1 metadata Meta,2 spec NamespaceSpec,3 status -",
    "NamespaceSpec": "1 finalizers *s",
    "v1/ConfigMap": "1 metadata Meta,2 data {s},3 binaryData {y},4 immutable ?b",
    "v1/Secret": "1 metadata Meta,2 data {y},3 type s,4 stringData {s},5 immutable ?b",
    "v1/ServiceAccount": (
        "1 metadata Meta,2 secrets *ObjectReference,3 imagePullSecrets *LocalReference,"
        "4 automountServiceAccountToken ?b"
    ),
    "v1/ResourceQuota": "1 metadata Meta,2 spec QuotaSpec,3 status -",
    "QuotaSpec": "1 hard {q},2 scopes *s,3 scopeSelector ScopeSelector",
    "ScopeSelector": "1 matchExpressions *ScopeRequirement",
    "ScopeRequirement": "1 scopeName s,2 operator s,3 values *s",
    "v1/Service": "1 metadata Meta,2 spec ServiceSpec,3 status -",
    "ServiceSpec": (
        "1 ports *ServicePort,2 selector {s},3 clusterIP s,4 type s,5 externalIPs *s,7 sessionAffinity s,"
        "8 loadBalancerIP s,9 loadBalancerSourceRanges *s,10 externalName s,11 externalTrafficPolicy s,"
        "12 healthCheckNodePort i,13 publishNotReadyAddresses b,18 clusterIPs *s,19 ipFamilies *s"
    ),
    "ServicePort": "1 name s,2 protocol s,3 port i,4 targetPort x,5 nodePort i,6 appProtocol ?s",
    "rbac.authorization.k8s.io/v1/Role": "1 metadata Meta,2 rules *Rule",
    "rbac.authorization.k8s.io/v1/ClusterRole": "1 metadata Meta,2 rules *Rule,3 aggregationRule ?Aggregation",
    "Aggregation": "1 clusterRoleSelectors *Selector",
    "Rule": "1 verbs *s,2 apiGroups *s,3 resources *s,4 resourceNames *s,5 nonResourceURLs *s",
    "rbac.authorization.k8s.io/v1/RoleBinding": "1 metadata Meta,2 subjects *Subject,3 roleRef RoleReference",
    "rbac.authorization.k8s.io/v1/ClusterRoleBinding": "1 metadata Meta,2 subjects *Subject,3 roleRef RoleReference",
    "Subject": "1 kind s,2 apiGroup s,3 name s,4 namespace s",
    "RoleReference": "1 apiGroup s,2 kind s,3 name s",
    "authentication.k8s.io/v1/TokenRequest": "1 metadata Meta,2 spec TokenRequestSpec,3 status -",
    "TokenRequestSpec": "1 audiences *s,3 boundObjectRef ?BoundReference,4 expirationSeconds ?i",
    "BoundReference": "1 kind s,2 apiVersion s,3 name s,4 uid s",
    "authentication.k8s.io/v1/SelfSubjectReview": "1 metadata Meta,2 status -",
    "authentication.k8s.io/v1/TokenReview": "1 metadata Meta,2 spec TokenReviewSpec,3 status -",
    "TokenReviewSpec": "1 token s,2 audiences *s",
    "authorization.k8s.io/v1/SelfSubjectAccessReview": "1 metadata Meta,2 spec SelfAccess,3 status -",
    "SelfAccess": "1 resourceAttributes ?ResourceAttributes,2 nonResourceAttributes ?OtherAttributes",
    "ResourceAttributes": ("1 namespace s,2 verb s,3 group s,4 version s,5 resource s,6 subresource s,7 name s"),
    "OtherAttributes": "1 path s,2 verb s",
    "authorization.k8s.io/v1/SubjectAccessReview": "1 metadata Meta,2 spec Access,3 status -",
    "authorization.k8s.io/v1/LocalSubjectAccessReview": "1 metadata Meta,2 spec Access,3 status -",
    "Access": (
        "1 resourceAttributes ?ResourceAttributes,2 nonResourceAttributes ?OtherAttributes,3 user s,4 groups *s,"
        "5 extra {Extra},6 uid s"
    ),
    "Extra": "1 items *s",
    "authorization.k8s.io/v1/SelfSubjectRulesReview": "1 metadata Meta,2 spec RulesSpec,3 status -",
    "RulesSpec": "1 namespace s",
    "apps/v1/Deployment": "1 metadata Meta,2 spec DeploymentSpec,3 status -",
    "DeploymentSpec": (
        "1 replicas ?i,2 selector ?Selector,3 template Template,4 strategy DeploymentStrategy,5 minReadySeconds i,"
        "6 revisionHistoryLimit ?i,7 paused b,9 progressDeadlineSeconds ?i"
    ),
    "DeploymentStrategy": "1 type s,2 rollingUpdate ?Rolling",
    "Rolling": "1 maxUnavailable ?x,2 maxSurge ?x",
    "Template": "1 metadata Meta,2 spec PodSpec",
    "PodSpec": (
        "2 containers *Container,3 restartPolicy s,4 terminationGracePeriodSeconds ?i,5 activeDeadlineSeconds ?i,"
        "6 dnsPolicy s,7 nodeSelector {s},8 serviceAccountName s,9 serviceAccount s,10 nodeName s,11 hostNetwork b,"
        "12 hostPID b,13 hostIPC b,14 securityContext ?Nothing,15 imagePullSecrets *LocalReference,16 hostname s,"
        "17 subdomain s,19 schedulerName s,20 initContainers *Container,21 automountServiceAccountToken ?b,"
        "24 priorityClassName s,25 priority ?i"
    ),
    "Container": (
        "1 name s,2 image s,3 command *s,4 args *s,5 workingDir s,6 ports *ContainerPort,7 env *Variable,"
        "8 resources Resources,13 terminationMessagePath s,14 imagePullPolicy s,16 stdin b,17 stdinOnce b,18 tty b,"
        "20 terminationMessagePolicy s"
    ),
    "ContainerPort": "1 name s,2 hostPort i,3 containerPort i,4 protocol s,5 hostIP s",
    "Variable": "1 name s,2 value s",
    "Resources": "1 limits {q},2 requests {q}",
    "batch/v1/Job": "1 metadata Meta,2 spec JobSpec,3 status -",
    "JobSpec": (
        "1 parallelism ?i,2 completions ?i,3 activeDeadlineSeconds ?i,4 selector ?Selector,5 manualSelector ?b,"
        "6 template Template,7 backoffLimit ?i,8 ttlSecondsAfterFinished ?i,9 completionMode ?s,10 suspend ?b"
    ),
    "batch/v1/CronJob": "1 metadata Meta,2 spec CronJobSpec,3 status -",
    "CronJobSpec": (
        "1 schedule s,2 startingDeadlineSeconds ?i,3 concurrencyPolicy s,4 suspend ?b,5 jobTemplate JobTemplate,"
        "6 successfulJobsHistoryLimit ?i,7 failedJobsHistoryLimit ?i,8 timeZone ?s"
    ),
    "JobTemplate": "1 metadata Meta,2 spec JobSpec",
    "networking.k8s.io/v1/Ingress": "1 metadata Meta,2 spec IngressSpec,3 status -",
    "IngressSpec": "1 defaultBackend ?Backend,2 tls *IngressTLS,3 rules *IngressRule,4 ingressClassName ?s",
    "IngressTLS": "1 hosts *s,2 secretName s",
    "IngressRule": "1 host s,2 ingressRuleValue &IngressRules",
    "IngressRules": "1 http ?IngressPaths",
    "IngressPaths": "1 paths *IngressPath",
    "IngressPath": "1 path s,2 backend Backend,3 pathType ?s",
    "Backend": "3 resource ?TypedReference,4 service ?IngressService",
    "TypedReference": "1 apiGroup ?s,2 kind s,3 name s",
    "IngressService": "1 name s,2 port BackendPort",
    "BackendPort": "1 name s,2 number i",
    "policy/v1/PodDisruptionBudget": "1 metadata Meta,2 spec BudgetSpec,3 status -",
    "BudgetSpec": "1 minAvailable ?x,2 selector ?Selector,3 maxUnavailable ?x,4 unhealthyPodEvictionPolicy ?s",
    "policy/v1/Eviction": "1 metadata Meta,2 deleteOptions ?DeleteOptions",
    "v1/DeleteOptions": (
        "1 gracePeriodSeconds ?i,2 preconditions ?Preconditions,3 orphanDependents ?b,4 propagationPolicy ?s,"
        "5 dryRun *s"
    ),
    "Preconditions": "1 uid ?s,2 resourceVersion ?s",
    "scheduling.k8s.io/v1/PriorityClass": (
        "1 metadata Meta,2 value i,3 globalDefault b,4 description s,5 preemptionPolicy ?s"
    ),
}
_ALIASES: Final = {"DeleteOptions": "v1/DeleteOptions"}

_Field = tuple[str, str, bool, bool, bool, bool]
"""Name, type, repeated, a map, optional, merged into its parent."""


def _read_table(text: str) -> dict[int, _Field]:
    fields: dict[int, _Field] = {}
    for entry in filter(None, text.split(",")):
        number, name, type_ = entry.split(" ")
        fields[int(number)] = (
            name,
            type_.strip("*?{}&"),
            type_[0] == "*",
            type_[0] == "{",
            type_[0] == "?",
            type_[0] == "&",
        )
    return fields


_TABLES: Final = {name: _read_table(text) for name, text in _MESSAGES.items()}


def decode(body: bytes) -> dict[str, Any]:
    """The object in a protobuf body, as JSON would have it.

    Raises ``UnsupportedMediaType`` for a kind that is not described here, ``BadRequest`` for a broken body or a field
    that this server does not read.
    """
    if not body.startswith(MAGIC):
        raise BadRequest("the body is not in Kubernetes' protobuf encoding")
    meta, raw = b"", b""
    for number, _, value in _fields(memoryview(body)[len(MAGIC) :]):
        if number == 1 and not isinstance(value, int):
            meta = bytes(value)
        elif number == 2 and not isinstance(value, int):
            raw = bytes(value)
    kind = _message("TypeMeta", memoryview(meta), 0)
    name = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"
    if kind.get("kind") == "DeleteOptions":
        name = "v1/DeleteOptions"
    if name not in _TABLES:
        raise UnsupportedMediaType(
            f"protobuf bodies of {name[:128]} are not supported - accepted media types include: "
            "application/json, application/yaml"
        )
    return {**kind, **_message(name, memoryview(raw), 0)}


def _fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, wire, value
        elif wire == _BYTES:
            length, position = _varint(data, position)
            if length > end - position:
                raise _broken()
            yield number, wire, data[position : position + length]
            position += length
        else:
            raise _broken()


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    result = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
    raise _broken()


def _broken() -> BadRequest:
    return BadRequest("the protobuf body cannot be read")


def _message(name: str, data: memoryview, depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise _broken()
    table = _TABLES[_ALIASES.get(name, name)]
    result: dict[str, Any] = {}
    for number, _, raw in _fields(data):
        field = table.get(number)
        if field is None:
            raise BadRequest(
                f"the protobuf body sets field {number} of {name.rpartition('/')[2]}, which this server reads from "
                "JSON and YAML only"
            )
        field_name, type_, repeated, mapped, optional, inline = field
        if type_ == "-":
            continue
        if mapped:
            key, value = _entry(type_, raw, depth)
            result.setdefault(field_name, {})[key] = value
            continue
        value = _value(type_, raw, depth)
        if inline:
            result.update(value)
        elif repeated:
            result.setdefault(field_name, []).append(value)
        elif optional or value not in ("", 0, False, None, {}):
            result[field_name] = value
    return result


def _entry(type_: str, raw: int | memoryview, depth: int) -> tuple[str, Any]:
    if isinstance(raw, int):
        raise _broken()
    key = ""
    value: Any = {"s": "", "y": "", "Extra": []}.get(type_)
    for number, _, part in _fields(raw):
        if number == 1:
            key = _text(part)
        elif number == 2:
            value = _value(type_, part, depth)
            if type_ == "Extra":
                value = value.get("items", [])
    return key, value


def _value(type_: str, raw: int | memoryview, depth: int) -> Any:
    if type_ in ("i", "b"):
        if not isinstance(raw, int):
            raise _broken()
        if type_ == "b":
            return bool(raw)
        return raw - (1 << 64) if raw >= 1 << 63 else raw
    if isinstance(raw, int):
        raise _broken()
    match type_:
        case "s":
            return _text(raw)
        case "y":
            return base64.b64encode(raw).decode()
        case "q":
            return next((_text(part) for number, _, part in _fields(raw) if number == 1), "0")
        case "t":
            return _time(raw)
        case "x":
            return _int_or_text(raw)
        case "f":
            return decode_json(next((_text(part).encode() for number, _, part in _fields(raw) if number == 1), b"{}"))
    return _message(type_, raw, depth + 1)


def _text(raw: int | memoryview) -> str:
    if isinstance(raw, int):
        raise _broken()
    try:
        return bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise _broken() from None


def _time(raw: memoryview) -> str | None:
    seconds = next((value for number, _, value in _fields(raw) if number == 1), None)
    if not isinstance(seconds, int):
        return None
    seconds = seconds - (1 << 64) if seconds >= 1 << 63 else seconds
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds > 0 else None
    except (OverflowError, ValueError, OSError):
        raise _broken() from None


def _int_or_text(raw: memoryview) -> int | str:
    values = {number: value for number, _, value in _fields(raw)}
    if values.get(1):
        return _text(values.get(3, memoryview(b"")))
    number = _value("i", values.get(2, 0), 0)
    return int(number)
