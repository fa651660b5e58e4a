"""The columns of a watch's tables: each cluster has its own, by its version, and a client prints all rows under one head (GW4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from gateway.handlers.acrossnamespaces.parts import is_table
from kube.objects.tables import aligned_rows


class Columns:
    """Those of one part while it is followed; ``head`` is what its rows are shown under."""

    __slots__ = ("_head", "_is_begun", "_own")

    def __init__(self, head: Mapping[str, Any]) -> None:
        self._head = head
        self._own: Mapping[str, Any] = {}
        self._is_begun = False

    def shown(self, line: bytes, event: Mapping[str, Any]) -> bytes:
        """An event as its client is told it, nothing for a bookmark. Raises ``ValueError`` for rows of other columns.

        As of any watch the first one names the columns; what a cluster has said of its own may have been a bookmark.
        """
        table = event["object"]
        is_named = bool(table.get("columnDefinitions"))
        if is_named:
            self._own = {"columnDefinitions": table["columnDefinitions"]}
        rows: Sequence[dict[str, Any]] = table["rows"] if event["type"] != "BOOKMARK" else ()
        if not is_table(self._own, rows):
            raise ValueError("rows of other columns")
        if is_named:
            # Their names are all that is kept.
            self._own = {"columnDefinitions": [{"name": column["name"]} for column in table["columnDefinitions"]]}
        if event["type"] == "BOOKMARK":
            return b""
        begins, self._is_begun = not self._is_begun, True
        aligned = aligned_rows(rows, self._own, self._head)
        if aligned is rows and not begins and not is_named:
            return line + b"\n"
        columns = self._head["columnDefinitions"] if begins else None
        return orjson.dumps({**event, "object": {**table, "columnDefinitions": columns, "rows": aligned}}) + b"\n"
