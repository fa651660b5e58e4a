"""How a process that checks chains begins: Django first, then what is made of its models."""

from __future__ import annotations

import django


def prepare(database: str) -> None:
    """Set Django up and point it to the database of whoever asks."""
    django.setup()
    from django.db import connection

    connection.settings_dict["NAME"] = database
