"""Which request this task answers just now: its audit ID is in every line that is logged meanwhile (GW13)."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

request_name: Final[ContextVar[str]] = ContextVar("request_name", default="")
"""The API server's ``Audit-ID``, or the portal's ``X-Request-ID``; empty outside requests."""
