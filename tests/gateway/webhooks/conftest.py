"""A cluster that asks the product: its credential, people of two tenants, and a namespace of each there.

The cluster is another API server of the product, so that whatever is posted to the webhooks is covered everywhere;
``test_real_cluster.py`` has kube-apiserver ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
import yaml
from django.utils import timezone

from access.credentials import kubeconfig_issue, tenant_kubeconfig_issue
from access.credentials.webhooks import webhook_credential_rotate
from tenants.models import Cluster, Phase, Role, Tenant, User, Workspace
from tenants.reconciler.loop import operations_run
from tenants.services import cluster_register, tenant_create, tiers_create_defaults, workspace_init
from tests.gateway.callers import Answer, Caller, eventually
from tests.gateway.conftest import Server
from tests.tenants.conftest import OPERATOR, actor_of, join

TENANT = "multi-tenancy.k8s.io/tenant"


@dataclass
class Asking:
    """A registered cluster, and how it asks."""

    name: str
    product: Server
    token: str

    def ask(self, hook: str, body: Any, *, cluster: str = "", **query: object) -> Answer:
        """What one of its webhooks answers, however long it takes."""
        query.setdefault("timeout", "400s")
        return self.product.bearer(self.token).post(f"/webhooks/{cluster or self.name}/{hook}", body, **query)

    def who(self, token: str, *audiences: str) -> dict[str, Any]:
        """The status of a TokenReview."""
        spec = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
        answer = self.ask("authenticate", review("TokenReview", "authentication.k8s.io/v1", spec))
        assert answer.status == 200, answer.raw
        return dict(answer.body["status"])

    def may(self, user: dict[str, Any], verb: str, resource: str, namespace: str = "", **more: str) -> dict[str, Any]:
        """The status of a SubjectAccessReview about a resource."""
        return self.review(
            user, resourceAttributes={"verb": verb, "resource": resource, "namespace": namespace, **more}
        )

    def review(self, user: dict[str, Any], **attributes: Any) -> dict[str, Any]:
        answer = self.ask("authorize", review("SubjectAccessReview", "authorization.k8s.io/v1", {**user, **attributes}))
        assert answer.status == 200, answer.raw
        return dict(answer.body["status"])


@dataclass
class Customer:
    """A tenant with an owner and one workspace on the cluster, in use."""

    tenant: Tenant
    owner: User
    workspace: Workspace

    @property
    def namespace(self) -> str:
        return self.workspace.k8s_namespace

    def person(self, name: str, role: Role) -> User:
        user = User.objects.create(email=f"{name}@{self.tenant.name}.test", password="!")
        join(self.tenant, user, role)
        return user

    def token(self, user: User | None = None, *, whole: bool = False, at_cluster: bool = False) -> str:
        """The token of a new gateway credential, for the workspace, at its cluster alone, or for the whole tenant."""
        actor, now = actor_of(user or self.owner), timezone.now()
        if whole:
            text = tenant_kubeconfig_issue(actor=actor, tenant=self.tenant.name, now=now).yaml
        else:
            how = {"kind": "gateway", "at_cluster": at_cluster}
            text = kubeconfig_issue(actor=actor, workspace_id=self.workspace.pk, **how, now=now).yaml
        return str(yaml.safe_load(text)["users"][0]["user"]["token"])


def review(kind: str, version: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A review as a kube-apiserver sends it."""
    return {"apiVersion": version, "kind": kind, "metadata": {"creationTimestamp": None}, "spec": spec, "status": {}}


def person(customer: Customer, user: User | None = None, role: str = "owner") -> dict[str, Any]:
    """Somebody of a tenant as a cluster says it that knows nothing of the credential."""
    return {
        "user": f"tenantry:{(user or customer.owner).email}",
        "groups": [f"tenantry:{role}", "system:authenticated"],
        "extra": {TENANT: [customer.tenant.name]},
    }


def known(status: dict[str, Any]) -> dict[str, Any]:
    """Who a TokenReview has found, as the cluster asks about them."""
    user = status["user"]
    return {
        "user": user["username"],
        "uid": user["uid"],
        "groups": [*user["groups"], "system:authenticated"],
        "extra": user["extra"],
    }


def account(namespace: str, name: str = "robot") -> dict[str, Any]:
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}


@pytest.fixture
def product(transactional_db: None, settings: Any, door_server: tuple[Server, str]) -> Server:
    """The product's API server, known to the portal."""
    server, key = door_server
    settings.SEALING_KEYS = [key]
    settings.PORTAL_TOKEN_KEY_FILE = server.folder / "pki" / "portal-tokens.key"
    tiers_create_defaults()
    cluster_register(
        actor=OPERATOR,
        name="embedded",
        kubeconfig=(server.folder / "admin.kubeconfig").read_text(),
        kind=Cluster.Kind.EMBEDDED,
    )
    return server


@pytest.fixture
def new_asking(product: Server, standing_in: str) -> Callable[[str], Asking]:
    """Registers a cluster that asks."""

    def made(name: str) -> Asking:
        cluster_register(actor=OPERATOR, name=name, kubeconfig=standing_in, credential_kinds=["gateway"])
        token = webhook_credential_rotate(actor=OPERATOR, cluster=name, now=timezone.now())
        asking = Asking(name, product, token)
        # The server takes in that the tests emptied its database.
        assert eventually(lambda: asking.ask("authenticate", {}).status == 400)
        return asking

    return made


@pytest.fixture
def asking(new_asking: Callable[[str], Asking]) -> Asking:
    return new_asking("fra-1")


@pytest.fixture
def new_customer(asking: Asking) -> Callable[[], Customer]:
    def made() -> Customer:
        name = f"t{uuid4().hex[:8]}"
        owner = User.objects.create(email=f"olga@{name}.test", password="!")
        tenant = tenant_create(actor=OPERATOR, name=name, owner=owner)
        workspace = workspace_init(
            actor=actor_of(owner), user=owner, tier="basic", name="web", cluster=asking.name, tenant=name
        )
        return Customer(tenant, owner, work(workspace, Phase.READY))

    return made


def work(workspace: Workspace, *phases: Phase) -> Workspace:
    """The workspace in one of the phases, with a worker at work."""

    def there() -> bool:
        Cluster.objects.update(away_until=None)
        operations_run()
        workspace.refresh_from_db()
        return workspace.phase in phases and workspace.observed_generation == workspace.generation

    assert eventually(there), workspace.phase
    return workspace


@pytest.fixture
def acme(new_customer: Callable[[], Customer]) -> Customer:
    return new_customer()


@pytest.fixture
def globex(new_customer: Callable[[], Customer]) -> Customer:
    return new_customer()


@pytest.fixture
def nobody(product: Server) -> Caller:
    return product.nobody
