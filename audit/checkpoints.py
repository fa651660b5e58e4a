"""Signed checkpoints of the chains' heads, kept where the database's own administrator cannot rewrite them (GW13).

A checkpoint is one line of canonical JSON: its ``number``, the ``time``, the SHA-256 of the line before it
(``previous``), the ``heads`` of the chains that have grown since (``{chain: [sequence, hash]}``), and an Ed25519
``signature`` over the line without it. The key lies outside the database, so rows, anchors and whole chains can no
longer go together with what tells of them; and because each line names the one before it, no line can go either.

Another key takes over by a line of its own: it names the key before (``key``) and the one after (``next``) and is signed
by both (``accepted`` is the new one's). So whoever trusts either of them knows the other, and each line has exactly one
key that may have signed it.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from audit.chain import GENESIS, ChainViolation
from kube.authentication.pki import pem_blocks, since_line

Head = tuple[int, str]
"""A chain's last sequence, and that row's hash."""

PUBLIC_SUFFIX: Final = ".pub"

EVERY: Final = 500
"""Each checkpoint whose number this divides has the heads of all chains: nobody who appends reads further back."""

_BLOCK: Final = 1 << 18
_NUMBER: Final = re.compile(rb'"number":(\d+)')


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One line of the file, as it was signed."""

    number: int
    time: datetime
    previous: str
    heads: Mapping[str, Head]
    digest: str
    """SHA-256 of the line: what the next one names as ``previous``."""


@dataclass(slots=True)
class History:
    """What a file of checkpoints says, in order, and what is wrong with the file itself."""

    checkpoints: list[Checkpoint] = field(default_factory=list)
    flaws: list[ChainViolation] = field(default_factory=list)
    key: Ed25519PublicKey | None = None
    """The key that signs what comes next."""

    @property
    def heads(self) -> dict[str, Head]:
        """The last head of each chain that was ever signed."""
        return {chain: head for checkpoint in self.checkpoints for chain, head in checkpoint.heads.items()}


def line_of(number: int, time: datetime, previous: str, heads: Mapping[str, Head], key: Ed25519PrivateKey) -> bytes:
    """The signed line, without its line feed."""
    body = {
        "number": number,
        "time": time.astimezone(UTC).isoformat(),
        "previous": previous,
        "heads": {chain: list(head) for chain, head in heads.items()},
    }
    return _canonical({**body, "signature": base64.b64encode(key.sign(_canonical(body))).decode()})


def handover_of(
    number: int, time: datetime, previous: str, before: Ed25519PrivateKey, after: Ed25519PrivateKey
) -> bytes:
    """The line after which ``after`` signs, without its line feed."""
    body = {
        "number": number,
        "time": time.astimezone(UTC).isoformat(),
        "previous": previous,
        "heads": {},
        "key": _name_of(before.public_key()),
        "next": _name_of(after.public_key()),
    }
    body["accepted"] = base64.b64encode(after.sign(_canonical(body))).decode()
    return _canonical({**body, "signature": base64.b64encode(before.sign(_canonical(body))).decode()})


def read(lines: Iterable[bytes], key: Ed25519PublicKey, *, whole: bool = True) -> History:
    """Every checkpoint that is signed with ``key``, or with those before and after it.

    There is a flaw for each that was changed and each place that was cut. Not ``whole`` is the end of a file, whose first
    line may be any. Only a tail that is missing cannot show in the file itself: compare the last number with a copy
    elsewhere.
    """
    lines = [line.rstrip(b"\n") for line in lines]
    signing = _first_of([found for found in map(_handover, lines) if found is not None], key)
    history, foreign = History(key=signing), False
    expected, previous = (1, GENESIS) if whole else (0, "")
    for line in lines:
        found = _parsed(line, signing)
        foreign = found is None
        if found is None:
            # An interrupted write leaves half a line, after which the same number follows: then nothing is missing.
            continue
        if not expected:
            expected, previous = found.number, found.previous
        if found.number > expected:
            history.flaws.append(_flaw(expected, "gap", f"checkpoints {expected} to {found.number - 1} are missing"))
        elif found.number < expected:
            history.flaws.append(_flaw(found.number, "order", f"it stands where checkpoint {expected} belongs"))
        elif found.previous != previous:
            history.flaws.append(_flaw(found.number, "edit", "it does not follow from the one before it"))
        history.checkpoints.append(found)
        expected, previous = found.number + 1, found.digest
        handover = _handover(line)
        if handover is not None:
            history.key = signing = handover[1]
    if foreign:
        history.flaws.append(_flaw(expected, "edit", "the last line is not signed with this key"))
    return history


def read_all(lines: Iterable[bytes], key: Ed25519PublicKey) -> list[History]:
    """What each file says of those whose lines are here: whoever is sent them by several workers has them in one another.

    A line belongs to the file whose last line it names, and the first of a file to a new one. A line that was sent twice
    counts once.
    """
    parts = _parted([line.rstrip(b"\n") for line in lines])
    keys = _trusted([found for part in parts for found in map(_handover, part) if found is not None], key)
    return [_known(part, keys, whole=True) or read(part, key) for part in parts]


def append(
    file: Path, keys: Sequence[Ed25519PrivateKey], heads: Mapping[str, Head], now: datetime
) -> Checkpoint | None:
    """Sign what has changed since the last checkpoint of the file and append it; ``None`` when nothing has.

    The first of ``keys`` signs; a file that goes by another of them is handed over to it. Raises ``ValueError`` for one
    that goes by a key which is not here. A chain whose head lies behind the signed one is not signed again: the next
    verification has to find it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with _locked(file) as handle:
        lines, ended = _tail(handle)
        history = _known(lines, [key.public_key() for key in keys]) or History()
        known = history.heads
        grown = {chain: head for chain, head in sorted(heads.items()) if head[0] > known.get(chain, (0, ""))[0]}
        if not grown:
            return None
        last = history.checkpoints[-1] if history.checkpoints else None
        number, previous = (last.number + 1, last.digest) if last else (1, GENESIS)
        written = [] if ended else [b""]
        before = _owner(history, keys, file) if last else keys[0]
        if before is not keys[0]:
            written.append(handover_of(number, now, previous, before, keys[0]))
            number, previous = number + 1, digest_of(written[-1])
        signed = {**known, **grown} if number % EVERY == 0 else grown
        line = line_of(number, now, previous, signed, keys[0])
        handle.write(b"\n".join([*written, line, b""]))
        handle.flush()
        os.fsync(handle.fileno())
    return _parsed(line, keys[0].public_key())


def goes_by(file: Path, key: Ed25519PrivateKey) -> bool:
    """Whether what is written next needs no other key than this: it has signed the end of the file, or there is none."""
    with suppress(FileNotFoundError), file.open("rb") as handle:
        history = _known(_tail(handle)[0], [key.public_key()])
        return history is not None and history.key is not None and _name_of(history.key) == _name_of(key.public_key())
    return True


def _known(lines: Sequence[bytes], keys: Sequence[Ed25519PublicKey], *, whole: bool = False) -> History | None:
    """What a file, or its end, says by whichever of the keys has signed it."""
    histories = (read(lines, key, whole=whole) for key in keys)
    return next((history for history in histories if history.checkpoints), None)


def _parted(lines: Iterable[bytes]) -> list[list[bytes]]:
    """The lines of each file, in order. Nothing is believed here: what follows nothing is left to be a flaw of one."""
    parts: list[list[bytes]] = []
    ends: list[tuple[int, str]] = []
    """Of each part the number of its last line, and what the next one names as ``previous``."""
    last = 0
    for line in lines:
        digest = digest_of(line)
        if any(end == digest for _, end in ends):
            continue
        number, previous = _place_of(line)
        at = next((at for at, (_, end) in enumerate(ends) if end == previous), None)
        if at is None and (not parts or (number, previous) == (1, GENESIS)):
            at = len(parts)
            parts.append([])
            ends.append((0, GENESIS))
        elif at is None and number:
            nearest = max(((end, at) for at, (end, _) in enumerate(ends) if end < number), default=(0, last))
            at = nearest[1]
        last = last if at is None else at
        parts[last].append(line)
        if number:
            ends[last] = (number, digest)
    return parts


def _place_of(line: bytes) -> tuple[int, str]:
    """The number, and what it names as the line before; 0 for what is no checkpoint."""
    try:
        body = json.loads(line)
        return int(body["number"]), str(body["previous"])
    except (ValueError, TypeError, KeyError, OverflowError):
        return 0, ""


def _trusted(
    handovers: Sequence[tuple[Ed25519PublicKey, Ed25519PublicKey]], key: Ed25519PublicKey
) -> list[Ed25519PublicKey]:
    """The key, those after it, and those before it: not what one of these has handed over to otherwise."""
    found: dict[str, Ed25519PublicKey] = {}
    for pairs in (handovers, [(after, before) for before, after in handovers]):
        waiting = [key]
        while waiting:
            here = waiting.pop()
            found[_name_of(here)] = here
            waiting += [
                there for near, there in pairs if _name_of(near) == _name_of(here) and _name_of(there) not in found
            ]
    return list(found.values())


def _owner(history: History, keys: Sequence[Ed25519PrivateKey], file: Path) -> Ed25519PrivateKey:
    for key in keys:
        if history.key is not None and _name_of(key.public_key()) == _name_of(history.key):
            return key
    raise ValueError(f"{file} goes by a key that took over from the one here: bring that key, or move the file away")


def _tail(handle: IO[bytes]) -> tuple[list[bytes], bool]:
    """The lines from the last one that has the heads of all chains, and whether the last has its line feed.

    So that what a checkpoint costs does not grow with the file.
    """
    content, position = b"", handle.seek(0, os.SEEK_END)
    while position and not _complete(content):
        begin = max(0, position - _BLOCK)
        handle.seek(begin)
        content, position = handle.read(position - begin) + content, begin
    lines = content.splitlines()
    return lines if not position else lines[1:], not content or content.endswith(b"\n")


def _complete(content: bytes) -> bool:
    """Whether a line of every ``EVERY``th number is in it, of which the first line may lack its beginning."""
    numbers = (int(found) for found in _NUMBER.findall(content.partition(b"\n")[2]))
    return any(number % EVERY == 0 for number in numbers)


def lines_after(file: Path, number: int, key: Ed25519PublicKey, *, digest: str = "") -> list[tuple[int, bytes]]:
    """The checkpoints of the file after ``number``, as they were signed.

    All of them where none has the ``digest``, which that one or an earlier one had: then the file was begun anew.
    """
    with suppress(FileNotFoundError), file.open("rb") as handle:
        found = _signed(_tail(handle)[0], key)
        if not {number, digest} <= {each for pair in found for each in pair}:
            handle.seek(0)
            found = _signed(handle.read().splitlines(), key)
        if digest and digest not in {each for _, each in found}:
            number = 0
        return [(each, line) for (each, _), line in found.items() if each > number]
    return []


def _signed(lines: Sequence[bytes], key: Ed25519PublicKey) -> dict[tuple[int, str], bytes]:
    """Lines that are signed, by number and digest."""
    numbers = {each.digest: each.number for each in read(lines, key, whole=False).checkpoints}
    digests = ((digest_of(line), line) for line in lines)
    return {(numbers[digest], digest): line for digest, line in digests if digest in numbers}


def digest_of(line: bytes) -> str:
    """What the next line names as ``previous``."""
    return hashlib.sha256(line).hexdigest()


def private_keys(file: Path, *, make: bool = True) -> tuple[Ed25519PrivateKey, ...]:
    """The keys of a PEM file: the first signs, files that go by another are handed over to it.

    It is made, with its public half beside it, when it is missing. Raises ``OSError`` when it is missing and not to be
    made, ``ValueError`` when it holds none, or another kind of key.
    """
    if make and not file.exists():
        _make_key(file)
    keys = [serialization.load_pem_private_key(block, password=None) for block in pem_blocks(file.read_bytes())]
    if not keys or not all(isinstance(key, Ed25519PrivateKey) for key in keys):
        raise ValueError(f"{file} holds no Ed25519 key in PEM, or another one beside it")
    return tuple(key for key in keys if isinstance(key, Ed25519PrivateKey))


def public_key(file: Path) -> Ed25519PublicKey:
    """The public key of a PEM file. Raises ``ValueError`` when the file holds another kind of key."""
    key = serialization.load_pem_public_key(file.read_bytes())
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"{file} holds no Ed25519 public key")  # noqa: TRY004 # it is the file that is wrong
    return key


def public_pem(key: Ed25519PrivateKey) -> bytes:
    """What whoever verifies needs."""
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _make_key(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    key = Ed25519PrivateKey.generate()
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
        handle.write(private_pem(key) + since_line(datetime.now(UTC)))
        handle.flush()
        os.fsync(handle.fileno())
    # Whoever comes second takes the first one's key.
    with suppress(FileExistsError):
        os.link(temporary, file)
        file.with_name(file.name + PUBLIC_SUFFIX).write_bytes(public_pem(key))
    temporary.unlink()


def private_pem(key: Ed25519PrivateKey) -> bytes:
    """As the file holds it: PKCS #8, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _locked(file: Path) -> IO[bytes]:
    """The file for reading and appending, while no other process does; the lock goes when it is closed."""
    handle = os.fdopen(os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640), "a+b")
    fcntl.flock(handle, fcntl.LOCK_EX)
    handle.seek(0)
    return handle


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _parsed(line: bytes, key: Ed25519PublicKey) -> Checkpoint | None:
    """The checkpoint, or ``None`` for what is none or was not signed with this key."""
    try:
        body = json.loads(line)
        signature = base64.b64decode(body.pop("signature"), validate=True)
        key.verify(signature, _canonical(body))
        heads = {chain: (int(sequence), str(end)) for chain, (sequence, end) in body["heads"].items()}
        time = datetime.fromisoformat(body["time"])
        return Checkpoint(int(body["number"]), time, body["previous"], heads, digest_of(line))
    except (ValueError, TypeError, KeyError, AttributeError, InvalidSignature):
        return None


def _handover(line: bytes) -> tuple[Ed25519PublicKey, Ed25519PublicKey] | None:
    """The keys before and after a line that both have signed; ``None`` for any other line."""
    if b'"next"' not in line:
        return None
    try:
        body = json.loads(line)
        before, after = (Ed25519PublicKey.from_public_bytes(base64.b64decode(body[name])) for name in ("key", "next"))
        signature = base64.b64decode(body.pop("signature"), validate=True)
        before.verify(signature, _canonical(body))
        accepted = base64.b64decode(body.pop("accepted"), validate=True)
        after.verify(accepted, _canonical(body))
    except (ValueError, TypeError, KeyError, AttributeError, InvalidSignature):
        return None
    return before, after


def _first_of(
    handovers: Sequence[tuple[Ed25519PublicKey, Ed25519PublicKey]], key: Ed25519PublicKey
) -> Ed25519PublicKey:
    """The key that the file began with, of one that has signed anywhere in it: back along the handovers to it."""
    for before, after in reversed(handovers):
        if _name_of(after) == _name_of(key):
            key = before
    return key


def _name_of(key: Ed25519PublicKey) -> str:
    return base64.b64encode(key.public_bytes_raw()).decode()


def _flaw(number: int, kind: str, message: str) -> ChainViolation:
    return ChainViolation("checkpoints", number, kind, message)
