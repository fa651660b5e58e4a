"""Where the database is: one host, or several of which one takes writes (docs/operators/operations.md, Fail-over)."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from django.core.exceptions import ImproperlyConfigured

_TARGET: Final = "target_session_attrs"
_TARGETS: Final = ("read-write", "primary")

_ADDED: Final = {
    _TARGET: _TARGETS[0],
    # In an order of chance, so that a host that is silent is not waited for first each time.
    "load_balance_hosts": "random",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""Whoever connects is led to the host that takes writes, and waits for none that is gone; what a standby says may be old."""


def resilient(variable: str, url: str) -> str:
    """The URL of this variable as everybody connects with it; what it says itself counts.

    Raises ``ImproperlyConfigured`` for one that may lead to a standby.
    """
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    given = dict(query)
    if given.get(_TARGET, _TARGETS[0]) not in _TARGETS:
        raise ImproperlyConfigured(
            f"{variable}: {_TARGET}={given[_TARGET]} may lead to a standby. Say {_TARGET}=read-write, or leave it out."
        )
    query += [(name, value) for name, value in _ADDED.items() if name not in given]
    return urlunsplit(parts._replace(query=urlencode(query, safe="/,:", quote_via=quote)))
