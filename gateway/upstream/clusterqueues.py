"""What is due on clusters: each has a queue and a task of its own, so that none waits for another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from store.fairqueue import FairQueue
from store.supervision import Supervised
from store.types import Key


class ClusterQueues:
    """``reconcile`` looks at one object, for the work that is called ``work``."""

    def __init__(self, work: str, reconcile: Callable[[Key], Awaitable[None]]) -> None:
        self._work = work
        self._reconcile = reconcile
        self._queues: dict[str, FairQueue] = {}
        self._tasks: dict[str, Supervised] = {}

    def add(self, cluster: str, key: Key) -> None:
        """Look at an object there soon."""
        if cluster not in self._queues:
            queue = self._queues[cluster] = FairQueue(self._reconcile)
            self._tasks[cluster] = Supervised(f"{self._work} on {cluster}", queue.run)
            self._tasks[cluster].start()
        self._queues[cluster].add(key)

    async def part(self, clusters: Collection[str]) -> None:
        """End what is for none of these, once it has nothing to do any more."""
        for name in [name for name, queue in self._queues.items() if name not in clusters and queue.is_idle]:
            del self._queues[name]
            await self._tasks.pop(name).stop()

    async def stop(self) -> None:
        """End all, and forget what is due."""
        tasks, self._tasks, self._queues = self._tasks, {}, {}
        for task in tasks.values():
            await task.stop()
