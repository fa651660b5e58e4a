"""What filling in the defaults of custom objects puts in, and what it and the formats cost (DOS-03)."""

from __future__ import annotations

import re
import sys
import timeit
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.customresources.definitions import resource_of
from kube.customresources.schemas import structural_schema, with_defaults
from kube.customresources.validation import object_causes
from kube.kinds.formats import is_of_format
from kube.validation.objects import update_causes
from tests.kube.customkinds import crd
from tests.kube.kinds import definitions

NAMES = st.sampled_from("abc")


def objects(children: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(NAMES, children, max_size=3),
            "additionalProperties": children,
            "nullable": st.booleans(),
            "default": st.dictionaries(NAMES, st.none() | st.just({}), max_size=2),
        },
    )


SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {"type": st.just("string")}, optional={"default": st.text("xy", max_size=2), "nullable": st.booleans()}
    ),
    objects,
    max_leaves=8,
)
VALUES = st.recursive(st.none() | st.text("xy", max_size=2), lambda some: st.dictionaries(NAMES, some, max_size=3))


def filled(value: Any, schema: dict[str, Any]) -> Any:
    """The same by Kubernetes' own words: property by property, however many there are."""
    if not isinstance(value, dict):
        return value
    result = dict(value)
    for name, child in schema.get("properties", {}).items():
        if "default" in child and (name not in value or (value[name] is None and not child.get("nullable"))):
            result[name] = child["default"]
        if name in result:
            result[name] = filled(result[name], child)
    for name in value.keys() - schema.get("properties", {}).keys():
        if "additionalProperties" in schema:
            result[name] = filled(value[name], schema["additionalProperties"])
    return result


@given(objects(SCHEMAS), VALUES.filter(lambda value: isinstance(value, dict)))
def test_defaults_are_where_kubernetes_puts_them(source: dict[str, Any], value: Any) -> None:
    assert with_defaults(value, structural_schema(source, definitions())) == filled(value, source)


def steps(run: Callable[[], object]) -> int:
    """How many functions are called, Python's own as well."""
    count = 0

    def seen(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def test_fields_that_an_object_has_not_cost_nothing() -> None:
    def cost(fields: int) -> int:
        item = {"type": "object", "properties": {f"f{number}": {"type": "string"} for number in range(fields)}}
        source = {"type": "object", "properties": {"items": {"type": "array", "items": item}}}
        schema = structural_schema(source, definitions())
        value = {"items": [{}] * 50}
        assert with_defaults(value, schema) is value
        return steps(lambda: with_defaults(value, schema))

    assert cost(2_000) == cost(2)


GO_DURATION = re.compile(r"[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)


@given(
    st.lists(st.sampled_from(["-", "+", ".", "0", "1", "42", "ns", "us", "µs", "ms", "s", "m", "h", " "]), max_size=7)
)
def test_go_durations_are_durations(parts: list[str]) -> None:
    text = "".join(parts)
    if GO_DURATION.fullmatch(text):
        assert is_of_format(text, "duration")
    elif not re.search(r"\d\s*[a-zµ]", text, re.ASCII):
        assert not is_of_format(text, "duration")


@pytest.mark.parametrize("hostile", ["1", ".", "1.", "1s1", "1 ", " "])
def test_no_text_is_looked_at_twice_by_the_format_of_durations(hostile: str) -> None:
    """Eight times the length takes some eight times as long, and not sixty-four."""

    def cost(length: int) -> float:
        text = (hostile * length)[: length - 1] + "!"
        return min(timeit.repeat(lambda: is_of_format(text, "duration"), number=5, repeat=20))

    assert cost(4_096) < 32 * cost(512)


def test_old_faults_however_many_hold_no_change_back() -> None:
    """A definition that became stricter, with rules: what was wrong before does not keep a finalizer on."""
    rule = {"rule": "self.size() < 1000", "message": "few"}
    item = {"type": "string", "enum": ["a"]}
    words = {"type": "array", "items": item, "maxItems": 2_000, "x-kubernetes-validations": [rule]}
    kind = resource_of(crd({"type": "object", "properties": {"words": words}}), definitions())
    metadata = {"name": "x", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    spec = {"words": ["wrong"] * 150}
    old = {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {**metadata, "finalizers": ["a.b/c"]},
        "spec": spec,
    }
    new = {**old, "metadata": metadata}
    assert update_causes(kind, "v1", new, old, definitions()) == []
    worse = {**new, "spec": {"words": [*spec["words"], *["a"] * 1_000]}}
    assert update_causes(kind, "v1", worse, old, definitions()), "rules hold as ever"


@pytest.mark.parametrize(("value", "step", "wrong"), [(1e300, 1e-10, 1), (6, 2, 0), (7, 2, 1), (0.3, 0.1, 0)])
def test_what_is_a_multiple_of_what_has_an_answer(value: float, step: float, wrong: int) -> None:
    schema = structural_schema(
        {"type": "object", "properties": {"n": {"type": "number", "multipleOf": step}}}, definitions()
    )
    assert len(object_causes(schema, {"n": value})) == wrong
