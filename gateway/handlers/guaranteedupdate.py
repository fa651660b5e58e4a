"""Writes with optimistic concurrency: tried again as long as others win, and never decided by an old state."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from gateway.handlers.reading import not_found
from gateway.process.runtime import Runtime
from gateway.resources import bootstrappolicy
from gateway.resources.bootstrappolicy import NOT_KEPT
from gateway.resources.kinds import Kind
from kube.requests.status import Conflict, StatusError
from store.types import Create, Key, Operation, PreconditionFailed, Stored, Update

T = TypeVar("T")

ATTEMPTS: Final = 64
"""Writes that lost against others are tried again: every lost round means that another writer won."""


async def guaranteed_update(runtime: Runtime, kind: Kind, key: Key, once: Callable[[Stored], Awaitable[T]]) -> T:
    """What ``once`` makes of the current state of an object; called again when somebody else wrote in between.

    The first round begins with the state that this process has seen, which is nearly always the newest: a commit
    proves it. A refusal counts only if it comes of the newest state (as in Kubernetes' ``GuaranteedUpdate``), and
    ``once`` must itself call ``require_newest`` before it returns without a commit.
    Raises ``NotFound``, ``Conflict``, and what ``once`` raises.

    1. Writers of one object in this process take turns, so that they do not lose against each other. Other processes
       are not held up: between them the revision in the write decides.
    2. The first round reads from memory, later ones from the database. An old state in memory cannot overwrite a newer
       one, for the commit compares the revision with the row's.
    3. A refusal (a validation, a denied admission, "not found") has no commit that could prove its state. It is kept
       back until the database has shown that the state is the newest; if not, the round counts as lost.
    4. After a lost round the winner's write is read, outside the lock: the next round begins with it.
    """
    for attempt in range(ATTEMPTS):
        try:
            async with runtime.write_locks.of_object(key):
                current = await runtime.store.get(key, cached=not attempt) or bootstrappolicy.found(key)
                try:
                    if current is None:
                        raise not_found(kind, key.name)
                    return await once(current)
                except StatusError:
                    await require_newest(runtime, key, current)
                    raise
        except PreconditionFailed as failure:
            lost = failure.key
        await backoff_after_conflict(runtime, lost, attempt)
    raise too_many_conflicts(kind, key.name)


async def is_missing(runtime: Runtime, key: Key) -> bool:
    """Whether there is no such object: what this process has not seen is asked for before anything is said of it."""
    if bootstrappolicy.found(key) is not None or await runtime.store.get(key, cached=True) is not None:
        return False
    return await runtime.store.get(key) is None


async def require_newest(runtime: Runtime, key: Key, current: Stored | None) -> None:
    """Raise ``PreconditionFailed`` unless ``current`` is the newest state of an object."""
    newest = await runtime.store.get(key)
    if (newest.revision if newest else NOT_KEPT) != (current.revision if current else NOT_KEPT):
        raise PreconditionFailed(key, newest)


def replacement(current: Stored, body: dict[str, Any]) -> Operation:
    """What keeps ``body`` in place of the current state."""
    if current.revision == NOT_KEPT:
        return Create(current.key, body)
    return Update(current.key, current.revision, body)


async def backoff_after_conflict(runtime: Runtime, lost: Key, attempt: int) -> None:
    """Let the cache learn of the write that won, then wait for a moment."""
    await runtime.store.get(lost)
    if attempt > 2:
        await asyncio.sleep(random.random() * 0.002 * min(attempt, 10))  # noqa: S311 - jitter


def too_many_conflicts(kind: Kind, name: str) -> StatusError:
    """The answer when other writers won every round."""
    return Conflict(
        f'Operation cannot be fulfilled on {kind.resource.qualified_name} "{name}": too many concurrent changes, '
        "please try again",
        group=kind.resource.group,
        kind=kind.resource.plural,
        name=name,
    )
