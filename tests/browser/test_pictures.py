"""The pictures of the documentation are of the pages that there are (GW14): ten of them, of one fixed company.

``make pictures`` makes them anew; look at each before it is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import orjson
import pytest
import time_machine
from cryptography.fernet import Fernet
from django.core.cache import cache
from django.utils import timezone

from audit.actions import Action
from audit.models import AuditEntry, Outcome
from kube.quota import tenantquotas
from store import synchronous
from store.types import Create, Key, Update
from tenants.models import ClusterProbe, CredentialKind, Desired, OperationState, Phase, Role, Tenant, User, Workspace
from tenants.quotas import tenant_quota_key
from tenants.services import tenant_create, tenant_quota_change
from tests import factories
from tests.browser.pictures import kept
from tests.browser.window import Visit
from tests.clusters import TestCluster
from tests.portal.inhabited import Inhabited, deployment, inhabited, pod
from tests.tenants.conftest import OPERATOR

NOW = datetime(2026, 11, 17, 9, 30, tzinfo=UTC)
"""A Tuesday morning, in which it stays half past nine."""
TENANTS = {
    "payments": "Payments",
    "storefront": "Storefront",
    "data-science": "Data Science",
    "logistics": "Logistics",
    "identity": "Identity",
    "search": "Search and Ranking",
}


@pytest.fixture
def workshop(chromium: Any) -> Iterator[Any]:
    """An empty page, in which pictures are made smaller."""
    page = chromium.new_page()
    yield page
    page.close()


@pytest.fixture
def company(transactional_db: None, settings: Any) -> Iterator[dict[str, Any]]:
    """Six teams on two clusters, one of which does not answer."""
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]
    settings.EMAIL_IS_SET = True
    with time_machine.travel(NOW, tick=False):
        yield _company()


@pytest.fixture
def house(request: pytest.FixtureRequest) -> Any:
    """The company, or the workspace in which something runs, as the test asks for it."""
    return request.getfixturevalue(request.param)


def _company() -> dict[str, Any]:
    ines = factories.operator("ines.okafor@platform.example")
    main = factories.cluster(
        "frankfurt-1",
        version="v1.36.1",
        latency_ms=14,
        last_seen_at=NOW - timedelta(seconds=40),
        credential_expires_at=NOW + timedelta(days=5),
        is_default=True,
    )
    away = factories.cluster(
        "dublin-2",
        version="v1.35.4",
        unreached_since=NOW - timedelta(minutes=12),
        unreached_why="The cluster cannot be reached: no connection in time.",
        last_error="The cluster cannot be reached: no connection in time.",
        last_seen_at=NOW - timedelta(minutes=12),
    )
    for minutes in range(1, 1440, 12):
        latency = 12 + minutes * 7 % 9 + (60 if 400 < minutes < 440 else 0)
        ClusterProbe.objects.create(cluster=main, at=NOW - timedelta(minutes=minutes), latency_ms=latency)
    standard = factories.tier("standard", display_name="Standard", position=1, quota={**factories.QUOTA, "pods": "60"})
    made: dict[str, Tenant] = {}
    for number, (name, display_name) in enumerate(TENANTS.items()):
        with time_machine.travel(NOW - timedelta(days=60 - 7 * number, hours=number), tick=False):
            made[name] = tenant_create(actor=OPERATOR, name=name, display_name=display_name)
    payments = made["payments"]
    mara = factories.member(payments, Role.OWNER, factories.user("mara.lindqvist@payments.example", name="Mara"))
    tomas = factories.member(payments, Role.EDITOR, factories.user("tomas.reyes@payments.example", name="Tomas"))
    factories.member(payments, Role.VIEWER, factories.user("joon.park@payments.example", name="Joon"))
    spaces = [
        _space(payments, mara, name, number, main, standard)
        for number, name in enumerate(("checkout", "ledger", "refunds-staging"))
    ]
    for number, name in enumerate(list(TENANTS)[1:]):
        owner = factories.member(made[name], Role.OWNER, factories.user(f"lead@{name}.example"))
        for index in range(1 + number % 3):
            cluster = away if number == 2 else main
            _space(made[name], owner, f"{name}-{('production', 'staging', 'trials')[index]}", index, cluster, standard)
    stuck = _space(made["logistics"], owner, "routes", 9, away, standard, phase=Phase.PROVISIONING, ready_at=None)
    stuck.operations.all().delete()
    failed = factories.operation(stuck, state=OperationState.FAILED, steps=2, desired=Desired.READY)
    failed.error, failed.created_at = "The quota cannot be set: the cluster does not answer.", NOW - timedelta(hours=1)
    failed.save()
    Tenant.objects.filter(pk="search").update(
        state="suspended", suspended_at=NOW - timedelta(days=2), suspended_reason="The project has ended"
    )
    hard = {"requests.cpu": "24", "requests.memory": "64Gi", "pods": "200", "persistentvolumeclaims": "40"}
    with time_machine.travel(NOW - timedelta(days=30), tick=False):
        tenant_quota_change(actor=OPERATOR, name="payments", hard=hard)
    _used(hard, spaces)
    _asked(payments, tomas, mara)
    _credentials(spaces, tomas, mara)
    _events(spaces[0], ines, tomas, mara)
    for days, name in ((6, "limits.cpu"), (3, "pods")):
        with time_machine.travel(NOW - timedelta(days=days), tick=False):
            factories.api_request(
                "payments",
                actor=tomas.email,
                verb="create",
                path=f"/api/v1/namespaces/{spaces[0].k8s_namespace}/pods",
                step="admission/ResourceQuota",
                reason=f"exceeded quota: workspace, {name}",
            )
    return {"operator": ines, "owner": mara, "editor": tomas, "workspace": spaces[0]}


def _space(of: Tenant, owner: User, name: str, number: int, cluster: Any, tier: Any, **fields: Any) -> Workspace:
    of_tenant = sum(map(ord, of.name)) % 4096
    return factories.workspace(
        of,
        owner,
        name,
        id=UUID(f"{of_tenant:03x}{number:x}5e27-3b1c-4d8a-9f06-7c2e41b8a{of_tenant:03x}"),
        cluster=cluster,
        tier=tier,
        created_at=NOW - timedelta(days=40 - number),
        **{"ready_at": NOW - timedelta(days=40 - number), **fields},
    )


def _used(hard: dict[str, str], spaces: list[Workspace]) -> None:
    """What the tenant's quota counts, and its namespaces' quotas, as the API servers write them."""
    used = {"requests.cpu": "17500m", "requests.memory": "31Gi", "pods": "86", "persistentvolumeclaims": "9"}
    stored = synchronous.get(tenant_quota_key("payments"))
    assert stored is not None
    synchronous.commit(
        [Update(stored.key, stored.revision, orjson.loads(stored.data) | {"status": {"hard": hard, "used": used}})]
    )
    for number, space in enumerate(spaces[:2]):
        quota = {
            "hard": {"pods": "60", "requests.cpu": "4"},
            "used": {"pods": str(41 - number * 18), "requests.cpu": "3"},
        }
        body = {
            "kind": "ResourceQuota",
            "metadata": {"name": "tier", "namespace": space.k8s_namespace},
            "spec": {"hard": quota["hard"]},
            "status": quota,
        }
        synchronous.commit([Create(Key("root:payments", "", "resourcequotas", space.k8s_namespace, "tier"), body)])
    placed = (
        {"requests.cpu": "3", "requests.memory": "7Gi", "pods": "41", "persistentvolumeclaims": "5"},
        {"requests.cpu": "3", "requests.memory": "5Gi", "pods": "23", "persistentvolumeclaims": "4"},
    )
    for space, counted in zip(spaces, placed, strict=False):
        body = {"metadata": {"name": space.k8s_namespace}, "counted": counted, "turn": 1, "objects": 90}
        key = Key("root:payments", *tenantquotas.PLACED_USAGES, "", space.k8s_namespace)
        synchronous.commit([Create(key, body)])


def _asked(payments: Tenant, tomas: User, mara: User) -> None:
    asked = (
        ("role", {"role": Role.ADMIN, "reason": "I take over the on-call rota of checkout next week"}, tomas, 3),
        ("break-glass", {"role": Role.ADMIN, "minutes": 60, "reason": "Incident 4711: refunds are stuck"}, mara, 1),
    )
    for kind, values, who, hours in asked:
        approvers = "operator" if kind == "break-glass" else "owner"
        found = factories.access_request(payments, who, kind=kind, approvers=approvers, **values)
        type(found).objects.filter(pk=found.pk).update(created_at=NOW - timedelta(hours=hours))


def _credentials(spaces: list[Workspace], tomas: User, mara: User) -> None:
    issued = (
        (spaces[0], 12, CredentialKind.DIRECT, "editor", {}),
        (spaces[1], 35, CredentialKind.DIRECT, "viewer", {}),
        (spaces[0], 80, CredentialKind.DIRECT, "editor", {"revoked_at": NOW - timedelta(minutes=50)}),
        (spaces[2], 300, CredentialKind.DIRECT, "editor", {}),
    )
    for number, (space, minutes, kind, role, values) in enumerate(issued):
        at = NOW - timedelta(minutes=minutes)
        jti = f"{number}b0ea874-52c1-4f6e-8d37-91aa6e0c4d2{number}"
        if "revoked_at" in values:
            values["revocation_confirmed_at"] = values["revoked_at"]
        factories.credential(space, tomas, issued_at=at, kind=kind, role=role, jti=jti, **values)


def _events(checkout: Workspace, ines: User, tomas: User, mara: User) -> None:
    events: tuple[tuple[int, Action, User, dict[str, Any]], ...] = (
        (2880, Action.WORKSPACE_SUSPENDED, ines, {"reason": "Maintenance of its cluster"}),
        (2790, Action.WORKSPACE_RESUMED, ines, {}),
        (1500, Action.KUBECONFIG_ISSUED, mara, {"role": "admin"}),
        (190, Action.KUBECONFIG_ISSUED, tomas, {"outcome": Outcome.DENIED, "reason": "the role is above the member's"}),
        (80, Action.KUBECONFIG_ISSUED, tomas, {"role": "editor"}),
        (50, Action.CREDENTIAL_REVOKED, mara, {}),
        (12, Action.KUBECONFIG_ISSUED, tomas, {"role": "editor"}),
    )
    for minutes, action, who, values in events:
        with time_machine.travel(NOW - timedelta(minutes=minutes), tick=False):
            factories.event("payments", action, who, of=checkout, **values)


@pytest.mark.parametrize("house", ["company"], indirect=True)
def test_pictures_of_a_company_are_of_its_pages(
    visit: Callable[..., Visit], house: dict[str, Any], workshop: Any
) -> None:
    asked = {
        "person": house["editor"].email,
        "action": "delete",
        "thing": "deployments.apps",
        "name": "web",
        "cluster": "root:payments",
        "namespace": "default",
    }
    operators = {
        "overview": "/",
        "tenants": "/tenants/",
        "inbox": "/inbox/",
        "cluster": "/clusters/frankfurt-1/",
    }
    owners = {"quota": "/tenants/payments/quota/", "explain": f"/explain/?{urlencode(asked)}"}
    wrong = []
    for person, pages in (
        (house["operator"], operators),
        (house["owner"], owners),
        (house["editor"], {"credentials": "/credentials/"}),
    ):
        window = visit()
        window.sign_in(person)
        for name, path in pages.items():
            window.page.goto(window.site + path)
            window.filled()
            wrong += kept(window.page, workshop, name)
        assert window.complaints == []
    # The database gives events their times, and makes their chain of them: this page is looked at three hours later.
    with time_machine.travel(AuditEntry.objects.latest("created_at").created_at + timedelta(hours=3), tick=False):
        window = visit()
        window.sign_in(house["operator"])
        window.page.goto(f"{window.site}/audit/?chain=payments")
        window.filled()
        wrong += kept(window.page, workshop, "audit")
    assert wrong == []


@pytest.fixture
def inside(transactional_db: None, settings: Any, request: pytest.FixtureRequest) -> Inhabited:
    """A workspace on an API server that answers. It has a clock of its own: what is here happened a while ago."""
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]
    embedded: TestCluster = request.getfixturevalue("embedded")
    settings.PORTAL_TOKEN_KEY_FILE = embedded.real.folder / "pki" / "portal-tokens.key"
    made = inhabited(embedded, "payments")
    began = timezone.now() - timedelta(hours=3, minutes=20)
    at = {"creationTimestamp": began.strftime("%Y-%m-%dT%H:%M:%SZ")}
    for name, names in {"checkout": ("6fk2x", "p9vtl"), "ledger": ("w4hzn",), "webhooks": ("c7dqm", "t2sbj")}.items():
        kind, resource, body = deployment(name)
        body["metadata"] |= at
        ready = len(names)
        body["spec"]["replicas"] = ready
        body["status"] = {
            "replicas": ready,
            "readyReplicas": ready,
            "updatedReplicas": ready,
            "availableReplicas": ready,
        }
        made.put((kind, resource, body))
        for each in names:
            made.put(pod(f"{name}-7d4b9c6f5-{each}", **at))
    Workspace.objects.filter(pk=made.workspace.pk).update(created_at=began, ready_at=began)
    for role, name in {
        "owner": "mara.lindqvist",
        "admin": "ada.novak",
        "editor": "tomas.reyes",
        "viewer": "joon.park",
    }.items():
        made.people[role].email = f"{name}@payments.example"
        made.people[role].save(update_fields=["email"])
    used = {
        **dict.fromkeys(made.workspace.tier.quota, "0"),
        "requests.cpu": "2500m",
        "requests.memory": "3Gi",
        "pods": "5",
    }
    cache.set(f"portal:quota:{made.workspace.pk}", used, 600)  # what its cluster has answered last
    factories.credential(made.workspace, made.people["editor"], issued_at=timezone.now() - timedelta(minutes=12))
    return made


@pytest.mark.parametrize("house", ["inside"], indirect=True)
def test_pictures_of_a_workspace_are_of_what_runs_in_it(
    visit: Callable[..., Visit], house: Inhabited, workshop: Any
) -> None:
    window = visit()
    window.sign_in(house.people["editor"])
    window.page.goto(f"{window.site}/workspaces/{house.workspace.pk}/")
    window.filled()
    wrong = kept(window.page, workshop, "workspace")
    window.page.goto(window.site + house.url("deployments.apps/"))
    window.filled()
    wrong += kept(window.page, workshop, "workspace-contents")
    assert window.complaints == []
    assert wrong == []
