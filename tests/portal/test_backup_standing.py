"""Metrics, inbox and doctor say the same of backups: too old, failed, restored (P12, GW12, GW25)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
import time_machine
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from audit.actions import Action
from audit.models import Outcome
from tenants.models import User
from tests import factories
from tests.portal.conftest import House
from tests.portal.test_api import bearer, send
from tests.portal.test_requests import text

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def limit(settings: Any) -> None:
    settings.BACKUP_MAX_AGE_HOURS = 36


def made(who: User, *, hours_ago: float = 0, revision: int = 5, action: Action = Action.BACKUP_MADE) -> datetime:
    """One that was taken, or restored; the moment that it is of."""
    at = timezone.now() - timedelta(hours=hours_ago)
    factories.event("system", action, who, made_at=at.isoformat(), bytes=700, revision=revision)
    return at


def failed(who: User, why: str) -> None:
    factories.event("system", Action.BACKUP_MADE, who, outcome=Outcome.FAILURE, file="/backups", error=why)


def measured() -> dict[str, float]:
    """What is told to Prometheus of backups."""
    told = Client().get("/metrics").content.decode()
    return {name: float(value) for name, value in re.findall(r"^tenantry_backup_(\w+) (\S+)$", told, re.MULTILINE)}


def examined() -> str:
    """What the doctor says."""
    said = StringIO()
    try:
        call_command("doctor", "backups", stdout=said)
    except SystemExit:
        pass
    return said.getvalue()


def waiting(operator: User) -> list[str]:
    """What the inbox has of it, the same for programs and people."""
    groups = send(bearer(operator, "operate"), "GET", "inbox/").json()
    lines = [line["title"] for group in groups if group["kind"] == "backups" for line in group["lines"]]
    page = text(operator, "/inbox/")
    assert all(line in page and line in text(operator, "/") for line in lines)
    return lines


def test_a_backup_that_is_new_enough_is_nobodys_work(operator: User) -> None:
    at = made(operator, hours_ago=30)
    assert measured() == {
        "last_success_timestamp_seconds": pytest.approx(at.timestamp(), abs=1),
        "last_success_bytes": 700,
        "overdue_seconds": 0,
        "failed": 0,
    }
    assert examined().startswith("  ok  backups: the newest is of")
    assert waiting(operator) == []


def test_one_that_is_too_old_is_told(operator: User, acme: House) -> None:
    """By the moment that it is of, not by that of its end."""
    at = made(operator, hours_ago=37)
    assert 3600 <= measured()["overdue_seconds"] < 3600 + 600
    assert "FAIL  backups" in examined()
    assert waiting(operator) == [f"No backup is newer than of {at.astimezone(UTC):%d %b %Y %H:%M} UTC"]
    assert "No backup is newer" not in text(acme.owner, "/inbox/")
    made(operator)
    assert measured()["overdue_seconds"] == 0
    assert waiting(operator) == []


def test_where_there_never_was_one_the_first_has_its_time(operator: User) -> None:
    factories.event("system", Action.USER_CREATED, operator)
    assert measured() == {"overdue_seconds": 0, "failed": 0}
    assert examined().startswith("  ok  backups: there is none; the next one is due by")
    with time_machine.travel(timezone.now() + timedelta(hours=40), tick=False):
        assert measured()["overdue_seconds"] == pytest.approx(4 * 3600, abs=600)
        assert "FAIL  backups: there is none" in examined()
        assert waiting(operator) == ["There is no backup"]


def test_one_that_fails_is_told_at_once_and_until_the_next_is_whole(operator: User) -> None:
    made(operator)
    failed(operator, "/backups cannot be written: No space left on device.")
    assert measured()["failed"] == 1
    assert measured()["overdue_seconds"] == 0
    assert "No space left on device" in examined()
    assert waiting(operator) == ["The last backup has failed"]
    assert "No space left on device" in text(operator, "/inbox/")
    made(operator)
    assert measured()["failed"] == 0
    assert waiting(operator) == []


def test_a_restored_database_believes_the_backup_that_it_came_from_alone(operator: User) -> None:
    """What it knows of older ones is not its newest, and of one that was under way it was not the content."""
    made(operator, hours_ago=90, revision=5)
    failed(operator, "of before")
    at = made(operator, hours_ago=50, revision=10**12, action=Action.RESTORED)
    assert measured()["last_success_timestamp_seconds"] == pytest.approx(at.timestamp(), abs=1)
    assert measured()["failed"] == 0
    made(operator, revision=9)
    assert measured()["last_success_timestamp_seconds"] == pytest.approx(at.timestamp(), abs=1)
    assert "last_success_bytes" not in measured()
    assert "this database was restored from it" in examined()
    assert waiting(operator) == [f"No backup is newer than of {at.astimezone(UTC):%d %b %Y %H:%M} UTC"]
    now = made(operator, revision=10**12 + 3)
    assert measured()["last_success_timestamp_seconds"] == pytest.approx(now.timestamp(), abs=1)
    assert "restored" not in examined()


def test_a_clock_ahead_makes_no_backup_newer(operator: User) -> None:
    made(operator, hours_ago=-1000)
    assert measured()["last_success_timestamp_seconds"] <= timezone.now().timestamp() + 60


def test_where_others_back_up_nobody_is_told_of_age(operator: User, settings: Any) -> None:
    settings.BACKUP_MAX_AGE_HOURS = 0
    made(operator, hours_ago=1000)
    assert measured()["overdue_seconds"] == 0
    assert "none is expected (BACKUP_MAX_AGE_HOURS)" in examined()
    assert waiting(operator) == []
