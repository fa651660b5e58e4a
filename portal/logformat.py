"""How a line of the product's own log is written."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from audit.redaction import without_links
from audit.requestnames import request_name
from kube.requests.visibletexts import visible


class LineFormatter(logging.Formatter):
    """One record, one line: what strangers and clusters say cannot begin another one, nor turn a terminal (GW13).

    Only where an error came from stands below, in lines of its own. A line about a request ends with its audit ID.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is the library's
        """One record as one line of text."""
        name = request_name.get()
        return visible(without_links(super().formatMessage(record))) + (f" [{name}]" if name else "")

    def formatException(self, ei: tuple[object, ...]) -> str:  # noqa: N802
        """The lines of a traceback, each begun so that it is none of the log's."""
        return visible(without_links(super().formatException(ei)).replace("\n", "\n  "), "\n")  # type: ignore[arg-type]


class JSONFormatter(LineFormatter):
    """One record, one JSON object on one line, for those who collect logs: the error and the audit ID are fields of it."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one JSON object."""
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": visible(without_links(record.getMessage())),
        }
        if name := request_name.get():
            told["request"] = name
        if record.exc_info and record.exc_info[0] is not None:
            told["exception"] = without_links(logging.Formatter.formatException(self, record.exc_info))
        return json.dumps(told, ensure_ascii=True)
