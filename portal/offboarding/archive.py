"""A ZIP archive that is sent while it is made, with a manifest of what is in it; none of it is held for longer than that."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

MANIFEST: Final = "manifest.json"
_PIECE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the archive: its name, and its text piece by piece."""

    name: str
    pieces: Iterable[str]


class _Outlet:
    """What the archive is written to, and read from again at once. It cannot seek: sizes follow what they are of."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is kept back."""

    def drain(self) -> bytes:
        found, self._pieces, self.size = b"".join(self._pieces), [], 0
        return found


def archive_pieces(members: Iterable[Member], about: Mapping[str, Any], *, now: datetime) -> Iterator[bytes]:
    """The archive, and last in it ``manifest.json``: ``about``, and each file with its size and its SHA-256.

    An archive without a manifest was cut off.
    """
    outlet, listed = _Outlet(), []
    moment = now.timetuple()[:6]
    with zipfile.ZipFile(outlet, "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[call-overload] # it writes and flushes

        def added(member: Member) -> Iterator[bytes]:
            digest, size = hashlib.sha256(), 0
            entry = zipfile.ZipInfo(member.name, date_time=moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as file:
                for piece in member.pieces:
                    data = piece.encode()
                    digest.update(data)
                    size += len(data)
                    file.write(data)
                    if outlet.size >= _PIECE:
                        yield outlet.drain()
            listed.append({"name": member.name, "bytes": size, "sha256": digest.hexdigest()})

        for member in members:
            yield from added(member)
        manifest = json.dumps({**about, "files": listed}, indent=2, ensure_ascii=False) + "\n"
        yield from added(Member(MANIFEST, [manifest]))
    yield outlet.drain()
