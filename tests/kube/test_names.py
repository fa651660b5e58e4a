"""Names and the words of their refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.requests import names

SUBDOMAIN_REASON = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_REASON = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


@pytest.mark.parametrize("value", ["a", "a-b", "0", "a" * 63])
def test_good_labels_give_no_reason(value: str) -> None:
    assert names.dns_label(value) == []
    assert names.is_dns_label(value)


@pytest.mark.parametrize(
    "value",
    ["", "A", "a_b", "-a", "a-", "a\n", "a b", "\uff41", "\u212a", "a\u200b", "a/b", "a\x00", "é", "\u0661"],
)
def test_bad_labels_are_refused_in_kubernetes_words(value: str) -> None:
    """URL-11, URL-13: no folding, no normalisation, no line feed at the end."""
    assert names.dns_label(value) == [LABEL_REASON]
    assert names.dns_subdomain(value) == [SUBDOMAIN_REASON]
    assert not names.is_dns_label(value)
    assert not names.is_dns_subdomain(value)


def test_a_label_with_dots_is_told_so() -> None:
    assert names.dns_label("a.b") == ["must not contain dots"]


def test_lengths_are_bounded() -> None:
    assert names.dns_label("a" * 64) == ["must be no more than 63 characters"]
    assert names.dns_subdomain("a" * 254) == ["must be no more than 253 characters"]
    assert names.dns1035_label("a" * 64) == ["must be no more than 63 characters"]
    assert names.label_value("a" * 64) == ["must be no more than 63 bytes"]
    assert names.qualified_name("a" * 64) == ["name part must be no more than 63 bytes"]


def test_dns1035_labels_start_with_a_letter() -> None:
    assert names.dns1035_label("a1") == []
    assert names.dns1035_label("1a")[0].startswith("a DNS-1035 label must consist of")


@pytest.mark.parametrize(
    ("value", "reasons"),
    [
        ("simple", []),
        ("example.com/Name_1.x", []),
        ("/x", ["prefix part must be non-empty"]),
        ("Example.com/x", [f"prefix part {SUBDOMAIN_REASON}"]),
        (
            "a/",
            [
                "name part must be non-empty",
                (
                    "name part must consist of alphanumeric characters, '-', '_' or '.', and must "
                    "start and end with an "
                    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
                    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                ),
            ],
        ),
        (
            "a/b/c",
            [
                (
                    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and "
                    "must start and end with "
                    "an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex "
                    "used for validation is "
                    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' "
                    "(e.g. 'example.com/MyName')"
                )
            ],
        ),
    ],
)
def test_qualified_names(value: str, reasons: list[str]) -> None:
    assert names.qualified_name(value) == reasons


def test_label_values_may_be_empty() -> None:
    assert names.label_value("") == []
    assert names.label_value("a.B_c-1") == []
    assert names.label_value("a b")[0].startswith("a valid label must be an empty string or consist of")


def test_path_segments_keep_out_dots_slashes_and_percent() -> None:
    assert names.path_segment("system:node") == []
    assert names.path_segment("..") == ["may not be '..'"]
    assert names.path_segment("a/b%c") == ["may not contain '/'", "may not contain '%'"]


@pytest.mark.parametrize("name", ["all", "system", "root", "status", "finalize", "namespaces", "A", "a.b", "", "*"])
def test_reserved_and_impossible_tenants_are_refused(name: str) -> None:
    """TS1, URL-16."""
    assert names.tenant_name(name)
    assert not names.is_tenant_name(name)


def test_a_plain_tenant_name_is_good() -> None:
    assert names.tenant_name("acme-1") == []


def test_generated_names_keep_their_suffix() -> None:
    assert names.generated_name("job-", "x7x7x") == "job-x7x7x"
    assert names.generated_name("a" * 80, "bcdfg") == "a" * 58 + "bcdfg"
    with pytest.raises(ValueError, match="random characters"):
        names.generated_name("a", "b")


@given(st.text(max_size=300))
def test_whatever_is_accepted_is_plain_ascii_without_separators(value: str) -> None:
    if not names.dns_subdomain(value):
        assert value.isascii()
        assert value == value.lower()
        assert not set(value) & set("/:%\\ \n\t\x00")
        assert names.path_segment(value) == []
    if names.is_tenant_name(value):
        assert names.is_dns_label(value)
        assert "." not in value
