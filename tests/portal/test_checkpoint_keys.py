"""The key that signs the audit's checkpoints changes, and nothing that it has signed is lost (GW12, GW13)."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from audit.actions import Action
from audit.checkpoints import private_keys
from audit.models import AuditEntry, Outcome
from audit.publishing import checkpoint_write
from audit.recorder import record
from tests import factories

pytestmark = pytest.mark.django_db


def test_checkpoints_go_on_under_another_key_and_either_reads_them_all(settings: Any, tmp_path: Path) -> None:
    settings.AUDIT_CHECKPOINTS_FILE = tmp_path / "checkpoints.jsonl"
    settings.AUDIT_CHECKPOINTS_KEY_FILE = tmp_path / "checkpoints.key"
    settings.AUDIT_CHECKPOINTS_URL = ""
    public, before = tmp_path / "checkpoints.key.pub", tmp_path / "before.pub"

    def checkpoint() -> None:
        factories.tenant()
        record(Action.SIGN_IN, chain="acme", actor="somebody", outcome=Outcome.SUCCESS)
        checkpoint_write(now=datetime(2026, 1, 1, tzinfo=UTC))

    def verify(key: Path) -> str:
        said = io.StringIO()
        call_command(
            "audit", "verify", "--checkpoints", str(tmp_path / "checkpoints.jsonl"), "--key", str(key), stdout=said
        )
        return said.getvalue()

    checkpoint()
    before.write_bytes(public.read_bytes())
    call_command("rotate", "audit-checkpoint-key", "--spread", "0")
    assert public.read_bytes() != before.read_bytes()
    with pytest.raises(CommandError, match="was not handed over"):
        call_command("rotate", "audit-checkpoint-key", "--finish")
    checkpoint()
    call_command("rotate", "audit-checkpoint-key", "--finish")
    checkpoint()
    for key in (before, public):
        assert "4 checkpoints of" in verify(key)
    assert (tmp_path / "checkpoints.key").read_bytes().count(b"BEGIN") == 1
    assert (tmp_path / "checkpoints.key").stat().st_mode & 0o777 == 0o600


def test_a_checkpoint_key_goes_once_every_worker_has_written_with_the_next(settings: Any, tmp_path: Path) -> None:
    """Where each has a file of its own and copies of the keys, as Pods do; the last line of each says it."""
    settings.KEYS_DIR = tmp_path
    settings.AUDIT_CHECKPOINTS_KEY_FILE = tmp_path / "checkpoints.key"
    settings.AUDIT_CHECKPOINTS_URL = ""
    ends = [tmp_path / "last-0", tmp_path / "last-1"]

    def checkpoint(worker: int) -> None:
        record(Action.SIGN_IN, chain="system", actor="somebody", outcome=Outcome.SUCCESS)
        settings.AUDIT_CHECKPOINTS_FILE = tmp_path / f"worker-{worker}.jsonl"
        assert checkpoint_write(now=datetime(2026, 1, 1, tzinfo=UTC))
        ends[worker].write_bytes(settings.AUDIT_CHECKPOINTS_FILE.read_bytes().splitlines(keepends=True)[-1])
        settings.AUDIT_CHECKPOINTS_FILE = tmp_path / "of-no-worker"

    def refused(*arguments: str) -> str:
        before, entries = settings.AUDIT_CHECKPOINTS_KEY_FILE.read_bytes(), AuditEntry.objects.count()
        with pytest.raises(CommandError) as told:
            call_command("rotate", "audit-checkpoint-key", "--finish", *arguments)
        assert (settings.AUDIT_CHECKPOINTS_KEY_FILE.read_bytes(), AuditEntry.objects.count()) == (before, entries)
        return str(told.value)

    named = ["--checkpoints", *map(str, ends)]
    checkpoint(0)
    checkpoint(1)
    call_command("rotate", "audit-checkpoint-key", "--spread", "0")
    assert "--checkpoints" in refused()
    checkpoint(1)
    assert f"{ends[0]}: was not handed over" in refused(*named)
    assert "nowhere: not there" in refused(*named, str(tmp_path / "nowhere"))
    checkpoint(0)
    call_command("rotate", "audit-checkpoint-key", "--finish", *named)
    assert len(private_keys(settings.AUDIT_CHECKPOINTS_KEY_FILE, make=False)) == 1
    checkpoint(0)
    checkpoint(1)
