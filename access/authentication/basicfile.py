"""Passwords from ``--basic-auth-file`` (AN5)."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable
from pathlib import Path

from access.authentication.base import Credentials, Refused
from access.authentication.digests import CREDENTIAL_MAX, Digests, header_bytes
from access.authentication.tokenfile import principal_of, report_defaults
from access.passwordattempts import PasswordAttempts
from access.reloading import ReloadedFile
from kube.authentication import authfiles
from kube.authentication.identity import Principal

logger = logging.getLogger(__name__)


class BasicFileAuthenticator:
    """Knows the users and passwords of one file; made and reloaded as the token file is.

    Users of one name in several tenants are told apart by their passwords, which must therefore differ.
    """

    name = "basic-file"

    def __init__(self, path: Path, digests: Digests | None = None) -> None:
        self._path = path
        self._digests = digests or Digests()
        self._attempts = PasswordAttempts()
        self._file = ReloadedFile(path, self._parse, secret=True)

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal | None:
        """The user who knows the password; ``None`` without Basic credentials; ``Refused`` for wrong ones.

        ``TooManyRequests`` after too many of those.
        """
        encoded = _basic(credentials.authorization)
        if encoded is None:
            return None
        user, password = _decode(encoded)
        users = await self._file.current(now)
        # Of a name only its digest is kept: one may be as long as a header.
        key = self._digests.of(user)
        self._attempts.require_room(credentials.address, key, now)
        principal = self._digests.find(users, user, password)
        if principal is None:
            self._attempts.failed(credentials.address, key, now)
            raise Refused("unknown user or wrong password")
        self._attempts.succeeded(credentials.address, key)
        return principal

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Read the file again when it changes, until cancelled."""
        await self._file.follow(on_change)

    def _parse(self, data: bytes) -> dict[bytes, Principal]:
        latest: dict[tuple[str, str], authfiles.Entry] = {}
        for entry in report_defaults(self._path, authfiles.parse(data)):
            if ":" in entry.name:
                raise authfiles.AuthFileError(entry.line, "a user name with a colon cannot sign in by password")
            before = latest.get((entry.tenant, entry.name))
            if before is not None:
                logger.warning(
                    "%s, line %d: the user of line %d again; the later line counts",
                    self._path,
                    entry.line,
                    before.line,
                )
            latest[entry.tenant, entry.name] = entry
        users: dict[bytes, Principal] = {}
        for entry in latest.values():
            digest = self._digests.of(entry.name.encode(), entry.secret.encode())
            if digest in users:
                raise authfiles.AuthFileError(
                    entry.line, f"the same user and password are in tenant {users[digest].tenant!r} too"
                )
            users[digest] = principal_of(entry, self.name)
        return users


def _basic(authorization: str | None) -> bytes | None:
    if authorization is None:
        return None
    scheme, _, rest = authorization.strip(" \t").partition(" ")
    if scheme.lower() != "basic":
        return None
    return header_bytes(rest) or b""


def _decode(encoded: bytes) -> tuple[bytes, bytes]:
    """User and password (RFC 7617): what stands before and after the first colon."""
    try:
        decoded = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise Refused("malformed Basic credentials") from None
    user, colon, password = decoded.partition(b":")
    if not colon or not user or not password or len(decoded) > CREDENTIAL_MAX:
        raise Refused("malformed Basic credentials")
    return user, password
