"""Objects as people see them: whatever a stranger has written is text, in every form that a page draws."""

from __future__ import annotations

import base64
import shlex
import subprocess
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kube.display import commands, facts
from kube.display.kinds import kind_named, read_discovery, sections_of
from kube.display.loglines import LINE_MAX, read_lines
from kube.display.tables import read_table
from kube.display.text import acts, visible
from kube.display.yamltext import value_of, values_of, yaml_of

ACTING = st.sampled_from(
    ["\x1b[31m", "\x1b]0;title\x07", "\u202e", "\u2066", "\x07", "\x9b2J", "\u200b", "\r", "é", "<b>"]
)
TEXTS = st.lists(st.one_of(st.text(max_size=8), ACTING), max_size=6).map("".join)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=12,
)
FIELDS = ("kind", "apiVersion", "metadata", "spec", "status", "data", "rows", "columnDefinitions", "items", "versions")


@given(TEXTS)
def test_nothing_acts_that_is_shown(text: str) -> None:
    shown = visible(text)
    assert not acts(shown)
    assert not [
        letter for letter in shown if letter in "\u202e\u2066\u200b" or (ord(letter) < 32 and letter not in "\t\n")
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain grüße", "plain grüße"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;https://evil.test\x07link\x1b]8;;\x07", "link"),
        ("user\u202etxt.exe", "user⟨U+202E⟩txt.exe"),
        ("bell\x07", "bell␇"),
    ],
)
def test_what_becomes_of_letters_that_act(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_long_text_says_how_much_is_missing() -> None:
    assert visible("x" * 20, most=5) == "xxxxx… (15 more)"


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
@example({"columnDefinitions": [], "rows": True})
def test_whatever_a_cluster_answers_can_be_drawn(found: dict[str, Any]) -> None:
    """No shape of an answer breaks a page, and no YAML is another object."""
    facts.facts_of(found)
    facts.conditions_of(found)
    facts.containers_of(found)
    facts.owners_of(found)
    facts.pods_selector(found)
    facts.texts_of(found, "labels")
    read_table({**found, "kind": "Table"})
    sections_of(read_discovery(found))
    text = yaml_of(found)
    assert not acts(text)
    assert values_of(found) is not None


@given(JSON)
def test_yaml_says_what_the_object_says(spec: Any) -> None:
    found = {"kind": "Cake", "apiVersion": "bakery.test/v1", "spec": spec}
    assert yaml.safe_load(yaml_of(found)) == found


@given(st.dictionaries(st.text("abc.", min_size=1, max_size=4), st.binary(min_size=6, max_size=12), min_size=1))
def test_no_yaml_holds_a_value(values: dict[str, bytes]) -> None:
    encoded = {key: base64.b64encode(value).decode() for key, value in values.items()}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": str(encoded)}
    found = {"kind": "Secret", "apiVersion": "v1", "metadata": {"annotations": applied}, "data": encoded}
    text = yaml_of(found)
    assert not [value for value in encoded.values() if value in text]
    assert {each.key: each.size for each in values_of(found)} == {key: len(value) for key, value in values.items()}
    assert all(value_of(found, key) == value for key, value in values.items())


@given(st.binary(max_size=200), TEXTS)
def test_every_line_of_a_log_is_found_by_what_it_says(raw: bytes, search: str) -> None:
    lines, total = read_lines(raw, search=search)
    assert len(lines) <= total
    for line in lines:
        text = "".join(line.pieces)
        assert not acts(text)
        assert search.lower() in text.lower()


def test_a_log_marks_what_was_searched_for_and_cuts_long_lines() -> None:
    raw = b"begun\n\x1b[32mWARN\x1b[0m disk warned\nprogress 1%\rprogress 2%\n" + b"x" * (LINE_MAX + 7)
    lines, total = read_lines(raw)
    assert total == 4
    assert [line.pieces[0] for line in lines[:3]] == ["begun", "WARN disk warned", "progress 2%"]
    assert lines[3].pieces[0].endswith("… (7 more)")
    found, _ = read_lines(raw, search="warn")
    assert [line.pieces for line in found] == [("", "WARN", " disk ", "warn", "ed")]


@given(TEXTS.filter(lambda text: text and "\x00" not in text))
def test_a_command_hands_the_name_to_kubectl_as_it_is(name: str) -> None:
    """And what is pasted into a terminal has no letter that acts."""
    command = commands.delete("shop", "roles", name)
    assert not acts(command)
    if not acts(name):
        assert shlex.split(command) == ["kubectl", "-n", "shop", "delete", "roles", name]


def test_bash_reads_the_escapes() -> None:
    name = "a\u202eb'\\c\x1b"
    echoed = commands.delete("shop", "roles", name).replace("kubectl -n shop delete roles", "printf %s", 1)
    done = subprocess.run(["bash", "-c", echoed], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert done.stdout.decode() == name


def test_kinds_are_in_the_order_in_which_people_look() -> None:
    def version(*resources: tuple[str, str, str]) -> dict[str, Any]:
        listed = [
            {"resource": name, "responseKind": {"kind": kind}, "scope": scope, "verbs": ["get", "list"]}
            for name, kind, scope in resources
        ]
        return {"version": "v1", "resources": listed}

    document = {
        "items": [
            {
                "metadata": {"name": ""},
                "versions": [version(("nodes", "Node", "Cluster"), ("pods", "Pod", "Namespaced"))],
            },
            {
                "metadata": {"name": "networking.k8s.io"},
                "versions": [version(("networkpolicies", "NetworkPolicy", "Namespaced"))],
            },
            {"metadata": {"name": "bakery.test"}, "versions": [version(("cakes", "Cake", "Namespaced"))] * 2},
        ]
    }
    kinds = read_discovery(document)
    assert [(section.title, [kind.title for kind in section.kinds]) for section in sections_of(kinds)] == [
        ("Running", ["Pods"]),
        ("Network", ["Network policies"]),
        ("Custom resources", ["Cakes"]),
    ]
    assert kind_named(kinds, "cakes.bakery.test") is not None
    assert kind_named(kinds, "nodes") is None


@pytest.mark.parametrize("depth", [10, 1000, 20_000])
def test_an_object_is_written_or_says_that_it_is_nested_too_deeply(depth: int) -> None:
    nested: dict[str, Any] = {}
    for _ in range(depth):
        nested = {"a": nested}
    text = yaml_of({"apiVersion": "v1", "kind": "Deep", "spec": nested})
    assert ("nested too deeply" in text) is (depth > 10)
