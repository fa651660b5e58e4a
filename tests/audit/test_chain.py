"""The hash chain, its recorder and its guards (GW13)."""

from __future__ import annotations

import io
import json
import threading
import uuid
from datetime import UTC, datetime

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.db.utils import Error
from hypothesis import given
from hypothesis import strategies as st

from audit import chain as chains
from audit import verifying
from audit.actions import Action
from audit.models import AuditChain, AuditEntry, Outcome
from audit.recorder import Actor, record
from audit.redaction import REDACTED, clean, clean_object, clean_text
from audit.selectors import Filters, entries_everywhere, entries_of_chain
from audit.verifying import chain_flaw
from kube.requests.status import BadRequest
from tests.databases import owning
from tests.effort import effort


def make_rows(count: int) -> list[dict]:
    rows, previous = [], chains.GENESIS
    for sequence in range(1, count + 1):
        row = dict.fromkeys(chains.FIELDS, "x") | {
            "id": uuid.uuid4(),
            "sequence": sequence,
            "created_at": datetime(2026, 1, 1, tzinfo=UTC),
            "user_id": None,
            "workspace_id": None,
            "ip_address": "192.0.2.1",
            "detail": {"n": sequence},
        }
        row["previous_hash"], row["hash"] = previous, chains.hash_of(row, previous)
        previous = row["hash"]
        rows.append(row)
    return rows


def verify(rows: list[dict], whole: list[dict]) -> chains.ChainViolation | None:
    return chains.verify("x", rows, sequence=len(whole), end_hash=whole[-1]["hash"])


def test_whole_chain_has_no_flaw():
    rows = make_rows(5)
    assert verify(rows, rows) is None


@pytest.mark.parametrize("field", ["action", "actor", "target", "detail", "outcome", "created_at"])
@given(at=st.integers(min_value=0, max_value=4))
def test_any_edit_names_the_row(field, at):
    """AUD-02."""
    rows = make_rows(5)
    rows[at] = rows[at] | {
        field: {"n": 99} if field == "detail" else datetime.now(UTC) if field == "created_at" else "y"
    }
    flaw = verify(rows, rows)
    assert flaw is not None
    assert (flaw.kind, flaw.sequence) == ("edit", at + 1)


def test_an_edit_with_a_new_hash_shows_in_the_next_row():
    rows = make_rows(5)
    rows[2] = rows[2] | {"actor": "y"}
    rows[2]["hash"] = chains.hash_of(rows[2], rows[2]["previous_hash"])
    flaw = verify(rows, rows)
    assert flaw is not None
    assert (flaw.kind, flaw.sequence) == ("edit", 4)


@given(at=st.integers(min_value=0, max_value=3))
def test_a_missing_row_is_a_gap(at):
    rows = make_rows(5)
    flaw = verify(rows[:at] + rows[at + 1 :], rows)
    assert flaw is not None
    assert (flaw.kind, flaw.sequence) == ("gap", at + 1)


@given(left=st.integers(min_value=0, max_value=4))
def test_a_cut_tail_is_a_truncation(left):
    rows = make_rows(5)
    flaw = verify(rows[:left], rows)
    assert flaw is not None
    assert (flaw.kind, flaw.sequence) == ("truncation", left + 1)


def test_swapped_rows_are_found():
    rows = make_rows(5)
    rows[1], rows[2] = rows[2], rows[1]
    flaw = verify(rows, rows)
    assert flaw is not None
    assert flaw.sequence == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(detail=st.dictionaries(st.text(max_size=8), json_values, max_size=4))
@pytest.mark.django_db
def test_any_detail_comes_back_as_it_was_hashed(detail):
    """Floats, NUL, surrogates and huge integers must not break a chain later."""
    with transaction.atomic():
        entry = record(
            Action.SIGN_IN, chain="prop", actor="a", outcome=Outcome.SUCCESS, detail=detail, ip="::ffff:1.2.3.4"
        )
        assert chain_flaw("prop") is None
        assert AuditEntry.objects.get(pk=entry.pk).ip_address == "1.2.3.4"
        transaction.set_rollback(True)


@pytest.mark.parametrize("ip", ["2001:db8:0:1:1:1:1:1", "::1.2.3.4", "::", "fe80::1%eth0", "10.0.0.1", "junk", None])
@pytest.mark.django_db
def test_addresses_are_hashed_as_postgresql_gives_them_back(ip):
    record(Action.SIGN_IN, chain="acme", actor="a", outcome=Outcome.SUCCESS, ip=ip)
    assert chain_flaw("acme") is None


@pytest.mark.django_db
def test_an_entry_is_rolled_back_with_what_it_tells_of():
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        record(Action.SIGN_IN, chain="acme", actor="a", outcome=Outcome.SUCCESS)
        raise ZeroDivisionError
    assert not AuditEntry.objects.exists()


CHANGES = [
    "UPDATE audit_logs SET actor = 'b'",
    "DELETE FROM audit_logs",
    "TRUNCATE audit_logs CASCADE",
    "UPDATE audit_chains SET sequence = 0",
    "DELETE FROM audit_chains",
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("statement", CHANGES)
def test_the_database_refuses_even_its_owner_to_change_the_past(statement):
    """AUD-01."""
    record(Action.SIGN_IN, chain="acme", actor="a", outcome=Outcome.SUCCESS)
    with owning() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("ALTER TABLE audit_logs ENABLE TRIGGER audit_logs_no_truncate")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"append-only|only grows"):
            cursor.execute(statement)
        cursor.execute("ROLLBACK")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "statement",
    [
        *CHANGES,
        "INSERT INTO audit_chains VALUES ('forged', 7, repeat('0', 64))",
        "ALTER TABLE audit_logs DISABLE TRIGGER ALL",
        "DROP TRIGGER audit_logs_no_change ON audit_logs",
        "CREATE OR REPLACE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
        "SET session_replication_role = replica",
        "DROP TABLE audit_logs",
    ],
)
def test_the_product_has_no_right_to_change_the_past(statement):
    """It inserts and reads: there is nothing for a trigger to refuse, and no trigger to take away."""
    record(Action.SIGN_IN, chain="acme", actor="a", outcome=Outcome.SUCCESS)
    with pytest.raises(Error, match=r"permission denied|must be owner"), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(statement)


@pytest.mark.django_db
def test_a_row_that_does_not_follow_is_refused_and_moves_no_anchor():
    entry = record(Action.SIGN_IN, chain="acme", actor="a", outcome=Outcome.SUCCESS)
    for sequence, previous in ((1, entry.previous_hash), (3, entry.hash), (2, "0" * 64)):
        entry.pk, entry.sequence, entry.previous_hash = uuid.uuid4(), sequence, previous
        with pytest.raises(Error, match="does not follow"), transaction.atomic():
            entry.save(force_insert=True)
    assert AuditChain.objects.get(chain="acme").sequence == 1


TAMPERED = {
    "nothing": "SELECT",
    "an edit": "UPDATE audit_logs SET actor = 'nobody' WHERE chain = 'acme' AND sequence = {row}",
    "a mask": "UPDATE audit_logs SET ip_address = '192.0.2.0/24' WHERE chain = 'acme' AND sequence = {row}",
    "another hash": "UPDATE audit_logs SET hash = repeat('1', 64) WHERE chain = 'acme' AND sequence = {row}",
    "another hash before": "UPDATE audit_logs SET previous_hash = repeat('1', 64) WHERE chain = 'acme' AND sequence = {row}",
    "a row less": "DELETE FROM audit_logs WHERE chain = 'acme' AND sequence = {row}",
    "three rows less": "DELETE FROM audit_logs WHERE chain = 'acme' AND sequence BETWEEN {row} AND {row} + 2",
    "a tail": "DELETE FROM audit_logs WHERE chain = 'acme' AND sequence >= {row}",
    "all": "DELETE FROM audit_logs WHERE chain = 'acme' AND sequence > {row} - {row}",
    "no anchor": "DELETE FROM audit_chains WHERE chain = 'acme' AND sequence > {row} - {row}",
}


@pytest.mark.parametrize("tampering", TAMPERED)
@pytest.mark.django_db(transaction=True)
def test_a_chain_in_stretches_shows_what_it_shows_as_one(tampering, monkeypatch):
    """Whatever was done to whichever row, before, at or behind where a stretch ends."""
    for row in (1, 5, 6, 7, 12):
        clear_chain()
        for _ in range(12):
            record(Action.SIGN_IN, chain="acme", actor="alice", outcome=Outcome.SUCCESS)
        tamper(TAMPERED[tampering].format(row=row))
        monkeypatch.setattr(verifying, "STRETCH", 20)
        whole = chain_flaw("acme")
        assert (whole is None) == (tampering == "nothing")
        for size in (1, 2, 3, 6):
            monkeypatch.setattr(verifying, "STRETCH", size)
            assert chain_flaw("acme") == whole, (tampering, row, size)


@pytest.mark.django_db(transaction=True)
def test_chains_are_checked_by_several_processes(monkeypatch, capsys):
    for chain, count in (("acme", 12), ("globex", 1), ("initech", 9)):
        for _ in range(count):
            record(Action.SIGN_IN, chain=chain, actor="alice", outcome=Outcome.SUCCESS)
    tamper(TAMPERED["an edit"].format(row=8))
    names = ["acme", "globex", "initech", "nobody"]
    alone = list(verifying.check(names, jobs=1))
    monkeypatch.setattr(verifying, "STRETCH", 5)
    told = []
    assert list(verifying.check(names, jobs=2, progress=told.append)) == alone
    assert told == [5, 10, 12, 13, 18, 22, 22]
    assert [(found.chain, found.rows, found.flaw and found.flaw.sequence) for found in alone] == [
        ("acme", 12, 8),
        ("globex", 1, None),
        ("initech", 9, None),
        ("nobody", 0, None),
    ]
    with pytest.raises(CommandError):
        call_command("audit", "verify", jobs=2)
    assert "acme: edit at row 8" in capsys.readouterr().out
    for wrong in ("0", "-1", "two", "9" * 5000):
        with pytest.raises(CommandError, match="1 or more"):
            call_command("audit", "verify", "--jobs", wrong)


@pytest.mark.django_db(transaction=True)
def test_a_page_checks_the_newest_rows(monkeypatch):
    """So that what a page costs does not grow with the chain; what is older is left to the command."""
    for _ in range(12):
        record(Action.SIGN_IN, chain="acme", actor="alice", outcome=Outcome.SUCCESS)
    assert verifying.newest("acme").after == (0, chains.GENESIS)
    monkeypatch.setattr(verifying, "STRETCH", 5)
    tamper(TAMPERED["an edit"].format(row=7))
    stretch = verifying.newest("acme")
    assert (stretch.after[0], stretch.end[0]) == (7, 12)
    assert verifying.flaw_in(stretch) is None
    tamper(TAMPERED["an edit"].format(row=8))
    flaw = verifying.flaw_in(stretch)
    assert flaw is not None
    assert (flaw.kind, flaw.sequence) == ("edit", 8)


def tamper(statement: str) -> None:
    with owning() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(statement)


def clear_chain() -> None:
    tamper("DELETE FROM audit_logs WHERE chain = 'acme'")
    tamper("DELETE FROM audit_chains WHERE chain = 'acme'")


@pytest.mark.django_db(transaction=True)
def test_a_forged_row_is_named_by_the_command():
    for number in range(4):
        record(Action.SIGN_IN, chain="acme", actor=f"user {number}", outcome=Outcome.SUCCESS)
    out = io.StringIO()
    call_command("audit", "verify", stdout=out)
    assert "acme: 4 rows, whole" in out.getvalue()
    with owning() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("UPDATE audit_logs SET actor = 'nobody' WHERE chain = 'acme' AND sequence = 3")
    with pytest.raises(CommandError):
        call_command("audit", "verify", stdout=out)
    assert "acme: edit at row 3" in out.getvalue()
    with owning() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("DELETE FROM audit_logs WHERE chain = 'acme' AND sequence >= 3")
    flaw = chain_flaw("acme")
    assert flaw is not None
    assert (flaw.kind, flaw.sequence) == ("truncation", 3)


@pytest.mark.django_db(transaction=True)
def test_parallel_writers_leave_no_gap_and_no_fork():
    """AUD-04, with every fifth transaction lost."""

    def write(number: int) -> None:
        for turn in range(10):
            with transaction.atomic():
                record(Action.SIGN_IN, chain="busy", actor=f"w{number}", outcome=Outcome.SUCCESS)
                transaction.set_rollback(turn % 5 == 4)
        connections.close_all()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert AuditChain.objects.get(chain="busy").sequence == 64
    assert chain_flaw("busy") is None


@pytest.mark.django_db
def test_pages_walk_through_everything_once():
    actor = Actor(name="alice@example.org", user_id=uuid.uuid4())
    for number in range(25):
        actor.record(Action.SIGN_IN, chain="acme" if number % 5 else "other", target=f"thing/{number}")
    seen, after = [], ""
    while True:
        page = entries_of_chain("acme", after=after, limit=7)
        seen += [entry.sequence for entry in page.rows]
        after = page.next
        if not after:
            break
    assert seen == list(range(20, 0, -1))
    assert len(entries_everywhere(limit=100).rows) == 25


@pytest.mark.django_db
@pytest.mark.parametrize("cursor", ["x", "é", "AAAA", "MjAyNi0wMS0wMSAx", "'; DROP TABLE audit_logs; --"])
def test_a_foreign_cursor_is_a_bad_request(cursor):
    with pytest.raises(BadRequest):
        entries_everywhere(after=cursor)


@pytest.mark.django_db
def test_filters_find_what_they_say():
    first = uuid.uuid4()
    record(Action.SIGN_IN, chain="acme", actor="alice@example.org", outcome=Outcome.DENIED, user_id=first)
    record(Action.TENANT_CREATED, chain="acme", actor="bob", outcome=Outcome.SUCCESS, target="tenants/acme")

    def found(**wanted: object) -> list[str]:
        return [entry.actor for entry in entries_of_chain("acme", filters=Filters(**wanted)).rows]

    assert found(action="session.open") == ["alice@example.org"]
    assert found(outcome="success") == ["bob"]
    assert found(user_id=first) == ["alice@example.org"]
    assert found(text="alice") == ["alice@example.org"]
    assert found(text="tenants/ac") == ["bob"]
    assert found(text="'; --") == ["bob", "alice@example.org"]
    assert found(text="nobody") == []
    assert found(until=datetime(2020, 1, 1, tzinfo=UTC)) == []


@pytest.mark.django_db
def test_exports_are_whole_and_safe_for_spreadsheets():
    """AUD-07."""
    record(Action.SIGN_IN, chain="acme", actor="=cmd|' /C calc'!A0", outcome=Outcome.SUCCESS, detail={"é": 1})
    out = io.StringIO()
    call_command("audit", "export", "--chain", "acme", stdout=out)
    (line,) = out.getvalue().splitlines()
    row = json.loads(line)
    assert chains.hash_of(row, row["previous_hash"]) == row["hash"]
    out = io.StringIO()
    call_command("audit", "export", "--chain", "acme", "--format", "csv", stdout=out)
    assert "'=cmd" in out.getvalue()
    assert AuditEntry.objects.filter(action="audit.export").count() == 2


JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQifQ.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "text",
    [
        f"token {JWT} here",
        "Authorization: Bearer abcdefghijklmnop",
        "tnt_0123456789abcdefghijABCDEFGHIJ01012345",
        "https://user:hunter2secret@db.example.org/x",
        "https://example.org/cb?code=abcdef123456&state=1",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_secrets_in_texts_are_replaced(text):
    cleaned = clean_text(text)
    assert REDACTED in cleaned
    for secret in (JWT, "abcdefghijklmnop", "0123456789abcdef", "hunter2secret", "abcdef123456", "MIIB"):
        assert secret not in cleaned


@pytest.mark.parametrize(
    "key", ["token", "accessToken", "client-key-data", "Authorization", "db_password", "set-cookie"]
)
def test_secrets_are_replaced_by_their_keys(key):
    assert clean({key: "short", "deep": {key: ["x"]}}) == {key: REDACTED, "deep": {key: REDACTED}}


def test_plain_words_stay():
    detail = {
        "tokens": None,
        "reason": "basic tier",
        "author": "x",
        "key": "v",
        "id": "550e8400-e29b-41d4-a716-446655440000",
    }
    assert clean(detail) == detail


_PARTS = (
    "ey",
    "A",
    "-",
    ".",
    "tnt_",
    "bearer ",
    "basic",
    "\t",
    "-----BEGIN ",
    "PRIVATE KEY-----",
    "://",
    "a:",
    "?token=",
    "&",
)


@pytest.mark.parametrize("first", _PARTS)
def test_no_text_takes_longer_to_search_than_it_is_long(first):
    """DOS-03, GW9: who is refused chooses the path, and whoever is let in the body."""
    for second in _PARTS:
        text = (first + second) * (60_000 // len(first + second))
        assert effort(lambda text=text: clean_object(text)) < 100, (first, second)


@pytest.mark.parametrize("before", ["", "/", "eyes-", "x_ey", "ey.ey.", "a.b.", "=", "ey" * 400 + " "])
def test_a_token_is_found_whatever_stands_before_it(before):
    assert JWT not in clean_text(f"{before}{JWT} after")
    assert clean_text(f"{before}{JWT} after").endswith(f"{REDACTED} after")


def test_hostile_detail_is_bounded():
    deep: dict = {}
    for _ in range(1000):
        deep = {"x": deep}
    assert len(json.dumps(clean({"deep": deep, "long": "a" * 10**6, "many": list(range(10**5))}))) < 5000
