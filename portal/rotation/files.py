"""Files with several keys: the first is used, all are accepted. Each is written whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kube.authentication import pki
from kube.authentication.pki import pem_blocks

_BLOCK_ANNOUNCED: Final = b"announced:\n"
"""Before a block that waits to be used; what reads blocks passes over it."""

_LINE_ANNOUNCED: Final = ",\n"
"""Before a key that waits to be used; what reads keys takes it for a comma."""


class CannotRotate(Exception):
    """Why a key stays, and what to do."""


def write(path: Path, data: bytes) -> None:
    """In the place of what is there, with its mode and owner."""
    state = path.stat()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, state.st_mode & 0o777)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if (state.st_uid, state.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(temporary, state.st_uid, state.st_gid)
    temporary.replace(path)


def since_line() -> bytes:
    """What ``since`` reads again."""
    return pki.since_line(datetime.now(UTC))


def since(path: Path) -> float:
    """When the file got what it has, in seconds since 1970: as it says itself, or by its own time where it does not."""
    said = pki.said_since(path.read_bytes())
    return path.stat().st_mtime if said is None else said.timestamp()


def block_announce(path: Path, block: bytes) -> None:
    """Another key or certificate behind the others."""
    write(path, path.read_bytes().rstrip() + b"\n" + block)


def marked_block_announce(path: Path, block: bytes) -> None:
    """The same of blocks that look alike before and after they were used."""
    block_announce(path, _BLOCK_ANNOUNCED + block)


def marked_block_announced(path: Path) -> bool:
    """Whether the last block waits to be used."""
    return _BLOCK_ANNOUNCED + b"-----BEGIN" in path.read_bytes()


def block_promote(path: Path) -> None:
    """The last before the others, which stay."""
    blocks = pem_blocks(path.read_bytes())
    write(path, b"".join((blocks[-1], since_line(), *blocks[:-1])))


def block_keep_first(path: Path) -> None:
    """The first alone, and since when it is that."""
    text = path.read_bytes()
    said = pki.said_since(text)
    write(path, pem_blocks(text)[0] + (b"" if said is None else pki.since_line(said)))


def signing_key_announce(path: Path) -> None:
    """A new private key behind the one that signs: from now on both verify."""
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    block_announce(path, key)


def signing_key_announced(path: Path) -> bool:
    """Whether the last private key waits to sign: of one that has signed only the public half is left."""
    return path.read_bytes().count(b"PRIVATE KEY-----") > 2  # each has two such lines


def signing_key_promote(path: Path, *, revoke: bool) -> None:
    """The last private key signs; of the one before only the public half stays, or with ``revoke`` nothing."""
    blocks = pem_blocks(path.read_bytes())
    private = [block for block in blocks if b"PRIVATE KEY-----" in block]
    before = serialization.load_pem_private_key(private[0], None).public_key()
    half = before.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    write(path, private[-1] + since_line() + (b"" if revoke else half))


def lines(path: Path) -> list[str]:
    """The keys of a file with one a line, or with commas between them."""
    return [key for key in re.split(r"[\s,]+", path.read_text()) if key]


def line_announce(path: Path, key: str) -> None:
    """Another key behind the others."""
    write(path, f"{','.join(lines(path))}{_LINE_ANNOUNCED}{key}".encode())


def line_announced(path: Path) -> bool:
    """Whether the last key waits to be used."""
    return _LINE_ANNOUNCED in path.read_text()


def line_promote(path: Path) -> None:
    """The last key before the others, which stay."""
    keys = lines(path)
    write(path, ",".join((keys[-1], *keys[:-1])).encode())


def line_keep_first(path: Path) -> None:
    """The first key alone."""
    write(path, lines(path)[0].encode())
