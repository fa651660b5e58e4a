"""CRDs and custom objects are accepted and refused as by a real kube-apiserver (TS10)."""

from __future__ import annotations

import time
from copy import deepcopy
from typing import Any

from kube.customresources.definitions import crd_causes, crd_status, resource_of
from kube.customresources.schemas import with_defaults
from kube.customresources.validation import object_causes, without_nulls
from kube.objects.fieldvalidation import prune
from tests.kube.customkinds import DEFINITIONS, FULL, SPECS
from tests.kube.kinds import definitions
from tests.speaking import Speaker

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FULLS = "/apis/example.com/v1/namespaces/default/fulls"


def test_crds_are_accepted_and_refused_for_the_same_fields(server: Speaker) -> None:
    for crd in DEFINITIONS:
        status, answer = server.request("POST", f"{CRDS}?dryRun=All&fieldValidation=Ignore", crd)
        ours = crd_causes(deepcopy(crd), definitions())
        assert bool(ours) == (status >= 400), (crd["spec"], answer.get("message"), ours)
        if status == 422:
            theirs = {cause["field"].removeprefix("status.") for cause in answer["details"]["causes"]}
            assert {cause.field for cause in ours} & theirs, (answer["message"], ours)


def test_custom_objects_are_accepted_and_refused_in_the_same_words(server: Speaker) -> None:
    status, made = server.request("POST", CRDS, FULL)
    assert status == 201, made
    first = {"apiVersion": "example.com/v1", "kind": "Full", "metadata": {"name": "x"}, "spec": SPECS[0]}
    for _ in range(300):
        # The real server serves the resource a moment before it takes writes.
        reads, writes = server.request("GET", FULLS)[0], server.request("POST", f"{FULLS}?dryRun=All", first)[0]
        if reads == 200 and writes not in (404, 405, 429, 500, 503):
            break
        time.sleep(0.2)
    _, made = server.request("GET", f"{CRDS}/full" + "s.example.com")
    ours = crd_status(FULL, [], now=made["status"]["conditions"][0]["lastTransitionTime"])
    assert ours == made["status"]
    schema = resource_of(FULL, definitions()).versions[0].schema
    assert schema is not None
    for spec in SPECS:
        body: dict[str, Any] = {"apiVersion": "example.com/v1", "kind": "Full", "metadata": {"name": "x"}, "spec": spec}
        status, answer = server.request("POST", f"{FULLS}?dryRun=All", body)
        value = without_nulls(schema, with_defaults(prune(deepcopy(body), schema).value, schema))
        found = sorted(str(cause.as_dict()) for cause in object_causes(schema, value))
        assert found == sorted(map(str, answer.get("details", {}).get("causes", []))), (spec, answer.get("message"))
        if not found:
            assert value["spec"] == answer["spec"], spec
