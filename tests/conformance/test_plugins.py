"""What the document promises to be as Kubernetes does it is compared, and no plug-in is forgotten that is on by default."""

from __future__ import annotations

import re

import pytest

from access.admission.choice import ABSENT, FIXED, OPTIONAL
from tests.conformance.script import flagged, sections
from tests.conformance.script.resetting import STATUS, examples, kinds
from tests.requirements import ROOT

DOCUMENT = (ROOT / "docs" / "kubernetes-differences.md").read_text()
PROMISES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in DOCUMENT.partition("## What was to be as Kubernetes does it")[2].partition("| of kcp |")[0].splitlines()
    if line.startswith("| ") and "---" not in line
][1:]

ON_BY_DEFAULT = frozenset(
    (
        "NamespaceLifecycle",
        "LimitRanger",
        "ServiceAccount",
        "DefaultStorageClass",
        "PersistentVolumeClaimResize",
        "DefaultTolerationSeconds",
        "ResourceQuota",
        "Priority",
        "TaintNodesByCondition",
        "RuntimeClass",
        "CertificateApproval",
        "CertificateSigning",
        "CertificateSubjectRestriction",
        "DefaultIngressClass",
        "PodSecurity",
        "PodTopologyLabels",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionWebhook",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionWebhook",
    )
)
"""Those of Kubernetes 1.36 that are on unless they are switched off, but for those that follow."""

TOLD = frozenset(("NodeDeclaredFeatureValidator", "PodResizeValidator"))
"""The document says why they are not there."""

NOT_SERVED = frozenset(
    (
        "ClusterTrustBundleAttest",
        "JobValidation",
        "PodGroupProtection",
        "PodGroupWorkloadExists",
    )
)
"""They are about kinds and fields that are off by default."""

OTHERWISE = {
    "StorageObjectInUseProtection": "protection finalizer",
}
"""The words of the document about them."""


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise[0][:60])
def test_what_is_promised_is_asked(promise: list[str]) -> None:
    _, asked, tests = promise
    names = {name for name, _, _ in (*sections(), *flagged())}
    assert set(re.findall(r"`([^`]+)`", asked)) <= names
    assert asked or tests
    assert all((ROOT / name).is_file() for name in re.findall(r"`([^`]+)`", tests))


def test_every_plugin_that_is_on_by_default_is_on_here_or_has_its_reason() -> None:
    assert ON_BY_DEFAULT <= OPTIONAL | FIXED
    assert all(name in DOCUMENT for name in TOLD)
    assert all(words in DOCUMENT for words in OTHERWISE.values())
    assert {*TOLD, *NOT_SERVED, *OTHERWISE} <= ABSENT
    real = {*ON_BY_DEFAULT, *TOLD, *NOT_SERVED, *OTHERWISE}
    assert real & (OPTIONAL | FIXED) | {"NodeRestriction"} == OPTIONAL | FIXED


def test_every_kind_with_parts_of_its_own_is_asked_about() -> None:
    """An object and a status of each are needed; whoever adds a kind is told here."""
    asked = [body for system in (False, True) for body in examples(system=system)]
    assert len(asked) == len(kinds())
    assert all(body["kind"] in STATUS for body in asked)
