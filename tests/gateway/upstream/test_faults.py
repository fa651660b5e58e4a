"""A cluster that fails in every way harms the requests to it, and nothing else (GW4)."""

from __future__ import annotations

import pytest

from tests.gateway.upstream.faultrun import FAULTS, run


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_client_gets_an_answer_or_a_closed_connection(seed: int) -> None:
    report = await run(seed, 150, patience=60)
    assert report.wrong == []
    assert report.repeated == []
    assert report.left == (0, 0, 0)
    assert sum(report.answers.values()) == 150
    assert report.answers["200"] > 30
    assert set(report.answers) <= {"200", "502", "503", "504", "closed"}
    assert len([fault for fault in FAULTS if report.faults[fault]]) > len(FAULTS) // 2
