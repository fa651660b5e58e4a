"""Bodies are decoded within bounds, whatever is sent."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube.requests.decoding import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_DUPLICATES,
    PATH_MAX,
    decode_json,
    decode_unambiguous,
    decode_yaml,
    duplicate_fields,
    read_yaml,
)
from kube.requests.jsonsyntax import syntax_error
from kube.requests.status import BadRequest, RequestEntityTooLarge, StatusError

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Cn"]), max_size=8)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda child: st.lists(child, max_size=4) | st.dictionaries(TEXT, child, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_a_json_value_survives_decoding(value: Any) -> None:
    body = json.dumps(value).encode()
    assert decode_json(body) == value
    assert duplicates(body) == []


@given(JSON)
def test_json_is_yaml_and_means_the_same(value: Any) -> None:
    assert decode_yaml(json.dumps(value, ensure_ascii=False).encode()) == value


@given(JSON)
def test_yaml_in_blocks_means_the_same(value: Any) -> None:
    text = yaml.safe_dump(value, allow_unicode=True, default_style='"')
    assert decode_yaml(text.encode()) == yaml.safe_load(text)


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_a_value_or_a_status_error(body: bytes) -> None:
    """API-26, P9."""
    for decode in (decode_json, decode_yaml):
        try:
            json.dumps(decode(body), allow_nan=False).encode()
        except StatusError as error:
            assert error.code == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        '{"a":1}'.encode("utf-16"),
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b"[" * 1000 + b"]" * 1000,
        b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1),
        b'{"a":1}{"b":2}',
        b"{'a':1}",
    ],
)
def test_hostile_json_is_a_bad_request(body: bytes) -> None:
    """API-26."""
    with pytest.raises(BadRequest):
        decode_json(body)


def test_json_as_deep_as_allowed_is_decoded() -> None:
    value = decode_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    for _ in range(MAX_DEPTH - 1):
        (value,) = value
    assert value == []


@pytest.mark.parametrize("decode", [decode_json, decode_yaml])
def test_a_body_over_three_mebibytes_is_too_large(decode: Any) -> None:
    with pytest.raises(RequestEntityTooLarge) as caught:
        decode(b" " * (MAX_BYTES + 1))
    assert caught.value.code == 413


def duplicates(body: bytes) -> list[str]:
    return duplicate_fields(body, decode_json(body))


def test_duplicate_fields_are_named_by_their_path() -> None:
    body = b'{"a":1,"a":2,"m":{"l":{"x":"1","x":"2"}},"s":[{"c":0},{"c":1,"c":2,"c":3}]}'
    assert duplicates(body) == ["a", "m.l.x", "s[1].c", "s[1].c"]


def test_characters_that_do_not_exist_hide_no_duplicates() -> None:
    assert duplicates(b'{"a":"\xff","b":1}') == []
    assert duplicates(b'{"a":"\xff","a":1}') == ["a"]


def test_duplicates_are_found_in_what_a_later_duplicate_hides() -> None:
    assert duplicates(b'{"a":{"b":1,"b":2},"a":{}}') == ["a", "a.b"]


def test_no_more_than_a_hundred_duplicates_are_named() -> None:
    assert len(duplicates(b"{" + b",".join([b'"a":1'] * 500) + b"}")) == MAX_DUPLICATES


def test_a_long_name_is_not_written_out_for_all_that_is_below_it() -> None:
    """DOS-03: by the bytes that are taken."""
    body = b'{"%b":{%b"x":1,"x":2}}' % (b"n" * 1_000_000, b"".join(b'"a%d":1,' % number for number in range(500)))
    tracemalloc.start()
    try:
        found = duplicates(body)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == ["n" * PATH_MAX]
    assert most < 20 * len(body)


MEMBERS = st.recursive(
    st.sampled_from(["null", "true", "-1", "1.5", "1e3", '""', '"a"', '"\\u0061"', '"\\ud800"', '"\\ud83d\\ude00"']),
    lambda child: (
        st.lists(child, max_size=3).map(lambda parts: f"[{','.join(parts)}]")
        | st.lists(
            st.tuples(st.sampled_from(['"a"', '"\\u0061"', '"b"', '"\\ud800"', '"\\ud801"', '"\\""']), child),
            max_size=3,
        ).map(lambda pairs: "{" + ",".join(f"{key}:{value}" for key, value in pairs) + "}")
    ),
    max_leaves=12,
)
"""Texts that are JSON, many of which name a key twice, in several ways of writing it."""


def merging(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """As Go reads an object into a struct: of one that is there twice it keeps what the second leaves alone."""
    read: dict[str, Any] = {}
    for name, value in pairs:
        key = shown(name)
        before = read.get(key)
        read[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else shown(value)
    return read


def shown(value: Any) -> Any:
    """Text as Go has it, half of a character replaced."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return [shown(each) for each in value] if isinstance(value, list) else value


@given(MEMBERS, st.sampled_from([b"", b" ", b"\xef\xbb\xbf", b"\xff"]))
def test_what_passes_as_unambiguous_is_read_alike_by_who_merges_and_who_replaces(text: str, before: bytes) -> None:
    """AD5: a rule judges what the cluster then makes."""
    try:
        value = decode_unambiguous(before + text.encode())
    except BadRequest:
        return
    assert value == shown(json.loads(text, object_pairs_hook=merging))


@given(JSON)
def test_what_every_reader_takes_for_the_same_is_unambiguous(value: Any) -> None:
    assert decode_unambiguous(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b'{"spec":{"a":1},"spec":{"b":2}}', 'duplicate field "spec"'),
        (b'{"spec":{"a":1},"\\u0073pec":{"b":2}}', 'duplicate field "spec"'),
        (b'{"l":[{"a":1,"a":1}]}', 'duplicate field "l[0].a"'),
        (b'{"a":"\xff"}', "UTF-8"),
        (b'{"a":"\\ud800"}', "surrogate"),
        (b'{"a":NaN}', "invalid character 'N' looking for beginning of value"),
        (b'\xef\xbb\xbf{"a":1}', "invalid character"),
    ],
)
def test_an_ambiguous_body_is_refused_with_what_makes_it_so(body: bytes, named: str) -> None:
    with pytest.raises(BadRequest) as caught:
        decode_unambiguous(body)
    assert named in caught.value.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2001-01-01", "2001-01-01"),
        ("12:30:45", "12:30:45"),
        ("012", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("1_000", 1000),
        ("089", 89.0),
        ("no", False),
        ("On", True),
        ("~", None),
        ("'no'", "no"),
        ("!!str 12", "12"),
        ("1e3", 1000.0),
        ("1Gi", "1Gi"),
        ("-", [None]),
        ("-.5", -0.5),
        ("99999999999999999999", 1e20),
        ("", None),
        ("{1: a, true: b, null_: c}", {"1": "a", "true": "b", "null_": "c"}),
        ("a: &x {b: [1]}\nc: *x", {"a": {"b": [1]}, "c": {"b": [1]}}),
    ],
)
def test_yaml_is_typed_as_kubernetes_types_it(text: str, value: Any) -> None:
    assert decode_yaml(text.encode()) == value


def test_aliases_do_not_share_what_they_repeat() -> None:
    value = decode_yaml(b"a: &x {b: 1}\nc: *x")
    value["a"]["b"] = 2
    assert value["c"] == {"b": 1}


@pytest.mark.parametrize(
    "text",
    [
        "a: *missing",
        "a: &a [*a]",
        "<<: 1",
        "a: !!python/object/apply:os.system [ls]",
        "a: !!binary aGk=",
        "a: !!int x",
        "a: .nan",
        "a: -.INF",
        "a: 1e999",
        "? [a]\n: b",
        "[" * 20_000,
        "- " * 300 + "1",
        "a: &a [1,1,1,1,1,1,1,1,1]\n"
        + "\n".join(f"{b}: &{b} [{','.join(['*' + a] * 9)}]" for a, b in zip("abcdefg", "bcdefgh", strict=True)),
        "a: [",
        "\x00",
    ],
)
def test_hostile_yaml_is_a_bad_request(text: str) -> None:
    """Security 3.10: alias bombs, depth, tags."""
    with pytest.raises(BadRequest):
        decode_yaml(text.encode())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\na: 2", {"a": 2}),
        ("a: 1\n---\nb: 2", {"a": 1}),
        ("<<: {a: 1}\nb: 2", {"a": 1, "b": 2}),
        ("<<: [{a: 1}, {a: 2, c: 3}]\na: 4", {"a": 4, "c": 3}),
        ("'<<': {a: 1}", {"<<": {"a": 1}}),
    ],
)
def test_yaml_is_read_as_kubernetes_reads_it(text: str, value: Any) -> None:
    """TS15: of duplicate keys the last one counts, of several documents the first, and merge keys are merged."""
    assert decode_yaml(text.encode()) == value


def test_keys_that_yaml_names_twice_are_told_with_their_line() -> None:
    body = b"a: 1\nb: {c: 1, c: 2}\na: 3\n"
    assert read_yaml(body)[1] == [
        'line 2: key "c" already set in map',
        'line 3: key "a" already set in map',
    ]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a":"\\ud800x\\udc00"}', {"a": "\ufffdx\ufffd"}),
        (b'{"a":"\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b'{"a":"\xff\xfe"}', {"a": "\ufffd\ufffd"}),
        (b'{"\\ud800":1,"b":[true,null,1.5]}', {"\ufffd": 1, "b": [True, None, 1.5]}),
    ],
)
def test_characters_that_do_not_exist_are_replaced(body: bytes, value: Any) -> None:
    """TS15: as Go's decoder does; nothing that is not Unicode is ever kept."""
    assert decode_json(body) == value


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "unexpected end of JSON input"),
        (b'{"a', "unexpected end of JSON input"),
        (b'{"a":nul', "invalid character ' ' in literal null (expecting 'l')"),
        (b'{"a":1} t', "invalid character 't' after top-level value"),
        (b"{'a':1}", "invalid character '\\'' looking for beginning of object key string"),
        (b'["\\x"]', "invalid character 'x' in string escape code"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"01", "invalid character '1' after top-level value"),
        (b'"a\nb"', "invalid character '\\n' in string literal"),
        (b"-", "invalid character ' ' in numeric literal"),
        (b"1.x", "invalid character 'x' after decimal point in numeric literal"),
        (b"\x80", "invalid character '\\u0080' looking for beginning of value"),
    ],
)
def test_what_is_no_json_is_told_in_gos_words(body: bytes, problem: str) -> None:
    """TS15."""
    with pytest.raises(BadRequest) as caught:
        decode_json(body)
    assert caught.value.message == problem


@given(st.binary(max_size=40) | st.text('{}[]",:1a.e- \\nulltrue', max_size=40).map(str.encode))
def test_an_error_is_found_in_exactly_what_is_no_json(body: bytes) -> None:
    try:
        json.loads(body.decode("utf-8", "replace"), parse_constant=int)
        good = True
    except ValueError:
        good = False
    assert good is (syntax_error(body) == "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "yaml: line 1: did not find expected node content"),
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("- a\n b: c", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: &a [*a]", "yaml: anchor 'a' value contains itself"),
        ("a: !!int x", "yaml: cannot decode !!str `x` as a !!int"),
        ("a: \x07", "yaml: control characters are not allowed"),
        ("a: .inf", "json: unsupported value: +Inf"),
    ],
)
def test_what_is_no_yaml_is_told_in_gos_words(text: str, problem: str) -> None:
    """TS15."""
    with pytest.raises(BadRequest) as caught:
        decode_yaml(text.encode())
    assert caught.value.message == problem
