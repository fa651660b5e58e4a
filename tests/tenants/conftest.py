"""People, tiers and clusters for the tests of tenants."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet

from audit.recorder import Actor
from tenants.models import Membership, Role, Tenant, User
from tenants.services import tenant_create, tiers_create_defaults

OPERATOR = Actor(name="operator@example.org", operator=True, ip="192.0.2.1", user_agent="tests", request_id="r-1")


@pytest.fixture(autouse=True)
def _sealing_keys(settings):
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]


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
