"""All that the product keeps, to compare before and after."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from django.apps import apps
from django.db import connection
from psycopg import sql


def kept(*, but: AbstractSet[str]) -> dict[str, list[str]]:
    """The rows of every table of the product by its name, as text and in order, without those of ``but``.

    One statement: it is asked before and after each of thousands of attempts.
    """
    tables = sorted({model._meta.db_table for model in apps.get_models() if model._meta.managed} - but)
    rows = sql.SQL("SELECT {} AS name, COALESCE(array_agg(row::text ORDER BY row::text), '{{}}') FROM {} AS row")
    statement = sql.SQL(" UNION ALL ").join(rows.format(sql.Literal(name), sql.Identifier(name)) for name in tables)
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return dict(cursor.fetchall())
