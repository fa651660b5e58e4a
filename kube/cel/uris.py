"""Which texts Go's ``url.ParseRequestURI`` reads: what ``isURL`` and the format ``uri`` ask in Kubernetes."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import unquote

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_ESCAPE: Final = "%[0-9A-Fa-f]{2}"
_PATH: Final = re.compile(rf"([^%]|{_ESCAPE})*")
_USER: Final = re.compile(rf"([A-Za-z0-9._:~!$&'()*+,;=@-]|{_ESCAPE})*")
_LETTER: Final = r"[A-Za-z0-9_.~!$&'()*+,;=:\[\]<>\"-]|[^\x00-\x7f]"
_HOST: Final = re.compile(rf"({_LETTER}|%25|%[89A-Fa-f][0-9A-Fa-f])*")
"""What is of ASCII is not escaped there."""
_ZONE: Final = re.compile(rf"({_LETTER}|{_ESCAPE})*")
_IN_ZONE: Final = re.compile(r"[A-Za-z0-9_.~!$&'()*+,;=:\[\]<>\"% -]")
"""What may be escaped there."""
_PORT: Final = re.compile(r"(:[0-9]*)?")


def is_request_uri(text: str) -> bool:
    """Whether it is absolute, or a path from the root; it has no fragment: a ``#`` is a letter like others."""
    if not text or _CONTROL.search(text):
        return False
    found = _SCHEME.fullmatch(text)
    rest = (found[2] if found else text).partition("?")[0]
    if not rest.startswith("/"):
        # As in ``mailto:somebody``; nothing is asked of it. All of a server is meant by an asterisk.
        return found is not None or text == "*"
    if found and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        user, _, host = authority.rpartition("@")
        return bool(_USER.fullmatch(user) and _is_host(host) and _PATH.fullmatch(slash + path))
    return _PATH.fullmatch(rest) is not None


def _is_host(text: str) -> bool:
    if not text.startswith("["):
        name, colon, port = text.partition(":")
        return bool(_PORT.fullmatch(colon + port) and _HOST.fullmatch(name))
    inside, bracket, port = text[1:].rpartition("]")
    address, mark, zone = inside.partition("%25")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    if "%" in address:
        return False
    if mark and not (zone and _ZONE.fullmatch(zone)):
        return False
    escaped = (unquote(escape, "latin-1") for escape in re.findall(_ESCAPE, zone))
    return bool(bracket and _PORT.fullmatch(port) and all(map(_IN_ZONE.fullmatch, escaped)))
