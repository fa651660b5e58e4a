"""How long a wrong secret takes says nothing of a right one (FILE-11; AN4, AN5)."""

from __future__ import annotations

import base64
import math
import random
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from access import passwordattempts
from access.authentication.base import Authenticator, Credentials, Refused
from access.authentication.basicfile import BasicFileAuthenticator
from access.authentication.tokenfile import TokenFileAuthenticator
from kube.requests.tokenbuckets import TokenBucket

SAMPLES = 50_000
"""Of each of the two kinds."""

BLOCKS = 50
DISTINGUISHABLE = 4.5
SECRET = "correct-horse-battery-staple-0123"
Ask = Callable[[], object]
Kind = Callable[[int], Ask]
"""Makes the question of this kind with this number."""


def wrong(right: int, number: int) -> str:
    """A wrong secret whose first ``right`` characters are those of the right one."""
    return SECRET[:right] + f"{number:08x}".rjust(len(SECRET) - right, "-")


def difference(one: Kind, other: Kind, samples: int = SAMPLES) -> float:
    """Welch's t of the two durations over blocks, each with the difference of its two medians.

    Asked in random order. A block is short, so that what else the machine does slows both alike. Every question is a
    new one, for where a digest falls in a table, or text in memory, is chance and no leak; and the two change places
    with every block, so that whatever favours the first of them favours both.
    """
    order = random.Random(11)
    found = []
    for block in range(BLOCKS):
        times: tuple[list[int], list[int]] = ([], [])
        for _ in range(2 * samples // BLOCKS):
            kind = order.getrandbits(1)
            number = order.getrandbits(30)
            asks = (one(number), other(number)) if block % 2 else (other(number), one(number))
            ask = asks[kind if block % 2 else 1 - kind]
            started = time.perf_counter_ns()
            ask()
            times[kind].append(time.perf_counter_ns() - started)
        found.append(statistics.median(times[0]) - statistics.median(times[1]))
    return abs(statistics.fmean(found)) / math.sqrt((statistics.variance(found) or 1) / BLOCKS)


def asking(authenticator: Authenticator, credentials: Credentials) -> Ask:
    """One question, without an event loop's own noise: nothing waits while the file does not change."""

    def ask() -> None:
        question = authenticator.authenticate(credentials, now=1.0)
        with suppress(StopIteration, Refused):
            question.send(None)  # type: ignore[attr-defined]

    return ask


def bearer(token: str) -> Credentials:
    return Credentials(authorization=f"Bearer {token}")


def basic(user: str, password: str) -> Credentials:
    return Credentials(authorization="Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())


def test_the_measurement_sees_a_comparison_that_stops_early() -> None:
    """Without this the tests below would prove nothing."""

    def compare(shown: str) -> bool:
        return all(one == other for one, other in zip(shown, SECRET, strict=True))

    kinds: list[Kind] = [lambda number, right=right: partial(compare, wrong(right, number)) for right in (24, 0)]
    assert any(difference(*kinds, samples=2000) > DISTINGUISHABLE for _ in range(10)), "a hiccup hides it now and then"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda number: bearer(wrong(24, number)), lambda number: bearer(wrong(0, number))),
        (lambda number: basic("admin", wrong(24, number)), lambda number: basic("admin", wrong(0, number))),
        (lambda number: basic("admin", wrong(0, number)), lambda number: basic("nobdy", wrong(0, number))),
    ],
    ids=["token: right and wrong beginning", "password: right and wrong beginning", "known and unknown user"],
)
def test_wrong_secrets_take_the_same_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    one: Callable[[int], Credentials],
    other: Callable[[int], Credentials],
) -> None:
    """FILE-11. A true difference shows every time, a machine's hiccup does not: it has three tries."""
    for bucket in ("ADDRESS", "USER"):
        monkeypatch.setattr(passwordattempts, bucket, TokenBucket(qps=1, burst=10**9))
    path = tmp_path / "users.csv"
    others = "".join(f"secret-{number:026},user{number},{number},,,t1\n" for number in range(1000))
    path.write_text(f"{SECRET},admin,1,dev,,t1\n{others}")
    by_token = one(0).bearer is not None
    authenticator: Authenticator = TokenFileAuthenticator(path) if by_token else BasicFileAuthenticator(path)
    kinds: list[Kind] = [lambda number, shown=shown: asking(authenticator, shown(number)) for shown in (one, other)]
    found: list[float] = []
    for _ in range(3):
        found.append(difference(*kinds))
        if found[-1] < DISTINGUISHABLE:
            return
    pytest.fail(f"the two can be told apart by time: t = {found}")
