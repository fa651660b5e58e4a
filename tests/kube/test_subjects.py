"""Who a certificate is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube import pki, subjects
from kube.subjects import Identity, InvalidSubject

CASES = yaml.safe_load(Path(__file__).with_name("certificate_subjects.yaml").read_text())
NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_subjects_are_read_as_the_table_says(case: dict[str, Any]) -> None:
    """AN1, AN2, AN3."""
    attributes = [tuple(attribute) for attribute in case["subject"]]
    system = case.get("system", False)
    if "refused" in case:
        with pytest.raises(InvalidSubject) as refused:
            subjects.identity_of_subject(attributes, system=system)
        assert str(refused.value) == case["refused"]
    else:
        expected = Identity(case["user"], tuple(case["groups"]), case["tenant"])
        assert subjects.identity_of_subject(attributes, system=system) == expected


def test_a_certificate_is_read_from_its_attributes() -> None:
    """AN1, X509-04."""
    authority = pki.make_authority("ca", now=NOW)
    pair = pki.make_client_certificate(
        authority,
        "bob/O=tenant:t2",
        organizations=["tenant:t1"],
        units=["z", "a"],
        now=NOW,
        lifetime=timedelta(hours=1),
    )
    (certificate,) = pki.load_certificates(pair.certificate)
    assert subjects.identity_of_certificate(certificate) == Identity("bob/O=tenant:t2", ("z", "a"), "t1")
    with pytest.raises(InvalidSubject):
        subjects.identity_of_certificate(*pki.load_certificates(authority.certificate))


def test_too_many_groups_are_refused() -> None:
    with pytest.raises(InvalidSubject, match="too many"):
        subjects.check_identity("bob", [str(number) for number in range(201)], "t1")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["CN", "O", "OU"]),
            st.text(max_size=8)
            | st.sampled_from(["tenant:t1", "system:masters", "t1:bob", "system:x", "tenant:system"]),
        ),
        max_size=5,
    )
)
def test_no_subject_of_an_ordinary_authority_reaches_the_system(attributes: list[tuple[str, str]]) -> None:
    """AN3, X509-11."""
    try:
        identity = subjects.identity_of_subject(attributes)
    except InvalidSubject as refused:
        assert not any(value and len(value) > 3 and value in str(refused) for kind, value in attributes if kind == "CN")
        return
    assert identity.tenant.lower() not in {"system", "all", ""}
    assert not any(name.startswith("system:") for name in (identity.user, *identity.groups))
    assert not any(ord(character) < 32 for name in (identity.user, *identity.groups) for character in name)
