"""Arrays are what PostgreSQL takes and gives: whatever is in them, and however few."""

from __future__ import annotations

import asyncio
import json

from hypothesis import given
from hypothesis import strategies as st

from store.postgresql.arrays import Bigints, Blobs, Texts, bigints, blobs
from store.postgresql.dedicatedconnection import BINARY, DedicatedConnection

NUMBERS = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=5)
BYTES = st.lists(st.none() | st.binary(max_size=9), max_size=5)
WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9), max_size=5)


def test_what_the_database_is_given_it_gives_back(conninfo: str) -> None:
    with asyncio.Runner() as runner:
        connection = DedicatedConnection(conninfo, "arrays")

        @given(NUMBERS, BYTES, WORDS)
        def told(numbers: list[int | None], octets: list[bytes | None], words: list[str]) -> None:
            asked = connection.ask(
                "SELECT %s, %s, convert_to(to_jsonb(%s)::text, 'UTF8')",
                (Bigints(numbers), Blobs(octets), Texts(words)),
                form=BINARY,
            )
            get = runner.run(asked).get_value
            assert (bigints(get(0, 0)), blobs(get(0, 1)), json.loads(get(0, 2) or b"")) == (numbers, octets, words)

        async def hang_up() -> None:
            connection.close()

        try:
            told()
        finally:
            runner.run(hang_up())
