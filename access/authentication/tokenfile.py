"""Static bearer tokens from ``--token-auth-file`` (AN4)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from access.authentication.base import Credentials
from access.authentication.digests import Digests, header_bytes
from access.reloading import ReloadedFile
from kube.authentication import authfiles
from kube.authentication.identity import AUTHENTICATED, Principal

logger = logging.getLogger(__name__)


class TokenFileAuthenticator:
    """Knows the tokens of one file; a token that is not in it is not this authenticator's.

    Making it reads the file, or raises ``UnusableFile`` with file and line. A changed file is read again within a
    second; a wrong one changes nothing and is logged as an error.
    """

    name = "token-file"

    def __init__(self, path: Path, digests: Digests | None = None) -> None:
        self._path = path
        self._digests = digests or Digests()
        self._file = ReloadedFile(path, self._parse, secret=True)

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal | None:
        """The user of the bearer token, or ``None``."""
        token = credentials.bearer
        data = header_bytes(token) if token is not None else None
        if data is None:
            return None
        return self._digests.find(await self._file.current(now), data)

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Read the file again when it changes, until cancelled."""
        await self._file.follow(on_change)

    def _parse(self, data: bytes) -> dict[bytes, Principal]:
        users: dict[bytes, Principal] = {}
        lines: dict[bytes, int] = {}
        for entry in report_defaults(self._path, authfiles.parse(data)):
            digest = self._digests.of(entry.secret.encode())
            if digest in users:
                logger.warning(
                    "%s, line %d: the token of line %d again; the later line counts",
                    self._path,
                    entry.line,
                    lines[digest],
                )
            users[digest] = principal_of(entry, self.name)
            lines[digest] = entry.line
        return users


def principal_of(entry: authfiles.Entry, authenticator: str) -> Principal:
    """The identity that a line of a file stands for."""
    return Principal(
        name=entry.name,
        uid=entry.uid,
        groups=(*entry.groups, AUTHENTICATED),
        tenant=entry.tenant,
        authenticator=authenticator,
    )


def report_defaults(path: Path, entries: Iterable[authfiles.Entry]) -> Iterable[authfiles.Entry]:
    """The entries; whoever becomes an operator by leaving the tenant out is named in the log."""
    for entry in entries:
        if not entry.explicit:
            logger.warning(
                "%s, line %d: no tenant, so user %r belongs to the tenant %r; end the line with ',,%s' to say so",
                path,
                entry.line,
                entry.name,
                entry.tenant,
                entry.tenant,
            )
        yield entry
