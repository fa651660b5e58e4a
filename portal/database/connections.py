"""Connections of the database are given back before anything is waited for that may take long."""

from __future__ import annotations

from django.db import connections


def give_back() -> None:
    """Give back what this thread holds outside of a transaction; whoever asks again gets another one.

    Django gives it back when an answer was taken, and who takes it, and how slowly, is somebody else's choice.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
