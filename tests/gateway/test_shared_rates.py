"""A tenant's rates are one for all processes of all servers on a database (AD6), through HTTP."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kube.requests.rateshares import RESERVE
from tests.databases import migrated
from tests.gateway.callers import Answer, Caller, eventually
from tests.gateway.conftest import Server, start, stop, tenant_named
from tests.speaking import Answer as Said
from tests.speaking import Speaker

PATH = "/api/v1/namespaces/default/configmaps"
QPS, BURST = 20, 60
FLAGS = (f"--tenant-read-qps={QPS}", f"--tenant-read-burst={BURST}", "--tenant-person-share=100")
NEARLY_ALL = int(BURST * (1 - RESERVE / 2))
RESERVED = int(BURST * RESERVE / 2)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """Two servers on a database of their own."""
    with migrated("rates") as database:
        running: list[Server] = []
        try:
            for name in ("first", "second"):
                running.append(start(tmp_path / name, database, *FLAGS))
            yield running
        finally:
            for each in running:
                if each.process.poll() is None:
                    stop(each)


def limit_of(answer: Answer | Said) -> int:
    """How much may be asked at once where the answer comes from."""
    return int(answer.headers["x-ratelimit-limit"])


def says(caller: Caller, limit: int) -> bool:
    """Whether one who asks little is told so."""
    time.sleep(0.2)
    return limit_of(caller.get(PATH)) == limit


def flood(callers: Sequence[Caller], *, seconds: float) -> list[Said]:
    """What all of them are answered who ask as fast as it goes for so long, each over a connection that is kept."""
    answers: list[Said] = []

    def ask(caller: Caller) -> None:
        speaker = Speaker(f"https://{caller.host}", caller.context)
        answers.append(speaker.send("GET", PATH))
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            answers.append(speaker.send("GET", PATH))
        speaker.close()

    with ThreadPoolExecutor(len(callers)) as pool:
        for done in [pool.submit(ask, caller) for caller in callers]:
            done.result()
    return answers


def test_two_servers_share_a_tenants_rate_and_it_follows_what_is_asked(servers: list[Server]) -> None:
    """AD6: equal parts for who asks little, nearly all for a flood at one of them, all of it when the other has died."""
    tenant_named(servers[0], "acme")
    first, second = (each.user("acme", "jane") for each in servers)
    assert eventually(lambda: first.get(PATH).status in (200, 403) and second.get(PATH).status in (200, 403))
    assert eventually(lambda: says(first, BURST // 2) and says(second, BURST // 2))

    def flooded() -> bool:
        asked = flood([first] * 4, seconds=0.5)
        return limit_of(asked[-1]) == NEARLY_ALL and 429 in {answer.status for answer in asked}

    assert eventually(flooded)
    # Whoever comes to the other one is served there still.
    others: list[Answer] = []

    def reserved() -> bool:
        flooded()
        others.append(second.get(PATH))
        return limit_of(others[-1]) == RESERVED

    assert eventually(reserved)
    assert others[-1].status != 429

    # Who asks little of both again has equal parts again.
    assert eventually(lambda: says(first, BURST // 2) and says(second, BURST // 2))

    # Whatever is asked of both, they serve no more together than is promised.
    begun = time.monotonic()
    told = flood([first, second] * 2, seconds=6.0)
    seconds = time.monotonic() - begun
    served = sum(answer.status != 429 for answer in told)
    # Between two reports, which are two seconds apart, the parts may be older than what is asked.
    assert served <= BURST + QPS * seconds + QPS * 2, (served, seconds)
    assert all(answer.headers["retry-after"] for answer in told if answer.status == 429)

    # One that is killed says no last word, and leaves its part all the same.
    os.kill(servers[1].process.pid, signal.SIGKILL)
    servers[1].process.wait()
    assert eventually(lambda: says(first, BURST))
