"""Where the database is: one host, or several of which one takes writes (docs/operations.md, Fail-over)."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from django.core.exceptions import ImproperlyConfigured

_TARGET: Final = "target_session_attrs"
_TARGETS: Final = ("read-write", "primary")

_PATIENCE: Final = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""How long a host that says nothing is waited for, in seconds but the last, which is in milliseconds."""


def writable(variable: str, url: str) -> str:
    """The URL, which leads to the host that takes writes, whatever else it names: what a standby says may be old.

    The hosts are tried in an order of chance, so that one that is silent is not waited for first each time. Raises
    ``ImproperlyConfigured`` for a URL that asks for another host.
    """
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    given = dict(query)
    if given.get(_TARGET, _TARGETS[0]) not in _TARGETS:
        raise ImproperlyConfigured(
            f"{variable}: {_TARGET}={given[_TARGET]} may lead to a standby. Say {_TARGET}=read-write, or leave it out."
        )
    added = {_TARGET: _TARGETS[0], "load_balance_hosts": "random"}
    query += [(name, value) for name, value in added.items() if name not in given]
    return urlunsplit(parts._replace(query=urlencode(query, safe="/,:")))


def patient(configuration: dict[str, Any]) -> dict[str, Any]:
    """A connection of Django's that does not wait for ever for a host that is gone; what the URL says counts."""
    return {**configuration, "OPTIONS": {**_PATIENCE, **configuration.get("OPTIONS", {})}}
