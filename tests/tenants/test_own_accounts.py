"""Tokens of ServiceAccounts that a tenant has made by itself, and of ``default``, end with a suspension too (GW5, P5)."""

from __future__ import annotations

import itertools
import ssl
import time
from collections.abc import Callable
from typing import Any

import pytest

from tenants import operationqueue
from tenants.models import Phase, Workspace
from tenants.reconciler import ownaccounts
from tenants.reconciler.loop import operations_run
from tenants.services import tenant_resume, tenant_suspend, workspace_resume, workspace_suspend
from tenants.suspensions import locks_all
from tests.clusters import TestCluster
from tests.faultproxy import Fault
from tests.speaking import Answer, Speaker
from tests.tenants.conftest import OPERATOR

RBAC = "rbac.authorization.k8s.io"
BOTH = pytest.mark.parametrize("cluster", ["embedded", "kube-apiserver"], indirect=True)
pytestmark = pytest.mark.django_db(transaction=True)


def behind(answer: Answer, space: str, namespace: str) -> bool:
    """Whether an API server refuses for a lock that is no more: it hears of that a moment after the commit."""
    locks = locks_all()
    return (
        answer.status == 403
        and "locked" in str(answer.body)
        and not any(place in locks for place in ((space, ""), (space, namespace)))
    )


class Namespace:
    """A workspace's namespace on its cluster, for whoever administrates that."""

    def __init__(self, cluster: TestCluster, workspace: Workspace) -> None:
        proxy = cluster.proxy
        self._context = ssl.create_default_context(cadata=proxy._upstream_ca)
        self._url, self._prefix = proxy._upstream, ""
        self.admin = cluster.real.admin if cluster.kind != "embedded" else None
        if self.admin is None:
            self._prefix = f"/clusters/{workspace.tenant.cluster_path}"
            context = ssl.create_default_context(cadata=proxy._upstream_ca)
            context.load_cert_chain(cluster.real.folder / "pki/admin.crt", cluster.real.folder / "pki/admin.key")
            self.admin = Speaker(self._url, context, prefix=self._prefix)
        self.name, self.space = workspace.k8s_namespace, workspace.tenant.cluster_path
        self.core = f"/api/v1/namespaces/{self.name}"
        self.rbac = f"/apis/{RBAC}/v1/namespaces/{self.name}"

    def account(self, name: str, **fields: Any) -> None:
        metadata = {"name": name, "annotations": {"example.org/role": name}}
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, **fields}
        assert self.admin.send("POST", f"{self.core}/serviceaccounts", body).status == 201

    def allow(self, *names: str) -> None:
        """Let accounts read ConfigMaps, as a chart would."""
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
        role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": "chart"}, "rules": rules}
        subjects = [{"kind": "ServiceAccount", "name": name, "namespace": self.name} for name in names]
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "chart"},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "chart"},
            "subjects": subjects,
        }
        assert self.admin.send("POST", f"{self.rbac}/roles", role).status == 201
        assert self.admin.send("POST", f"{self.rbac}/rolebindings", binding).status == 201

    def token(self, account: str) -> str:
        """One of an hour, as pods have it."""
        text = self.token_if_any(account)
        assert text
        return text

    def token_if_any(self, account: str) -> str:
        """The same; nothing where there is no such account, or it is going."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        answer = self.admin.send("POST", f"{self.core}/serviceaccounts/{account}/token", request)
        return str(answer["status"]["token"]) if answer.status == 201 else ""

    def asked(self, token: str) -> int:
        """What the cluster answers to a token, once it has heard of every door that is open again."""
        bearer = Speaker(self._url, self._context, {"Authorization": f"Bearer {token}"}, self._prefix)
        end = time.monotonic() + 300
        try:
            while behind(answer := bearer.send("GET", f"{self.core}/configmaps"), self.space, self.name):
                assert time.monotonic() < end, answer
                time.sleep(0.05)
            return answer.status
        finally:
            bearer.close()

    def found(self, account: str) -> Any:
        return self.admin.send("GET", f"{self.core}/serviceaccounts/{account}").body


@pytest.fixture
def place(cluster: TestCluster, workspace: Workspace) -> Namespace:
    """A workspace with the account of a chart, and pull secrets for everybody's pods."""
    found = Namespace(cluster, cluster.settle(workspace, Phase.READY))
    found.account("chart", imagePullSecrets=[{"name": "registry"}], automountServiceAccountToken=False)
    pull = {"imagePullSecrets": [{"name": "registry"}]}
    path = f"{found.core}/serviceaccounts/default"
    assert found.admin.send("PATCH", path, pull, "application/merge-patch+json").status == 200
    found.allow("chart", "default")
    return found


def by_itself() -> tuple[Callable[[Workspace], object], Callable[[Workspace], object]]:
    return (
        lambda workspace: workspace_suspend(actor=OPERATOR, workspace_id=workspace.pk, reason="mining"),
        lambda workspace: workspace_resume(actor=OPERATOR, workspace_id=workspace.pk),
    )


def with_its_tenant() -> tuple[Callable[[Workspace], object], Callable[[Workspace], object]]:
    return (
        lambda workspace: tenant_suspend(actor=OPERATOR, name=workspace.tenant_id, reason="mining"),
        lambda workspace: tenant_resume(actor=OPERATOR, name=workspace.tenant_id),
    )


@BOTH
@pytest.mark.parametrize("how", [by_itself, with_its_tenant])
@pytest.mark.parametrize("held", [True, False], ids=["held", "overtaken"])
def test_no_token_from_before_a_suspension_works_after_it(cluster, workspace, place, how, held):
    """However far the suspension has come; and everything else about the accounts is as it was."""
    suspend, resume = how()
    tokens = [place.token(name) for name in ("chart", "default")]
    for token in tokens:
        cluster.lets_in(lambda token=token: place.asked(token))
    before = place.found("chart")
    suspend(workspace)
    if held:
        cluster.settle(workspace, Phase.SUSPENDED)
        assert place.found("chart")["metadata"]["uid"], "a cluster starts no pod without its account"
    resume(workspace)
    cluster.settle(workspace, Phase.READY)
    assert [place.asked(token) for token in tokens] == [401, 401]
    for fresh in [place.token(name) for name in ("chart", "default")]:
        cluster.lets_in(lambda fresh=fresh: place.asked(fresh))
    after = place.found("chart")
    own = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
    for account in (before, after):
        account["metadata"] = {key: value for key, value in account["metadata"].items() if key not in own}
    assert after == before
    assert place.found("default")["imagePullSecrets"] == [{"name": "registry"}]


@BOTH
def test_a_worker_that_dies_among_them_loses_none(cluster, workspace, place, monkeypatch):
    """After each call that it makes, one after the other."""

    class Killed(BaseException):
        pass

    monkeypatch.setattr(ownaccounts, "_AT_ONCE", 2)
    for name in ("one", "two", "three"):
        place.account(name)
    names = {"chart", "default", "one", "two", "three"}
    tokens = [place.token(name) for name in names]
    place.admin.send("GET", f"{place.core}/serviceaccounts")
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.pk, reason="mining")
    renew, calls = ownaccounts._made_anew, itertools.count()

    def dies(lease, saved):
        if next(calls) % 2:
            lease.client.delete(f"{place.core}/serviceaccounts/{saved['metadata']['name']}")
            raise Killed
        return renew(lease, saved)

    monkeypatch.setattr(ownaccounts, "_made_anew", dies)
    for _ in range(3):
        with pytest.raises(Killed):
            operations_run(workspace_id=workspace.pk)
        operationqueue.Operation.objects.filter(workspace=workspace).update(
            lease_until=None, not_before=operationqueue.database_now()
        )
    monkeypatch.setattr(ownaccounts, "_made_anew", renew)
    suspended = cluster.settle(workspace, Phase.SUSPENDED)
    assert suspended.saved_accounts == []
    found = place.admin.send("GET", f"{place.core}/serviceaccounts")["items"]
    assert {item["metadata"]["name"] for item in found} == names
    assert place.found("default")["imagePullSecrets"] == [{"name": "registry"}]
    workspace_resume(actor=OPERATOR, workspace_id=workspace.pk)
    cluster.settle(workspace, Phase.READY)
    assert {place.asked(token) for token in tokens} == {401}


@pytest.mark.parametrize("cluster", ["kube-apiserver"], indirect=True)
def test_a_gateway_that_may_not_make_them_anew_holds_the_suspension_and_opens_nothing(cluster, workspace, place):
    """A cluster with the role of an earlier release: what is missing is said, and nothing old comes back before."""
    cluster.proxy.faults.append(Fault("403", "DELETE", "serviceaccounts/(chart|default)", times=10**6))
    token = place.token("chart")
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.pk, reason="mining")
    operations_run(workspace_id=workspace.pk, limit=1)
    workspace.refresh_from_db()
    assert workspace.phase == Phase.SUSPENDED
    assert "refused" in workspace.operations.get(desired="suspended").error
    workspace_resume(actor=OPERATOR, workspace_id=workspace.pk)
    operations_run(workspace_id=workspace.pk, limit=1)
    workspace.refresh_from_db()
    assert workspace.phase == Phase.RESUMING
    assert place.asked(token) == 403
    cluster.proxy.heal()
    operationqueue.operations_retry_now(workspaces=Workspace.objects.filter(pk=workspace.pk))
    cluster.settle(workspace, Phase.READY)
    assert place.asked(token) == 401
