"""What an admission plugin is, and what it sees."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.kinds.resources import Resource
from kube.kinds.schemas import Schema
from kube.objects.patches import deep_copy, same
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Cause, Forbidden, forbidden_object
from store.types import Operation, Room

CREATE = "CREATE"
UPDATE = "UPDATE"
DELETE = "DELETE"
CONNECT = "CONNECT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a request for a part of an object carries, where that is no form of the object: a Scale, a Binding, options."""

    operation: str
    group: str
    version: str
    kind: str
    object: dict[str, Any] | None
    old: dict[str, Any] | None = None


@dataclass(slots=True)
class ReinvocationContext:
    """Whom of a plug-in that asks others a second round asks again: ``again`` of the ``invoked``, who all want to be.

    ``left`` is the object as the plug-in left it.
    """

    invoked: set[Hashable] = field(default_factory=set)
    again: set[Hashable] = field(default_factory=set)
    left: dict[str, Any] | None = None

    def begin(self, body: dict[str, Any] | None) -> None:
        """Before the plug-in's turn: what others have changed since its last one is to be looked at again."""
        if self.left is not None and not same(self.left, body):
            self.again |= self.invoked

    def end(self, body: dict[str, Any] | None) -> None:
        """After the plug-in's turn."""
        self.left = deep_copy(body) if self.invoked else None


@dataclass(slots=True, kw_only=True)
class Attributes:
    """One write on its way. ``object`` is ``None`` for a deletion, ``old`` for a creation.

    Plugins change ``object`` in place while they mutate. ``name`` is the final name, ``namespace`` the object's.
    ``sent`` is what policies and webhooks judge instead of the object, ``options`` gives the request's own.
    ``now`` is the time of the request in Unix seconds. ``warnings`` reach the client, ``notes`` the audit; ``together``
    is what is written, or held, in the same transaction, ``room`` what there has to be for it. ``changed`` says that
    somebody outside has changed the object, so that in a second ``round`` all see what it is now, and of those outside
    who has another of the ``turns``.
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
    sent: Sent | None = None
    options: Callable[[], dict[str, Any]] = dict
    warnings: list[str] = field(default_factory=list)
    notes: list[Decision] = field(default_factory=list)
    together: list[Operation] = field(default_factory=list)
    room: Room | None = None
    round: int = 0
    changed: bool = False
    turns: dict[str, ReinvocationContext] = field(default_factory=dict)
    cluster: str = field(init=False)
    """The logical cluster that is written to."""
    subresource: str = field(init=False)
    """The subresource that is written to, empty for the object itself."""
    place: tuple[str, str] = field(init=False)
    """The resource that is written to: its group and plural."""

    def __post_init__(self) -> None:
        self.cluster, self.subresource = self.info.cluster, self.info.subresource
        self.place = self.resource.group, self.resource.plural

    def turns_of(self, plugin: str) -> ReinvocationContext:
        """The turns of one plug-in."""
        return self.turns.setdefault(plugin, ReinvocationContext())

    def forbidden(self, why: str, *, causes: Sequence[Cause] = (), rule: str = "") -> Forbidden:
        """The 403 of a plugin, as kubectl shows it; ``rule`` as in ``StatusError``."""
        return forbidden_object(self.resource.group, self.resource.plural, self.name, why, causes=causes, rule=rule)


class Plugin(Protocol):
    """One condition that every write must meet."""

    @property
    def name(self) -> str:
        """The plugin's name in ``--enable-admission-plugins``."""
        ...

    @property
    def kinds(self) -> Collection[tuple[str, str]] | None:
        """The resources, by group and plural, that it is asked about; ``None`` for all. They stay what they are."""
        ...

    @property
    def changes(self) -> Collection[tuple[str, str]] | None:
        """Of its kinds those in whose first round it has a say; ``None`` for all."""
        ...

    @property
    def operations(self) -> Collection[str] | None:
        """The operations that it is asked about; ``None`` for all."""
        ...

    @property
    def system_only(self) -> bool:
        """Whether it is asked about writes to the system space alone."""
        ...

    async def admit(self, attributes: Attributes) -> None:
        """Change ``attributes.object``, or raise a ``StatusError`` to refuse. Called in order, first round."""
        ...

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Refuse by raising, or return what must be written, or hold, in the same transaction. Second round."""
        ...


class NoopPlugin:
    """The empty answers, for plugins that need only one of the rounds."""

    kinds: Collection[tuple[str, str]] | None = None
    changes: Collection[tuple[str, str]] | None = None
    operations: Collection[str] | None = None
    system_only = False

    async def admit(self, attributes: Attributes) -> None:
        """The object stays as it is."""

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:  # noqa: ARG002
        """Nothing is refused, and no operation goes with the write."""
        return ()
