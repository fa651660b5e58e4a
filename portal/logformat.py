"""How a line of the product's own log is written."""

from __future__ import annotations

import logging

from audit.redaction import without_links
from kube.requests.visibletexts import visible


class AccessFilter(logging.Filter):
    """Keeps the secrets of links out of the server's log of requests (GW9)."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record, its texts without them."""
        if isinstance(record.args, tuple):
            record.args = tuple(without_links(part) if isinstance(part, str) else part for part in record.args)
        return True


class LineFormatter(logging.Formatter):
    """One record, one line: what strangers and clusters say cannot begin another one, nor turn a terminal (GW13).

    Only where an error came from stands below, in lines of its own.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is the library's
        """The line."""
        return visible(without_links(super().formatMessage(record)))

    def formatException(self, ei: tuple[object, ...]) -> str:  # noqa: N802
        """The lines of a traceback, each begun so that it is none of the log's."""
        return visible(without_links(super().formatException(ei)).replace("\n", "\n  "), "\n")  # type: ignore[arg-type]
