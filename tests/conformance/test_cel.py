"""CEL rules of CRDs are taken, refused and obeyed as by a real kube-apiserver (TS10)."""

from __future__ import annotations

import time
from copy import deepcopy
from typing import Any

from kube.cel.evaluation import violations
from kube.cel.rules import rules_of
from kube.customresources.definitions import crd_causes
from kube.customresources.schemas import structural_schema
from kube.customresources.validation import without_nulls
from tests.kube.kinds import definitions
from tests.kube.rules import ACCEPTED, OBJECTS, REFUSED, ruled
from tests.speaking import Speaker

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HELD = {"rule": "true"}


def test_rules_are_refused_in_the_same_words(server: Speaker) -> None:
    for rule, where in [*((rule, where) for rule, where, _ in REFUSED), *ACCEPTED]:
        document = ruled(rule, where)
        _, answer = server.request("POST", f"{CRDS}?dryRun=All", document)
        ours = [cause.as_dict() for cause in crd_causes(deepcopy(document), definitions())]
        assert ours == answer.get("details", {}).get("causes", []), rule


def test_objects_are_judged_in_the_same_words(server: Speaker) -> None:
    """Objects that were there before are made without the rule, which comes afterwards."""
    kinds = [f"Ruled{number}" for number in range(len(OBJECTS))]
    for kind, (rule, where, before, _, _) in zip(kinds, OBJECTS, strict=True):
        status, answer = server.request("POST", CRDS, ruled(HELD if before is not None else rule, where, kind))
        assert status == 201, (rule, answer)
    for kind, (rule, where, before, _, _) in zip(kinds, OBJECTS, strict=True):
        if before is not None:
            _created(server, kind, before)
            changed = {"spec": {"versions": ruled(rule, where, kind)["spec"]["versions"]}}
            path = f"{CRDS}/{kind.lower()}s.example.com"
            assert server.request("PATCH", path, changed, "application/merge-patch+json")[0] == 200
    for kind, (rule, where, before, now, _) in zip(kinds, OBJECTS, strict=True):
        body = _body(kind, now)
        path = f"/apis/example.com/v1/namespaces/default/{kind.lower()}s"
        schema = structural_schema(
            ruled(rule, where)["spec"]["versions"][0]["schema"]["openAPIV3Schema"], definitions()
        )
        rules = rules_of(schema)
        assert rules is not None
        old = None if before is None else without_nulls(schema, _body(kind, before))
        ours = [cause.as_dict() for cause in violations(rules, without_nulls(schema, _body(kind, now)), old)]
        if before is None:
            _, answer = _served(server, "POST", path, body)
        else:
            _, made = server.request("GET", f"{path}/x")
            body["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
            for _ in range(300):
                # The real server takes up a changed definition a moment later.
                _, answer = server.request("PUT", f"{path}/x?dryRun=All", body)
                if ours == answer.get("details", {}).get("causes", []):
                    break
                time.sleep(0.2)
        assert ours == answer.get("details", {}).get("causes", []), (rule, answer.get("message"))


def _body(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def _created(server: Speaker, kind: str, spec: dict[str, Any]) -> None:
    status, answer = _served(
        server, "POST", f"/apis/example.com/v1/namespaces/default/{kind.lower()}s", _body(kind, spec)
    )
    assert status == 201, answer


def _served(server: Speaker, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Ask until the real server serves the new resource."""
    for _ in range(300):
        status, answer = server.request(method, path, body)
        if status not in (404, 405, 429, 500, 503):
            break
        time.sleep(0.2)
    return status, answer
