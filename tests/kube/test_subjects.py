"""Who a certificate is."""

from __future__ import annotations

import inspect
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import Phase, example, find, given, settings
from hypothesis import strategies as st

from kube.authentication import pki, subjects
from kube.authentication.subjects import Identity, InvalidSubject
from kube.requests.names import RESERVED_TENANTS

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


# The prefix in other cases and scripts (a fullwidth t, a fullwidth colon, a Cyrillic e), with blanks, and doubled.
PREFIXES = ["", "tenant:", "tenant", "Tenant:", "TENANT:", " tenant:", "tenant :", "tenant:tenant:", "o:tenant:"]
PREFIXES += ["\uff54enant:", "tenant\uff1a", "t\u0435nant:", "tenant:\u200b", "tenant\0:", "tenant\n:"]
TENANTS = [
    "t1",
    "T1",
    "t1:bob",
    "t1:",
    ":",
    "",
    "t1\0",
    "t1\n",
    "t1 ",
    "t\uff11",
    "\u212a8s",
    "t1.x",
    "t1/x",
    "-t1",
    "t1-",
]
TENANTS += ["*", "all", "ALL", "system", "System", "system:masters", "system:x", "root", "tenants", "x" * 63, "x" * 64]
VALUES = st.builds(str.__add__, st.sampled_from(PREFIXES), st.sampled_from(TENANTS)) | st.text(max_size=8)
ATTRIBUTES = st.tuples(st.sampled_from(["CN", "O", "O", "OU"]), VALUES)
WELL_FORMED = st.sampled_from(
    [
        [("CN", "bob"), ("O", "tenant:t1"), ("OU", "dev")],
        [("CN", "t1:bob"), ("O", "dev"), ("O", "ops")],
        [("CN", "system:node:n1"), ("O", "system:nodes")],
    ]
)
SUBJECTS = st.lists(ATTRIBUTES, max_size=5) | st.tuples(WELL_FORMED, st.lists(ATTRIBUTES, max_size=2)).flatmap(
    lambda parts: st.permutations([*parts[0], *parts[1]])
)
REACHING = settings(max_examples=3000, deadline=None, phases=[Phase.generate], derandomize=True)
KEY = ec.generate_private_key(ec.SECP256R1())


def tenant_by_the_rules(attributes: list[tuple[str, str]]) -> str:
    """AN1 and AN2 once more, in other words: what a subject's tenant can be at all."""
    organizations = [value for kind, value in attributes if kind == "O"]
    if any(value[:7] == "tenant:" for value in organizations):
        assert len(organizations) == 1
        return organizations[0][7:]
    (name,) = (value for kind, value in attributes if kind == "CN")
    return name[: name.index(":")]


def some_certificate(names: list[list[tuple[str, str]]]) -> x509.Certificate:
    """A certificate with these relative names, each of one value or several."""
    kinds = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME}
    subject = x509.Name(
        x509.RelativeDistinguishedName(x509.NameAttribute(kinds[kind], value) for kind, value in name) for name in names
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(hours=1))
        .sign(KEY, hashes.SHA256())
    )


@settings(max_examples=300)
@given(SUBJECTS, st.booleans())
def test_no_subject_has_a_tenant_that_the_rules_do_not_give_it(attributes: list[tuple[str, str]], system: bool) -> None:
    """AN1, AN2, AN3."""
    try:
        identity = subjects.identity_of_subject(attributes, system=system)
    except InvalidSubject:
        return
    assert identity.tenant == tenant_by_the_rules(attributes)
    assert re.fullmatch("[A-Za-z0-9-]{1,63}", identity.tenant)
    assert identity.tenant == "system" or identity.tenant.lower() not in RESERVED_TENANTS
    assert identity.user in [value for kind, value in attributes if kind == "CN"]
    assert set(identity.groups) <= {value for kind, value in attributes if kind != "CN"}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from(["CN", "O", "OU"]), VALUES), min_size=1, max_size=3), max_size=4))
def test_a_certificate_is_read_as_its_attributes_are(names: list[list[tuple[str, str]]]) -> None:
    """AN1 to AN3, X509-04, X509-05: relative names of several values, control characters, other scripts."""
    try:
        certificate = some_certificate([list(dict.fromkeys(name)) for name in names])
    except ValueError:
        return  # No certificate can say this.
    kinds = {NameOID.COMMON_NAME: "CN", NameOID.ORGANIZATION_NAME: "O", NameOID.ORGANIZATIONAL_UNIT_NAME: "OU"}
    attributes = [(kinds[attribute.oid], str(attribute.value)) for attribute in certificate.subject]
    assert sorted(attributes) == sorted(pair for name in names for pair in dict.fromkeys(name))
    try:
        expected = subjects.identity_of_subject(attributes)
    except InvalidSubject:
        with pytest.raises(InvalidSubject):
            subjects.identity_of_certificate(certificate)
    else:
        assert subjects.identity_of_certificate(certificate) == expected


@pytest.mark.parametrize(
    "reached",
    [
        lambda identity, said: ("O", f"tenant:{identity.tenant}") in said and identity.groups,
        lambda identity, said: identity.user.startswith(f"{identity.tenant}:") and len(identity.groups) > 1,
        lambda identity, said: any(value.startswith("Tenant:") for _, value in said),
    ],
)
def test_the_subjects_that_are_tried_are_not_all_refused(reached: Any) -> None:
    """The property above would hold if nothing were ever accepted."""

    def is_reached(attributes: list[tuple[str, str]]) -> bool:
        try:
            return bool(reached(subjects.identity_of_subject(attributes, system=True), attributes))
        except InvalidSubject:
            return False

    assert find(SUBJECTS, is_reached, settings=REACHING)


OWN_WORDS = inspect.getsource(subjects)


@given(SUBJECTS)
@example([("CN", "a common name too many"), ("CN", "common name")])
@example([("CN", "names a tenant")])
def test_no_subject_of_an_ordinary_authority_reaches_the_system(attributes: list[tuple[str, str]]) -> None:
    """AN3, X509-11."""
    try:
        identity = subjects.identity_of_subject(attributes)
    except InvalidSubject as refused:
        # A name that is a word of ours, such as "tenant", is in what we say anyway.
        names = [value for kind, value in attributes if kind == "CN" and len(value) > 3 and value not in OWN_WORDS]
        assert not any(name in str(refused) for name in names)
        return
    assert identity.tenant.lower() not in {"system", "all", ""}
    assert not any(name.startswith("system:") for name in (identity.user, *identity.groups))
    assert not any(ord(character) < 32 for name in (identity.user, *identity.groups) for character in name)
