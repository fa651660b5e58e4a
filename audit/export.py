"""The audit as text: JSON Lines with everything the hash needs, or CSV that is safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from audit import chain as chains

_COLUMNS = (*chains.FIELDS, "previous_hash", "hash")

_COMPUTED: Final = re.compile('(^|[;\t\r\n])(?=[ "]*[=+\\-@|%\t\r\n\uff1d\uff0b\uff0d\uff20])')
"""Where a cell begins that would be computed: many spreadsheets separate by semicolons, whatever the quotes say."""


def json_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One line of JSON a row, keys in the order of the hash's fields."""
    for row in rows:
        body = json.loads(chains.canonical(row))
        body |= {"previous_hash": row["previous_hash"], "hash": row["hash"]}
        yield json.dumps({name: body[name] for name in _COLUMNS}, ensure_ascii=False) + "\n"


def csv_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A header and one line a row; a cell that a spreadsheet would compute is led by an apostrophe."""
    yield csv_line(_COLUMNS)
    for row in rows:
        body = json.loads(chains.canonical(row))
        body |= {"previous_hash": row["previous_hash"], "hash": row["hash"]}
        body["detail"] = json.dumps(body["detail"], ensure_ascii=False, sort_keys=True)
        yield csv_line([body[name] for name in _COLUMNS])


def csv_line(cells: Iterable[Any]) -> str:
    """One line of CSV, of which no spreadsheet computes anything."""
    line = io.StringIO()
    csv.writer(line).writerow(map(_harmless, cells))
    return line.getvalue()


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return _COMPUTED.sub(r"\1'", value)
    return "" if value is None else value
