"""Signed checkpoints of the chains' heads, kept where the database's own administrator cannot rewrite them (GW13).

A checkpoint is one line of canonical JSON: its ``number``, the ``time``, the SHA-256 of the line before it
(``previous``), the ``heads`` of the chains that have grown since (``{chain: [sequence, hash]}``), and an Ed25519
``signature`` over the line without it. The key lies outside the database, so rows, anchors and whole chains can no
longer go together with what tells of them; and because each line names the one before it, no line can go either.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from audit.chain import GENESIS, ChainViolation

Head = tuple[int, str]
"""A chain's last sequence, and that row's hash."""

PUBLIC_SUFFIX: Final = ".pub"


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


def read(lines: Iterable[bytes], key: Ed25519PublicKey) -> History:
    """Every checkpoint that is signed with ``key``; a flaw for each that was changed and each place that was cut.

    Only a tail that is missing cannot show in the file itself: compare the last number with a copy elsewhere.
    """
    history = History()
    expected, previous, foreign = 1, GENESIS, False
    for line in lines:
        found = _parsed(line.rstrip(b"\n"), key)
        foreign = found is None
        if found is None:
            # An interrupted write leaves half a line, after which the same number follows: then nothing is missing.
            continue
        if found.number > expected:
            history.flaws.append(_flaw(expected, "gap", f"checkpoints {expected} to {found.number - 1} are missing"))
        elif found.number < expected:
            history.flaws.append(_flaw(found.number, "order", f"it stands where checkpoint {expected} belongs"))
        elif found.previous != previous:
            history.flaws.append(_flaw(found.number, "edit", "it does not follow from the one before it"))
        history.checkpoints.append(found)
        expected, previous = found.number + 1, found.digest
    if foreign:
        history.flaws.append(_flaw(expected, "edit", "the last line is not signed with this key"))
    return history


def append(file: Path, key: Ed25519PrivateKey, heads: Mapping[str, Head], now: datetime) -> Checkpoint | None:
    """Sign what has changed since the last checkpoint of the file and append it; ``None`` when nothing has.

    A chain whose head lies behind the signed one is not signed again: the next verification has to find it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with _locked(file) as handle:
        content = handle.read()
        history = read(content.splitlines(), key.public_key())
        known = history.heads
        grown = {chain: head for chain, head in sorted(heads.items()) if head[0] > known.get(chain, (0, ""))[0]}
        if not grown:
            return None
        last = history.checkpoints[-1] if history.checkpoints else None
        number, previous = (last.number + 1, last.digest) if last else (1, GENESIS)
        line = line_of(number, now, previous, grown, key)
        begin = b"" if not content or content.endswith(b"\n") else b"\n"
        handle.write(begin + line + b"\n")
        handle.flush()
        os.fsync(handle.fileno())
    return _parsed(line, key.public_key())


def lines_after(file: Path, number: int, key: Ed25519PublicKey) -> list[tuple[int, bytes]]:
    """The checkpoints of the file after ``number``, as they were signed."""
    with suppress(FileNotFoundError):
        parsed = [(line, _parsed(line, key)) for line in file.read_bytes().splitlines()]
        return [(found.number, line) for line, found in parsed if found is not None and found.number > number]
    return []


def private_key(file: Path, *, make: bool = True) -> Ed25519PrivateKey:
    """The key of a PEM file, which is made, with its public half beside it, when it is missing.

    Raises ``OSError`` when it is missing and not to be made, ``ValueError`` when it is another kind of key.
    """
    if make and not file.exists():
        _make_key(file)
    key = serialization.load_pem_private_key(file.read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{file} holds no Ed25519 key")  # noqa: TRY004 # it is the file that is wrong
    return key


def public_key(file: Path) -> Ed25519PublicKey:
    """The public key of a PEM file. Raises ``ValueError`` when the file holds another kind of key."""
    key = serialization.load_pem_public_key(file.read_bytes())
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"{file} holds no Ed25519 public key")  # noqa: TRY004 # it is the file that is wrong
    return key


def _make_key(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
        handle.write(private)
        handle.flush()
        os.fsync(handle.fileno())
    # Whoever comes second takes the first one's key.
    with suppress(FileExistsError):
        os.link(temporary, file)
        file.with_name(file.name + PUBLIC_SUFFIX).write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
    temporary.unlink()


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
        return Checkpoint(int(body["number"]), time, body["previous"], heads, hashlib.sha256(line).hexdigest())
    except (ValueError, TypeError, KeyError, AttributeError, InvalidSignature):
        return None


def _flaw(number: int, kind: str, message: str) -> ChainViolation:
    return ChainViolation("checkpoints", number, kind, message)
