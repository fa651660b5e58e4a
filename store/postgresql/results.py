"""What the statements of the engine answer, in the words of the store."""

from __future__ import annotations

from psycopg.pq.abc import PGresult

from store.types import Key, Stored


def text_of(data: bytes | None) -> str:
    """A column of text."""
    return (data or b"").decode()


def keys_of(result: PGresult) -> list[Key]:
    """Rows of space, group, resource, namespace and name."""
    get = result.get_value
    return [Key(*(text_of(get(row, column)) for column in range(5))) for row in range(result.ntuples)]


def objects_of(result: PGresult) -> list[Stored]:
    """The same with a revision and the data."""
    get = result.get_value
    return [
        Stored(key, int.from_bytes(get(row, 5) or b""), get(row, 6) or b"") for row, key in enumerate(keys_of(result))
    ]
