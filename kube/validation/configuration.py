"""ConfigMaps, Secrets and priorities."""

from __future__ import annotations

import base64
import re
from typing import Any, Final

import orjson

from kube.requests.fielderrors import forbidden, invalid, key_path, not_supported, required, too_long
from kube.requests.jsonsyntax import syntax_error
from kube.requests.status import Cause

MAX_DATA: Final = 1024 * 1024
"""Bytes that the data of a ConfigMap or Secret may take."""

_KEY: Final = re.compile(r"[-._a-zA-Z0-9]++", re.ASCII)
_KEY_MAX: Final = 253
_REDACTED: Final = "<secret contents redacted>"
JSON_KEYS: Final = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}
"""Type of a Secret → the key under which it holds JSON."""

_REQUIRED_KEYS: Final = {
    **{kind: (key,) for kind, key in JSON_KEYS.items()},
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def data_key(key: str) -> list[str]:
    """Why this is no key of a ConfigMap or Secret."""
    reasons = []
    if len(key) > _KEY_MAX:
        reasons.append(f"must be no more than {_KEY_MAX} characters")
    if not _KEY.fullmatch(key):
        reasons.append(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
            "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        )
    if key == ".":
        reasons.append("must not be '.'")
    elif key == "..":
        reasons.append("must not be '..'")
    elif key.startswith(".."):
        reasons.append("must not start with '..'")
    return reasons


def config_map_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a ConfigMap."""
    data, binary = body.get("data", {}), body.get("binaryData", {})
    causes: list[Cause] = []
    for key in data:
        if reasons := data_key(key):
            causes += [invalid(key_path("data", key), key, reason) for reason in reasons]
        if key in binary:
            causes.append(invalid(key_path("data", key), key, "duplicate of key present in binaryData"))
    for key in binary:
        if reasons := data_key(key):
            causes += [invalid(key_path("binaryData", key), key, reason) for reason in reasons]
    size = len("".join(data.values()).encode()) + (sum(map(_decoded_size, binary.values())) if binary else 0)
    if size > MAX_DATA:
        causes.append(too_long("[]", MAX_DATA))
    return causes


def secret_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a Secret; no cause carries its contents."""
    data = body.get("data", {})
    causes = [invalid(key_path("data", key), key, reason) for key in data for reason in data_key(key)]
    if sum(map(_decoded_size, data.values())) > MAX_DATA:
        causes.append(too_long("data", MAX_DATA))
    kind = body.get("type", "")
    causes += [required(key_path("data", key)) for key in _REQUIRED_KEYS.get(kind, ()) if key not in data]
    if kind == "kubernetes.io/service-account-token":
        annotation = "kubernetes.io/service-account.name"
        if not body.get("metadata", {}).get("annotations", {}).get(annotation):
            causes.append(required(key_path("metadata.annotations", annotation)))
    elif kind == "kubernetes.io/basic-auth":
        if "username" not in data and "password" not in data:
            causes += [required("data[username]"), required("data[password]")]
    elif kind in JSON_KEYS:
        key = JSON_KEYS[kind]
        problem = _json_problem(data[key]) if key in data else ""
        causes += [invalid(key_path("data", key), _REDACTED, problem)] if problem else []
    return causes


def priority_class_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a PriorityClass: the highest priorities and names are the system's."""
    causes: list[Cause] = []
    name, value = body.get("metadata", {}).get("name", ""), body.get("value", 0)
    if name in _SYSTEM_PRIORITIES:
        if value != _SYSTEM_PRIORITIES[name]:
            detail = f"value must be {_SYSTEM_PRIORITIES[name]} for {name}"
            causes.append(forbidden("metadata.name", detail))
    elif name.startswith("system-"):
        reserved = "priority class names with 'system-' prefix are reserved for system use only"
        detail = f"{reserved}. error: {name} is not a known system priority class"
        causes.append(forbidden("metadata.name", detail))
    elif value > 1_000_000_000:
        detail = "maximum allowed value of a user defined priority is 1000000000"
        causes.append(forbidden("value", detail))
    policy = body.get("preemptionPolicy")
    choices = ("PreemptLowerPriority", "Never")
    if policy == "":
        causes.append(required("preemptionPolicy"))
    elif policy not in (None, *choices):
        causes.append(not_supported("preemptionPolicy", policy, choices))
    return causes


_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def _decoded_size(text: str) -> int:
    return len(text) * 3 // 4 - text[-2:].count("=")


def _json_problem(text: str) -> str:
    """Why what is encoded in ``text`` is no JSON object, in Go's words; empty when it is one."""
    plain = base64.b64decode(text)
    problem = syntax_error(plain)
    if problem:
        return problem
    try:
        value = orjson.loads(plain)
    except ValueError:
        return "invalid character in JSON"
    if value is None or isinstance(value, dict):
        return ""
    word = "bool" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"
    word = "array" if isinstance(value, list) else word
    return f"json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
