"""What an admission plugin is, and what it sees."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.kinds.resources import Resource
from kube.kinds.schemas import Schema
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Cause, Forbidden
from store.types import Operation

T = TypeVar("T")

CREATE = "CREATE"
UPDATE = "UPDATE"
DELETE = "DELETE"
CONNECT = "CONNECT"


class Executor(Protocol):
    """Where work is done that takes as long as its arguments are large; ``function`` must be pure."""

    def __call__(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        """What ``function(*args)`` returns or raises."""
        ...


async def run_inline(function: Callable[..., T], *args: Any) -> T:
    """Call ``function`` in the event loop: the ``Executor`` for small objects. Returns and raises what it does."""
    return function(*args)


@dataclass(slots=True, kw_only=True)
class Attributes:
    """One write on its way. ``object`` is ``None`` for a deletion, ``old`` for a creation.

    Plugins change ``object`` in place while they mutate. ``name`` is the final name, ``namespace`` the object's.
    ``now`` is the time of the request in Unix seconds. ``warnings`` reach the client, ``notes`` the audit; ``offload`` is
    for pure work that large objects make long.
    """

    principal: Principal
    info: RequestInfo
    resource: Resource
    schema: Schema | None
    operation: str
    namespace: str
    name: str
    object: dict[str, Any] | None
    old: dict[str, Any] | None
    now: float
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)
    notes: list[Decision] = field(default_factory=list)
    offload: Executor = run_inline

    @property
    def cluster(self) -> str:
        """The logical cluster that is written to."""
        return self.info.cluster

    @property
    def place(self) -> tuple[str, str]:
        """The resource that is written to: its group and plural."""
        return self.resource.group, self.resource.plural

    @property
    def subresource(self) -> str:
        """The subresource that is written to, empty for the object itself."""
        return self.info.subresource

    def forbidden(self, why: str, *, causes: Sequence[Cause] = ()) -> Forbidden:
        """The 403 of a plugin, as kubectl shows it."""
        resource = self.resource
        return Forbidden(
            f'{resource.qualified_name} "{self.name}" is forbidden: {why}',
            group=resource.group,
            kind=resource.plural,
            name=self.name,
            causes=causes,
        )


class Plugin(Protocol):
    """One condition that every write must meet."""

    @property
    def name(self) -> str:
        """The plugin's name in ``--enable-admission-plugins``."""
        ...

    async def admit(self, attributes: Attributes) -> None:
        """Change ``attributes.object``, or raise a ``StatusError`` to refuse. Called in order, first round."""
        ...

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Refuse by raising, or return what must be written, or hold, in the same transaction. Second round."""
        ...


class NoopPlugin:
    """The empty answers, for plugins that need only one of the rounds."""

    async def admit(self, attributes: Attributes) -> None:
        """Change nothing."""

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:  # noqa: ARG002
        """Hold nothing."""
        return ()
