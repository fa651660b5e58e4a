"""What ``kubectl get`` shows."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube.kinds.builtins import BUILTINS, OWN
from kube.kinds.resources import PrinterColumn, Resource, Version
from kube.objects import jsonpath, tables
from kube.objects.columns import CONVERTORS
from kube.requests.durations import age, human_duration, parse_duration
from kube.requests.status import BadRequest

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC).timestamp()
CASES = yaml.safe_load((Path(__file__).parent / "tables.yaml").read_text())


def resource(group: str, kind: str) -> Resource:
    found = BUILTINS.by_group_kind(group, kind)
    assert found is not None
    return found


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_row_reads_as_the_real_servers(case: dict[str, Any]) -> None:
    """TS15, table output: cells by column name, as the decision table lists them."""
    item = case["object"]
    item.setdefault("metadata", {}).setdefault("name", "x")
    item["metadata"].setdefault("creationTimestamp", "2026-01-01T11:55:00Z")
    group, _, version = item["apiVersion"].rpartition("/")
    shown = tables.convertor_of(resource(group, item["kind"]), version)
    row = tables.table(shown, [item], now=NOW)["rows"][0]
    cells = dict(zip([column.name for column in shown.columns], row["cells"], strict=True))
    assert {name: cells[name] for name in case["cells"]} == case["cells"]


def test_every_builtin_kind_that_can_be_listed_fills_its_columns_from_an_empty_object() -> None:
    for kind in BUILTINS:
        if kind.persistent:
            shown = tables.convertor_of(kind, kind.preferred.name)
            assert len(shown.cells({"kind": kind.kind}, NOW)) == len(shown.columns)


def test_every_shape_belongs_to_a_builtin_kind() -> None:
    kinds = {(kind.group, kind.kind) for kind in (*BUILTINS, *OWN)} | {("autoscaling", "Scale")}
    assert set(CONVERTORS) <= kinds


def test_kinds_without_columns_of_their_own_show_name_and_creation() -> None:
    shown = tables.convertor_of(resource("rbac.authorization.k8s.io", "Role"), "v1")
    item = {"metadata": {"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    body = tables.table(shown, [item], now=NOW)
    assert [column["name"] for column in body["columnDefinitions"]] == ["Name", "Created At"]
    assert body["rows"][0]["cells"] == ["r", "2026-01-01T00:00:00Z"]


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("None", None),
        (
            "Metadata",
            {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "c"}},
        ),
        ("Object", {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}),
    ],
)
def test_rows_carry_the_object_as_asked(include: str, expected: Any) -> None:
    item = {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}
    shown = tables.convertor_of(resource("", "ConfigMap"), "v1")
    assert tables.table(shown, [item], now=NOW, include_object=include)["rows"][0]["object"] == expected


def test_an_unknown_include_object_is_refused() -> None:
    with pytest.raises(BadRequest):
        tables.table(tables.convertor_of(resource("", "Pod"), "v1"), [], now=NOW, include_object="All")


def test_later_events_of_a_watch_have_no_column_definitions() -> None:
    shown = tables.convertor_of(resource("", "Pod"), "v1")
    assert tables.table(shown, [], now=NOW, headers=False)["columnDefinitions"] is None


def test_a_custom_resource_shows_its_own_columns() -> None:
    columns = (
        PrinterColumn(name="Size", type="integer", path=".spec.size"),
        PrinterColumn(name="Ready", type="string", path='.status.conditions[?(@.type=="Ready")].status'),
        PrinterColumn(name="Since", type="date", path=".spec.since", priority=1),
        PrinterColumn(name="On", type="boolean", path=".spec.on"),
        PrinterColumn(name="Free", type="string", path=".spec.free"),
    )
    custom = Resource(
        group="x.io",
        kind="X",
        plural="xs",
        singular="x",
        list_kind="XList",
        namespaced=True,
        versions=(Version(name="v1", columns=columns),),
        custom=True,
    )
    shown = tables.convertor_of(custom, "v1")
    item = {
        "metadata": {"name": "x"},
        "spec": {"size": 3.0, "since": "2026-01-01T11:00:00Z", "on": "no", "free": {"a": [1]}},
        "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}]},
    }
    assert list(shown.cells(item, NOW)) == ["x", 3, "True", "60m", None, '{"a":[1]}']
    assert [column.priority for column in shown.columns] == [0, 0, 0, 1, 0, 0]
    assert list(shown.cells({"metadata": {"name": "y"}}, NOW)) == ["y", None, None, None, None, None]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 61, "3h1m"),
        (8 * 3600, "8h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (50 * 3600, "2d2h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (735 * 86400, "2y5d"),
        (8 * 365 * 86400 + 86400, "8y"),
    ],
)
def test_durations_are_in_kubectls_words(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


def test_no_duration_is_longer_than_anybody_writes_one() -> None:
    """DOS-03."""
    assert parse_duration("1h" * 128) == 128 * 3600
    with pytest.raises(ValueError, match=r"^time: invalid duration"):
        parse_duration("1h" * 20_000)


@pytest.mark.parametrize("timestamp", [None, "", "yesterday"])
def test_the_age_of_nothing_is_unknown(timestamp: str | None) -> None:
    assert age(timestamp, NOW) == "<unknown>"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        ("{.a.b}", [1]),
        (".list[0].v", [1]),
        (".list[-1].v", [2]),
        (".list[5].v", []),
        (".list[*].v", [1, 2]),
        (".list[?(@.k=='y')].v", [2]),
        (".list[?(@.k!='y')].v", [1]),
        (".list[?(@.v==1)].k", ["x"]),
        (r".labels.a\.b/c", ["dotted"]),
        (".labels['a.b/c']", ["dotted"]),
        (".missing.deep", []),
        (".a[0]", []),
    ],
)
def test_a_json_path_finds_values(path: str, found: list[Any]) -> None:
    value = {
        "a": {"b": 1},
        "list": [{"k": "x", "v": 1}, {"k": "y", "v": 2}],
        "labels": {"a.b/c": "dotted"},
    }
    assert list(jsonpath.parse(path).find(value)) == found


def test_a_column_looks_no_further_than_for_its_first_value() -> None:
    """DOS-03: a thousand columns of a long list are a thousand steps."""
    rows = [{"a": number} for number in range(1000)]
    found = jsonpath.parse(".rows[*].a").find({"rows": rows})
    assert next(found) == 0
    rows.clear()
    assert next(found, None) is None


@pytest.mark.parametrize("path", ["", "a", "..a", ".a[", ".a[?(@.b)]", ".a[(1)]", "." + "a" * 2000, ".a b"])
def test_other_json_paths_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="JSON path"):
        jsonpath.parse(path)


@given(st.text(max_size=30))
def test_any_text_is_a_json_path_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        jsonpath.parse(text).find({"a": [{"b": 1}]})
