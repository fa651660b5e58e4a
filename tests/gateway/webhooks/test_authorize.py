"""SubjectAccessReview: what tenants may on a cluster that they speak to directly (GW17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from audit.models import ApiRequest
from tenants.models import Phase, Role
from tenants.services import tenant_resume, tenant_suspend, workspace_delete, workspace_init, workspace_suspend
from tenants.services.clusters import cluster_change
from tenants.services.operating.freezing import workspace_freeze, workspace_thaw
from tests.gateway.callers import eventually
from tests.gateway.webhooks.conftest import TENANT, Asking, Customer, account, known, person, work
from tests.tenants.conftest import OPERATOR, actor_of

pytestmark = pytest.mark.django_db(transaction=True)


def verdict(status: dict[str, Any]) -> str:
    return "allow" if status["allowed"] else "deny" if status.get("denied") else "no opinion"


def test_people_are_allowed_what_the_door_gives_them_in_their_own_namespaces(
    asking: Asking, acme: Customer, globex: Customer
) -> None:
    owner, viewer = person(acme), person(acme, acme.person("vera", Role.VIEWER), "viewer")
    assert verdict(asking.may(owner, "create", "pods", acme.namespace)) == "allow"
    assert verdict(asking.may(viewer, "list", "pods", acme.namespace)) == "allow"
    # The cluster's own bindings may still give it.
    assert verdict(asking.may(viewer, "create", "pods", acme.namespace)) == "no opinion"
    assert verdict(asking.may(viewer, "get", "pods", acme.namespace, subresource="exec", name="p")) == "no opinion"
    # No role of workspaces covers it, whatever the space's own RBAC says.
    assert verdict(asking.may(owner, "delete", "resourcequotas", acme.namespace)) == "no opinion"
    for user in (owner, viewer):
        for place in (globex.namespace, "kube-system", "default", "nowhere"):
            assert verdict(asking.may(user, "list", "pods", place)) == "deny", place


@pytest.mark.parametrize(("verb", "told"), [("get", "allow"), ("list", "no opinion"), ("watch", "no opinion")])
def test_a_namespace_is_looked_at_by_its_name_by_those_whose_it_is(
    asking: Asking, acme: Customer, globex: Customer, verb: str, told: str
) -> None:
    """Who gets it names it as the namespace too; who lists or watches it selects it by its name in no namespace."""
    for whose, said in ((acme, told), (globex, "deny")):
        place = whose.namespace if verb == "get" else ""
        assert verdict(asking.may(person(acme), verb, "namespaces", place, name=whose.namespace)) == said
    assert verdict(asking.may(person(acme), verb, "namespaces")) == "deny"


def test_a_credential_for_one_workspace_opens_no_other(asking: Asking, acme: Customer) -> None:
    user = known(asking.who(acme.token()))
    assert verdict(asking.may(user, "list", "pods", acme.namespace)) == "allow"
    forged = {**user, "extra": {**user["extra"], TENANT: ["globex"]}}
    assert verdict(asking.may(forged, "list", "pods", acme.namespace)) == "deny"


def test_nothing_of_the_cluster_itself_is_open_but_what_an_operator_opens(asking: Asking, acme: Customer) -> None:
    """D6; lists across namespaces and nodes never."""
    owner = person(acme)
    storage = {"group": "storage.k8s.io"}
    for verb, resource, more in (
        ("list", "pods", {}),
        ("list", "nodes", {}),
        ("get", "nodes", {"name": "n1"}),
        ("impersonate", "users", {"name": "admin"}),
        ("create", "namespaces", {}),
        ("list", "storageclasses", storage),
    ):
        assert verdict(asking.may(owner, verb, resource, **more)) == "deny", (verb, resource)
    opened = "storageclasses.storage.k8s.io/fast\ningressclasses.networking.k8s.io"
    cluster_change(actor=OPERATOR, name=asking.name, opened=opened)
    fast = {**storage, "name": "fast"}
    assert eventually(lambda: verdict(asking.may(owner, "get", "storageclasses", **fast)) == "allow")
    assert verdict(asking.may(owner, "get", "storageclasses", **{**storage, "name": "slow"})) == "deny"
    assert verdict(asking.may(owner, "list", "storageclasses", **storage)) == "deny"
    assert verdict(asking.may(owner, "delete", "storageclasses", **fast)) == "deny"
    assert verdict(asking.may(owner, "watch", "ingressclasses", group="networking.k8s.io")) == "allow"
    # Accounts hold what the cluster's RBAC gives them.
    assert verdict(asking.may(account(acme.namespace), "get", "storageclasses", **fast)) == "no opinion"


def test_discovery_and_questions_about_oneself_are_left_to_the_cluster(asking: Asking, acme: Customer) -> None:
    owner = person(acme)
    for path in ("/api", "/apis/apps/v1", "/openapi/v3", "/version", "/readyz"):
        status = asking.review(owner, nonResourceAttributes={"verb": "get", "path": path})
        assert verdict(status) == "no opinion", path
    for path in ("/metrics", "/logs/", "/debug/pprof", "/apisx", "/"):
        status = asking.review(owner, nonResourceAttributes={"verb": "get", "path": path})
        assert verdict(status) == "deny", path
    group = {"group": "authorization.k8s.io"}
    assert verdict(asking.may(owner, "create", "selfsubjectaccessreviews", **group)) == "no opinion"
    assert verdict(asking.may(owner, "create", "subjectaccessreviews", **group)) == "deny"


def test_accounts_of_a_workspace_stay_in_their_tenants_namespaces(
    asking: Asking, acme: Customer, globex: Customer
) -> None:
    """Whatever a binding on the cluster gives them elsewhere; at home its RBAC decides."""
    robot = account(acme.namespace)
    assert verdict(asking.may(robot, "create", "pods", acme.namespace)) == "no opinion"
    for place in (globex.namespace, "kube-system", ""):
        assert verdict(asking.may(robot, "list", "pods", place)) == "deny", place


def test_nobody_else_is_any_of_its_business(asking: Asking, acme: Customer) -> None:
    for user in (
        {"user": "system:node:n1", "groups": ["system:nodes"]},
        {"user": "kubernetes-admin", "groups": ["system:masters"]},
        {"user": "tenantry-gateway"},
        account("kube-system", "deployment-controller"),
        account("monitoring", "prometheus"),
    ):
        for place in (acme.namespace, "kube-system", ""):
            assert verdict(asking.may(user, "delete", "pods", place)) == "no opinion", user


@pytest.mark.parametrize("tenants", [[], ["a", "b"], [""], ["Not A Name"]])
def test_a_person_whose_tenant_nobody_says_is_denied(asking: Asking, acme: Customer, tenants: list[str]) -> None:
    user = {**person(acme), "extra": {TENANT: tenants}}
    assert verdict(asking.may(user, "list", "pods", acme.namespace)) == "deny"


def test_a_suspended_tenant_is_refused_with_the_reason_its_accounts_too(
    asking: Asking, acme: Customer, globex: Customer
) -> None:
    """GW5; and the refusal is in the tenant's audit."""
    assert verdict(asking.may(person(acme), "list", "pods", acme.namespace)) == "allow"
    tenant_suspend(actor=OPERATOR, name=acme.tenant.name, reason="unpaid")
    for user in (person(acme), account(acme.namespace)):
        assert eventually(lambda user=user: verdict(asking.may(user, "list", "pods", acme.namespace)) == "deny")
        assert asking.may(user, "list", "pods", acme.namespace)["reason"] == "suspension: locked: unpaid"
        status = asking.review(user, nonResourceAttributes={"verb": "get", "path": "/api"})
        assert verdict(status) == "deny"
    assert verdict(asking.may(person(globex), "list", "pods", globex.namespace)) == "allow"
    assert eventually(
        lambda: ApiRequest.objects.filter(
            tenant=acme.tenant.name, actor=acme.owner.email, code=403, reason__contains="unpaid"
        ).exists()
    )
    tenant_resume(actor=OPERATOR, name=acme.tenant.name)
    work(acme.workspace, Phase.READY)
    assert eventually(lambda: verdict(asking.may(person(acme), "list", "pods", acme.namespace)) == "allow")


def test_a_frozen_workspace_is_read_directly_and_not_written(asking: Asking, acme: Customer) -> None:
    """GW28: by its people and by its own accounts; shells are no reading."""
    workspace_freeze(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="audit")
    for user in (person(acme), account(acme.namespace)):
        assert eventually(lambda user=user: verdict(asking.may(user, "delete", "pods", acme.namespace)) == "deny")
        assert asking.may(user, "create", "pods", acme.namespace)["reason"] == "suspension: frozen: audit"
        assert verdict(asking.may(user, "list", "pods", acme.namespace)) != "deny"
    workspace_thaw(actor=OPERATOR, workspace_id=acme.workspace.pk)
    assert eventually(lambda: verdict(asking.may(person(acme), "delete", "pods", acme.namespace)) == "allow")


def test_a_namespace_that_goes_is_nobodys(asking: Asking, acme: Customer) -> None:
    """What is in memory follows the store's log: the end of the workspace is the end of the rights in it."""
    assert verdict(asking.may(person(acme), "list", "pods", acme.namespace)) == "allow"
    workspace_delete(actor=OPERATOR, workspace_id=acme.workspace.pk)
    assert eventually(lambda: verdict(asking.may(person(acme), "list", "pods", acme.namespace)) == "deny")
    work(acme.workspace, Phase.DELETED)
    assert eventually(
        lambda: "nothing on this cluster" in asking.may(person(acme), "list", "pods", acme.namespace)["reason"]
    )


def test_a_cluster_learns_nothing_of_a_tenant_that_has_nothing_there_nor_tells_its_audit_anything(
    asking: Asking, new_asking: Callable[[str], Asking], acme: Customer
) -> None:
    """GW17: whoever holds the credential of another cluster says what it likes of people and where they were."""
    elsewhere = new_asking("fra-2")
    tenant_suspend(actor=OPERATOR, name=acme.tenant.name, reason="unpaid")
    assert eventually(lambda: verdict(asking.may(person(acme), "list", "pods", acme.namespace)) == "deny")
    for user in (person(acme), {**person(acme), "user": "mallory\n<b>forged</b>"}, account(acme.namespace)):
        for place in (acme.namespace, "forged", ""):
            status = elsewhere.may(user, "delete", "pods", place)
            assert "unpaid" not in status.get("reason", "")
            assert verdict(status) == ("no opinion" if user == account(acme.namespace) else "deny")
        status = elsewhere.review(user, nonResourceAttributes={"verb": "get", "path": "/api"})
        assert "unpaid" not in status.get("reason", "")
    asking.may(person(acme), "list", "pods", acme.namespace)
    told = ApiRequest.objects.filter(tenant=acme.tenant.name)
    assert eventually(lambda: told.filter(reason__contains="unpaid").exists())
    assert not told.filter(path__contains="forged").exists()
    assert not told.filter(actor__contains="mallory").exists()


def test_a_cluster_learns_nothing_of_the_tenants_namespaces_on_others(
    asking: Asking, new_asking: Callable[[str], Asking], acme: Customer
) -> None:
    """GW17: neither why they are locked or frozen, nor that they are."""
    elsewhere = new_asking("fra-2")
    owner = acme.person("otto", Role.OWNER)
    there = workspace_init(
        actor=actor_of(owner), user=owner, tier="basic", name="api", cluster="fra-2", tenant=acme.tenant.name
    )
    work(there, Phase.READY)
    user = person(acme)
    assert eventually(lambda: verdict(elsewhere.may(user, "list", "pods", there.k8s_namespace)) == "allow")
    before = elsewhere.may(user, "delete", "pods", acme.namespace)
    assert verdict(before) == "deny"
    workspace_freeze(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="audit")
    assert eventually(lambda: "audit" in asking.may(user, "delete", "pods", acme.namespace)["reason"])
    assert elsewhere.may(user, "delete", "pods", acme.namespace) == before
    workspace_suspend(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="mining")
    assert eventually(lambda: "mining" in asking.may(user, "delete", "pods", acme.namespace)["reason"])
    assert elsewhere.may(user, "delete", "pods", acme.namespace) == before
