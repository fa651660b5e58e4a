"""The token file and the basic-auth file: CSV as Kubernetes reads it, with the tenant at the end (AN4, AN5).

A line is ``secret,user,uid[,"group1,group2"[,other…]]``: a user of the tenant ``system``, as Kubernetes reads it. With an
empty column and a tenant's name at the end, ``secret,user,uid,"groups"[,other…],,tenant``, or without groups
``secret,user,uid,,tenant``, it is a user of that tenant. A line where an empty column says that a tenant was meant, and
it is not where it belongs, is refused: taking it for a line without tenant would make a tenant's user one of the
operators.

Blank lines and lines that start with ``#`` are skipped; a secret that starts with ``#`` stands in quotes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kube.authentication.userinfo import groups_reasons, name_reasons, tenant_reasons
from kube.requests.names import SYSTEM_TENANT

FILE_MAX: Final = 16 * 1024 * 1024
"""Bytes: about a hundred thousand users. Larger files are a mistake, or an attempt to fill the memory."""

LINE_MAX: Final = 64 * 1024
_TENANT_COLUMNS: Final = 5


class AuthFileError(ValueError):
    """A line that cannot be read. The message never holds the secret."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Entry:
    """One user of a file; ``explicit`` tells whether the line names its tenant."""

    secret: str = field(repr=False)
    name: str
    uid: str
    groups: tuple[str, ...]
    tenant: str
    explicit: bool
    line: int


def parse(data: bytes) -> tuple[Entry, ...]:
    """Every user of the file, in order. Raises ``AuthFileError`` at the first line that is not right."""
    if len(data) > FILE_MAX:
        raise AuthFileError(1, f"the file is larger than {FILE_MAX} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise AuthFileError(data.count(b"\n", 0, error.start) + 1, "not UTF-8") from None
    if text.startswith("\ufeff"):
        raise AuthFileError(1, "the file starts with a byte order mark; save it without")
    entries = []
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.removesuffix("\r")
        if content.strip() and not content.startswith("#"):
            entries.append(entry(content, number))
    return tuple(entries)


def entry(line: str, number: int = 1) -> Entry:
    """The user of one line. Raises ``AuthFileError``."""
    columns = _columns(line, number)
    if len(columns) < 3:
        raise AuthFileError(number, f"at least 3 columns (secret, user, uid) are needed, found {len(columns)}")
    secret, name, uid = columns[:3]
    if not secret:
        raise AuthFileError(number, "the first column, the secret, is empty")
    if reasons := name_reasons(name):
        raise AuthFileError(number, f"the user name {reasons[0]}")
    if uid and (reasons := name_reasons(uid)):
        raise AuthFileError(number, f"the uid {reasons[0]}")
    groups = tuple(columns[3].split(",")) if len(columns) > 3 and columns[3] else ()
    if reasons := groups_reasons(groups, outside=False):
        raise AuthFileError(number, reasons[0])
    tenant = _tenant(columns, number)
    return Entry(secret, name, uid, groups, tenant or SYSTEM_TENANT, tenant is not None, number)


def _tenant(columns: list[str], number: int) -> str | None:
    others = columns[4:]
    if not columns[-1] and (others or not columns[-2]):
        raise AuthFileError(number, "the last column is empty: a tenant's name was to follow")
    if not columns[-2]:
        if len(columns) < _TENANT_COLUMNS and tenant_reasons(columns[-1]):
            # No tenant can have this name: they are the groups of a user without a uid.
            return None
        if len(columns) < _TENANT_COLUMNS:
            raise AuthFileError(
                number,
                "the last column could be a tenant or groups: write secret,user,uid,,tenant with all five columns",
            )
        if not all(others[:-2]):
            raise AuthFileError(number, "more than one column is empty: only the one before the tenant may be")
        if reasons := tenant_reasons(columns[-1]):
            raise AuthFileError(number, f"the tenant {reasons[0]}")
        return columns[-1]
    if not all(others):
        raise AuthFileError(number, "a column before the last is empty, but the tenant must be the very last one")
    return None


def _columns(line: str, number: int) -> list[str]:
    """RFC 4180 as Go reads it: a quote only around a whole column, doubled inside."""
    if len(line) > LINE_MAX:
        raise AuthFileError(number, f"the line is longer than {LINE_MAX} characters")
    if any(character < " " or character == "\x7f" for character in line):
        raise AuthFileError(number, "the line contains a control character")
    columns: list[str] = []
    position = 0
    while True:
        if line.startswith('"', position):
            column, position = _quoted(line, position + 1, number)
        else:
            end = line.find(",", position)
            end = len(line) if end < 0 else end
            column, position = line[position:end], end
            if '"' in column:
                raise AuthFileError(number, "a quote inside a column that does not start with one")
        columns.append(column)
        if position == len(line):
            return columns
        position += 1


def _quoted(line: str, position: int, number: int) -> tuple[str, int]:
    parts: list[str] = []
    while True:
        end = line.find('"', position)
        if end < 0:
            raise AuthFileError(number, "a quote is not closed")
        parts.append(line[position:end])
        if line.startswith('""', end):
            parts.append('"')
            position = end + 2
        elif end + 1 == len(line) or line[end + 1] == ",":
            return "".join(parts), end + 1
        else:
            raise AuthFileError(number, "text follows a closing quote")
