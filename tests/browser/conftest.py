"""Chromium against a running portal, with a house full of tenants, as people use it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.utils import timezone

from audit.actions import Action
from audit.models import Outcome
from tenants.models import ClusterProbe, Phase, Role, Status
from tests import factories
from tests.browser.window import Visit

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--font-render-hinting=none",  # as with a window: letters are as wide as people see them
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a browser these tests say so and are skipped."""
    for item in items:
        if "tests/browser" in str(item.path) and CHROMIUM is None:
            item.add_marker(pytest.mark.skip(reason="no Chromium on this machine"))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One browser for the module; not for the run, as its event loop keeps those of other tests from running."""
    from playwright.sync_api import sync_playwright

    # Playwright's synchronous interface keeps an event loop in this thread; the ORM is used between its calls only.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def house(transactional_db: None, settings: Any) -> dict[str, Any]:
    """An operator and a tenant in every state that a page can show."""
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]
    operator = factories.operator("olga@platform.test")
    acme = factories.tenant("acme", display_name="Acme Corporation")
    alice = factories.member(acme, Role.OWNER, factories.user("alice@acme.test", name="Alice"))
    bob = factories.member(acme, Role.EDITOR, factories.user("bob.builder@acme.test", name="Bob"))
    factories.member(acme, Role.VIEWER, factories.user("carol@acme.test"))
    factories.tier("basic", description="One small workspace to start with.")
    big = {"requests.cpu": "16", "requests.memory": "32Gi", "limits.cpu": "32", "limits.memory": "64Gi", "pods": "120"}
    factories.tier("standard", description="Room for a team's everyday services.", quota=big, position=1)
    factories.tier(
        "large", description="For heavy work; given by operators.", quota=big, position=2, is_available=False
    )
    now = timezone.now()
    away = factories.cluster(
        "ber-2",
        last_error="The cluster does not answer within 10 s.",
        is_default=False,
        unreached_since=now - timedelta(minutes=7),
        unreached_why="The cluster cannot be reached: no connection in time.",
        credential_expires_at=now + timedelta(days=3),
        version="v1.36.1",
        opened="storageclasses.storage.k8s.io/fast\nexample.org/*",
        unclaimed_namespaces=[
            {
                "name": "acme-" + "left-behind-" * 4,
                "uid": "8d1e7f7a-3f53-4c53-a8f7-6b5d0c7a2f10",
                "tenant": "acme",
                "workspace": "5a7d1c7e-1c1b-4a39-8f6f-0f3c6b1e9d22",
                "created_at": "2026-11-01T09:30:00Z",
            }
        ],
    )
    for minutes in range(5, 600, 20):
        ClusterProbe.objects.create(
            cluster=away, at=now - timedelta(minutes=minutes), latency_ms=None if minutes < 40 else minutes % 90
        )
    web = factories.workspace(acme, alice, "web")
    staging = factories.workspace(
        acme, bob, "payments-staging", phase=Phase.PROVISIONING, ready_at=None, observed_generation=0
    )
    layers = [
        {"layer": name, "at": web.created_at.isoformat(), "milliseconds": took, "verified": verified}
        for name, took, verified in (
            ("lock", 0, True),
            ("bindings", 26, True),
            ("canary", 41, True),
            ("anchors", 55, True),
            ("service-accounts", 62, False),
        )
    ]
    closed = factories.workspace(
        acme,
        bob,
        "ml-batch",
        status=Status.SUSPENDED,
        phase=Phase.SUSPENDED,
        suspended_at=web.created_at,
        suspended_reason="Mining: 64 cores at full load for two days",
        suspended_by=operator.email,
        receipt=layers,
    )
    for number in range(4):
        other = factories.tenant(f"globex-{number}", display_name="Globex")
        factories.workspace(other, factories.member(other), f"line-{number}")
    factories.tenant("initech", state="suspended", suspended_at=web.created_at, suspended_reason="Not paid")
    factories.credential(web, alice)
    factories.credential(web, bob, revoked_at=web.created_at, ip_address="2001:db8::17")
    for who, way, ended_by in ((bob, "exec", ""), (alice, "portforward", operator.email)):
        factories.pod_connection(web, who, way=way, ended_by=ended_by)
    played = factories.recording(web, bob, shown="$ \x1b[1;32mls\x1b[0m\r\nnotes.txt  gr\u00fc\u00dfe.txt\r\n$ ")
    factories.recording(web, bob, shown=None, why="the connection was closed", exit_code=None)
    factories.event("acme", Action.WORKSPACE_CREATED, alice, of=web)
    factories.event("acme", Action.WORKSPACE_READY, alice, of=web)
    factories.event("acme", Action.KUBECONFIG_ISSUED, alice, of=web)
    factories.event("acme", Action.WORKSPACE_SUSPENDED, operator, of=closed, reason="Mining")
    factories.event("system", Action.SIGN_IN, bob, outcome=Outcome.DENIED, target="session")
    return {
        "operator": operator,
        "alice": alice,
        "web": web,
        "staging": staging,
        "closed": closed,
        "played": played,
    }


@pytest.fixture
def site(house: dict[str, Any], live_server: Any) -> str:
    """Where the portal is; browsers keep Secure cookies on localhost."""
    return str(live_server.url).replace("127.0.0.1", "localhost")


@pytest.fixture
def visit(chromium: Any, site: str) -> Iterator[Callable[..., Visit]]:
    visits: list[Visit] = []

    def open_() -> Visit:
        visits.append(Visit(chromium, site))
        return visits[-1]

    yield open_
    for made in visits:
        made.context.close()
