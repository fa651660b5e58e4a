"""Two tenants that must never meet, their people, and clients that are signed in."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core import mail
from django.test import Client

from portal.celery import app as celery
from portal.signin import attempts, refusals
from tenants.actionlimits import Bucket
from tenants.models import Role, Tenant, User, Workspace
from tests import factories


@dataclass(frozen=True)
class House:
    """A tenant with one person of each role and a workspace that is ready."""

    tenant: Tenant
    owner: User
    admin: User
    editor: User
    viewer: User
    workspace: Workspace


def house(name: str) -> House:
    tenant = factories.tenant(name)
    owner, admin, editor, viewer = (factories.member(tenant, role) for role in Role.values)
    return House(tenant, owner, admin, editor, viewer, factories.workspace(tenant, editor, f"{name}-web"))


@pytest.fixture(autouse=True)
def _quiet(db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for workers here, and no client of Django's looks through every static file before its first page."""
    settings.WORKSPACE_INIT_WAIT = 0
    # The transaction around a whole test may take its time.
    monkeypatch.setattr("store.synchronous.HOLD_SECONDS", 0)
    settings.WHITENOISE_AUTOREFRESH = True
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]


@pytest.fixture
def nothing_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile: what is used up of the tries of an address or account stays so, however slow the machine."""
    for name, bucket in vars(attempts).copy().items():
        if isinstance(bucket, Bucket):
            monkeypatch.setattr(attempts, name, replace(bucket, interval=100_000))
    monkeypatch.setattr(refusals, "SENDER", replace(refusals.SENDER, interval=100_000))


@pytest.fixture
def acme() -> House:
    return house("acme")


@pytest.fixture
def globex() -> House:
    return house("globex")


@pytest.fixture
def operator() -> User:
    return factories.operator()


@pytest.fixture
def mail_server(settings: Any) -> Iterator[list[Any]]:
    """And a worker that does at once what it is asked."""
    settings.EMAIL_URL, settings.PORTAL_URL = "smtp://mail.test", "https://portal.acme.test"
    celery.conf.task_always_eager = True
    yield mail.outbox
    celery.conf.task_always_eager = False


def signed_in(user: User, **options: Any) -> Client:
    """A browser with the user's session."""
    client = Client(**options)
    client.force_login(user)
    return client


def stranger(**options: Any) -> Client:
    """A browser in a network of its own: attempts to sign in are counted by it, and Redis outlives a test."""
    return Client(REMOTE_ADDR=f"2001:db8:{secrets.token_hex(2)}:{secrets.token_hex(2)}::1", **options)
