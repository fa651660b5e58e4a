"""The file of a backup: a ZIP of one member a table, as ``COPY`` wrote it, a manifest, and its seal.

The manifest names every member with its SHA-256. The seal is the manifest's digest under the installation's sealing
key: a file that opens was made by this installation, and nobody without the key has changed it. The file holds what the
database holds, tenants' Secrets and password hashes among it, so it is its owner's alone; it holds no key.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from django.core.exceptions import ImproperlyConfigured

from tenants.clusters import encryption

FORMAT: Final = 1
_MANIFEST: Final = "manifest.json"
_SEAL: Final = "manifest.seal"
_BLOCK: Final = 1 << 20


class Unusable(Exception):
    """Nothing was backed up or restored, and the text says why and what to do instead."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the backup: its columns, in the order of its lines, and what the member has to be."""

    name: str
    columns: Sequence[str]
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup is of: which release, which moment, and where the logs stood then.

    ``revision`` is the store's. ``heads`` are the ends of the audit's chains (sequence and hash), ``days`` those that
    recorded API requests are of (``2026-01-01T00:00:00+00:00``).
    """

    made_at: datetime
    migrations: Sequence[str]
    revision: int
    heads: dict[str, tuple[int, str]]
    days: Sequence[str]
    tables: Sequence[Table]


class Writer:
    """Takes the tables in, one after the other."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def table(self, name: str, columns: Sequence[str], blocks: Iterable[bytes | memoryview]) -> Table:
        """Write one table's lines."""
        digest, size, rows = hashlib.sha256(), 0, 0
        with self._archive.open(_member(name), "w", force_zip64=True) as member:
            for block in blocks:
                data = bytes(block)
                digest.update(data)
                size += len(data)
                rows += data.count(b"\n")  # COPY writes a line feed nowhere else
                member.write(data)
        return Table(name, list(columns), rows, size, digest.hexdigest())


def write(file: Path, fill: Callable[[Writer], Manifest]) -> int:
    """Make the file of what ``fill`` writes, whole or not at all, for its owner alone; its size in bytes.

    Never replaces a file. Raises ``Unusable`` for one that is there, and where it cannot be written.
    """
    if file.exists():
        raise Unusable(f"{file} is there already: name another file, or move that one away.")
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
            with zipfile.ZipFile(handle, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                text = _text_of(fill(Writer(archive)))
                archive.writestr(_MANIFEST, text)
                archive.writestr(_SEAL, encryption.encrypt(hashlib.sha256(text).hexdigest()))
            handle.flush()
            os.fsync(handle.fileno())
        os.link(partial, file)  # unlike a rename, never over another file
        _sync_folder(file.parent)
    except ImproperlyConfigured as error:
        raise Unusable(str(error)) from None
    except FileExistsError:
        raise Unusable(f"{file} was made meanwhile: name another file.") from None
    except OSError as error:
        raise Unusable(
            f"{file} cannot be written: {error.strerror}. Nothing is left of it; make room, or name another folder."
        ) from None
    finally:
        with suppress(OSError):
            partial.unlink()
    return file.stat().st_size


class Archive:
    """A backup that was opened: its seal is whole."""

    def __init__(self, file: Path, archive: zipfile.ZipFile) -> None:
        self._file = file
        self._archive = archive
        self.manifest = self._read_manifest()

    def blocks(self, table: Table) -> Iterator[bytes]:
        """The lines of a table. Raises ``Unusable`` at their end when they are not what was backed up."""
        digest = hashlib.sha256()
        try:
            with self._archive.open(_member(table.name)) as member:
                while block := member.read(_BLOCK):
                    digest.update(block)
                    yield block
        except (KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise _damaged(self._file, f"{table.name}: {error}") from None
        if digest.hexdigest() != table.sha256:
            raise _damaged(self._file, f"{table.name} is not what was backed up")

    def verify(self, progress: Callable[[str], None]) -> None:
        """Read all of it. Raises ``Unusable`` for damage."""
        for table in self.manifest.tables:
            progress(f"checking {table.name}")
            for _ in self.blocks(table):
                pass

    def _read_manifest(self) -> Manifest:
        try:
            text, seal = self._archive.read(_MANIFEST), self._archive.read(_SEAL)
        except (KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            raise _damaged(self._file, "it has no manifest") from None
        try:
            sealed = encryption.decrypt(seal)
        except ImproperlyConfigured as error:
            raise Unusable(str(error)) from None
        except encryption.DecryptionError:
            raise Unusable(
                f"{self._file} was not sealed with a sealing key of this installation, or its seal is damaged. Put back "
                "the data folder's sealing-key (or TENANTRY_SEALING_KEYS) of that time: what is encrypted in the backup "
                "opens with no other."
            ) from None
        if sealed != hashlib.sha256(text).hexdigest():
            raise _damaged(self._file, "its manifest is not the one that was sealed")
        return _manifest_of(self._file, text)


@contextmanager
def opened(file: Path) -> Iterator[Archive]:
    """A backup for reading. Raises ``Unusable`` for what is none, damaged, another format's or another installation's."""
    try:
        archive = zipfile.ZipFile(file)
    except OSError as error:
        raise Unusable(f"{file} cannot be read: {error.strerror}.") from None
    except zipfile.BadZipFile:
        raise _damaged(file, "it is cut off, or no backup at all") from None
    with archive:
        yield Archive(file, archive)


def _member(table: str) -> str:
    return f"tables/{table}"


def _text_of(manifest: Manifest) -> bytes:
    body = {"format": FORMAT, **asdict(manifest), "made_at": manifest.made_at.isoformat()}
    return json.dumps(body, indent=1, sort_keys=True).encode()


def _manifest_of(file: Path, text: bytes) -> Manifest:
    body = json.loads(text)
    if body.pop("format") != FORMAT:
        raise Unusable(f"{file} is of another format: restore it with the release that made it, then upgrade that.")
    return Manifest(
        **{
            **body,
            "made_at": datetime.fromisoformat(body["made_at"]),
            "heads": {chain: (sequence, end) for chain, (sequence, end) in body["heads"].items()},
            "tables": [Table(**table) for table in body["tables"]],
        }
    )


def _damaged(file: Path, what: str) -> Unusable:
    return Unusable(f"{file} is damaged ({what}), and nothing of it was restored: take another backup.")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
