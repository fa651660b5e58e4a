"""One file for a tenant: a context for each workspace, and files that stand beside each other in KUBECONFIG (GW3)."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest
import yaml
from django.utils import timezone

from access.credentials import kubeconfig_issue, tenant_kubeconfig_issue
from access.models import Credential
from audit.models import AuditEntry
from kube.requests.status import Conflict, NotFound, ServiceUnavailable, TooManyRequests
from tenants import actionlimits
from tenants.models import Phase, Role, Workspace
from tenants.services import workspace_init, workspace_suspend
from tests.apiserver import KUBECTL
from tests.faultproxy import Fault
from tests.tenants.conftest import OPERATOR, actor_of, join, make_tenant, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return make_user()


@pytest.fixture
def workspaces(cluster, tiers, alice) -> list[Workspace]:
    """Two that are ready, of one tenant."""
    make_tenant("acme", alice)
    made = [workspace_init(actor=actor_of(alice), user=alice, tier="standard", name=name) for name in ("web", "api")]
    made = [cluster.settle(workspace, Phase.READY) for workspace in made]
    cluster.proxy.heal()
    return made


def issue(user, tenant="acme"):
    return tenant_kubeconfig_issue(actor=actor_of(user), tenant=tenant, now=timezone.now())


def contexts(issued) -> dict[str, str]:
    """Names of workspaces and roles, and the namespaces that their contexts are for."""
    entries = yaml.safe_load(issued.yaml)["contexts"]
    return {entry["name"].partition("@")[0]: entry["context"]["namespace"] for entry in entries}


def test_a_tenants_file_has_a_context_for_each_workspace(workspaces, alice):
    """GW3: each is a credential of its own, recorded as one, with the member's role."""
    web, api = workspaces
    issued = issue(alice)
    assert contexts(issued) == {"acme.api.admin": api.k8s_namespace, "acme.web.admin": web.k8s_namespace}
    assert {row.workspace_id for row in issued.credentials} == {web.pk, api.pk}
    tokens = {entry["user"]["token"] for entry in yaml.safe_load(issued.yaml)["users"]}
    assert len(tokens) == 2
    rows = AuditEntry.objects.filter(action="IssueKubeconfig").order_by("sequence")
    assert list(rows.values_list("outcome", flat=True)) == ["intent", "success"] * 2
    bob = make_user("bob@example.org")
    join(web.tenant, bob, Role.VIEWER)
    assert set(contexts(issue(bob))) == {"acme.api.viewer", "acme.web.viewer"}


@pytest.mark.skipif(KUBECTL is None, reason="needs kubectl")
def test_two_files_in_kubeconfig_shadow_nothing(cluster, workspaces, alice, tmp_path):
    """GW3, GW7: kubectl takes the first of two entries of one name, so no two may have one."""
    files, namespaces = [], []
    for workspace in workspaces:
        path = tmp_path / workspace.name
        issued = kubeconfig_issue(actor=actor_of(alice), workspace_id=workspace.pk, kind="direct", now=timezone.now())
        path.write_text(issued.yaml)
        files.append(str(path))
        namespaces.append(workspace.k8s_namespace)
    environment = {**os.environ, "KUBECONFIG": os.pathsep.join(files), "HOME": str(tmp_path)}

    def kubectl(*arguments: str) -> str:
        done = subprocess.run([KUBECTL, *arguments], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    known = kubectl("config", "get-contexts", "--output=name").split()
    assert [name.partition("@")[0] for name in known] == ["acme.api.admin", "acme.web.admin"]
    for name, namespace in zip(known, reversed(namespaces), strict=True):
        assert f"system:serviceaccount:{namespace}:" in kubectl("auth", "whoami", f"--context={name}")


def test_what_is_not_ready_is_not_in_the_file_but_named(cluster, workspaces, alice):
    web, api = workspaces
    workspace_suspend(actor=OPERATOR, workspace_id=web.pk, reason="mining")
    issued = issue(alice)
    assert contexts(issued) == {"acme.api.admin": api.k8s_namespace}
    assert [(missing.name, why) for missing, why in issued.missing] == [("web", "The workspace is suspended: mining")]
    workspace_suspend(actor=OPERATOR, workspace_id=api.pk, reason="mining")
    with pytest.raises(Conflict, match="No workspace of acme is ready"):
        issue(alice)


def test_what_a_cluster_refuses_is_named_and_left_out(cluster, workspaces, alice):
    """The others' contexts work; nothing of the refused one is left behind."""
    web, api = workspaces
    Workspace.objects.filter(pk=web.pk).update(service_accounts={**web.service_accounts, "sa-tenant-admin": "gone"})
    issued = issue(alice)
    assert contexts(issued) == {"acme.api.admin": api.k8s_namespace}
    ((missing, why),) = issued.missing
    assert missing.pk == web.pk
    assert why
    assert Credential.objects.get(workspace=web).failed_at is not None


def test_a_cluster_that_does_not_answer_is_asked_once(cluster, workspaces, alice):
    cluster.proxy.faults.append(Fault("html", "POST", "secrets"))
    with pytest.raises(ServiceUnavailable):
        issue(alice)
    assert Credential.objects.count() == 1


def test_strangers_get_404_and_floods_429(workspaces, alice, monkeypatch):
    # What the bucket gives back while the files are issued would let one more through.
    monkeypatch.setattr(actionlimits, "TENANT_CREDENTIALS", replace(actionlimits.TENANT_CREDENTIALS, interval=100_000))
    eve = make_user("eve@example.org")
    for tenant in ("acme", "nowhere"):
        with pytest.raises(NotFound):
            issue(eve, tenant)
    for _ in range(actionlimits.TENANT_CREDENTIALS.burst):
        issue(alice)
    with pytest.raises(TooManyRequests):
        issue(alice)
