"""Where the portal is and what opens it: flags, the environment, or the file that ``tenantry login`` writes."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tenantry_cli.failures import Failure, Status

_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_SIGN_IN = "Run `tenantry login`, or set TENANTRY_URL and TENANTRY_TOKEN."


@dataclass(frozen=True, slots=True)
class SignIn:
    """A portal and the token for it; ``ca_file`` is empty for the authorities of the system."""

    url: str
    token: str = field(repr=False)
    ca_file: str = ""


def checked_url(url: str) -> str:
    """The portal's URL without a slash at its end. Raises ``Failure`` for one that would carry a token in the clear."""
    parts = urlsplit(url)
    plain = parts.scheme == "http" and parts.hostname in _LOOPBACK
    if not parts.hostname or not (parts.scheme == "https" or plain) or parts.query or parts.fragment or parts.username:
        raise Failure("The portal's URL is https://HOST[:PORT], or http:// on this machine.", Status.USAGE)
    return url.rstrip("/")


def sign_in(*, url: str, token: str, ca_file: str) -> SignIn:
    """What is said, and the stored sign-in for what is not. Raises ``Failure``.

    A stored token goes to the portal that it was stored for and to no other.
    """
    kept = stored()
    url = checked_url(url) if url else kept.url if kept else ""
    same = kept if kept and kept.url == url else None
    token = token or (same.token if same else "")
    if not url or not token:
        raise Failure(f"Nobody is signed in{f' to {url}' if url else ''}. {_SIGN_IN}", Status.NOT_SIGNED_IN)
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise Failure("The token has characters that no token has; copy it again.", Status.NOT_SIGNED_IN)
    return SignIn(url, token, ca_file or (same.ca_file if same else ""))


def stored() -> SignIn | None:
    """The stored sign-in. Raises ``Failure`` when others can read the file, or when it is none."""
    path = _path()
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise Failure(f"Others can read {path}: chmod 600 {path}, and revoke its token if they did.")
            return SignIn(**json.load(file))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise Failure(f"{path} cannot be read: remove it and run `tenantry login`.") from None


def keep(signed_in: SignIn) -> Path:
    """Store a sign-in in place of the one before, readable by its owner alone; returns the file."""
    write_private(_path(), json.dumps(asdict(signed_in)))
    return _path()


def forget() -> bool:
    """Remove the stored sign-in; whether there was one."""
    try:
        _path().unlink()
    except FileNotFoundError:
        return False
    return True


def write_private(path: Path, text: str) -> None:
    """Replace a file whole by one that its owner alone can read. Raises ``Failure``."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise Failure(f"{path} cannot be written: {error.strerror}.") from None


def _path() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "tenantry" / "sign-in.json"
