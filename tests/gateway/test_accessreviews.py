"""What is asked by access reviews, word for word as Kubernetes takes it (AZ10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.handlers import accessreviews
from tests.gateway.callers import Answer, Caller
from tests.gateway.conftest import Server, another
from tests.gateway.test_access import GROUP, RBAC, REVIEWS, role_binding

EVERYWHERE, LOCAL, OWN = "SubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectAccessReview"


def asked(caller: Caller, kind: str, spec: dict[str, Any], *, namespace: str = "") -> Answer:
    place = f"{REVIEWS}/namespaces/{namespace}" if namespace else REVIEWS
    return caller.post(
        f"{place}/{kind.lower()}s", {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    )


def status(answer: Answer) -> dict[str, Any]:
    assert answer.status == 201, answer.body
    return dict(answer.body["status"])


def allowed(answer: Answer) -> bool:
    return bool(status(answer)["allowed"])


@pytest.mark.parametrize("way", [EVERYWHERE, LOCAL, OWN])
def test_a_question_about_a_namespace_is_decided_where_it_says(
    server: Server, alice: Caller, namespace: str, way: str
) -> None:
    """Not where the namespace is that it names: who asks in one learns nothing of rights in another."""
    binding = role_binding("reader", "view", "nancy")
    binding["roleRef"]["kind"] = "ClusterRole"
    assert alice.post(f"{RBAC}/namespaces/{namespace}/rolebindings", binding).status == 201
    caller = server.user("acme", "nancy") if way == OWN else alice
    who = {} if way == OWN else {"user": "nancy"}
    for place, told in ((namespace, True), ("default", False), ("", False)):
        if way == LOCAL and not place:
            continue
        attributes = {"verb": "get", "resource": "namespaces", "name": namespace, "namespace": place}
        spec = {**who, "resourceAttributes": attributes}
        assert allowed(asked(caller, way, spec, namespace=place if way == LOCAL else "")) is told, place
    # As the request is decided, which names the namespace twice.
    assert server.user("acme", "nancy").get(f"/api/v1/namespaces/{namespace}").status == 200


WHERE = {"verb": "list", "resource": "pods", "namespace": "default"}
VALUES = "values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
NO_VALUES = "values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
BOTH = 'rawSelector: Invalid value: "a=b": may not specified at the same time as requirements'


def requirement(operator: str, *values: str | None, key: str | None = "metadata.name") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("field", "selector", "wrong"),
    [
        ("fieldSelector", {}, ["requirements: Required value: when {} is specified, requirements or rawSelector is required"]),
        ("fieldSelector", {"requirements": [requirement("In")]}, [f"requirements[0].{VALUES}"]),
        ("fieldSelector", {"requirements": [requirement("Exists", "x")]}, [f"requirements[0].{NO_VALUES}"]),
        (
            "fieldSelector",
            {"requirements": [requirement("In", "x"), requirement("NotIn", key="")]},
            ["requirements[1].key: Required value: must be specified", f"requirements[1].{VALUES}"],
        ),
        ("fieldSelector", {"requirements": [None]}, ["requirements[0].key: Required value: must be specified"]),
        (
            "labelSelector",
            {"rawSelector": "a=b", "requirements": [requirement("In", key="a")]},
            [BOTH, f"requirements[0].{VALUES}"],
        ),
        ("labelSelector", {"requirements": [requirement("DoesNotExist", "x", key="a")]}, [f"requirements[0].{NO_VALUES}"]),
        ("labelSelector", {"requirements": [requirement("Exists", key="!bad")]}, ['requirements[0].key: Invalid value: "!bad": ']),
        ("labelSelector", {"requirements": [requirement("In", "x", "-", key="a")]}, ['requirements[0].values[1]: Invalid value: "-": ']),
        ("labelSelector", {"requirements": [requirement("Newer", "-", key="a")]}, ['requirements[0].values[0]: Invalid value: "-": ']),
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", [EVERYWHERE, LOCAL, OWN])
def test_a_selector_that_no_review_can_have_is_refused(
    alice: Caller, way: str, field: str, selector: dict[str, Any], wrong: list[str]
) -> None:
    who = {} if way == OWN else {"user": "nancy"}
    spec = {**who, "resourceAttributes": {**WHERE, field: selector}}
    answer = asked(alice, way, spec, namespace="default" if way == LOCAL else "")
    assert answer.status == 422, answer.body
    path = f"spec.resourceAttributes.{field}"
    causes = [f"{cause['field']}: {cause['message']}" for cause in answer.body["details"]["causes"]]
    assert len(causes) == len(wrong), causes
    for cause, told in zip(causes, wrong, strict=True):
        assert cause.startswith(f"{path}.{told.format(path)}"), cause


NAMED, NEWER = requirement("In", "p"), requirement("Newer", "p")
LABELLED, LABELLED_NEWER = requirement("In", "p", key="a"), requirement("Newer", key="a")


@pytest.mark.parametrize(
    ("fields", "labels", "told"),
    [
        ({"rawSelector": "metadata.name=p"}, {"rawSelector": "a in (b,c),d,!e,f>1"}, None),
        ({"requirements": [NAMED]}, {"requirements": [LABELLED, requirement("Exists", key="b")]}, None),
        ({"rawSelector": "&&"}, None, "F ignored"),
        (None, {"rawSelector": "&&"}, "L ignored"),
        ({"requirements": [NEWER]}, {"requirements": [LABELLED_NEWER]}, "F ignored; L ignored"),
        ({"requirements": [NAMED, NEWER]}, {"requirements": [LABELLED, LABELLED_NEWER]}, "F partially; L partially"),
        ({"requirements": [requirement("In", "p", "q")]}, None, "F ignored"),
        ({"requirements": [requirement("Exists"), NAMED]}, None, "F partially"),
        # No text says it, so that it is no part of the question, rather than another one.
        ({"requirements": [requirement("In", "x", key="a,spec.nodeName=n1")]}, None, "F ignored"),
    ],
)
@pytest.mark.parametrize("way", [EVERYWHERE, LOCAL, OWN])
def test_what_of_a_selector_is_not_understood_is_said(
    alice: Caller, way: str, fields: dict[str, Any] | None, labels: dict[str, Any] | None, told: str | None
) -> None:
    """And the question is about more: the answer is that for the whole."""
    selectors = {"fieldSelector": fields, "labelSelector": labels}
    attributes = {**WHERE, **{name: each for name, each in selectors.items() if each is not None}}
    who = {} if way == OWN else {"user": "nancy", "groups": ["tenantry:owner"]}
    answer = status(
        asked(alice, way, {**who, "resourceAttributes": attributes}, namespace="default" if way == LOCAL else "")
    )
    assert answer["allowed"]
    if told is None:
        assert "evaluationError" not in answer
        return
    for short, full in (("F", "fieldSelector"), ("L", "labelSelector")):
        told = told.replace(f"{short} ", f"spec.resourceAttributes.{full} ")
    told = told.replace("partially", "partially ignored").replace("ignored", "ignored due to parse error")
    assert answer["evaluationError"] == told


STRANGERS: list[dict[str, Any]] = [
    {"user": "system:anonymous", "groups": ["system:unauthenticated"]},
    {"user": "system:anonymous"},
    {"groups": ["system:unauthenticated"]},
    {"user": "system:anonymous", "groups": ["system:masters", "system:authenticated"]},
]


def test_a_review_says_of_strangers_what_their_requests_are_answered(
    server: Server, alice: Caller, admin: Caller, tmp_path: Path
) -> None:
    """AN11: whoever has not signed in belongs to no tenant, whatever a tenant's admins give to everybody."""
    binding = {
        "metadata": {"name": "strangers"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"},
        "subjects": [
            {"apiGroup": GROUP, "kind": "User", "name": "system:anonymous"},
            {"apiGroup": GROUP, "kind": "Group", "name": "system:unauthenticated"},
        ],
    }
    assert alice.post(f"{RBAC}/clusterrolebindings", binding).status == 201
    with another(server, tmp_path, "--anonymous-auth") as open_:
        for path, attributes, code in (
            ("/version", {"nonResourceAttributes": {"path": "/version", "verb": "get"}}, 403),
            ("/livez", {"nonResourceAttributes": {"path": "/livez", "verb": "get"}}, 200),
            ("/clusters/root:acme/api/v1/pods", {"resourceAttributes": {"verb": "list", "resource": "pods"}}, 403),
        ):
            assert open_.nobody.get(path).status == code
            for caller in (alice, admin):
                for who in STRANGERS:
                    answer = status(asked(caller, EVERYWHERE, {**who, **attributes}))
                    assert answer["allowed"] is (code == 200), (path, who)
                    assert code == 200 or "the user belongs to no tenant" in answer["reason"]
    # Whoever has a name belongs to the space, whatever is said of its groups.
    about = {"user": "bob", "groups": ["system:unauthenticated"], "resourceAttributes": WHERE}
    assert allowed(asked(alice, EVERYWHERE, about))
    assert alice.delete(f"{RBAC}/clusterrolebindings/strangers").status == 200


def test_what_is_asked_about_many_users_is_worked_out_once() -> None:
    """As by a webhook's client; long questions, which would fill the memory, each time (DOS-03)."""
    known = accessreviews._known_attributes
    selector = {"requirements": [requirement("In", "x"), requirement("Weird", "y")]}
    for resource, worked_out in (
        (WHERE, 1),
        ({**WHERE, "fieldSelector": selector}, 1),
        ({**WHERE, "name": "x" * 2000}, 0),
    ):
        before = known.cache_info().misses
        for number in range(20):
            spec = {"user": f"user-{number}", "resourceAttributes": {**resource, "group": f"once-{len(resource)}"}}
            found = accessreviews._attributes("root:acme", spec)
            assert found == accessreviews.attributes_of("root:acme", spec)
        assert known.cache_info().misses - before == worked_out
