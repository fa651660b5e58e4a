"""What was taken away since a backup stays away after its restore, and the audit says what was cut off (P12)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from portal.backup.newer import _ACCOUNT
from tenants.models import User
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
LINKED = """
from tenants.models import User
for name, more in (
    ("mailed", {"address_unproven": True}),
    ("linked", {"address_unproven": True}),
    ("first", {"issuer": "https://id.test", "subject": "u-1"}),
    ("second", {"issuer": "https://id.test", "subject": "u-2"}),
    ("third", {"issuer": "https://id.test", "subject": "u-3"}),
    ("same", {"issuer": "https://id.test", "subject": "u-4"}),
):
    User.objects.create_user(f"{name}@acme.test", "correct horse battery", **more)
"""
LINKED_SINCE = """
from audit.recorder import Actor
from portal.signin.accounts import address_prove, password_set, user_change
from tenants.models import User
people = {user.email.partition("@")[0]: user for user in User.objects.all()}
chief = Actor(name="operator@platform.test", user_id=people["operator"].pk, operator=True)
address_prove(actor=chief, user=people["mailed"])
password_set(actor=chief, user=people["mailed"], password="another horse battery")
def link(name, subject):
    user_change(actor=chief, user_id=people[name].pk, issuer="https://id.test", subject=subject)
link("linked", "u-5")
for name in ("first", "second"):
    link(name, "")
link("first", "u-2")
link("second", "u-1")
people["third"].delete()
link("alice", "u-3")
"""
MOVED = """
from tenants.models import User
for name in ("left", "one", "other", "gone"):
    User.objects.create_user(f"{name}@acme.test", "correct horse battery")
User.objects.filter(email="left@acme.test").update(issuer="https://id.test", subject="u-1")
"""
MOVED_SINCE = """
from tenants.models import User
people = {user.email.partition("@")[0]: user for user in User.objects.all()}
def move(name, email):
    User.objects.filter(pk=people[name].pk).update(email=email)
move("left", "left@elsewhere.test")
User.objects.create_user("left@acme.test", issuer="https://id.test", subject="u-2")
User.objects.create_user("new@acme.test", "correct horse battery")
move("one", "x@acme.test")
move("other", "one@acme.test")
move("one", "other@acme.test")
people["gone"].delete()
move("alice", "gone@acme.test")
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


LEAVING = """
from datetime import timedelta
from django.utils import timezone
from audit.recorder import Actor
from tenants.models import Tenant
from tenants.services import tenant_create, tenant_delete
from tenants.services.operating.freezing import tenant_freeze, tenant_thaw
from tenants.services.operating.offboarding import tenant_offboard, tenant_retain
actor, now = Actor(name="operator@platform.test", operator=True), timezone.now()
def leave(name, days, manner="freeze"):
    tenant_offboard(
        actor=actor, name=name, reason="merger", ends_at=now + timedelta(days=days), manner=manner, now=timezone.now())
"""
LEAVING_BEFORE = f"""{LEAVING}
for name in ("goes-on", "put-off", "put-off-shut", "called-off", "called-off-shut", "deleted", "frozen", "thawed"):
    tenant_create(actor=actor, name=name)
for name in ("goes-on", "put-off", "called-off", "deleted"):
    leave(name, 30)
for name in ("put-off-shut", "called-off-shut"):
    leave(name, 30, "suspend")
for name in ("frozen", "thawed"):
    tenant_freeze(actor=actor, name=name, reason="audit", until=now + timedelta(days=2))
"""
LEAVING_SINCE = f"""{LEAVING}
for name in ("put-off", "put-off-shut"):
    leave(name, 300)
for name in ("called-off", "called-off-shut"):
    tenant_retain(actor=actor, name=name)
tenant_delete(actor=actor, name="deleted")
tenant_thaw(actor=actor, name="thawed")
tenant_freeze(actor=actor, name="frozen", reason="under investigation")
tenant_freeze(actor=actor, name="acme", reason="under investigation")
leave("globex", 300, "suspend")
tenant_create(actor=actor, name="made-since")
leave("made-since", 300)
"""
TIME_GOES_BY = """
from datetime import timedelta
from django.utils import timezone
from tenants.reconciler.lapses import lapses_sweep
lapses_sweep(now=timezone.now() + timedelta(days={days}))
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


def test_whoever_was_linked_or_has_shown_their_address_since_still_has(house: Installation, tmp_path: Path) -> None:
    """Their password was taken away with it: the account opens by the provider, to which it goes on to belong."""
    accounts = "SELECT email, password_hash, issuer, subject, address_unproven, status FROM users ORDER BY 1"
    file = tmp_path / "a.backup"
    house.manage("shell", code=LINKED)
    house.manage("backup", str(file))
    house.manage("shell", code=LINKED_SINCE)
    last = house.ask(accounts)
    said = house.manage("restore", str(file))
    assert "account linked@acme.test: password, issuer, subject, address_unproven as it was last" in said
    assert "same@acme.test" not in said
    rows = {row[0]: row for row in house.ask(accounts)}
    assert rows.pop("third@acme.test")[3:] == ("", False, "disabled")
    assert list(rows.values()) == last


def test_an_address_or_link_that_is_somebody_elses_since_opens_no_account_from_before(
    house: Installation, install: Install, tmp_path: Path
) -> None:
    """Whose mailbox it is now would be sent a link for a new password of whose it was."""
    addresses = "SELECT id::text, email, subject, status FROM users ORDER BY created_at"
    file, elsewhere = tmp_path / "a.backup", install()
    house.manage("shell", code=MOVED)
    house.manage("backup", str(file))
    before = house.ask(addresses)
    house.manage("shell", code=MOVED_SINCE)
    last = {row[0]: row for row in house.ask(addresses)}
    said = house.manage("restore", str(file))
    assert "account left@elsewhere.test: email as it was last, not as in the backup" in said
    gone = "account left@acme.test was made after the backup and is gone, and so is its link to the subject u-2 of "
    assert gone + "https://id.test" in said
    assert "account new@acme.test was made after the backup and is gone\n" in said
    rows = house.ask(addresses)
    assert [row for row in rows if row[0] in last] == [last[key] for key, *_ in before if key in last]
    assert [row[1:] for row in rows if row[0] not in last] == [(f"{before[-1][0]}@restored.invalid", "", "disabled")]
    told = "links to the provider are as in the backup, of 1 account: those made since are gone"
    assert told not in said
    assert told in elsewhere.manage("restore", str(file), "--keep-accounts")


def test_it_is_said_of_each_field_of_an_account_which_side_it_is_taken_from() -> None:
    of_the_backup = {"id", "name", "created_at", "last_login", "notices_off"}
    made_anew = {"session_epoch"}
    assert {field.name for field in User._meta.concrete_fields} == {*_ACCOUNT, *of_the_backup, *made_anew}


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


def test_what_is_held_still_and_who_leaves_is_as_it_was_last(house: Installation, tmp_path: Path) -> None:
    """And the platform opens, whoever leaves: what was put off or called off since is not deleted by the backup's date."""
    file = tmp_path / "a.backup"
    house.manage("shell", code=LEAVING_BEFORE)
    house.manage("backup", str(file))
    house.manage("shell", code=LEAVING_SINCE)
    said = house.manage("restore", str(file))
    for words in (
        "tenant acme stays frozen: under investigation",
        "tenant thawed was frozen in the backup and is not any more",
        "tenant globex leaves, and is deleted on",
        "tenant globex stays closed: It leaves: merger",
        "tenant put-off leaves, and is deleted on",
        "tenant called-off does not leave any more: that was called off after the backup",
        "called off after the backup; it stays suspended until an operator resumes it",
        "tenant deleted does not leave any more: it was deleted after the backup",
    ):
        assert words in said, said
    assert "tenant goes-on" not in said
    house.manage("restore", "--open")
    house.manage("shell", code=TIME_GOES_BY.format(days=3))
    frozen = "SELECT tenant_id, reason FROM freezes ORDER BY 1"
    assert house.ask(frozen) == [
        ("acme", "under investigation"),
        ("deleted", "It leaves: merger"),
        ("frozen", "under investigation"),
        ("goes-on", "It leaves: merger"),
        ("put-off", "It leaves: merger"),
    ]
    house.manage("shell", code=TIME_GOES_BY.format(days=40))
    rows = house.ask("SELECT name, state, coalesce(manner, '') FROM tenants LEFT JOIN offboardings ON tenant_id = name")
    assert sorted(rows) == [
        ("acme", "active", ""),
        ("called-off", "active", ""),
        ("called-off-shut", "suspended", ""),
        ("deleted", "suspended", ""),
        ("frozen", "active", ""),
        ("globex", "suspended", "suspend"),
        ("goes-on", "terminating", "freeze"),
        ("put-off", "active", "freeze"),
        ("put-off-shut", "suspended", "suspend"),
        ("thawed", "active", ""),
    ]


def test_where_nobody_knows_who_still_leaves_nothing_is_deleted_or_thawed_by_a_date(
    house: Installation, install: Install, tmp_path: Path
) -> None:
    file, elsewhere = tmp_path / "a.backup", install()
    house.manage("shell", code=LEAVING_BEFORE)
    house.manage("backup", str(file))
    said = elsewhere.manage("restore", str(file))
    assert "tenant goes-on does not leave any more: nobody knows whether it is to be deleted on" in said
    elsewhere.manage("restore", "--open")
    elsewhere.manage("shell", code=TIME_GOES_BY.format(days=400))
    shut = ["called-off-shut", "put-off-shut"]
    assert elsewhere.ask("SELECT name FROM tenants WHERE state <> 'active' ORDER BY 1") == [(name,) for name in shut]
    held = ["called-off", "deleted", "frozen", "goes-on", "put-off", "thawed"]
    assert elsewhere.ask("SELECT tenant_id FROM freezes ORDER BY 1") == [(name,) for name in held]
    assert elsewhere.ask("SELECT count(*) FROM offboardings") == [(0,)]


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
