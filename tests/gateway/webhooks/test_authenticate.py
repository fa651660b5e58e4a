"""TokenReview: people's tokens of the portal, at a cluster where their tenant has a namespace (GW17, D9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.utils import timezone

from access.credentials import credential_revoke, kubeconfig_issue
from access.models import Credential
from audit.models import AuditEntry
from kube.requests.status import Conflict
from tenants.models import Cluster, Role, Workspace
from tenants.services import membership_remove, tenant_create, workspace_suspend
from tests.gateway.callers import eventually
from tests.gateway.conftest import Server, another
from tests.gateway.webhooks.conftest import TENANT, Asking, Customer, known
from tests.tenants.conftest import OPERATOR, actor_of

pytestmark = pytest.mark.django_db(transaction=True)

AUDIENCE = "https://tenantry.io/apiserver"


def test_a_token_says_person_groups_and_tenant(asking: Asking, acme: Customer) -> None:
    """The name cannot be that of somebody whom the cluster knows otherwise."""
    status = asking.who(acme.token(), "https://kubernetes.default.svc", AUDIENCE)
    assert (status["authenticated"], status["audiences"]) == (True, [AUDIENCE])
    user = status["user"]
    assert (user["username"], user["uid"]) == (f"tenantry:{acme.owner.email}", str(acme.owner.pk))
    assert (user["groups"], user["extra"][TENANT]) == (["tenantry:admin"], [acme.tenant.name])
    jti = Credential.objects.get().jti
    assert user["extra"]["authentication.kubernetes.io/credential-id"] == [f"JTI={jti}"]
    assert asking.who(acme.token(whole=True))["user"]["groups"] == ["tenantry:owner"]


def test_a_token_for_another_audience_or_of_nobody_is_refused(asking: Asking, acme: Customer) -> None:
    status = asking.who(acme.token(), "https://kubernetes.default.svc")
    assert (status["authenticated"], "audiences" in status["error"]) == (False, True)
    forged = acme.token()[:-4] + "AAAA"
    for token in (forged, "nonsense", asking.token, "ey.ey.ey"):
        status = asking.who(token)
        assert (status["authenticated"], status["user"]) == (False, {}), token
        assert token not in status["error"]


def test_a_cluster_is_told_of_its_own_tenants_alone(
    asking: Asking, acme: Customer, new_asking: Callable[[str], Asking]
) -> None:
    """Neither a tenant without a namespace there, nor a credential for a namespace elsewhere."""
    elsewhere = new_asking("ams-1")
    assert asking.who(acme.token())["authenticated"]
    for token in (acme.token(), acme.token(whole=True)):
        assert elsewhere.who(token) == {
            "authenticated": False,
            "user": {},
            "error": "the token is for nothing on this cluster",
        }


def test_a_token_for_one_cluster_opens_nothing_else_whoever_has_seen_it(
    asking: Asking, acme: Customer, new_asking: Callable[[str], Asking]
) -> None:
    """GW17: neither Tenantry's own door nor another cluster, and ends as others do."""
    elsewhere, own = new_asking("ams-1"), f"https://tenantry.io/clusters/{asking.name}"
    pods, plain, bound = f"/api/v1/namespaces/{acme.namespace}/pods", acme.token(), acme.token(at_cluster=True)
    for audiences in ((), ("https://kubernetes.default.svc", own), (AUDIENCE, own)):
        status = asking.who(bound, *audiences)
        assert (status["authenticated"], status["audiences"]) == (True, [own]), audiences
    assert asking.who(bound)["user"]["username"] == f"tenantry:{acme.owner.email}"
    assert not asking.who(bound, AUDIENCE)["authenticated"]
    assert not elsewhere.who(bound)["authenticated"]
    assert asking.product.bearer(bound).get(pods).status == 401
    assert asking.product.bearer(bound).get("/api/v1/namespaces").status == 401
    # The other way round a cluster takes what opens the door only where it says so.
    assert asking.product.bearer(plain).get("/api/v1/namespaces").status != 401
    assert not asking.who(plain, own)["authenticated"]
    issued = AuditEntry.objects.filter(action="IssueKubeconfig", detail__audience=own).get()
    credential_revoke(actor=actor_of(acme.owner), jti=issued.detail["jti"], now=timezone.now())
    assert eventually(lambda: not asking.who(bound)["authenticated"])
    assert asking.who(bound, AUDIENCE, own)["error"] == asking.who(bound)["error"]
    assert "udience" not in asking.who(bound)["error"], "it is for this cluster, and has been revoked"


def test_a_file_for_a_cluster_points_there_and_is_made_for_none_that_asks_nobody(
    asking: Asking, acme: Customer
) -> None:
    def issued(workspace: Workspace, kind: str = "gateway") -> dict[str, Any]:
        actor, now = actor_of(acme.owner), timezone.now()
        made = kubeconfig_issue(actor=actor, workspace_id=workspace.pk, kind=kind, at_cluster=True, now=now)
        return dict(yaml.safe_load(made.yaml)["clusters"][0]["cluster"])

    cluster = acme.workspace.cluster
    assert issued(acme.workspace)["server"] == (cluster.client_url or cluster.server)
    Cluster.objects.filter(pk=cluster.pk).update(credential_kinds=["gateway", "exec"])
    with pytest.raises(Conflict, match="Only a gateway credential"):
        issued(acme.workspace, "exec")
    Cluster.objects.filter(pk=cluster.pk).update(kind=Cluster.Kind.EMBEDDED)
    with pytest.raises(Conflict, match="that is registered"):
        issued(acme.workspace)


def test_a_token_ends_with_what_it_rests_on(asking: Asking, acme: Customer) -> None:
    """RV-11: each end alone, and the others go on."""
    people = {name: acme.person(name, Role.EDITOR) for name in ("bob", "carol", "dave")}
    tokens = {name: acme.token(user) for name, user in people.items()}
    assert all(asking.who(token)["authenticated"] for token in tokens.values())
    jti = Credential.objects.get(issued_to=people["bob"]).jti
    credential_revoke(actor=actor_of(acme.owner), jti=jti, now=timezone.now())
    assert eventually(lambda: not asking.who(tokens["bob"])["authenticated"])
    membership_remove(actor=actor_of(acme.owner), tenant=acme.tenant.name, user=people["carol"])
    assert eventually(lambda: not asking.who(tokens["carol"])["authenticated"])
    assert asking.who(tokens["dave"])["authenticated"]
    Credential.objects.filter(issued_to=people["dave"]).update(issued_at=timezone.now(), expires_at=timezone.now())
    assert eventually(lambda: not asking.who(tokens["dave"])["authenticated"])


def test_what_is_revoked_ends_even_where_the_cluster_remembers_the_token(asking: Asking, acme: Customer) -> None:
    """The cluster asks about rights by what it was told of the token: the credential is looked at again."""
    bob = acme.person("bob", Role.EDITOR)
    user = known(asking.who(acme.token(bob)))
    assert asking.may(user, "list", "pods", acme.namespace)["allowed"]
    credential_revoke(actor=actor_of(acme.owner), jti=Credential.objects.get().jti, now=timezone.now())
    assert eventually(lambda: not asking.may(user, "list", "pods", acme.namespace)["allowed"])
    status = asking.may(user, "list", "pods", acme.namespace)
    assert (status["denied"], "ended" in status["reason"]) == (True, True)


def test_whoever_is_suspended_is_known_still_so_that_the_refusal_says_why(asking: Asking, acme: Customer) -> None:
    token = acme.token()
    user = known(asking.who(token))
    workspace_suspend(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="mining")
    assert eventually(lambda: asking.may(user, "list", "pods", acme.namespace).get("denied") is True)
    assert asking.may(user, "list", "pods", acme.namespace)["reason"] == "suspension: locked: mining"
    assert asking.who(token)["authenticated"]


def test_a_tenant_without_a_namespace_on_the_cluster_is_unknown_there(asking: Asking, acme: Customer) -> None:
    """Who is asked about by name alone is denied all the same."""
    tenant = tenant_create(actor=OPERATOR, name="initech")
    user = {"user": "tenantry:ivan@initech.test", "groups": ["tenantry:owner"], "extra": {TENANT: [tenant.name]}}
    status = asking.may(user, "list", "pods", acme.namespace)
    assert (status["allowed"], status["denied"]) == (False, True)


@pytest.fixture
def robot(
    asking: Asking, acme: Customer, door_server: tuple[Server, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Robot]:
    """A program of a tenant with an account in its space, and the server that lets the cluster know it."""
    monkeypatch.setenv("TENANTRY_SEALING_KEYS", door_server[1])
    with another(asking.product, tmp_path / "data", "--webhook-service-accounts", asking.name) as server:
        yield Robot(server, Asking(asking.name, server, asking.token), acme)


@dataclass
class Robot:
    server: Server
    asking: Asking
    customer: Customer

    def write(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.server.admin.post(f"/clusters/root:{self.customer.tenant.name}{path}", body)
        assert answer.status == 201, answer.body
        return answer.body

    def token(self, *audiences: str) -> str:
        body = {"spec": {"audiences": list(audiences)}}
        return str(self.write("/api/v1/namespaces/default/serviceaccounts/robot/token", body)["status"]["token"])


def test_a_service_account_of_a_space_is_known_where_that_is_wished(
    robot: Robot, asking: Asking, globex: Customer
) -> None:
    """It is nobody's namesake on the cluster, may what its space's RBAC gives it, and ends with its account."""
    accounts, rbac = "/api/v1/namespaces/default/serviceaccounts", "rbac.authorization.k8s.io"
    made = robot.write(accounts, {"metadata": {"name": "robot"}})
    token, theirs = robot.token(AUDIENCE), robot.customer.namespace
    status = robot.asking.who(token, "https://kubernetes.default.svc", AUDIENCE)
    assert (status["authenticated"], status.get("audiences")) == (True, [AUDIENCE]), status
    user = status["user"]
    home = f"root:{robot.customer.tenant.name}"
    assert user["username"] == f"tenantry:system:kcp:serviceaccount:{home}:default:robot"
    assert (user["uid"], user["extra"][TENANT]) == (made["metadata"]["uid"], [robot.customer.tenant.name])
    assert not [group for group in user["groups"] if group.startswith("system:")]

    # Tokens for the server alone are none for clusters, and no other cluster or server is told of any.
    assert not robot.asking.who(robot.token())["authenticated"]
    assert not asking.who(token)["authenticated"]

    def may(who: Asking, verb: str, place: str) -> tuple[bool, bool]:
        status = who.may(known({"user": user}), verb, "configmaps", place)
        return status["allowed"], status.get("denied", False)

    assert may(robot.asking, "list", theirs) == (False, False)
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    robot.write(f"/apis/{rbac}/v1/clusterroles", {"metadata": {"name": "robot"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "robot"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "robot"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
    }
    robot.write(f"/apis/{rbac}/v1/clusterrolebindings", binding)
    assert eventually(lambda: may(robot.asking, "list", theirs) == (True, False))
    assert may(robot.asking, "delete", theirs) == (False, False)
    for place in (globex.namespace, "kube-system", ""):
        assert may(robot.asking, "list", place) == (False, True), place
    # Where nobody wished for it the name says nothing, and so it does with another home or tenant.
    assert may(asking, "list", theirs) == (False, True)
    for changed in (
        {"extra": {**user["extra"], "authentication.kcp.io/cluster-name": [f"root:{globex.tenant.name}"]}},
        {"username": user["username"].replace(home, f"root:{globex.tenant.name}")},
        {"username": "tenantry:system:serviceaccount:default:robot", "extra": {TENANT: user["extra"][TENANT]}},
        {"uid": "another"},
    ):
        forged = known({"user": {**user, **changed}})
        assert robot.asking.may(forged, "list", "configmaps", theirs).get("denied") is True, changed

    space = f"/clusters/{home}"
    assert robot.server.admin.delete(f"{space}{accounts}/robot").status == 200
    assert eventually(lambda: may(robot.asking, "list", theirs) == (False, True))
    assert not robot.asking.who(token)["authenticated"]
    # Who comes to have its name is somebody else.
    robot.write(accounts, {"metadata": {"name": "robot"}})
    assert eventually(lambda: may(robot.asking, "list", theirs) == (False, True))
