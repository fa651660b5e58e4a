"""A cluster that fails in every way harms the requests to it, and nothing else (GW4).

``python -m bench door`` plays it until there were two thousand faults.
"""

from __future__ import annotations

import os

import pytest

from tests.gateway.upstream.faultrun import FAULTS, TLS_FAULTS, run

REQUESTS = int(os.environ.get("FAULTY_REQUESTS", "150"))


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_client_gets_an_answer_or_a_closed_connection(seed: int) -> None:
    report = await run(seed, REQUESTS, patience=300)
    assert report.wrong == []
    assert report.repeated == []
    assert report.left == (0, 0, 0)
    assert report.kept == {}
    assert sum(report.answers.values()) == REQUESTS
    # A slow machine takes a sound cluster for one that stalls.
    assert report.answers["200"]
    assert set(report.answers) <= {"200", "502", "503", "504", "closed"}
    assert len([fault for fault in FAULTS if report.faults[fault]]) > len(FAULTS) // 2
    faults = sum(report.faults[fault] for fault in (*FAULTS, *TLS_FAULTS))
    answers = ", ".join(f"{status} {count:,}x" for status, count in sorted(report.answers.items()))
    print(
        f"\n  {REQUESTS:,} requests to a cluster that failed {faults:,} times: {answers}; nothing hung, nothing stayed"
    )
