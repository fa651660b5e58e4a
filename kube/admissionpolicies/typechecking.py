"""What the schemas of the kinds that a ValidatingAdmissionPolicy is about have against its expressions (TS15).

Nothing is refused for it: it stands in the policy's status, as kube-controller-manager writes it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kube.admissionpolicies.policies import param_kind_of
from kube.cel.admission import Scope, type_problems
from kube.cel.typechecker import DeclType
from kube.kinds.resources import Catalog, Resource, Version, parse_api_version
from kube.kinds.schemas import Schema

MANAGER: Final = "validatingadmissionpolicy-status"
"""Who owns what is written."""

KINDS_MAX: Final = 10
"""Kinds of one rule that are looked at."""

_TEXT: Final = Schema(type="string")

Found = tuple[Resource, Version]


@dataclass(frozen=True, slots=True)
class Typed:
    """A kind, as warnings name it, and what its objects are."""

    name: str
    schema: Schema


def is_due(policy: Mapping[str, Any]) -> bool:
    """Whether what a policy says has changed since its status was written."""
    observed = (policy.get("status") or {}).get("observedGeneration") or 0
    return bool(int(policy["metadata"].get("generation") or 0) > int(observed))


def kinds_of(spec: Mapping[str, Any], catalog: Catalog) -> list[Found]:
    """The kinds that a policy names, and the versions: what it matches by a wildcard is left out, and so are subresources."""
    found: dict[tuple[str, str, str], Found] = {}
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        for number, (resource, version) in enumerate(_named(rule, catalog), 1):
            found[resource.group, version.name, resource.kind] = resource, version
            if number == KINDS_MAX:
                return [found[name] for name in sorted(found)]
    return [found[name] for name in sorted(found)]


def _named(rule: Mapping[str, Any], catalog: Catalog) -> Iterator[Found]:
    groups, versions = (sorted(rule.get(field) or ()) for field in ("apiGroups", "apiVersions"))
    if any("*" in name for name in (*groups, *versions)):
        return
    for group in groups:
        for version in versions:
            for plural in sorted(name for name in rule.get("resources") or () if not {"*", "/"} & {*name}):
                # Who names no group means any, as whoever says "deployments" to kubectl.
                for resource in catalog:
                    served = resource.version(version)
                    if served and group in ("", resource.group) and plural in (resource.plural, resource.singular):
                        yield resource, served


def params_of(spec: Mapping[str, Any], catalog: Catalog) -> Found | None:
    """The kind of a policy's parameters, where it is served."""
    named = param_kind_of(spec)
    if named is None:
        return None
    group, version = parse_api_version(named.api_version)
    resource = catalog.by_kind(group, version, named.kind)
    served = resource and resource.version(version)
    return (resource, served) if resource and served else None


def typed(found: Found, schema: Schema | None, metadata: Schema) -> Typed | None:
    """A kind with its schema, if it has one; of a custom one ``metadata`` is that of every object."""
    resource, version = found
    if schema is None:
        return None
    if resource.custom:
        own = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": metadata}
        schema = Schema(type="object", properties={**schema.properties, **own})
    return Typed(f"{resource.group}/{version.name}, Kind={resource.kind}", schema)


def warnings(spec: Mapping[str, Any], kinds: Sequence[Typed], params: Schema | None) -> Iterator[dict[str, str] | None]:
    """The ``expressionWarnings`` of a policy; ``None`` after each look at an expression, so that others may have turns."""
    scope = Scope(params=param_kind_of(spec) is not None)
    known: dict[str, tuple[dict[str, DeclType], dict[str, DeclType]]] = {}
    for kind in kinds:
        types: dict[str, DeclType] = {"object": kind.schema, "oldObject": kind.schema, "params": params}
        variables: dict[str, DeclType] = {}
        for each in spec.get("variables") or ():
            variables[each["name"]] = type_problems(each["expression"], scope, types, variables)[1]
            yield None
        known[kind.name] = types, variables
    for index, validation in enumerate(spec.get("validations") or ()):
        for field in ("expression", "messageExpression"):
            said: list[str] = []
            for name, seen in known.items():
                problems = type_problems(validation[field], scope, *seen)[0] if validation.get(field) else ""
                said += [f"{name}: {problems}\n"] if problems else []
                yield None
            if said:
                yield {"fieldRef": f"spec.validations[{index}].{field}", "warning": "\n".join(said)}


def with_type_checking(policy: Mapping[str, Any], found: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """What is applied to a policy's status."""
    checked = {"expressionWarnings": list(found)} if found else {}
    return {
        "apiVersion": policy["apiVersion"],
        "kind": policy["kind"],
        "metadata": {"name": policy["metadata"]["name"]},
        "status": {"observedGeneration": policy["metadata"]["generation"], "typeChecking": checked},
    }
