"""A real kube-apiserver that asks: isolation, suspension, its own controllers, and Tenantry away (GW17)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command

from access.authentication.clusterwebhooks import PREFIX, digest_of
from access.models import WebhookCredential
from kube.authentication.portaltokens import AUDIENCE
from tenants.models import Cluster, Phase, Role
from tenants.services import cluster_register, tenant_policies_change, tenant_suspend
from tests.clusters import prepared
from tests.faultproxy import Fault, FaultProxy
from tests.gateway.callers import Answer, Caller, config_map, eventually
from tests.gateway.conftest import Server
from tests.gateway.webhooks.conftest import Asking, Customer, work
from tests.gateway.webhooks.test_admit import bound, used
from tests.kubeapiserver import PRESENT, REASON, KubeApiserver, running
from tests.tenants.conftest import OPERATOR

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not PRESENT, reason=REASON),
]

NAME = "kube-asking"
PATIENCE = 300.0
"""Where a test gives up on a cluster, whatever the machine."""


@dataclass
class Real:
    """The cluster, what stands between it and the product, the credential that it shows, and what is printed for it."""

    server: KubeApiserver
    proxy: FaultProxy
    token: str
    manifests: Callable[[str], list[dict[str, Any]]]

    def caller(self, token: str) -> Caller:
        return Caller(self.server.url, self.server.folder / "ca.pem", token=token)

    def admin(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        answer = self.server.admin.send(method, path, body, **headers)
        assert answer.status < 300, answer
        return answer.body

    @contextmanager
    def asked_about_writes(self, failure_policy: str) -> Iterator[None]:
        """With the ValidatingWebhookConfiguration as it is printed, in force."""
        path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        (body,) = (each for each in self.manifests(failure_policy) if each["kind"] == "ValidatingWebhookConfiguration")
        self.admin("POST", path, body)
        try:
            yield
        finally:
            self.admin("DELETE", f"{path}/tenantry")


@pytest.fixture(scope="session")
def kube_asking(
    door_server: tuple[Server, str], django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Real]:
    """A kube-apiserver started with what ``manage.py webhooks manifests`` prints, and nothing else changed."""
    product, _ = door_server
    folder = tmp_path_factory.mktemp("asking")
    proxy = FaultProxy(product.url, (product.folder / "pki" / "ca.crt").read_text(), None)
    proxy.start()
    (folder / "proxy.pem").write_bytes(proxy.ca.cert_pem.bytes())

    def manifests(failure_policy: str) -> list[dict[str, Any]]:
        return list(yaml.safe_load_all(printed(failure_policy)))

    def printed(failure_policy: str = "Fail") -> str:
        out = StringIO()
        given = ["--server", proxy.url, "--ca-file", str(folder / "proxy.pem"), "--folder", str(folder)]
        call_command("webhooks", "manifests", NAME, *given, "--failure-policy", failure_policy, stdout=out)
        return out.getvalue()

    with django_db_blocker.unblock():
        row = Cluster.objects.create(name=NAME, kind=Cluster.Kind.EXTERNAL, server="https://127.0.0.1", ca_data="x")
        text = printed()
        row.delete()
    for document in text.split("\n---\n"):
        for line in document.splitlines():
            if line.startswith("# file: "):
                Path(line.removeprefix("# file: ")).write_text(document)
    token = PREFIX + secrets.token_urlsafe(32)
    (folder / "token").write_text(token)
    flags = (
        f"--authentication-token-webhook-config-file={folder / 'authentication.kubeconfig'}",
        "--authentication-token-webhook-version=v1",
        "--authentication-token-webhook-cache-ttl=10s",
        f"--api-audiences=https://kubernetes.default.svc,{AUDIENCE}",
        f"--authorization-config={folder / 'authorization.yaml'}",
        f"--admission-control-config-file={folder / 'admission.yaml'}",
    )
    with (
        running(controllers=True, authorization=(), more_controllers=("deployment", "replicaset"), flags=flags) as real,
        prepared(real),
    ):
        yield Real(real, proxy, token, manifests)
    proxy.stop()


@pytest.fixture
def asking(product: Server, kube_asking: Real) -> Iterator[Asking]:
    """The cluster, registered, in the place of the one that stands in for any."""
    kubeconfig = kube_asking.server.kubeconfig("tenantry-gateway")
    cluster = cluster_register(actor=OPERATOR, name=NAME, kubeconfig=kubeconfig, credential_kinds=["gateway"])
    WebhookCredential.objects.create(cluster=cluster, digest=digest_of(kube_asking.token))
    found = Asking(NAME, product, kube_asking.token)
    assert eventually(lambda: found.ask("authenticate", {}).status == 400)
    yield found
    kube_asking.proxy.heal()


def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def refusal(answer: Answer) -> str:
    return str(answer.body["message"]) if answer.status == 403 else f"{answer.status}"


def daemonset() -> dict[str, Any]:
    labels = {"app": "web"}
    container = {"name": "c", "image": "registry.example.org/web:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "web"}, "spec": spec}


def test_a_tenants_user_who_speaks_to_the_cluster_directly_stays_at_home(
    kube_asking: Real, acme: Customer, globex: Customer
) -> None:
    """AZ1: by the token of a gateway credential, and by an account that a binding gave the whole cluster."""
    person = kube_asking.caller(acme.token())
    assert eventually(lambda: person.get(pods(acme.namespace)).status == 200, PATIENCE)
    assert person.post(f"/api/v1/namespaces/{acme.namespace}/configmaps", config_map("a")).status == 201
    whoami = person.post(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    ).body["status"]["userInfo"]
    assert whoami["username"] == f"tenantry:{acme.owner.email}"
    assert whoami["extra"]["multi-tenancy.k8s.io/tenant"] == [acme.tenant.name]
    for path in (pods(globex.namespace), pods("kube-system")):
        assert "none of the tenant's on this cluster" in refusal(person.get(path)), path
    for path in ("/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces"):
        assert "not opened to tenants" in refusal(person.get(path)), path
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"too-much-{acme.tenant.name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": acme.namespace}],
    }
    kube_asking.admin("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    robot = kube_asking.caller(account_token(kube_asking, acme.namespace))
    assert eventually(lambda: robot.get(pods(acme.namespace)).status == 200, PATIENCE)
    assert "none of the tenant's on this cluster" in refusal(robot.get(pods(globex.namespace)))
    assert "not opened to tenants" in refusal(robot.get("/api/v1/secrets"))


def account_token(real: Real, namespace: str) -> str:
    """A token of the namespace's default account, as a pod has it."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    assert eventually(lambda: real.server.admin.send("GET", path).status == 200, PATIENCE)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    return str(real.admin("POST", f"{path}/token", request)["status"]["token"])


def test_a_suspended_tenant_is_refused_with_the_reason(kube_asking: Real, acme: Customer, globex: Customer) -> None:
    """GW5: the lock in the database is enough; nobody has worked on the cluster yet."""
    person, robot = kube_asking.caller(acme.token()), kube_asking.caller(account_token(kube_asking, acme.namespace))
    neighbour = kube_asking.caller(globex.token())
    assert eventually(lambda: person.get(pods(acme.namespace)).status == 200, PATIENCE)
    tenant_suspend(actor=OPERATOR, name=acme.tenant.name, reason="unpaid")
    for caller in (person, robot):
        assert eventually(lambda caller=caller: "locked: unpaid" in refusal(caller.get(pods(acme.namespace))), PATIENCE)
    assert neighbour.get(pods(globex.namespace)).status == 200


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    container = {"name": "c", "image": "registry.example.org/web:1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def test_a_deployment_stops_exactly_at_the_tenants_quota_and_what_ends_is_given_back(
    kube_asking: Real, asking: Asking, acme: Customer
) -> None:
    """AD1, AD2: the controller of the cluster makes the pods, and is refused like anybody."""
    bound(asking, acme, pods="3")
    person = kube_asking.caller(acme.token())
    sets = f"/apis/apps/v1/namespaces/{acme.namespace}/replicasets"
    deployments = f"/apis/apps/v1/namespaces/{acme.namespace}/deployments"

    def stopped_at(count: int) -> bool:
        found = person.get(sets).body.get("items") or [{}]
        status = found[0].get("status") or {}
        told = [each["message"] for each in status.get("conditions") or () if each["type"] == "ReplicaFailure"]
        return len(person.get(pods(acme.namespace)).body.get("items") or ()) == count and any(
            "exceeded quota: tenant" in message for message in told
        )

    with kube_asking.asked_about_writes("Fail"):
        assert eventually(lambda: person.post(deployments, deployment(2)).status in (201, 409), PATIENCE)
        assert eventually(lambda: len(person.get(pods(acme.namespace)).body["items"]) == 2, PATIENCE)
        assert person.patch(f"{deployments}/web", {"spec": {"replicas": 10}}).status == 200
        assert eventually(lambda: stopped_at(3), PATIENCE)
        assert used(asking, acme) == {"pods": "3"}
        bound(asking, acme, pods="5")
        assert eventually(lambda: stopped_at(5), PATIENCE)
        assert used(asking, acme) == {"pods": "5"}
        assert person.delete(f"{deployments}/web").status == 200
        assert eventually(lambda: used(asking, acme) == {"pods": "0"}, PATIENCE)


def test_what_comes_through_the_door_is_taken_once_though_the_cluster_asks_about_it(
    kube_asking: Real, asking: Asking, acme: Customer
) -> None:
    """AD2: what the door has reserved goes over to the object that the cluster asks about, a name that it makes up too."""
    bound(asking, acme, pods="2")
    person = asking.product.bearer(acme.token())
    path = f"/clusters/root:{acme.tenant.name}{pods(acme.namespace)}"
    assert eventually(lambda: person.get(path).status == 200, PATIENCE)
    spec = {"containers": [{"name": "c", "image": "registry.example.org/web:1"}]}

    def make(**metadata: str) -> Answer:
        return person.post(path, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    with kube_asking.asked_about_writes("Fail"):
        assert eventually(lambda: make(name="first").status in (201, 409), PATIENCE)
        assert make(generateName="second-").status == 201
        assert used(asking, acme) == {"pods": "2"}
        refused = make(name="third")
        assert (refused.status, used(asking, acme)) == (403, {"pods": "2"})
        assert "pods=1, used: pods=2, limited: pods=2" in refused.body["message"]
        assert person.delete(path).status == 200
        assert eventually(lambda: used(asking, acme) == {"pods": "0"}, PATIENCE)


def test_the_clusters_own_admin_makes_no_daemonset_in_a_workspace(kube_asking: Real, acme: Customer) -> None:
    """AD4, for whoever writes; and elsewhere nobody is asked."""
    body = daemonset()
    with kube_asking.asked_about_writes("Fail"):

        def refused() -> bool:
            path = f"/apis/apps/v1/namespaces/{acme.namespace}/daemonsets?dryRun=All"
            return "cannot be created in a tenant space" in str(kube_asking.server.admin.send("POST", path, body).body)

        assert eventually(refused, PATIENCE)
        kube_asking.admin("POST", "/apis/apps/v1/namespaces/default/daemonsets?dryRun=All", body)


def test_what_the_clusters_controllers_make_is_judged_like_any_other(kube_asking: Real, acme: Customer) -> None:
    """AD5: a Deployment from before the rule makes nothing more that breaks it."""
    path = f"/apis/apps/v1/namespaces/{acme.namespace}/deployments"
    kube_asking.admin("POST", path, {**daemonset(), "kind": "Deployment"})
    assert eventually(lambda: kube_asking.admin("GET", f"{path}/web")["status"].get("observedGeneration"), PATIENCE)
    tenant_policies_change(actor=OPERATOR, name=acme.tenant.name, policies={"registries": ["other.example.org"]})
    with kube_asking.asked_about_writes("Fail"):

        def refused() -> bool:
            kube_asking.server.admin.send("DELETE", pods(acme.namespace))
            return "by the policy of the tenant" in str(kube_asking.admin("GET", f"{path}/web")["status"])

        assert eventually(refused, PATIENCE)


def away(real: Real) -> None:
    """Nobody answers the cluster any more."""
    real.proxy.faults.append(Fault("drop-before", times=1_000_000_000))


def test_while_tenantry_is_away_people_wait_accounts_work_and_unknown_tokens_are_refused(
    kube_asking: Real, acme: Customer
) -> None:
    """Deny, NoOpinion, and no failure policy at all."""
    known, unknown = kube_asking.caller(acme.token()), kube_asking.caller(acme.token(acme.person("ben", Role.VIEWER)))
    robot = kube_asking.caller(account_token(kube_asking, acme.namespace))
    assert eventually(lambda: known.get(pods(acme.namespace)).status == 200, PATIENCE)
    accounts = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{acme.namespace}/rolebindings"
    kube_asking.admin(
        "POST",
        accounts,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "reads"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": acme.namespace}],
        },
    )
    assert eventually(lambda: robot.get(pods(acme.namespace)).status == 200, PATIENCE)
    away(kube_asking)
    # What the cluster remembers of the person ends first.
    assert eventually(lambda: known.get(pods(acme.namespace)).status in (401, 403), PATIENCE)
    assert unknown.get(pods(acme.namespace)).status == 401
    assert eventually(lambda: robot.get(pods(acme.namespace)).status == 200, PATIENCE)
    # What RBAC does not give is refused still; that nobody answered makes it a 500.
    assert robot.get(pods("kube-system")).status == 500
    assert kube_asking.server.admin.send("GET", pods("kube-system")).status == 200
    kube_asking.proxy.heal()
    assert eventually(lambda: known.get(pods(acme.namespace)).status == 200, PATIENCE)


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
def test_while_tenantry_is_away_writes_wait_or_pass_as_was_chosen(
    kube_asking: Real, acme: Customer, policy: str, status: int
) -> None:
    path = f"/apis/apps/v1/namespaces/{acme.namespace}/daemonsets"

    def written(at: str = path, body: dict[str, Any] | None = None) -> int:
        return int(kube_asking.server.admin.send("POST", f"{at}?dryRun=All", body or daemonset()).status)

    with kube_asking.asked_about_writes(policy):
        assert eventually(lambda: written() == 403, PATIENCE)
        away(kube_asking)
        assert written() == status
        # What is in nobody's workspace never waits.
        assert written("/api/v1/namespaces/default/configmaps", config_map("c")) == 201
        kube_asking.proxy.heal()
        assert eventually(lambda: written() == 403, PATIENCE)


MARKED_BY_ANOTHER = {"metadata": {"name": "mine", "labels": {"tenantry.io/workspace": "w"}}}
KEEPER = {"Impersonate_User": "keeper"}
"""Of the cluster's own people; no admin."""
PLATFORM = (
    {},
    {"Impersonate_User": "tenantry-gateway"},
    {"Impersonate_User": "system:serviceaccount:kube-system:namespace-controller"},
)
"""The cluster's admin, the gateway, and the cluster's controllers."""


@pytest.fixture
def keeper(kube_asking: Real) -> Iterator[None]:
    """Somebody whom the cluster's RBAC lets do everything with namespaces, and nothing else."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "keeper"}
    made = {
        "clusterroles": {"rules": [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["*"]}]},
        "clusterrolebindings": {
            "roleRef": role,
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "keeper"}],
        },
    }
    for plural, body in made.items():
        kube_asking.admin("POST", f"{rbac}/{plural}", {"metadata": {"name": "keeper"}, **body})
    yield
    for plural in made:
        kube_asking.admin("DELETE", f"{rbac}/{plural}/keeper")


@pytest.mark.usefixtures("keeper")
def test_while_tenantry_is_away_marked_namespaces_are_the_platforms_alone_and_all_others_anybodys(
    kube_asking: Real, acme: Customer
) -> None:
    """Fail, whatever was chosen for what is in them: who takes a mark off takes the namespace out of every rule."""
    own, marks = f"/api/v1/namespaces/{acme.namespace}", "app.kubernetes.io/managed-by"

    def asked(method: str, path: str, body: Any, who: dict[str, str]) -> int:
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return int(kube_asking.server.admin.send(method, f"{path}?dryRun=All", body, media, **who).status)

    def changed(path: str, who: dict[str, str], **labels: str | None) -> int:
        return asked("PATCH", path, {"metadata": {"labels": labels}}, who)

    with kube_asking.asked_about_writes("Ignore"):
        assert eventually(lambda: changed(own, KEEPER, **{marks: None}) == 403, PATIENCE)
        assert asked("POST", "/api/v1/namespaces", MARKED_BY_ANOTHER, KEEPER) == 403
        assert changed(own, KEEPER, team="a") == 200
        away(kube_asking)
        assert changed(own, KEEPER, **{marks: None}) == 500
        assert changed(own, KEEPER, team="a") == 500
        assert asked("DELETE", own, None, KEEPER) == 500
        assert asked("POST", "/api/v1/namespaces", MARKED_BY_ANOTHER, KEEPER) == 500
        assert [asked("DELETE", own, None, who) for who in PLATFORM] == [200] * len(PLATFORM)
        assert changed("/api/v1/namespaces/default", KEEPER, team="a") == 200
        assert asked("POST", "/api/v1/namespaces", {"metadata": {"name": "mine"}}, KEEPER) == 201
        kube_asking.proxy.heal()
        assert eventually(lambda: changed(own, KEEPER, team="a") == 200, PATIENCE)


def made_pod(kube_asking: Real, path: str, name: str) -> int:
    """What is answered to who makes a pod there, past Tenantry."""
    spec = {"containers": [{"name": "c", "image": "registry.example.org/web:1"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    return int(kube_asking.server.admin.send("POST", path, body).status)


def test_what_is_deleted_while_tenantry_is_away_is_gone_and_its_quota_given_back(
    kube_asking: Real, asking: Asking, acme: Customer
) -> None:
    """Ignore: an end is never held up, where a write is; whoever looks at the cluster finds what is there (AD2)."""
    bound(asking, acme, pods="2")
    account_token(kube_asking, acme.namespace)  # Without the account there is no pod.
    path, sets = pods(acme.namespace), f"/apis/apps/v1/namespaces/{acme.namespace}/daemonsets?dryRun=All"
    make = partial(made_pod, kube_asking, path)
    with kube_asking.asked_about_writes("Fail"):
        assert eventually(lambda: kube_asking.server.admin.send("POST", sets, daemonset()).status == 403, PATIENCE)
        assert [make(name) for name in ("first", "second")] == [201, 201]
        assert used(asking, acme) == {"pods": "2"}
        assert make("third") == 403
        away(kube_asking)
        assert make("third") == 500
        kube_asking.admin("DELETE", f"{path}/first?gracePeriodSeconds=0")
        assert kube_asking.server.admin.send("GET", f"{path}/first").status == 404
        # Nobody has told Tenantry, which still reaches the cluster and looks there.
        assert eventually(lambda: used(asking, acme) == {"pods": "1"}, PATIENCE)
        kube_asking.proxy.heal()
        assert eventually(lambda: make("third") == 201, PATIENCE)
        assert make("fourth") == 403


def test_what_passes_while_tenantry_is_away_counts_when_somebody_has_looked_and_refuses_what_comes_after(
    kube_asking: Real, asking: Asking, acme: Customer
) -> None:
    """Ignore: nobody has judged it, and nothing is taken away; but there is no room any more (AD1)."""
    bound(asking, acme, pods="2")
    account_token(kube_asking, acme.namespace)  # Without the account there is no pod.
    path, sets = pods(acme.namespace), f"/apis/apps/v1/namespaces/{acme.namespace}/daemonsets?dryRun=All"
    make = partial(made_pod, kube_asking, path)
    with kube_asking.asked_about_writes("Ignore"):
        assert eventually(lambda: kube_asking.server.admin.send("POST", sets, daemonset()).status == 403, PATIENCE)
        away(kube_asking)
        assert [make(f"unseen-{number}") for number in range(3)] == [201] * 3
        assert eventually(lambda: used(asking, acme) == {"pods": "3"}, PATIENCE)
        kube_asking.proxy.heal()
        assert eventually(lambda: kube_asking.server.admin.send("POST", sets, daemonset()).status == 403, PATIENCE)
        assert make("another") == 403
        kube_asking.admin("DELETE", f"{path}/unseen-0?gracePeriodSeconds=0")
        kube_asking.admin("DELETE", f"{path}/unseen-1?gracePeriodSeconds=0")
        assert eventually(lambda: make("another") == 201, PATIENCE)
        assert make("one-more") == 403


def test_a_suspension_while_tenantry_is_away_holds_for_accounts_once_it_has_been_carried_out(
    kube_asking: Real, acme: Customer
) -> None:
    """NoOpinion: the cluster's RBAC decides alone, until the suspension takes from it what the accounts had (GW5)."""
    robot = kube_asking.caller(account_token(kube_asking, acme.namespace))
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "reads"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": acme.namespace}],
    }
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{acme.namespace}/rolebindings"
    kube_asking.admin("POST", path, binding)
    assert eventually(lambda: robot.get(pods(acme.namespace)).status == 200, PATIENCE)
    away(kube_asking)
    tenant_suspend(actor=OPERATOR, name=acme.tenant.name, reason="unpaid")
    # Nobody has worked on the cluster yet, and nobody can be asked.
    assert eventually(lambda: robot.get(pods(acme.namespace)).status == 200, PATIENCE)
    work(acme.workspace, Phase.SUSPENDED)
    assert eventually(lambda: robot.get(pods(acme.namespace)).status != 200, PATIENCE)
    kube_asking.proxy.heal()
    assert eventually(lambda: "locked: unpaid" in refusal(robot.get(pods(acme.namespace))), PATIENCE)
