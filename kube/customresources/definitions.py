"""CustomResourceDefinitions: are they valid, are their names free, and which resources do they make (TS10 to TS12)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kube.cel.rules import rule_causes
from kube.customresources.schemas import structural_schema
from kube.customresources.selectablefields import FIELD_PATH, selectable_causes
from kube.customresources.structuralrules import schema_causes
from kube.customresources.validation import default_causes
from kube.customresources.validationcosts import LIGHT, defaults_cost
from kube.kinds.openings import APPROVED
from kube.kinds.resources import PrinterColumn, Resource, Scale, Subresource, Version, version_order
from kube.kinds.schemas import Definitions
from kube.requests.fielderrors import forbidden, invalid, not_supported, required, too_many
from kube.requests.names import dns1035_label, dns_subdomain
from kube.requests.status import Cause

MAX_COLUMNS: Final = 100
"""Of a version; each is looked for in every object that a table shows."""

DEFAULTS_MOST: Final = 4 * LIGHT
"""What it may take to judge all defaults of a version."""

CRDS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer that holds a deleted CRD until its objects are gone."""

_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")

_WARNING_BYTES: Final = 256


def crd_causes(crd: Mapping[str, Any], definitions: Definitions, *, new: bool = True) -> list[Cause]:
    """Everything that is wrong with a defaulted CRD, in kube-apiserver's words; empty when it is valid.

    One that is not ``new`` has its name already: what it is called by may not change.
    """
    spec = crd.get("spec")
    if not isinstance(spec, Mapping):
        return [required("spec")]
    metadata = crd.get("metadata") or {}
    names = spec.get("names")
    names = names if isinstance(names, Mapping) else {}
    group = spec.get("group", "")
    causes = []
    if new and metadata.get("name", "") != f"{names.get('plural')}.{group}":
        causes.append(invalid("metadata.name", metadata.get("name", ""), 'must be spec.names.plural+"."+spec.group'))
    causes += _group_causes(group, metadata)
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        scope = spec.get("scope")
        causes.append(
            not_supported("spec.scope", scope, ("Cluster", "Namespaced")) if scope else required("spec.scope")
        )
    causes.extend(_version_list_causes(spec.get("versions"), definitions))
    causes.extend(_name_causes(names))
    if spec.get("preserveUnknownFields"):
        causes.append(
            invalid(
                "spec.preserveUnknownFields",
                True,
                "cannot set to true, "
                "set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
            )
        )
    causes.extend(_conversion_causes(spec.get("conversion")))
    versions = spec.get("versions")
    listed = versions if isinstance(versions, list) else ()
    if not any(isinstance(each, Mapping) and each.get("storage") for each in listed):
        causes.append(invalid("status.storedVersions", None, "must have at least one stored version"))
    return causes


def crd_update_causes(old: Mapping[str, Any], new: Mapping[str, Any], definitions: Definitions) -> list[Cause]:
    """What a change of an established CRD must leave alone, and what is wrong with the new one."""
    causes = crd_causes(new, definitions, new=False)
    before, after = old["spec"], new.get("spec") or {}
    if is_established(old):
        immutable: list[tuple[str, Any, Any]] = [
            ("spec.scope", before.get("scope"), after.get("scope")),
            ("spec.names.kind", before["names"].get("kind"), (after.get("names") or {}).get("kind")),
        ]
        causes.extend(invalid(path, new, "field is immutable") for path, was, new in immutable if was != new)
    for path, key in (("spec.group", "group"),):
        if before.get(key) != after.get(key):
            causes.append(invalid(path, after.get(key), "field is immutable"))
    if before["names"].get("plural") != (after.get("names") or {}).get("plural"):
        causes.append(invalid("spec.names.plural", (after.get("names") or {}).get("plural"), "field is immutable"))
    present = {version.get("name") for version in after.get("versions") or () if isinstance(version, Mapping)}
    for index, name in enumerate((old.get("status") or {}).get("storedVersions") or ()):
        if name not in present:
            causes.append(
                invalid(
                    f"status.storedVersions[{index}]",
                    name,
                    "missing from spec.versions; "
                    f"{name} was previously a storage version, and must remain in spec.versions until a "
                    f"storage migration ensures no data remains persisted in {name} "
                    f"and removes {name} from status.storedVersions",
                )
            )
    return causes


def _group_causes(group: Any, metadata: Mapping[str, Any]) -> Iterator[Cause]:
    if not isinstance(group, str) or not group:
        yield required("spec.group")
        return
    reasons = dns_subdomain(group)
    yield from (invalid("spec.group", group, reason) for reason in reasons)
    if not reasons and "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    if group in ("k8s.io", "kubernetes.io") or group.endswith((".k8s.io", ".kubernetes.io")):
        approval = (metadata.get("annotations") or {}).get(APPROVED)
        if not approval:
            yield required(
                f"metadata.annotations[{APPROVED}]",
                "protected groups must have approval annotation "
                f'"{APPROVED}", see https://github.com/kubernetes/enhancements/pull/1111',
            )


def _name_causes(names: Mapping[str, Any]) -> Iterator[Cause]:
    for field in ("plural", "singular", "kind", "listKind"):
        value = names.get(field)
        path = f"spec.names.{field}"
        if not isinstance(value, str) or not value:
            yield required(path)
            continue
        for reason in dns1035_label(value.lower()):
            yield invalid(
                path,
                value,
                reason
                if field in ("plural", "singular")
                else f"may have mixed case, but should otherwise match: {reason}",
            )
        if field in ("plural", "singular") and value != value.lower():
            yield from (invalid(path, value, reason) for reason in dns1035_label(value))
    for field in ("shortNames", "categories"):
        values = names.get(field) or []
        for index, value in enumerate(values if isinstance(values, list) else [values]):
            for reason in dns1035_label(value) if isinstance(value, str) else ["must be a string"]:
                yield invalid(f"spec.names.{field}[{index}]", value, reason)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")


def _version_list_causes(versions: Any, definitions: Definitions) -> Iterator[Cause]:
    if not isinstance(versions, list) or not versions:
        yield invalid("spec.versions", versions, "must have exactly one version marked as storage version")
        return
    seen: set[str] = set()
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        if not isinstance(version, Mapping):
            yield invalid(path, version, "must be an object")
            continue
        name = str(version.get("name") or "")
        # With a single version kube-apiserver names fields as they were in v1beta1, too, outside of the list.
        single = len(versions) == 1
        places = (f"{path}.name", "spec.version") if single and name else (f"{path}.name",)
        yield from (invalid(at, name, reason) for at in places for reason in dns1035_label(name))
        if name in seen:
            yield invalid("spec.versions", versions, "must contain unique version names")
        seen.add(name)
        yield from _warning_causes(version, f"{path}.deprecationWarning")
        validation = version.get("schema")
        openapi = validation.get("openAPIV3Schema") if isinstance(validation, Mapping) else None
        if openapi is None:
            yield required(f"{path}.schema.openAPIV3Schema")
        else:
            at = ("spec.validation" if single else f"{path}.schema") + ".openAPIV3Schema"
            structural = schema_causes(openapi, at)
            if structural:
                yield from structural
            else:
                schema = structural_schema(openapi, definitions)
                if defaults_cost(schema) > DEFAULTS_MOST:
                    yield forbidden(at, "its defaults take too much to be judged: shorten them, or the rules for them")
                else:
                    yield from default_causes(schema, at)
                yield from rule_causes(schema, at)
        yield from _version_causes(version, openapi or {}, "spec" if single else path)
    storage = sum(isinstance(version, Mapping) and version.get("storage") is True for version in versions)
    if storage != 1:
        yield invalid("spec.versions", versions, "must have exactly one version marked as storage version")


def _version_causes(version: Mapping[str, Any], openapi: Any, path: str) -> Iterator[Cause]:
    yield from _subresource_causes(version.get("subresources"), f"{path}.subresources")
    columns = version.get("additionalPrinterColumns") or []
    if isinstance(columns, list) and len(columns) > MAX_COLUMNS:
        yield too_many(f"{path}.additionalPrinterColumns", len(columns), MAX_COLUMNS)
        return
    for index, column in enumerate(columns if isinstance(columns, list) else []):
        yield from _column_causes(column, f"{path}.additionalPrinterColumns[{index}]")
    fields = version.get("selectableFields") or []
    if isinstance(fields, list):
        yield from selectable_causes(
            fields, openapi if isinstance(openapi, Mapping) else {}, f"{path}.selectableFields"
        )


def _warning_causes(version: Mapping[str, Any], path: str) -> Iterator[Cause]:
    text = version.get("deprecationWarning")
    if not isinstance(text, str):
        return
    if not version.get("deprecated"):
        yield invalid(path, text, "can only be set for deprecated versions")
        return
    if len(text.encode()) > _WARNING_BYTES:
        yield invalid(path, text, f"must be <= {_WARNING_BYTES} characters long")
    if not text:
        yield invalid(path, text, "must not be an empty string")
    hidden = next((position for position, letter in enumerate(text) if not letter.isprintable()), None)
    if hidden is not None:
        words = "must only contain printable UTF-8 characters; non-printable character found at index"
        yield invalid(path, text, f"{words} {len(text[:hidden].encode())}")


def _subresource_causes(subresources: Any, path: str) -> Iterator[Cause]:
    scale = subresources.get("scale") if isinstance(subresources, Mapping) else None
    if scale is None:
        return
    if not isinstance(scale, Mapping):
        yield invalid(f"{path}.scale", scale, "must be an object")
        return
    for field, root, words in (
        ("specReplicasPath", (".spec.",), ".spec"),
        ("statusReplicasPath", (".status.",), ".status"),
        ("labelSelectorPath", (".status.", ".spec."), "either .spec or .status"),
    ):
        value = scale.get(field)
        if not value:
            if field != "labelSelectorPath":
                yield required(f"{path}.scale.{field}")
        elif not isinstance(value, str) or not value.startswith("."):
            yield invalid(f"{path}.scale.{field}", value, "must be a simple json path starting with .")
        elif not value.startswith(root) or not FIELD_PATH.fullmatch(value):
            yield invalid(f"{path}.scale.{field}", value, "should be a json path under " + words)


def _column_causes(column: Any, path: str) -> Iterator[Cause]:
    if not isinstance(column, Mapping):
        yield invalid(path, column, "must be an object")
        return
    if not column.get("name"):
        yield required(f"{path}.name")
    kind = column.get("type")
    if not kind:
        yield required(f"{path}.type", f"must be one of {','.join(_COLUMN_TYPES)}")
    elif kind not in _COLUMN_TYPES:
        yield invalid(f"{path}.type", kind, f"must be one of {','.join(_COLUMN_TYPES)}")
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        yield invalid(f"{path}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}")
    where = column.get("jsonPath")
    if not where:
        yield required(f"{path}.JSONPath")
    elif not isinstance(where, str) or not where.startswith("."):
        yield invalid(f"{path}.JSONPath", where, "must be a simple json path starting with .")


def _conversion_causes(conversion: Any) -> Iterator[Cause]:
    strategy = conversion.get("strategy") if isinstance(conversion, Mapping) else None
    if strategy is None:
        yield required("spec.conversion.strategy")
    elif strategy == "Webhook":
        yield forbidden("spec.conversion.strategy", "conversion webhooks are not called by this server; use None")
    elif strategy != "None":
        yield not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))
    elif webhook := conversion.get("webhook"):
        for field, name in (("clientConfig", "webhookClientConfig"), ("conversionReviewVersions",) * 2):
            if webhook.get(field):
                yield forbidden(f"spec.conversion.{name}", "should not be set when strategy is not set to Webhook")


def crd_status(crd: Mapping[str, Any], taken: Iterable[Mapping[str, Any]], *, now: str) -> dict[str, Any]:
    """The status of a CRD: accepted names, conditions and stored versions.

    ``taken`` are the other CRDs of the same group in the space, with their status; names that they have accepted
    first are theirs (``MultipleNamesConflict``-like reasons as in Kubernetes). ``now`` is RFC 3339.
    """
    names: Mapping[str, Any] = crd["spec"]["names"]
    status = dict(crd.get("status") or {})
    accepted = dict(status.get("acceptedNames") or {"plural": "", "kind": ""})
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in taken:
        theirs = (other.get("status") or {}).get("acceptedNames") or {}
        resources |= {theirs.get("plural", ""), theirs.get("singular", ""), *(theirs.get("shortNames") or ())}
        kinds |= {theirs.get("kind", ""), theirs.get("listKind", "")}
    problems: list[tuple[str, str]] = []
    for field, reason in (("plural", "PluralConflict"), ("singular", "SingularConflict")):
        if names.get(field, "") in resources - {""}:
            problems.append((reason, f'"{names[field]}" is already in use'))
        else:
            accepted[field] = names.get(field, "")
    short = [name for name in names.get("shortNames") or () if name in resources]
    if short:
        problems.extend(("ShortNamesConflict", f'"{name}" is already in use') for name in short)
    elif names.get("shortNames"):
        accepted["shortNames"] = list(names["shortNames"])
    else:
        accepted.pop("shortNames", None)
    for field, reason in (("kind", "KindConflict"), ("listKind", "ListKindConflict")):
        if names.get(field, "") in kinds - {""}:
            problems.append((reason, f'"{names[field]}" is already in use'))
        else:
            accepted[field] = names.get(field, "")
    if names.get("categories"):
        accepted["categories"] = list(names["categories"])
    else:
        accepted.pop("categories", None)
    conditions = list(status.get("conditions") or ())
    if problems:
        reason, words = problems[-1]
        conditions = _with_condition(conditions, "NamesAccepted", "False", reason=reason, message=words, now=now)
        if not is_established(crd):
            conditions = _with_condition(
                conditions,
                "Established",
                "False",
                reason="NotAccepted",
                message="not all names are accepted",
                now=now,
            )
    else:
        conditions = _with_condition(
            conditions, "NamesAccepted", "True", reason="NoConflicts", message="no conflicts found", now=now
        )
        words = "the initial names have been accepted"
        conditions = _with_condition(
            conditions, "Established", "True", reason="InitialNamesAccepted", message=words, now=now
        )
    storage = next(version["name"] for version in crd["spec"]["versions"] if version.get("storage"))
    stored = list(status.get("storedVersions") or ())
    if storage not in stored:
        stored.append(storage)
    return {**status, "conditions": conditions, "acceptedNames": accepted, "storedVersions": stored}


def _with_condition(
    conditions: list[dict[str, Any]], kind: str, value: str, *, reason: str, message: str, now: str
) -> list[dict[str, Any]]:
    condition = {"type": kind, "status": value, "lastTransitionTime": now, "reason": reason, "message": message}
    result: list[dict[str, Any]] = []
    found = False
    for existing in conditions:
        if existing.get("type") != kind:
            result.append(existing)
            continue
        found = True
        if existing.get("status") == value:
            condition["lastTransitionTime"] = existing.get("lastTransitionTime", now)
        result.append(condition)
    return result if found else [*result, condition]


def terminating(crd: Mapping[str, Any], *, now: str, begun: bool = False) -> dict[str, Any]:
    """A CRD that is being deleted: held until its objects are gone. ``begun``: they are being removed already."""
    metadata, status = crd["metadata"], crd.get("status") or {}
    finalizers = list(metadata.get("finalizers") or ())
    if CLEANUP not in finalizers and not begun:
        finalizers.append(CLEANUP)
    if begun:
        reason, words = "InstanceDeletionInProgress", "CustomResource deletion is in progress"
    else:
        reason = "InstanceDeletionPending"
        words = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    conditions = _with_condition(
        list(status.get("conditions") or ()), "Terminating", "True", reason=reason, message=words, now=now
    )
    return {
        **crd,
        "metadata": {**metadata, "finalizers": finalizers},
        "status": {**status, "conditions": conditions},
    }


def is_established(crd: Mapping[str, Any]) -> bool:
    """Whether a CRD's resources are served."""
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)


def resource_of(crd: Mapping[str, Any], definitions: Definitions, *, space: str = "") -> Resource:
    """The resource that a valid, defaulted CRD of a space makes.

    Its preferred version comes first (Kubernetes' version order).
    """
    spec = crd["spec"]
    group = spec["group"]
    names: Mapping[str, Any] = {**spec["names"], **((crd.get("status") or {}).get("acceptedNames") or {})}
    names = {**spec["names"], **{field: value for field, value in names.items() if value}}
    ordered = sorted(spec["versions"], key=lambda version: version_order(version["name"]))
    current = (version["name"] for version in ordered if version.get("served") and not version.get("deprecated"))
    better = next(current, "")
    metadata = crd.get("metadata") or {}
    return Resource(
        group=group,
        kind=names["kind"],
        plural=names["plural"],
        singular=names["singular"],
        list_kind=names["listKind"],
        namespaced=spec["scope"] == "Namespaced",
        versions=tuple(_version(version, group, names["kind"], better, definitions) for version in ordered),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        custom=True,
        defined_in=space,
        definition=metadata.get("uid", ""),
        changed=metadata.get("generation", 1) > 1,
    )


def _deprecation(version: Mapping[str, Any], group: str, kind: str, better: str) -> str:
    """What every answer of a deprecated version warns of."""
    text: str | None = version.get("deprecationWarning")
    if text is not None:
        return text
    newer = (
        f"; use {group}/{better} {kind}" if better and version_order(better) < version_order(version["name"]) else ""
    )
    return f"{group}/{version['name']} {kind} is deprecated{newer}"


def _version(version: Mapping[str, Any], group: str, kind: str, better: str, definitions: Definitions) -> Version:
    parts = version.get("subresources") or {}
    verbs = ("get", "patch", "update")
    subresources: list[Subresource] = []
    if "status" in parts:
        subresources.append(Subresource(name="status", kind=kind, group=group, version=version["name"], verbs=verbs))
    if "scale" in parts:
        subresources.append(Subresource(name="scale", kind="Scale", group="autoscaling", version="v1", verbs=verbs))
    columns = tuple(
        PrinterColumn(
            name=column["name"],
            type=column["type"],
            path=column["jsonPath"],
            format=column.get("format", ""),
            description=column.get("description", ""),
            priority=column.get("priority", 0),
        )
        for column in version.get("additionalPrinterColumns") or ()
    )
    return Version(
        name=version["name"],
        served=bool(version.get("served")),
        storage=bool(version.get("storage")),
        deprecation=_deprecation(version, group, kind, better) if version.get("deprecated") else "",
        subresources=tuple(subresources),
        columns=columns,
        schema=structural_schema(version["schema"]["openAPIV3Schema"], definitions),
        openapi=version["schema"]["openAPIV3Schema"],
        scale=_scale(parts.get("scale")),
        selectable=tuple(field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()),
    )


def _scale(scale: Mapping[str, Any] | None) -> Scale | None:
    if not scale:
        return None

    def path(field: str) -> tuple[str, ...]:
        text = scale.get(field) or ""
        return tuple(text.strip(".").split(".")) if text else ()

    return Scale(path("specReplicasPath"), path("statusReplicasPath"), path("labelSelectorPath"))
