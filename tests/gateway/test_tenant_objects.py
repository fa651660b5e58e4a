"""Tenants are made, renamed and ended by one service, by whichever verb a client writes their objects (TS1, AD1, AD2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.gateway.callers import Answer, Caller, eventually
from tests.gateway.conftest import Server, tenant_named
from tests.gateway.test_admissionpolicies import API, policy, rules

TENANTS = "/api/v1/tenants"
QUOTA = "/apis/tenancy.tenantry.io/v1alpha1/tenantquotas/quota"


def tenant(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Tenant",
        "metadata": {"name": name, **metadata},
        "spec": {"displayName": "Hooli"},
    }


def applied(admin: Caller, name: str, body: dict[str, Any], **query: object) -> Answer:
    return admin.patch(f"{TENANTS}/{name}", body, "apply", fieldManager="gitops", **query)


def generated(admin: Caller, name: str, **query: object) -> Answer:
    body = tenant("", generateName=f"{name}-", labels={"a": "b"})
    return admin.post(TENANTS, body, **query)


# By the ways in which an object is made.
MAKING: dict[str, Callable[..., Answer]] = {
    "create": lambda admin, name, **query: admin.post(TENANTS, tenant(name, labels={"a": "b"}), **query),
    "apply": lambda admin, name, **query: applied(admin, name, tenant(name, labels={"a": "b"}), **query),
    "generateName": generated,
}

# By the ways in which one is told to end.
ENDING: dict[str, Callable[..., Answer]] = {
    "delete": lambda admin, name, **query: admin.delete(f"{TENANTS}/{name}", **query),
    "foreground": lambda admin, name, **query: admin.delete(
        f"{TENANTS}/{name}", propagationPolicy="Foreground", **query
    ),
    "orphan": lambda admin, name, **query: admin.delete(f"{TENANTS}/{name}", propagationPolicy="Orphan", **query),
    "deletecollection": lambda admin, name, **query: admin.delete(
        TENANTS, fieldSelector=f"metadata.name={name}", **query
    ),
}


def replaced(admin: Caller, name: str, display_name: str, **query: object) -> Answer:
    body = admin.get(f"{TENANTS}/{name}").body
    body["spec"]["displayName"] = display_name
    return admin.put(f"{TENANTS}/{name}", body, **query)


# By the ways in which one is changed.
CHANGING: dict[str, Callable[..., Answer]] = {
    "update": replaced,
    "apply": lambda admin, name, text, **query: applied(
        admin, name, {**tenant(name), "spec": {"displayName": text}}, force="true", **query
    ),
    **{
        kind: lambda admin, name, text, kind=kind, **query: admin.patch(
            f"{TENANTS}/{name}", {"spec": {"displayName": text}}, kind, **query
        )
        for kind in ("merge", "strategic-merge")
    },
    "json": lambda admin, name, text, **query: admin.patch(
        f"{TENANTS}/{name}", [{"op": "add", "path": "/spec/displayName", "value": text}], "json", **query
    ),
}


def rows(server: Server, question: str, *parameters: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.database) as connection:
        return connection.execute(question.encode(), parameters).fetchall()


def row(server: Server, name: str) -> list[tuple[Any, ...]]:
    return rows(server, "SELECT display_name, state FROM tenants WHERE name = %s", name)


def audited(server: Server, name: str) -> list[str]:
    return [
        action for (action,) in rows(server, "SELECT action FROM audit_logs WHERE chain = %s ORDER BY action", name)
    ]


def fresh() -> str:
    return f"t{uuid4().hex[:8]}"


@pytest.fixture
def name(server: Server) -> str:
    """A tenant of its own."""
    return tenant_named(server, fresh())


@pytest.mark.parametrize("way", MAKING)
def test_tenant_is_whole_whichever_way_it_is_made(server: Server, way: str) -> None:
    """TS1, AD1: the row, the space with what it begins with, the quota and the audit."""
    admin = server.admin
    made = MAKING[way](admin, fresh())
    assert made.status == 201, made.body
    name, metadata = made.body["metadata"]["name"], made.body["metadata"]
    assert (metadata["labels"], made.body["spec"], made.body["status"]) == (
        {"a": "b"},
        {"displayName": "Hooli"},
        {"phase": "Active"},
    )
    assert admin.get(f"{TENANTS}/{name}").body == made.body
    assert metadata["managedFields"][0]["manager"] == ("gitops" if way == "apply" else "tests")
    assert row(server, name) == [("Hooli", "active")]
    assert audited(server, name) == ["tenant.create"]
    space = f"/clusters/root:{name}"
    assert admin.get(f"{space}/api/v1/namespaces/default").status == 200
    assert admin.get(f"{space}{QUOTA}").body["spec"]["hard"]
    assert server.user(name, "gavin", "tenantry:owner").get("/api/v1/namespaces").status == 200


@pytest.mark.parametrize("way", MAKING)
def test_dry_run_of_making_one_judges_all_and_keeps_nothing(server: Server, way: str) -> None:
    """TS1."""
    admin, wanted = server.admin, fresh()
    made = MAKING[way](admin, wanted, dryRun="All")
    assert (made.status, "resourceVersion" in made.body["metadata"]) == (201, False), made.body
    assert made.body["status"] == {"phase": "Active"}
    name = made.body["metadata"]["name"]
    assert (admin.get(f"{TENANTS}/{name}").status, row(server, name), audited(server, name)) == (404, [], [])
    assert admin.get(f"/clusters/root:{name}/api/v1/namespaces/default").status in (403, 404)
    long = {**tenant(wanted), "spec": {"displayName": "x" * 200}}
    assert admin.post(TENANTS, long, dryRun="All").status == 422


def test_taken_name_is_taken_in_a_dry_run_too(server: Server, name: str) -> None:
    for query in ({}, {"dryRun": "All"}):
        refused = server.admin.post(TENANTS, tenant(name), **query)
        assert (refused.status, refused.reason) == (409, "AlreadyExists")
        assert refused.body["message"] == f'tenants "{name}" already exists'
    assert row(server, name) == [("", "active")]


@pytest.mark.parametrize("way", ENDING)
def test_tenant_ends_whole_whichever_way_it_is_told_to(server: Server, name: str, way: str) -> None:
    """TS1: the row and the audit know, its people are locked out, and the object stays until the space is empty."""
    owner, admin = server.user(name, "gavin", "tenantry:owner"), server.admin
    assert ENDING[way](admin, name, dryRun="All").status == 200
    assert (row(server, name), audited(server, name)) == ([("", "active")], ["tenant.create"])
    assert "deletionTimestamp" not in admin.get(f"{TENANTS}/{name}").body["metadata"]
    for _ in range(2):
        assert ENDING[way](admin, name).status == 200
        assert row(server, name) == [("", "terminating")]
        assert audited(server, name) == ["tenant.create", "tenant.delete"]
        shown = admin.get(f"{TENANTS}/{name}")
        assert (shown.status, shown.body["status"]) == (200, {"phase": "Terminating"})
    assert eventually(lambda: owner.get("/api/v1/namespaces").status == 403)


@pytest.mark.parametrize("part", ["", "/status", "/finalize"])
def test_no_write_takes_an_ending_tenant_away(server: Server, name: str, part: str) -> None:
    """TS1: those who empty its space do, whatever finalizers come and go."""
    admin, path = server.admin, f"{TENANTS}/{name}"
    assert admin.patch(path, {"metadata": {"finalizers": ["example.org/bills"]}}).status == 200
    assert admin.delete(path).status == 200
    for change in ({"metadata": {"labels": {"a": "b"}}}, {"metadata": {"finalizers": None}}, {"spec": {}}):
        assert admin.patch(path, change).status == 200
    body = admin.get(path).body
    answer = admin.put(f"{path}{part}", {**body, "status": {"phase": "Active"}})
    assert answer.status == 200, answer.body
    shown = admin.get(path)
    assert (shown.status, shown.body["status"]["phase"]) == (200, "Terminating")
    assert row(server, name) == [("", "terminating")]


@pytest.mark.parametrize("way", CHANGING)
def test_tenant_has_one_name_whichever_way_it_is_given(server: Server, name: str, way: str) -> None:
    """TS1: in the row, in the object and in the audit."""
    admin, change = server.admin, CHANGING[way]
    before = admin.get(f"{TENANTS}/{name}").body["metadata"]["resourceVersion"]
    tried = change(admin, name, "Tried", dryRun="All")
    assert (tried.status, tried.body["spec"]) == (200, {"displayName": "Tried"}), tried.body
    assert tried.body["metadata"]["resourceVersion"] == before
    assert (row(server, name), audited(server, name)) == ([("", "active")], ["tenant.create"])
    for text in ("x" * 200, "two\nlines"):
        assert change(admin, name, text).status == 422
        assert change(admin, name, text, dryRun="All").status == 422
    given = change(admin, name, "Hooli & Sons")
    assert (given.status, given.body["spec"]) == (200, {"displayName": "Hooli & Sons"}), given.body
    assert (given.body["status"], admin.get(f"{TENANTS}/{name}").body) == ({"phase": "Active"}, given.body)
    assert row(server, name) == [("Hooli & Sons", "active")]
    assert audited(server, name) == ["tenant.change", "tenant.create"]
    assert admin.patch(f"{TENANTS}/{name}", {"metadata": {"labels": {"tier": "gold"}}}).status == 200
    assert audited(server, name) == ["tenant.change", "tenant.create"]


def test_nobody_says_a_tenant_to_be_in_another_state(server: Server, name: str) -> None:
    """GW5: the phase shows what its services have done."""
    path = f"{TENANTS}/{name}"
    for answer in (
        server.admin.patch(f"{path}/status", {"status": {"phase": "Suspended"}}),
        server.admin.patch(path, {"status": {"phase": "Suspended"}}),
    ):
        assert (answer.status, answer.body["status"]["phase"]) == (200, "Active")


@pytest.mark.parametrize("way", ["delete", "deletecollection"])
def test_deletion_of_another_one_than_is_meant_is_a_conflict(server: Server, name: str, way: str) -> None:
    admin = server.admin
    metadata = admin.get(f"{TENANTS}/{name}").body["metadata"]
    path = f"{TENANTS}/{name}" if way == "delete" else f"{TENANTS}?fieldSelector=metadata.name%3D{name}"
    for wrong in ({"uid": str(uuid4())}, {"resourceVersion": "1"}):
        refused = admin.delete(path, {"preconditions": wrong})
        assert (refused.status, refused.reason) == (409, "Conflict")
        assert row(server, name) == [("", "active")]
    right = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    assert admin.delete(path, {"preconditions": right}).status == 200
    assert row(server, name) == [("", "terminating")]


def test_operators_policies_judge_tenants(server: Server, name: str) -> None:
    """TS15, AZ11: every way in which one is made, changed and ended; what they refuse has not begun."""
    admin, refused = server.admin, fresh()
    about = rules("tenants", operations=("CREATE", "UPDATE", "DELETE"))
    named = f"(request.operation == 'DELETE' ? oldObject : object).metadata.name in ['{name}', '{refused}']"
    with policy(admin, f"no-{refused}", about, f"!({named})"):
        assert eventually(lambda: MAKING["create"](admin, refused, dryRun="All").status == 422)
        answers = [
            *(MAKING[way](admin, refused) for way in ("create", "apply")),
            *(change(admin, name, "Other") for change in CHANGING.values()),
            *(end(admin, name) for end in ENDING.values()),
        ]
        assert [(answer.status, "says no" in answer.body["message"]) for answer in answers] == [(422, True)] * len(
            answers
        )
    assert (row(server, refused), audited(server, refused)) == ([], [])
    assert (row(server, name), audited(server, name)) == ([("", "active")], ["tenant.create"])


def test_operators_mutating_policies_change_tenants(server: Server) -> None:
    """TS15: the tenant is made as they have left its object."""
    admin, name = server.admin, fresh()
    expression = 'Object{metadata: Object.metadata{labels: {"site": "north"}}, spec: Object.spec{displayName: "North"}}'
    spec = {
        "matchConstraints": {"resourceRules": rules("tenants")},
        "matchConditions": [{"name": "one", "expression": f"object.metadata.name == '{name}'"}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    }
    made = {"metadata": {"name": name}, "spec": spec}
    assert admin.post(f"{API}/mutatingadmissionpolicies", made).status == 201
    bound = {"metadata": {"name": name}, "spec": {"policyName": name}}
    assert admin.post(f"{API}/mutatingadmissionpolicybindings", bound).status == 201
    assert eventually(
        lambda: MAKING["create"](admin, name, dryRun="All").body["metadata"]["labels"] == {"a": "b", "site": "north"}
    )
    made = MAKING["create"](admin, name).body
    assert (made["metadata"]["labels"]["site"], made["spec"]) == ("north", {"displayName": "North"})
    assert row(server, name) == [("North", "active")]
    for plural in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
        assert admin.delete(f"{API}/{plural}/{name}").status == 200


def test_tenants_are_made_and_ended_in_ones_own_name(server: Server, name: str) -> None:
    """What the audit chain seals is that person's doing, whichever verb it was."""
    admin, other = server.admin, fresh()
    acting = {"Impersonate-User": "bob", "Impersonate-Group": "system:masters"}
    media = {"Content-Type": "application/apply-patch+yaml"}
    rename = {"Content-Type": "application/merge-patch+json"}
    for answer in (
        admin.post(TENANTS, tenant(other), acting),
        admin.call("PATCH", f"{TENANTS}/{other}", tenant(other), {**acting, **media}, fieldManager="gitops"),
        admin.call("PATCH", f"{TENANTS}/{name}", {"spec": {"displayName": "B"}}, {**acting, **rename}),
        admin.call("DELETE", f"{TENANTS}/{name}", headers=acting),
        admin.call("DELETE", TENANTS, headers=acting, fieldSelector=f"metadata.name={name}"),
    ):
        assert (answer.status, "leave Impersonate-User (--as) out" in answer.body["message"]) == (403, True)
    assert (row(server, other), row(server, name)) == ([], [("", "active")])
    labelled = admin.call("PATCH", f"{TENANTS}/{name}", {"metadata": {"labels": {"a": "b"}}}, {**acting, **rename})
    assert labelled.status == 200, labelled.body
