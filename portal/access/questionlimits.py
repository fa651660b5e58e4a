"""Questions about rights, so many at a time and each for so long: the threads of the portal are everybody's (DOS-03)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from audit.recorder import Actor
from gateway.server import questiondeadlines
from kube.requests.status import ServiceUnavailable
from portal.http.actors import tenant_counted
from portal.http.places import Key, Places

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE: Final = 4
"""Of one process of the portal: of all but operators, who have places of their own."""
OF_OPERATORS: Final = 2
OF_TENANT: Final = 3
"""However many of its people ask, one is left for others."""
OF_PERSON: Final = 2


class _Desk:
    """Who is being answered. Within a question, its parts are part of it."""

    def __init__(self) -> None:
        most = {"questions": AT_ONCE, "of operators": OF_OPERATORS, "tenant": OF_TENANT, "person": OF_PERSON}
        self._places = Places(most)
        self._within = threading.local()

    @contextmanager
    def answering(self, actor: Actor) -> Iterator[None]:
        """Raises ``ServiceUnavailable`` at once where too many are being answered, nobody waits for a place."""
        if getattr(self._within, "depth", 0):
            yield
            return
        keys: list[Key] = [("person", actor.user_id or actor.name)]
        keys.append(("of operators" if actor.operator else "questions", ""))
        tenant = tenant_counted(actor.user_id) if actor.user_id and not actor.sees_all else ""
        if tenant:
            keys.append(("tenant", tenant))
        place = self._places.take(*keys)
        if place is None:
            raise ServiceUnavailable("Other questions are being answered; ask again in a moment.", retry_after=2)
        self._within.depth = 1
        try:
            with place, questiondeadlines.limited():
                yield
        finally:
            self._within.depth = 0


_desk = _Desk()


def question(answer: Callable[P, T]) -> Callable[P, T]:
    """A function that answers one, for ``actor``: first argument, or by its name."""

    @wraps(answer)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        actor: Any = kwargs["actor"] if "actor" in kwargs else args[0]
        with _desk.answering(actor):
            return answer(*args, **kwargs)

    return asked
