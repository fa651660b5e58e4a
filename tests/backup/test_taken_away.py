"""What was taken away since a backup stays away after its restore, and the audit says what was cut off (P12)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backup.conftest import Installation

Install = Callable[..., Installation]

CLOSED_SINCE = """
from audit.recorder import Actor
from tenants.models import Membership, User
from tenants.services import tenant_suspend
actor = Actor(name="operator@platform.test", operator=True)
tenant_suspend(actor=actor, name="globex", reason="mining")
Membership.objects.filter(user__email="bob@acme.test").delete()
User.objects.filter(email="carol@platform.test").update(status="disabled", is_staff=False)
dave = User.objects.get(email="dave@acme.test")
dave.set_password("another horse battery")
dave.save()
"""
LEASED = """
from datetime import timedelta
from django.utils import timezone
from tenants.models import Membership, Tenant, User, Webhook
later = timezone.now() + timedelta(days=30)
for name in ("erin", "frank"):
    user = User.objects.create_user(f"{name}@acme.test", "correct horse battery")
    Membership.objects.create(tenant_id="acme", user=user, role="admin")
for name in ("kept", "gone"):
    Webhook.objects.create(tenant_id="acme", url=f"https://{name}.example.org/", sealed_secret=b"x", created_by="erin")
Tenant.objects.filter(pk="globex").update(
    state="suspended", suspended_at=timezone.now(), suspended_by="carol", suspended_until=timezone.now())
"""
LEASED_SINCE = """
from datetime import timedelta
from django.utils import timezone
from tenants.models import Membership, Tenant, Webhook
later = timezone.now() + timedelta(days=30)
Membership.objects.filter(user__email="erin@acme.test").update(expires_at=later)
Membership.objects.filter(user__email="frank@acme.test").update(break_glass=True, expires_at=later)
Webhook.objects.filter(url__contains="gone").delete()
Tenant.objects.filter(pk="globex").update(suspended_until=None)
"""
MORE_PEOPLE = """
from tenants.models import Membership, User
for email, staff in (("bob@acme.test", False), ("carol@platform.test", True), ("dave@acme.test", False)):
    user = User.objects.create_user(email, "correct horse battery", is_staff=staff)
    if not staff:
        Membership.objects.create(tenant_id="acme", user=user, role="editor")
"""


@pytest.fixture
def closed_since(house: Installation, tmp_path: Path) -> Path:
    """A backup, after which much was taken away."""
    house.manage("shell", code=MORE_PEOPLE)
    file = tmp_path / "a.backup"
    house.manage("backup", str(file))
    house.manage("shell", code=CLOSED_SINCE)
    return file


def test_what_was_taken_away_since_stays_away(house: Installation, closed_since: Path) -> None:
    """Suspensions, memberships, accounts, passwords: the database that is replaced knows of them."""
    hashes = house.ask("SELECT email, password_hash, status, is_staff FROM users ORDER BY 1")
    said = house.manage("restore", str(closed_since))
    assert "tenant globex stays closed: mining" in said
    assert "audit globex: 1 rows after the backup are cut off" in said
    house.manage("restore", "--open")
    assert house.ask("SELECT name, state, suspended_by FROM tenants ORDER BY 1") == [
        ("acme", "active", ""),
        ("globex", "suspended", "operator@platform.test"),
    ]
    assert house.ask("SELECT space, reason FROM locks") == [("root:globex", "mining")]
    assert house.ask("SELECT count(*) FROM memberships JOIN users u ON u.id = user_id WHERE email LIKE 'bob@%%'") == [
        (0,)
    ]
    assert house.ask("SELECT email, password_hash, status, is_staff FROM users ORDER BY 1") == hashes


def test_what_was_given_an_end_or_told_nothing_more_since_stays_so(
    house: Installation, install: Install, tmp_path: Path
) -> None:
    """A member who came back by break-glass alone is none, and no address that was taken off is told anything again."""
    file, elsewhere = tmp_path / "a.backup", install()
    house.manage("shell", code=LEASED)
    house.manage("backup", str(file))
    house.manage("shell", code=LEASED_SINCE)
    house.manage("restore", str(file))
    members = "SELECT email, expires_at IS NULL FROM memberships JOIN users u ON u.id = user_id WHERE role = 'admin'"
    assert house.ask(members) == [("erin@acme.test", False)]
    assert house.ask("SELECT url FROM webhooks") == [("https://kept.example.org/",)]
    assert house.ask("SELECT state, suspended_until FROM tenants WHERE name = 'globex'") == [("suspended", None)]
    said = elsewhere.manage("restore", str(file), "--keep-accounts")
    assert "webhook to kept.example.org of acme: make it anew" in said
    assert elsewhere.ask("SELECT url FROM webhooks") == []


def test_where_nobody_knows_what_was_taken_away_no_password_counts(closed_since: Path, install: Install) -> None:
    """Elsewhere: one operator has a new password, and is the only one until that one says otherwise."""
    elsewhere = install()
    said = elsewhere.manage("restore", str(closed_since), "--operator", "Operator@platform.test")
    assert "cannot be known" in said
    assert "operator@platform.test signs in with the password" in said
    rows = elsewhere.ask("SELECT email, is_staff, is_superuser, password_hash LIKE '!%%' FROM users ORDER BY 1")
    assert rows == [
        ("alice@acme.test", False, False, True),
        ("bob@acme.test", False, False, True),
        ("carol@platform.test", False, False, True),
        ("dave@acme.test", False, False, True),
        ("operator@platform.test", True, True, False),
    ]
    kept = install()
    said = kept.manage("restore", str(closed_since), "--keep-accounts")
    assert "password" not in said
    assert kept.ask("SELECT count(*) FROM users WHERE password_hash LIKE '!%%'") == [(0,)]


def test_the_audit_is_whole_after_a_restore_and_its_checkpoints_say_what_was_cut(
    house: Installation, tmp_path: Path
) -> None:
    file, checkpoints = tmp_path / "a.backup", tmp_path / "old.jsonl"
    house.manage("backup", str(file))
    house.manage("shell", code=MORE_PEOPLE + CLOSED_SINCE)
    write = "from audit.publishing import checkpoint_write; from datetime import UTC, datetime; "
    house.manage("shell", "-c", write + "checkpoint_write(now=datetime.now(UTC))")
    house.manage("restore", str(file), "--replace")
    assert "globex:" in house.manage("audit", "verify")
    written = house.folder / "audit-checkpoints.jsonl"
    process = house.begin("audit", "verify", "--checkpoints", str(written))
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "globex: " in said.partition("checkpoints")[2]
    # The documented way on: the old file is kept, and a new one is begun.
    written.rename(checkpoints)
    house.manage("shell", "-c", write + "checkpoint_write(now=datetime.now(UTC))")
    assert "truncation" not in house.manage("audit", "verify", "--checkpoints", str(written))
