"""What a cluster asks about, by the conditions that it is given (GW17)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from access.admission.tenancy.placedquota import COUNTED
from kube.admissionpolicies.expressions import Evaluation, compiled
from kube.admissionpolicies.matching import Asked, Form
from kube.cel.admission import Scope
from kube.cel.authorizer import Hearing

TEMPLATE = Path("gateway/management/webhooks.yaml")


@pytest.mark.parametrize(
    ("group", "plural", "asks"),
    [
        ("", "endpoints", False),
        ("", "events", False),
        ("events.k8s.io", "events", False),
        ("coordination.k8s.io", "leases", False),
        ("discovery.k8s.io", "endpointslices", False),
        ("", "pods", True),
        ("cars.example.com", "leases", True),
        ("example.com", "events", True),
    ],
)
def test_the_name_of_a_kind_that_nobody_asks_about_hides_no_other_kind(group: str, plural: str, asks: bool) -> None:
    form = Form(group, "v1", plural, plural.title())
    asked = Asked(
        operation="CREATE",
        form=form,
        subresource="",
        namespace="acme",
        name="one",
        object={"metadata": {}},
        old=None,
        user_info={"username": "system:serviceaccount:acme:robot"},
        dry_run=False,
        options=dict,
        labels={},
        others=[],
    )
    documents = yaml.safe_load_all(TEMPLATE.read_text())
    hooks = next(each["webhooks"] for each in documents if each["kind"] == "ValidatingWebhookConfiguration")
    for hook in (each for each in hooks if each["name"] != "namespaces.tenantry.io"):
        said = [
            Evaluation(asked, form, Hearing()).value(compiled(each["expression"], Scope()), each["expression"])
            for each in hook["matchConditions"]
        ]
        assert all(said) is asks


def test_a_cluster_asks_about_every_way_to_take_more() -> None:
    """AD2: what is counted of subresources is what is asked about, but statuses, which nobody in a workspace writes."""
    documents = yaml.safe_load_all(TEMPLATE.read_text())
    hooks = next(each["webhooks"] for each in documents if each["kind"] == "ValidatingWebhookConfiguration")
    [rule] = next(each["rules"] for each in hooks if each["name"] == "objects.tenantry.io")
    asked = {resource.partition("/")[2] for resource in rule["resources"]}
    assert asked - {"ephemeralcontainers"} == COUNTED - {"status"}
    assert "*/scale" in rule["resources"]
