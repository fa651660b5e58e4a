"""Signed checkpoints: what is cut or rewritten with its anchors still shows (GW13)."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from audit import chain as chains
from audit import checkpoints
from audit.actions import Action
from audit.checkpoints import (
    append,
    digest_of,
    goes_by,
    handover_of,
    line_of,
    lines_after,
    private_keys,
    read,
    read_all,
)
from audit.models import AuditChain, AuditEntry, Outcome
from audit.publishing import checkpoint_write
from audit.recorder import record
from tests.databases import owning

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Ed25519PrivateKey.generate()


def lines(count: int, chain: str = "acme") -> list[bytes]:
    made, previous = [], chains.GENESIS
    for number in range(1, count + 1):
        made.append(line_of(number, NOW, previous, {chain: (number, f"{number:064x}")}, KEY))
        previous = read(made, KEY.public_key()).checkpoints[-1].digest
    return made


SIX = lines(6)


def test_a_whole_file_has_no_flaw():
    history = read(SIX, KEY.public_key())
    assert history.flaws == []
    assert history.heads == {"acme": (6, f"{6:064x}")}


@given(places=st.sets(st.integers(0, 4), min_size=1), data=st.data())
def test_no_line_can_go_before_the_last_nor_change_nor_move(places: set[int], data: st.DataObject):
    """Any cut in the middle, any swap and any changed byte shows; half a line that was begun anew does not."""
    public = KEY.public_key()
    assert read([line for at, line in enumerate(SIX) if at not in places], public).flaws
    at = min(places)
    swapped = [*SIX[:at], SIX[at + 1], SIX[at], *SIX[at + 2 :]]
    assert read(swapped, public).flaws
    place = data.draw(st.integers(0, len(SIX[at]) - 1))
    changed = bytearray(SIX[at])
    changed[place] ^= 1
    assert read([*SIX[:at], bytes(changed), *SIX[at + 1 :]], public).flaws
    assert read([*SIX[:at], SIX[at][: place or 1], *SIX[at:]], public).flaws == []


def woven(data: st.DataObject, *parts: list[bytes]) -> list[bytes]:
    """The lines of some files as one who is sent them by several workers has them: each file's in their order."""
    left, made = [list(part) for part in parts], list[bytes]()
    while any(left):
        made.append(data.draw(st.sampled_from([part for part in left if part])).pop(0))
    return made


@given(data=st.data(), counts=st.lists(st.integers(1, 6), min_size=2, max_size=4))
def test_files_that_were_sent_to_one_place_are_told_from_one_another(data: st.DataObject, counts: list[int]):
    """Whatever came between, and whatever was sent twice; and what was taken out of any of them shows."""
    public = KEY.public_key()
    parts = [lines(count, f"worker-{at}") for at, count in enumerate(counts)]
    sent = woven(data, *([line for line in part for _ in range(data.draw(st.integers(1, 2)))] for part in parts))
    histories = read_all(sent, public)
    assert [history.flaws for history in histories] == [[] for _ in parts]
    assert sorted((list(each.heads), len(each.checkpoints)) for each in histories) == [
        ([f"worker-{at}"], count) for at, count in enumerate(counts)
    ]
    assert read(woven(data, *parts), public).flaws or len(parts) == 1
    inner = [line for part in parts for line in part[:-1]]
    if inner:
        gone = data.draw(st.sampled_from(inner))
        assert any(history.flaws for history in read_all([line for line in sent if line != gone], public))
        changed = [line.replace(b"worker", b"forger") if line == gone else line for line in sent]
        assert any(history.flaws for history in read_all(changed, public))


@given(places=st.sets(st.integers(0, 4), min_size=1))
def test_one_file_is_read_as_strictly_among_others(places: set[int]):
    public, at = KEY.public_key(), min(places)
    for broken in (
        [line for place, line in enumerate(SIX) if place not in places],
        [*SIX[:at], SIX[at + 1], SIX[at], *SIX[at + 2 :]],
        [*SIX[:5], SIX[5].replace(b"acme", b"acmf")],
    ):
        assert any(history.flaws for history in read_all(broken, public))
    [whole] = read_all(SIX, public)
    assert (whole.flaws, whole.heads) == ([], read(SIX, public).heads)


def test_a_changed_last_line_and_a_foreign_key_show():
    assert read([*SIX[:5], SIX[5].replace(b"acme", b"acmf")], KEY.public_key()).flaws
    assert read(SIX, Ed25519PrivateKey.generate().public_key()).flaws


def test_only_what_has_grown_is_signed_and_half_a_line_is_begun_anew(tmp_path: Path):
    file = tmp_path / "checkpoints.jsonl"
    first = append(file, [KEY], {"a": (1, "x"), "b": (1, "y")}, NOW)
    assert first is not None
    assert append(file, [KEY], {"a": (1, "x"), "b": (1, "y")}, NOW) is None
    with file.open("ab") as handle:
        handle.write(b'{"heads"')
    second = append(file, [KEY], {"a": (1, "x"), "b": (2, "z")}, NOW)
    assert second is not None
    assert second.heads == {"b": (2, "z")}
    history = read(file.read_bytes().splitlines(), KEY.public_key())
    assert (history.flaws, history.heads) == ([], {"a": (1, "x"), "b": (2, "z")})


def test_the_key_is_made_once_and_readable_by_its_owner_alone(tmp_path: Path):
    file = tmp_path / "pki" / "audit.key"
    with pytest.raises(OSError, match="No such file"):
        private_keys(file, make=False)
    (made,) = private_keys(file)
    assert [key.private_bytes_raw() for key in private_keys(file)] == [made.private_bytes_raw()]
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(b"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n")
    with pytest.raises(ValueError, match=r"PEM|key"):
        private_keys(file)


SUCCESSORS = [KEY, *(Ed25519PrivateKey.generate() for _ in range(3))]


def rotated(file: Path, after: list[int]) -> list[bytes]:
    """A file of which each key has signed so many checkpoints, beginning with the first."""
    sequence = 0
    for at, count in enumerate(after):
        for _ in range(count):
            sequence += 1
            heads = {"acme": (sequence, f"{sequence:064x}"), f"of-{at}": (1, "x")}
            assert append(file, [SUCCESSORS[at], *SUCCESSORS[:at]], heads, NOW) is not None
    return file.read_bytes().splitlines()


@given(after=st.lists(st.integers(1, 4), min_size=2, max_size=4), data=st.data())
def test_whoever_trusts_one_of_the_keys_can_read_the_whole_file(after: list[int], data: st.DataObject):
    with TemporaryDirectory() as folder:
        file = Path(folder) / "checkpoints.jsonl"
        made = rotated(file, after)
        assert goes_by(file, SUCCESSORS[len(after) - 1])
        assert not goes_by(file, SUCCESSORS[len(after) - 2])
        trusted = data.draw(st.sampled_from(SUCCESSORS[: len(after)])).public_key()
        history = read(made, trusted)
        assert history.flaws == []
        assert len(history.checkpoints) == len(made) == sum(after) + len(after) - 1
        assert history.heads["acme"][0] == sum(after)
        assert [line for _, line in lines_after(file, 0, trusted)] == made
        cut = data.draw(st.integers(0, len(made) - 2))
        assert read([*made[:cut], *made[cut + 1 :]], trusted).flaws


def test_whoever_trusts_one_of_the_keys_reads_the_files_of_all_workers(tmp_path: Path):
    """One was handed over, one not yet, one was begun since; but what a thief hands over to is nobody's."""
    over = rotated(tmp_path / "one.jsonl", [2, 2])
    before, since = lines(3, "two"), [line_of(1, NOW, chains.GENESIS, {"three": (1, "x")}, SUCCESSORS[1])]
    thief = Ed25519PrivateKey.generate()
    stolen = [line_of(1, NOW, chains.GENESIS, {"four": (1, "x")}, KEY)]
    stolen.append(handover_of(2, NOW, digest_of(stolen[0]), KEY, thief))
    theirs = line_of(1, NOW, chains.GENESIS, {"five": (1, "x")}, thief)
    for trusted in (KEY, SUCCESSORS[1]):
        histories = read_all([*over, *before, *since], trusted.public_key())
        assert [(history.flaws, len(history.checkpoints)) for history in histories] == [([], 5), ([], 3), ([], 1)]
    *_, last = read_all([*over, *stolen, theirs], SUCCESSORS[1].public_key())
    assert last.flaws
    assert last.checkpoints == []


def test_the_key_before_signs_nothing_after_it_was_replaced(tmp_path: Path):
    """Nor can whoever has stolen it put another key of his own into that place, for one who trusts the new one."""
    file = tmp_path / "checkpoints.jsonl"
    made = rotated(file, [2, 1])
    thief, public = Ed25519PrivateKey.generate(), SUCCESSORS[1].public_key()
    history = read(made[:2], KEY.public_key())
    number, previous = 3, history.checkpoints[-1].digest
    forged = line_of(5, NOW, read(made, public).checkpoints[-1].digest, {"acme": (9, "z")}, KEY)
    assert read([*made, forged], public).flaws
    stolen = handover_of(number, NOW, previous, KEY, thief)
    assert read([*made[:2], stolen, *made[3:]], public).flaws
    alone = json.loads(handover_of(number, NOW, previous, KEY, SUCCESSORS[1]))
    del alone["accepted"]
    assert read([*made[:2], json.dumps(alone).encode(), *made[3:]], public).flaws


def test_a_file_that_goes_by_a_later_key_is_not_signed_by_the_one_before(tmp_path: Path):
    file = tmp_path / "checkpoints.jsonl"
    made = rotated(file, [1, 1])
    with pytest.raises(ValueError, match="bring that key"):
        append(file, [KEY], {"acme": (7, "x")}, NOW)
    assert file.read_bytes().splitlines() == made


@given(chains=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=40), every=st.integers(2, 7))
def test_no_more_is_read_than_the_end_that_tells_of_every_chain(chains: list[str], every: int):
    """However long the file is: what is known from its end is what the whole file says."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "EVERY", every)
        patch.setattr(checkpoints, "_BLOCK", 100)
        file, heads = Path(folder) / "checkpoints.jsonl", dict[str, tuple[int, str]]()
        for number, chain in enumerate(chains, 1):
            heads[chain] = (number, "x")
            made = append(file, [KEY], heads, NOW)
            assert made is not None
            assert made.heads == (heads if number % every == 0 else {chain: heads[chain]})
            assert append(file, [KEY], heads, NOW) is None
        with file.open("rb") as handle:
            assert len(checkpoints._tail(handle)[0]) <= every + 3
        history = read(file.read_bytes().splitlines(), KEY.public_key())
        assert (history.flaws, history.heads) == ([], heads)
        half = len(chains) // 2
        assert [number for number, _ in lines_after(file, half, KEY.public_key())] == [
            *range(half + 1, len(chains) + 1)
        ]


@pytest.fixture
def files(settings: Any, tmp_path: Path) -> Path:
    settings.AUDIT_CHECKPOINTS_FILE = tmp_path / "checkpoints.jsonl"
    settings.AUDIT_CHECKPOINTS_KEY_FILE = tmp_path / "checkpoints.key"
    settings.AUDIT_CHECKPOINTS_URL = ""
    return tmp_path


def verified(files: Path, *more: str) -> str:
    """What the command says, whether it is content or not."""
    out = io.StringIO()
    try:
        call_command("audit", "verify", "--checkpoints", str(files / "checkpoints.jsonl"), *more, stdout=out)
    except CommandError as error:
        return f"{out.getvalue()}FAILED {error}"
    return out.getvalue()


def write(chain: str, count: int) -> None:
    for number in range(count):
        record(Action.SIGN_IN, chain=chain, actor=f"user {number}", outcome=Outcome.SUCCESS)


def rehash(cursor: Any, chain: str, begin: int) -> None:
    """Make the chain whole again from a row on, as whoever knows the three sentences of ``audit.chain`` can."""
    rows = list(AuditEntry.objects.filter(chain=chain).order_by("sequence").values())
    previous = rows[begin - 2]["hash"] if begin > 1 else chains.GENESIS
    for row in rows[begin - 1 :]:
        new = chains.hash_of(row, previous)
        cursor.execute("UPDATE audit_logs SET previous_hash = %s, hash = %s WHERE id = %s", [previous, new, row["id"]])
        previous = new
    cursor.execute("UPDATE audit_chains SET sequence = %s, hash = %s WHERE chain = %s", [len(rows), previous, chain])


def cut_tail(cursor: Any) -> None:
    cursor.execute("DELETE FROM audit_logs WHERE chain = 'acme' AND sequence > 3")
    rehash(cursor, "acme", 1)


def cut_chain(cursor: Any) -> None:
    cursor.execute("DELETE FROM audit_logs WHERE chain = 'acme'")
    cursor.execute("DELETE FROM audit_chains WHERE chain = 'acme'")


def cut_everything(cursor: Any) -> None:
    cursor.execute("TRUNCATE audit_logs, audit_chains")


def rewrite_middle(cursor: Any) -> None:
    cursor.execute("UPDATE audit_logs SET actor = 'nobody' WHERE chain = 'acme' AND sequence = 4")
    rehash(cursor, "acme", 4)


def cut_and_grow_again(cursor: Any) -> None:
    cut_chain(cursor)
    write("acme", 9)  # as the product, on a connection of its own


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("crime", "says"),
    [
        (cut_tail, "acme: truncation at row 4: rows 4 to 6 were cut off, says checkpoint 2"),
        (cut_chain, "acme: truncation at row 1: the whole chain is gone: 6 rows"),
        (cut_everything, "other: truncation at row 1: the whole chain is gone: 2 rows"),
        (rewrite_middle, "acme: rewrite at row 4: rows 4 to 6 are not those of checkpoint 2"),
        (cut_and_grow_again, "acme: rewrite at row 1: rows 1 to 3 are not those of checkpoint 1"),
    ],
)
def test_what_goes_together_with_its_anchor_is_named(files: Path, crime: Callable[[Any], None], says: str):
    write("acme", 3)
    write("other", 2)
    checkpoint_write(now=NOW)
    write("acme", 3)
    checkpoint_write(now=NOW)
    assert "2 checkpoints of 2 chains, the last one 2" in verified(files)
    with owning() as cursor:
        cursor.execute("SET session_replication_role = replica")  # what a superuser of the database can do
        crime(cursor)
    call_command("audit", "verify", stdout=io.StringIO())  # the database alone is content
    said = verified(files)
    assert says in said
    assert "FAILED" in said
    assert says in verified(files, "--key", str(files / "checkpoints.key.pub"))


@pytest.mark.django_db
def test_a_file_that_was_cut_is_named_by_the_command(files: Path):
    for count in (1, 2, 3):
        write("acme", count)
        checkpoint_write(now=NOW)
    file = files / "checkpoints.jsonl"
    first, _, third = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + third)
    assert "checkpoints: gap at row 2: checkpoints 2 to 2 are missing" in verified(files)
    file.unlink()
    assert "FAILED The checkpoints cannot be read" in verified(files)


@contextmanager
def sink(status: list[int]) -> Iterator[tuple[str, list[tuple[bytes, str]]]]:
    """A server that keeps what is posted and answers with the first of ``status``."""
    taken: list[tuple[bytes, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if status[0] == 200:
                taken.append((body, self.headers.get("Authorization", "")))
            self.send_response(status[0])
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", taken
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.django_db
@pytest.mark.parametrize("refusal", [503, 302])
def test_a_sink_that_was_away_gets_every_checkpoint_in_order(files: Path, settings: Any, refusal: int):
    status = [refusal]
    with sink(status) as (url, taken):
        settings.AUDIT_CHECKPOINTS_URL, settings.AUDIT_CHECKPOINTS_TOKEN = url, "sink-token"
        for _ in range(3):
            write("acme", 1)
            checkpoint_write(now=NOW)
        assert taken == []
        status[0] = 200
        assert checkpoint_write(now=NOW) is None
        assert checkpoint_write(now=NOW) is None
    assert [body for body, _ in taken] == (files / "checkpoints.jsonl").read_bytes().splitlines()
    assert {authorization for _, authorization in taken} == {"Bearer sink-token"}
    assert AuditChain.objects.get(chain="acme").sequence == 3


@pytest.mark.django_db
def test_the_release_before_reads_how_far_it_was_sent_and_no_crash_stops_it(files: Path, settings: Any):
    """Whatever the release before or the end of a process has left of the marks: nothing is missing that follows."""
    file, number = files / "checkpoints.jsonl", files / "checkpoints.jsonl.sent"
    with sink([200]) as (url, taken):
        settings.AUDIT_CHECKPOINTS_URL, settings.AUDIT_CHECKPOINTS_TOKEN = url, ""

        def sent_by(written: int = 0) -> list[bytes]:
            taken.clear()
            for _ in range(written):
                write("acme", 1)
                checkpoint_write(now=NOW)
            checkpoint_write(now=NOW)
            assert int(number.read_text()) == len(file.read_bytes().splitlines())
            return [body for body, _ in taken]

        sent_by(4)
        (digest,) = set(files.glob("checkpoints.jsonl.sent?*"))
        lines = file.read_bytes().splitlines()
        known = [digest_of(line) for line in lines]
        first, last = known[0], known[-1]
        for begin, marks in {
            2: [("2", known[1]), ("2", first), ("2", last), ("2", None), ("2", ""), ("2\n", f"{known[1]}\n")],
            4: [("4", last), ("4", first), ("4", None)],
            0: [
                *((odd, each) for odd in ("", " ", "x", "-1", "1.5", "2 of", None) for each in (first, last, "", None)),
                ("2", "of another file"),
            ],
        }.items():
            for contents in marks:
                for mark, content in zip((number, digest), contents, strict=True):
                    mark.unlink(missing_ok=True)
                    if content is not None:
                        mark.write_text(content)
                assert sent_by() == lines[begin:], contents
        number.write_bytes(b"\xff\x00")
        assert sent_by() == lines
        # Begun anew: shorter, as long, and longer than what was sent of the one before.
        for length in (1, 4, 9):
            kept = file.rename(files / f"kept-{length}")
            sent = sent_by(length)
            assert sent == file.read_bytes().splitlines()
            assert not set(sent) & set(kept.read_bytes().splitlines())
    assert {each.name for each in files.iterdir() if "sent" in each.name} == {number.name, digest.name}


@pytest.mark.django_db
def test_what_two_workers_send_to_one_place_proves_what_each_has_signed(files: Path, settings: Any):
    """Each has a volume of its own, and one of them begins its file anew; a line that was taken out shows."""
    with sink([200]) as (url, taken):
        settings.AUDIT_CHECKPOINTS_URL, settings.AUDIT_CHECKPOINTS_TOKEN = url, ""

        def sign(worker: str) -> None:
            write("acme", 1)
            settings.AUDIT_CHECKPOINTS_FILE = files / worker / "checkpoints.jsonl"
            checkpoint_write(now=NOW)

        for worker in ("one", "two", "one", "two", "two", "one"):
            sign(worker)
        (files / "one" / "checkpoints.jsonl").rename(files / "kept")
        sign("one")
        sign("two")
    elsewhere = files / "checkpoints.jsonl"
    bodies = [body for body, _ in taken]
    elsewhere.write_bytes(b"\n".join(bodies))
    said = verified(files, "--key", str(files / "checkpoints.key.pub"))
    assert "FAILED" not in said
    assert [line.split()[0] for line in said.splitlines() if "checkpoints of" in line] == ["3", "4", "1"]
    elsewhere.write_bytes(b"\n".join(bodies[:2] + bodies[3:]))
    assert "checkpoints: " in verified(files)
