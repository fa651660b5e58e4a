"""People, tiers and clusters for the tests of tenants."""

from __future__ import annotations

import json

import pytest
from cryptography.fernet import Fernet

from audit.recorder import Actor
from tenants.models import Membership, Role, Tenant, User, Workspace
from tenants.services import tenant_create, tiers_create_defaults, workspace_init
from tests.clusters import TestCluster

OPERATOR = Actor(name="operator@example.org", operator=True, ip="192.0.2.1", user_agent="tests", request_id="r-1")


@pytest.fixture(autouse=True)
def _sealing_keys(settings, monkeypatch):
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]
    # The transaction around a whole test may take its time.
    monkeypatch.setattr("store.synchronous.HOLD_SECONDS", 0)


@pytest.fixture
def leases_last(monkeypatch):
    """A worker keeps what it has claimed for as long as the test, which is to end a lease itself."""
    monkeypatch.setattr("tenants.operationqueue.LEASE_SECONDS", 3600)


def actor_of(user: User) -> Actor:
    return Actor(name=user.email, user_id=user.id, operator=user.is_staff, ip="192.0.2.7", user_agent="tests")


def make_user(email: str = "alice@example.org", **fields) -> User:
    return User.objects.create(email=email, password="!", **fields)


def make_tenant(name: str = "acme", owner: User | None = None) -> Tenant:
    return tenant_create(actor=OPERATOR, name=name, owner=owner)


def join(tenant: Tenant, user: User, role: Role = Role.EDITOR) -> Membership:
    return Membership.objects.create(tenant=tenant, user=user, role=role)


@pytest.fixture
def tiers(db):
    tiers_create_defaults()


@pytest.fixture
def workspace(cluster: TestCluster, tiers) -> Workspace:
    """One that is asked for, on a cluster, and not made yet."""
    owner = make_user()
    make_tenant("acme", owner)
    return workspace_init(actor=actor_of(owner), user=owner, tier="basic", name="web")


def get(cluster: TestCluster, kind: str, namespace: str, name: str = "") -> dict:
    """An object, or a list, as the cluster has it; empty when there is none."""
    out = cluster.kubectl("get", kind, *([name] if name else []), "-n", namespace, "-o", "json")
    return json.loads(out) if out.startswith("{") else {}
