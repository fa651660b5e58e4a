"""A recording's file as it grows: asciicast v2, a line for the head and one for each event.

What was shown is ``o``, a terminal's new size ``r``, and what Tenantry has to say of the session a marker, ``m``.
There is no ``i``: input is nowhere.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Final

import orjson

from kube.remotecommand.channels import Piece

_COLUMNS: Final = 80
_ROWS: Final = 24


class Asciicast:
    """The lines of one file. ``began`` is Unix seconds; the times of events are seconds since.

    The head waits for the first event: a terminal says its size before anything is shown in it.
    """

    def __init__(self, *, began: float, title: str, command: str) -> None:
        self._began = began
        self._title = title
        self._command = command
        self._headed = False
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}

    def output(self, pieces: Iterable[Piece], at: float) -> str:
        """What was shown, each channel's bytes as UTF-8; half a letter waits for its other half."""
        shown = "".join(self._decoder(channel).decode(data) for channel, data in pieces)
        return self._line(at, "o", shown) if shown else ""

    def resize(self, columns: int, rows: int, at: float) -> str:
        """The terminal's size from here on."""
        if not self._headed:
            return self._head(columns, rows)
        return self._line(at, "r", f"{columns}x{rows}")

    def end(self, words: str, at: float) -> str:
        """The last event, with how it ended."""
        rest = "".join(decoder.decode(b"", True) for decoder in self._decoders.values())
        shown = self._line(at, "o", rest) if rest else ""
        return shown + self._line(at, "m", words)

    def _decoder(self, channel: int) -> codecs.IncrementalDecoder:
        if channel not in self._decoders:
            self._decoders[channel] = codecs.getincrementaldecoder("utf-8")(errors="replace")
        return self._decoders[channel]

    def _head(self, columns: int, rows: int) -> str:
        self._headed = True
        head = {
            "version": 2,
            "width": columns,
            "height": rows,
            "timestamp": int(self._began),
            "title": self._title,
            "command": self._command,
        }
        return orjson.dumps(head).decode() + "\n"

    def _line(self, at: float, kind: str, data: str) -> str:
        head = "" if self._headed else self._head(_COLUMNS, _ROWS)
        return head + orjson.dumps([round(at, 6), kind, data]).decode() + "\n"
