"""Looks for objects that only know each other, few at a time (DOS-03).

Nearly everything goes by its reference count, and looking for the rest as often as usual costs a tenth. The interpreter
looks once so many more objects have come than gone, and then at all that have come since it last did: in a process in which
as many go as come, such as one whose log moves on, these are as many as it holds, and everybody waits meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Final

YOUNG_SECONDS: Final = 0.1
"""From one look at what has come to the next: some hundred objects, of a busy server some thousand."""

YOUNG_MOST: Final = 20_000
"""More than that come and stay in less time where one request makes them: then the interpreter looks meanwhile."""

GROWN: Final = 400_000
"""Objects that have come and not gone after which those are looked at that have outlived one look; there are fewer left."""

GROWN_OLD: Final = 20 * GROWN
"""And after which all are, if there are a quarter more than when all were looked at last: that may take 100 ms and more."""

_NEVER: Final = 1_000_000_000


async def look_for_garbage(*, every: float = YOUNG_SECONDS, grown: int = GROWN, grown_old: int = GROWN_OLD) -> None:
    """Look until cancelled, with turns of the loop in between; the interpreter alone looks at no more than what is young."""
    gc.set_threshold(YOUNG_MOST, _NEVER, _NEVER)
    young = old = kept = 0
    while True:
        looks = gc.get_count()[1]
        await asyncio.sleep(every)
        left, looked, _ = gc.get_count()
        come = left + (looked - looks) * YOUNG_MOST
        young, old = young + come, old + come
        if young < grown:
            gc.collect(0)
            continue
        young = 0
        gc.collect(1)
        if old >= grown_old:
            old = 0
            if 4 * _old() > 5 * kept:
                gc.collect()
                kept = _old()


def _old() -> int:
    """How many objects have outlived looks at those that have outlived one."""
    return len(gc.get_objects(generation=2))
