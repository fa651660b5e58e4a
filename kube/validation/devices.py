"""Claims of devices, their templates, and the classes that they name.

Expressions that select devices are kept as they are: no device is behind a space, so nobody evaluates them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import (
    duplicate,
    forbidden,
    immutable,
    invalid,
    not_supported,
    reason_causes,
    required,
    too_long,
    too_many,
)
from kube.requests.status import Cause
from kube.validation.metadata import annotation_causes, label_causes
from kube.validation.volumes import driver_causes

_MANY: Final = 32
_CHOICES_MAX: Final = 8
_USERS_MAX: Final = 256
_ID_MAX: Final = 32
_TEXT_MAX: Final = 10 * 1024
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_ID: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ID_SHAPE: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_ONE_KIND: Final = "exactly one of `exactly` or `firstAvailable` is required"
_NO_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_EXTENDED: Final = "must be a valid extended resource name"

Judge = Callable[[Any, str], list[Cause]]


def claim_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a new ResourceClaim."""
    return _spec_causes(body.get("spec", {}), "spec")


def claim_template_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a new ResourceClaimTemplate."""
    spec = body.get("spec", {})
    metadata, here = spec.get("metadata", {}), "spec.metadata"
    causes = label_causes(metadata.get("labels", {}), f"{here}.labels")
    causes += annotation_causes(metadata.get("annotations", {}), f"{here}.annotations")
    return causes + _spec_causes(spec.get("spec", {}), "spec.spec")


def device_class_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a DeviceClass."""
    spec = body.get("spec", {})
    causes = _each(spec.get("selectors"), _selector_causes, "spec.selectors")
    causes += _each(spec.get("config"), _configuration_causes, "spec.config")
    name, here = spec.get("extendedResourceName"), "spec.extendedResourceName"
    if name is not None and (
        "/" not in name or name.startswith("requests.") or "kubernetes.io/" in name or names.qualified_name(name)
    ):
        causes.append(invalid(here, name, _EXTENDED))
    return causes


def claim_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What of a ResourceClaim stays; who it is reserved for changes, once it has what it claims."""
    if new.get("spec") != old.get("spec"):
        return [immutable("spec", new.get("spec"))]
    status, before = new.get("status") or {}, old.get("status") or {}
    if status == before:
        return []
    users, here = status.get("reservedFor") or [], "status.reservedFor"
    causes = _each(users, _user_causes, here, most=_USERS_MAX, key="uid")
    allocation, earlier = status.get("allocation"), before.get("allocation")
    if users and allocation is None:
        causes.append(forbidden(here, "may not be specified when `allocated` is not set"))
    elif new.get("metadata", {}).get("deletionTimestamp") and any(
        user not in (before.get("reservedFor") or ()) for user in users
    ):
        detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        causes.append(forbidden(here, detail))
    if allocation is not None and earlier is not None and allocation != earlier:
        causes.append(immutable("status.allocation", allocation))
    return causes


def _user_causes(user: dict[str, Any], path: str) -> list[Cause]:
    return [required(f"{path}.{field}") for field in ("resource", "name", "uid") if not user.get(field)]


def _spec_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    devices, here = spec.get("devices", {}), f"{path}.devices"
    requests = devices.get("requests") or ()
    known = {request.get("name", "") for request in requests}
    known |= {
        f"{request.get('name', '')}/{choice.get('name', '')}"
        for request in requests
        for choice in request.get("firstAvailable") or ()
    }

    def constraint(body: dict[str, Any], at: str) -> list[Cause]:
        causes = _reference_causes(body, at, known)
        for field in ("matchAttribute", "distinctAttribute"):
            if field in body:
                return causes + _attribute_causes(body[field], f"{at}.{field}")
        detail = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        return [*causes, required(at, detail)]

    def configuration(body: dict[str, Any], at: str) -> list[Cause]:
        return _reference_causes(body, at, known) + _configuration_causes(body, at)

    causes = _each(requests, _request_causes, f"{here}.requests", key="name")
    causes += _each(devices.get("constraints"), constraint, f"{here}.constraints")
    return causes + _each(devices.get("config"), configuration, f"{here}.config")


def _each(items: Sequence[Any] | None, judge: Judge, path: str, *, most: int = _MANY, key: str = "") -> list[Cause]:
    """What is wrong with the members of a list, which must not be too many, and differ in ``key`` if there is one."""
    items = items or ()
    if len(items) > most:
        return [too_many(path, len(items), most)]
    causes = [cause for index, item in enumerate(items) for cause in judge(item, f"{path}[{index}]")]
    known: set[str] = set()
    for index, item in enumerate(items if key else ()):
        name = item.get(key, "")
        causes += [duplicate(f"{path}[{index}]", name)] if name in known else []
        known.add(name)
    return causes


def _label_name_causes(name: str, path: str) -> list[Cause]:
    return reason_causes(path, name, names.dns_label(name))


def _request_causes(request: dict[str, Any], path: str) -> list[Cause]:
    causes = _label_name_causes(request.get("name", ""), f"{path}.name")
    choices, exactly = request.get("firstAvailable"), request.get("exactly")
    if choices and exactly is not None:
        return [*causes, invalid(path, None, f"{_ONE_KIND}, but multiple fields are set")]
    if choices:
        return causes + _each(choices, _choice_causes, f"{path}.firstAvailable", most=_CHOICES_MAX, key="name")
    if exactly is None:
        return [*causes, required(path, _ONE_KIND)]
    return causes + _wanted_causes(exactly, f"{path}.exactly")


def _choice_causes(choice: dict[str, Any], path: str) -> list[Cause]:
    return _label_name_causes(choice.get("name", ""), f"{path}.name") + _wanted_causes(choice, path)


def _wanted_causes(wanted: dict[str, Any], path: str) -> list[Cause]:
    """What is wrong with the devices that a request, or one of its choices, asks for."""
    name, here = wanted.get("deviceClassName", ""), f"{path}.deviceClassName"
    causes = reason_causes(here, name, names.dns_subdomain(name)) if name else [required(here)]
    causes += _each(wanted.get("selectors"), _selector_causes, f"{path}.selectors")
    mode, count = wanted.get("allocationMode", ""), wanted.get("count", 0)
    if mode == "All" and count:
        causes.append(invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'"))
    elif mode == "ExactCount" and count <= 0:
        causes.append(invalid(f"{path}.count", count, "must be greater than zero"))
    elif mode not in ("All", "ExactCount"):
        causes.append(not_supported(f"{path}.allocationMode", mode, ("All", "ExactCount")))
    for index, toleration in enumerate(wanted.get("tolerations") or ()):
        causes += _toleration_causes(toleration, f"{path}.tolerations[{index}]")
    return causes


def _selector_causes(selector: dict[str, Any], path: str) -> list[Cause]:
    if "cel" not in selector:
        return [required(f"{path}.cel")]
    text = selector["cel"].get("expression", "")
    return [too_long(f"{path}.cel.expression", _TEXT_MAX)] if len(text.encode()) > _TEXT_MAX else []


def _toleration_causes(toleration: dict[str, Any], path: str) -> list[Cause]:
    key, operator, value = (toleration.get(field, "") for field in ("key", "operator", "value"))
    causes = reason_causes(f"{path}.key", key, names.qualified_name(key)) if key else []
    if operator == "Exists":
        causes += [invalid(f"{path}.value", value, "must be empty for operator `Exists`")] if value else []
    elif operator == "Equal":
        causes += reason_causes(f"{path}.value", value, names.label_value(value))
    else:
        here = f"{path}.operator"
        causes.append(not_supported(here, operator, ("Equal", "Exists")) if operator else required(here))
    effect = toleration.get("effect", "")
    return [*causes, not_supported(f"{path}.effect", effect, _EFFECTS)] if effect not in ("", *_EFFECTS) else causes


def _reference_causes(body: dict[str, Any], path: str, known: Collection[str]) -> list[Cause]:
    """What is wrong with the requests that a constraint or a configuration is for."""
    wanted, here = body.get("requests") or (), f"{path}.requests"

    def judge(name: str, at: str) -> list[Cause]:
        parts = name.split("/")
        if len(parts) > 2:
            return [invalid(at, name, _NO_REQUEST)]
        causes = [cause for part in parts for cause in _label_name_causes(part, at)]
        return causes if name in known else [*causes, invalid(at, name, _NO_REQUEST)]

    causes = _each(wanted, judge, here)
    again = [index for index, name in enumerate(wanted) if name in wanted[:index]] if len(wanted) <= _MANY else []
    return causes + [duplicate(f"{here}[{index}]", wanted[index]) for index in again]


def _attribute_causes(name: str, path: str) -> list[Cause]:
    """What is wrong with the name of an attribute, before which its domain stands."""
    domain, slash, rest = name.partition("/")
    if not slash:
        detail = "a fully qualified name must be a domain and a name separated by a slash"
        return [*_id_causes(name, path), invalid(path, name, detail)]
    if "/" in rest:
        return []
    causes = driver_causes(domain, path) if domain else [invalid(path, "", "the domain must not be empty")]
    return causes + (_id_causes(rest, path) if rest else [invalid(path, "", "the name must not be empty")])


def _id_causes(name: str, path: str) -> list[Cause]:
    causes = [too_long(path, _ID_MAX)] if len(name.encode()) > _ID_MAX else []
    return causes if _ID.fullmatch(name) else [*causes, invalid(path, name, _ID_SHAPE)]


def _configuration_causes(body: dict[str, Any], path: str) -> list[Cause]:
    if "opaque" not in body:
        return [required(f"{path}.opaque")]
    here, given = f"{path}.opaque", body["opaque"]
    causes = driver_causes(given.get("driver", ""), f"{here}.driver")
    return causes if "parameters" in given else [*causes, required(f"{here}.parameters")]
