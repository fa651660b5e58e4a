r"""The hash chain as pure functions: canonical form, hash, and a verifier that names the first bad row (GW13).

``hash = SHA-256(previous_hash + "\n" + canonical JSON of the row without its hash)``, hexadecimal; the first row's
previous hash is 64 zeros. Anybody can check an export with these three sentences.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

GENESIS: Final = "0" * 64

FIELDS: Final = (
    "id",
    "chain",
    "sequence",
    "created_at",
    "action",
    "outcome",
    "actor",
    "user_id",
    "workspace_id",
    "target",
    "ip_address",
    "user_agent",
    "request_id",
    "detail",
)
"""What the hash covers, besides the previous hash. Frozen: another field means another kind of chain."""


@dataclass(frozen=True, slots=True)
class ChainViolation:
    """The first row of a chain that is not as it was written."""

    chain: str
    sequence: int
    kind: str
    """``edit``, ``gap``, ``order``, ``truncation`` or ``rewrite`` (sound in itself, but not what was signed)."""
    message: str


def canonical(row: Mapping[str, Any]) -> bytes:
    """The row as canonical JSON: sorted keys, no blanks, UTF-8, times in UTC with microseconds, UUIDs as text.

    Addresses are written as RFC 5952 has it.
    """
    body = {field: _plain(row[field]) for field in FIELDS}
    if body["ip_address"]:
        body["ip_address"] = _address(body["ip_address"])
    return _written(body).encode()


def hash_of(row: Mapping[str, Any], previous_hash: str) -> str:
    """The row's hash: 64 hexadecimal digits."""
    return hashlib.sha256(previous_hash.encode() + b"\n" + canonical(row)).hexdigest()


def verify(
    chain: str,
    rows: Iterable[Mapping[str, Any]],
    *,
    after: tuple[int, str] = (0, GENESIS),
    sequence: int,
    end_hash: str,
) -> ChainViolation | None:
    """The first flaw of a chain, or of a stretch of it, or ``None``.

    ``rows`` come in the order of their sequence, with ``previous_hash`` and ``hash``; ``sequence`` and ``end_hash``
    are the chain's anchor: how many rows there must be and the last one's hash, or the last row of the stretch.
    ``after`` is the sequence and the hash of the row that they follow.

    1. Sequences count from 1 without gaps: a row that was taken out shows as a gap, one that was put in as order.
    2. Each row names the hash of the one before it: exchanging rows shows, even with their own hashes right.
    3. Each row's hash covers its fields: an edit shows.
    4. The anchor is kept elsewhere than the rows: a tail that was cut off leaves a sound chain, and shows only here.

    Whoever can rewrite rows, hashes and anchor alike is found by the signed checkpoints alone (``audit.checkpoints``).
    """
    previous, expected = after[1], after[0] + 1
    for row in rows:
        found = int(row["sequence"])
        if found > expected:
            return ChainViolation(chain, expected, "gap", f"rows {expected} to {found - 1} are missing")
        if found < expected:
            return ChainViolation(chain, found, "order", f"row {found} stands where row {expected} belongs")
        if row["previous_hash"] != previous:
            return ChainViolation(chain, found, "edit", f"row {found} does not follow from the row before it")
        if not _has_its_hash(row, previous):
            return ChainViolation(chain, found, "edit", f"row {found} was changed after it was written")
        previous, expected = row["hash"], expected + 1
    if expected - 1 < sequence:
        return ChainViolation(chain, expected, "truncation", f"rows {expected} to {sequence} were cut off")
    if expected - 1 > sequence or previous != end_hash:
        return ChainViolation(
            chain, expected - 1, "edit", f"row {expected - 1} is not the one that the chain ended with"
        )
    return None


_written = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


@lru_cache(maxsize=1024)
def _address(text: str) -> str:
    return str(ipaddress.ip_address(text))


def _has_its_hash(row: Mapping[str, Any], previous: str) -> bool:
    try:
        return hash_of(row, previous) == str(row["hash"])
    except ValueError:  # Nothing that was ever hashed: an address with a mask.
        return False


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if value is None or isinstance(value, str | int | bool | list | dict):
        return value
    return str(value)
