"""What a write to a placed namespace must pass before it goes to the cluster.

A cluster judges who gives rights away by the token that the request carries: what is the person's to give is asked here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from access.admission.tenancy.tenantpolicies import TenantPolicies, refusal
from access.admission.tenancy.tenantscope import refused_to_tenants
from gateway.upstream.placements import Placement
from kube.authentication.identity import Principal
from kube.kinds.builtins import BUILTINS
from kube.objects.subresources import WHOLE
from kube.policies.violations import judges, violations
from kube.requests.decoding import MAX_BYTES, decode_unambiguous
from kube.requests.fielderrors import invalid_object
from kube.requests.requestinfo import RequestInfo
from kube.validation.listlimits import length_causes

Body = Mapping[str, Any]

Settlement = Callable[[bool], Awaitable[None]]
"""Is told whether a write is done or has come to nothing, once one of both is certain."""

MAKING: Final = frozenset({"create", "update", "patch"})
_JSON: Final = "application/json"
_JUDGED: Final = WHOLE | {""}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedWrite:
    """A write on its way to a cluster: who, what and where, the body's bytes, and their media type.

    ``role`` is that of the account whose token it carries. ``current`` asks the cluster for the object as it is
    (``None``: there is none), ``outcome`` for what the write would make of it, with the rights of the write; both raise
    ``StatusError``. ``request`` is its identity in the audit, ``now`` when it came, in Unix seconds; one with ``dry_run``
    has no effects. ``in_thread`` is ``Request.in_thread``.
    """

    principal: Principal
    info: RequestInfo
    placement: Placement
    role: str
    media: str
    body: bytes
    current: Callable[[], Awaitable[Body | None]]
    outcome: Callable[[], Awaitable[Body]]
    request: str
    now: float
    dry_run: bool
    in_thread: Callable[..., Awaitable[Any]]

    @property
    def is_whole(self) -> bool:
        """Whether the body is the whole object, in JSON, and all of it is taken."""
        return self.info.verb != "patch" and not self.info.subresource and self.media == _JSON

    @property
    def size(self) -> int:
        """Bytes of the object at most, as far as is known before anybody is asked."""
        return len(self.body) if self.is_whole else MAX_BYTES

    async def object(self) -> Any:
        """What the write is to make: a body in JSON that is all taken as it is; else what the cluster says.

        Raises ``StatusError``, for a body too that the cluster could read otherwise, or that is too long to be judged.
        """
        if self.is_whole:
            return await self.in_thread(self.size, _judgeable, self.info, self.body)
        return await self.outcome()


def _judgeable(info: RequestInfo, body: bytes) -> Any:
    value = decode_unambiguous(body)
    causes = length_causes(value) if isinstance(value, dict) else []
    if causes:
        raise invalid_object(info.group, info.resource, info.name or name_of(value), causes)
    return value


class PlacedAdmission(Protocol):
    """One condition that every write to a placed namespace must meet."""

    @property
    def name(self) -> str:
        """What the trace of a request calls it."""
        ...

    async def admit(self, write: PlacedWrite) -> Settlement | None:
        """Raise a ``StatusError`` to refuse. Called for creations, updates, patches and deletions, dry runs too.

        What is returned is told what has become of the write, where anybody knows.
        """
        ...


class PlacedScope:
    """What no tenant may create, by configuration (AD4), is not created in placed namespaces either."""

    name = "TenantScope"

    def __init__(self, refused: Collection[tuple[str, str]]) -> None:
        self._refused = refused

    async def admit(self, write: PlacedWrite) -> None:
        """Raise ``Forbidden``, also where an update or an apply would make it."""
        info = write.info
        if (info.group, info.resource) not in self._refused or info.verb not in MAKING or info.subresource:
            return
        if info.verb == "create" or await write.current() is None:
            raise refused_to_tenants(info.group, info.resource, info.name)


class PlacedPolicies:
    """The policy of the namespace, as for stored ones (AD5).

    JSON that is the whole object is judged as it is; of patches, of writes to its parts, and of what else a cluster
    reads, it is asked what would come of it.
    """

    name = "TenantPolicy"

    def __init__(self, policies: TenantPolicies) -> None:
        self._policies = policies

    async def admit(self, write: PlacedWrite) -> None:
        """Raise ``Forbidden`` with a cause for every field, or what the cluster refuses anyway."""
        info = write.info
        if info.verb not in MAKING or info.subresource not in _JUDGED:
            return
        resource = BUILTINS.by_group_resource(info.group, info.resource)
        kind = resource.kind if resource is not None else ""
        policy = (await self._policies.of(info.cluster, info.namespace)).policy
        if not judges(policy, info.group, kind):
            return
        body = await write.object()
        if not isinstance(body, Mapping):
            return  # Which no cluster takes.
        judged = policy, info.group, kind or str(body.get("kind"))
        found = await write.in_thread(write.size, violations, *judged, None, body)
        if found and info.verb != "create":
            found = await write.in_thread(MAX_BYTES, violations, *judged, await write.current(), body)
        if found:
            raise refusal(info.group, info.resource, info.name or name_of(body), found)


def name_of(body: Body) -> str:
    """What an object is called, or begins with."""
    metadata = body.get("metadata")
    return str(metadata.get("name") or metadata.get("generateName") or "") if isinstance(metadata, Mapping) else ""
