"""A small campaign over the whole product, two of everything; ``make faults`` is the long form (docs/reliability.md)."""

from __future__ import annotations

import asyncio

import pytest

from bench.campaign.productrounds import ProductRounds

SEED, FAULTS = 3, 12


@pytest.mark.timeout(600)
def test_nothing_is_lost_doubled_orphaned_out_of_order_or_open_after_faults_and_a_restore() -> None:
    """P3, P4, P5, P7, P10, P12, TS4."""

    async def play() -> None:
        rounds = ProductRounds()
        try:
            played = await rounds.play(SEED, FAULTS)
        finally:
            await rounds.end()
        assert played.found == []
        assert sum(played.faults.values()) == FAULTS + 1
        assert played.judged["restores"] == 1
        for judged in ("acknowledged writes", "watch events", "credentials shown at the door"):
            assert played.judged[judged] > 0, judged

    asyncio.run(play())
