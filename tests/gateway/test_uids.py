"""Identities of objects and requests: random UUIDs, of which no two processes make the same."""

from __future__ import annotations

import json
import os
import uuid
from concurrent.futures import ThreadPoolExecutor

from gateway.resources.uids import random_uid


def test_each_is_a_uuid_of_its_own() -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: random_uid(), range(2_000)))
    assert len(set(made)) == len(made)
    for text in made:
        parsed = uuid.UUID(text)
        assert (str(parsed), parsed.version, parsed.variant) == (text, 4, uuid.RFC_4122)


def test_a_process_that_forks_makes_others_than_its_child() -> None:
    random_uid()  # Several are drawn at once.
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, json.dumps([random_uid() for _ in range(100)]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        theirs = json.load(pipe)
    os.waitpid(child, 0)
    assert len(theirs) == 100
    assert not {random_uid() for _ in range(100)} & set(theirs)
