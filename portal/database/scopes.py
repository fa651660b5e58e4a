"""Whose rows the statements of this context see: everybody's, or those of one person's tenants.

Workers, commands and the API server see everything; so do operators. While a request of the portal is answered for
anybody else, PostgreSQL itself leaves out every row that is not of the person's tenants (``portal.database.rights``):
a filter that a view forgets leaks nothing. ``portal.database.base`` tells the connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Scope:
    """A person and, when only one of their tenants is meant, its name. Nobody sees no tenant's rows."""

    user: UUID | None = None
    tenant: str = ""


NOBODY: Final = Scope()

_current: ContextVar[Scope | None] = ContextVar("scope", default=None)


def current() -> Scope | None:
    """The scope of this context; ``None`` sees everything."""
    return _current.get()


@contextmanager
def scoped(scope: Scope | None) -> Iterator[None]:
    """Statements see what ``scope`` does until the context ends, unless it is changed by ``become``."""
    token = _current.set(scope)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def everything() -> Iterator[None]:
    """Statements see everybody's rows: for what is needed to find out who asks, and whom they name."""
    with scoped(None):
        yield


def become(scope: Scope | None) -> None:
    """Change the scope of the surrounding ``scoped``: it is known only now who asks."""
    _current.set(scope)
