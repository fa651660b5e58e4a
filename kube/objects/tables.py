"""Objects as ``kubectl get`` shows them: ``meta.k8s.io/v1 Table`` and ``PartialObjectMetadata`` (TS15)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from kube.kinds.resources import PrinterColumn, Resource
from kube.objects import jsonpath
from kube.objects.columns import CONVERTORS, Column, TableConvertor
from kube.objects.defaults import TEMPLATE_GENERATION
from kube.requests import durations
from kube.requests.status import BadRequest

META_GROUP: Final = "meta.k8s.io"
INCLUDE_OBJECT: Final = ("None", "Metadata", "Object")
_NAME: Final = Column("Name", format="name")
_CREATED: Final = Column("Created At", type="date")
_AGE: Final = PrinterColumn(name="Age", type="date", path=".metadata.creationTimestamp")


def convertor_of(resource: Resource, version: str) -> TableConvertor:
    """How one version of a resource is tabulated: as kube-apiserver does it, or by the CRD's own columns.

    Make it once per request or watch.
    """
    if resource.custom:
        served = resource.version(version)
        return _custom_convertor((served.columns if served else ()) or (_AGE,))
    return CONVERTORS.get((resource.group, resource.kind), _GENERIC)


def scale_convertor() -> TableConvertor:
    """The columns of the ``scale`` subresource."""
    of_scale = CONVERTORS["autoscaling", "Scale"]
    name, *others = of_scale.columns
    return TableConvertor((replace(name, format=""), *others), of_scale.cells)


def check_included(include_object: str) -> None:
    """Raises ``BadRequest`` for an ``includeObject`` that is none of ``INCLUDE_OBJECT``."""
    if include_object not in INCLUDE_OBJECT:
        raise BadRequest(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include_object[:64]}": must be '
            "'Metadata', 'Object', 'None', or empty"
        )


def table(
    convertor: TableConvertor,
    objects: Iterable[dict[str, Any]],
    *,
    now: float,
    include_object: str = "Metadata",
    metadata: dict[str, Any] | None = None,
    headers: bool = True,
    version: str = "v1",
) -> dict[str, Any]:
    """A ``Table`` with a row for every object; ``now`` is in Unix seconds.

    ``metadata`` is the list's (resourceVersion, continue, remainingItemCount). ``headers`` is ``False`` for all
    events of a watch but the first. Raises ``BadRequest`` for an unknown ``include_object``.
    """
    check_included(include_object)
    rows = [
        {"cells": list(convertor.cells(item, now)), "object": _included(item, include_object, version)}
        for item in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": f"{META_GROUP}/{version}",
        "metadata": metadata or {},
        "columnDefinitions": [column.as_dict() for column in convertor.columns] if headers else None,
        "rows": rows,
    }


def aligned_rows(
    rows: Sequence[dict[str, Any]], own: Mapping[str, Any], head: Mapping[str, Any]
) -> Sequence[dict[str, Any]]:
    """The rows of a table with columns of its ``own``, for a table whose columns ``head`` names; by the columns' names.

    What is not known of a row is empty.
    """
    names = [column["name"] for column in own.get("columnDefinitions") or ()]
    wanted = [column["name"] for column in head.get("columnDefinitions") or ()]
    if names == wanted:
        return rows
    places = [names.index(name) if name in names else None for name in wanted]
    return [{**row, "cells": [None if place is None else row["cells"][place] for place in places]} for row in rows]


def partial_object(item: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    """An object's metadata alone, as ``PartialObjectMetadata``."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"{META_GROUP}/{version}",
        "metadata": _metadata(item),
    }


def _metadata(item: dict[str, Any]) -> dict[str, Any]:
    """An object's metadata; the count that a DaemonSet carries in an annotation belongs to the whole object."""
    metadata: dict[str, Any] = item.get("metadata", {})
    annotations = metadata.get("annotations") or {}
    if item.get("kind") != "DaemonSet" or TEMPLATE_GENERATION not in annotations:
        return metadata
    kept = {name: value for name, value in annotations.items() if name != TEMPLATE_GENERATION}
    metadata = {name: value for name, value in metadata.items() if name != "annotations"}
    return {**metadata, "annotations": kept} if kept else metadata


def partial_list(objects: Iterable[dict[str, Any]], metadata: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    """A list's metadata and its items' metadata, as ``PartialObjectMetadataList``."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"{META_GROUP}/{version}",
        "metadata": metadata,
        "items": [partial_object(item, version) for item in objects],
    }


def _included(item: dict[str, Any], include: str, version: str) -> dict[str, Any] | None:
    if include == "Object":
        return item
    return partial_object(item, version) if include == "Metadata" else None


def _generic_cells(item: dict[str, Any], _now: float) -> tuple[Any, ...]:
    metadata = item.get("metadata", {})
    return (metadata.get("name", ""), metadata.get("creationTimestamp", "<unknown>"))


_GENERIC: Final = TableConvertor((_NAME, _CREATED), _generic_cells)


def _custom_convertor(columns: tuple[PrinterColumn, ...]) -> TableConvertor:
    paths = [(column.type, jsonpath.parse(column.path)) for column in columns]

    def cells(item: dict[str, Any], now: float) -> list[Any]:
        values = [_custom_cell(type_, next(path.find(item), None), now) for type_, path in paths]
        return [item.get("metadata", {}).get("name", ""), *values]

    shown = tuple(
        Column(column.name, column.type, column.format, column.priority, column.description) for column in columns
    )
    return TableConvertor((_NAME, *shown), cells)


def _custom_cell(type_: str, value: Any, now: float) -> Any:
    """One cell of a custom resource: a value of the column's type, else nothing."""
    if value is None:
        return None
    if type_ == "string":
        return value if isinstance(value, str) else orjson.dumps(value).decode()
    if type_ == "date":
        moment = durations.parse_time(value)
        return "<invalid>" if moment is None else durations.human_duration(now - moment)
    if type_ == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if type_ == "integer" else value
