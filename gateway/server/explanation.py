"""The API server's decisions outside of it: the same authorizers on the database's state of this moment (AZ11).

For the portal's process, which has no API server in it and asks seldom. The authorizers run on what was read before, in
the caller's own connection and transaction, and again for as long as they ask for more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from django.conf import settings

from access.authorization.build import Authorization, build_authorization
from access.authorization.modes import always
from access.authorization.modes.abac import PolicyFile
from access.authorization.modes.node import NodeGraphs, nodes_that_may
from access.authorization.modes.rbac import PolicyCache
from access.authorization.tenancy.grants import TenantPolicies
from access.authorization.tenancy.placednamespaces import STEP as PLACED
from access.authorization.tenancy.placednamespaces import Accounts, KeptAccounts
from access.authorization.tenancy.suspension import freeze_reason, suspended_tenants, suspension_reason
from gateway.resources.kinds import Catalogs
from gateway.server.questiondeadlines import BYTES_MAX, OBJECTS_MAX, heed, too_long
from kube.authentication.identity import (
    AUTHENTICATED,
    HOME_EXTRA,
    SERVICE_ACCOUNT_PREFIX,
    Principal,
    account_groups,
    local_service_account,
    without_virtual_groups,
)
from kube.authorization.abac import Policy
from kube.authorization.decisions import Decision
from kube.authorization.effectivepolicy import Policies
from kube.authorization.rbac import GROUP, Attributes
from kube.authorization.whocan import Holder, who_can
from kube.kinds.resources import Resource
from kube.requests.logicalclusters import ROOT, is_tenant_space, is_valid, is_workspace, space_of, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.requestinfo import RequestInfo, parse, resolve
from kube.requests.status import BadRequest
from store import synchronous
from store.types import AllSpaces, Event, Key, Listing, Range, Stored

T = TypeVar("T")
_RBAC: Final = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")


def explain(principal: Principal, method: str, path: str, cluster: str) -> tuple[Principal, RequestInfo, Decision]:
    """What a request means and how it would be decided, with every step, and for whom; nothing is executed.

    ``path`` as kubectl sends it; with ``cluster`` it is meant inside that logical cluster unless it names one itself.
    A service account is taken for one that lives there, unless its name or ``extra`` says where, as in reviews.
    Raises ``StatusError`` for what is no request, and no account.
    """
    target, _, query = path.partition("?")
    if cluster and not target.startswith("/clusters/"):
        target = f"/clusters/{cluster}{target}"
    info = resolve(parse(method, target.encode("ascii"), query.encode("ascii")), principal.tenant)
    principal = _at_home(principal, info)
    return principal, info, decide(principal, info)


def ask(principal: Principal, cluster: str, attributes: Attributes) -> tuple[Principal, RequestInfo, Decision]:
    """How a verb on a thing in a logical cluster would be decided, as a review would ask it, and for whom.

    Raises ``StatusError`` for what is no logical cluster, and no account.
    """
    if not is_valid(cluster):
        raise BadRequest("There is no such logical cluster.")
    info = _asked(cluster, attributes)
    principal = _at_home(principal, info)
    return principal, info, decide(principal, info)


def _at_home(principal: Principal, info: RequestInfo) -> Principal:
    """The principal as an authenticator would know it: accounts with their home and groups, nobody in virtual ones."""
    try:
        name, home = local_service_account(principal.name, principal.extra.get(HOME_EXTRA, ()))
    except ValueError as error:
        raise BadRequest(f"There is no such service account: {error}.") from None
    if not name.startswith(SERVICE_ACCOUNT_PREFIX) or principal.tenant is None:
        return replace(principal, groups=without_virtual_groups(principal.groups))
    if not home:
        home = info.cluster if principal.tenant == info.tenant else space_of(principal.tenant)
    if not is_valid(home) or tenant_of(home) != principal.tenant:
        raise BadRequest("The service account is of no logical cluster of the tenant.")
    return replace(
        principal,
        name=name,
        groups=tuple(dict.fromkeys((*without_virtual_groups(principal.groups), *account_groups(name)))),
        extra={key: values for key, values in principal.extra.items() if key != HOME_EXTRA},
        cluster=home,
    )


def decide(principal: Principal, info: RequestInfo) -> Decision:
    """The decision about a resolved request, with every step."""
    store = Snapshot(info.cluster)
    return store.settled(lambda: _explained(store, principal, info))


def authorization_on(store: Snapshot) -> Authorization:
    """The authorizers of the API server on a snapshot."""
    return build_authorization(settings.AUTHORIZATION, store, locks=store, system_only=Catalogs().is_system_only)


async def _explained(store: Snapshot, principal: Principal, info: RequestInfo) -> Decision:
    authorization = authorization_on(store)
    async with authorization.running():
        return await authorization.chain.explain(principal, info)


@dataclass(frozen=True, slots=True)
class State:
    """What decides in one logical cluster: the compiled RBAC around it, and whom policies and lines let in."""

    policies: Policies
    objects: tuple[Policy, ...]
    lines: tuple[Policy, ...]


def state_of(cluster: str) -> State:
    """The policies of a logical cluster at this moment. Raises ``BadRequest`` for what is none."""
    if not is_valid(cluster):
        raise BadRequest("There is no such logical cluster.")
    store = Snapshot(cluster)
    policies = store.settled(lambda: PolicyCache(store).policies_for(cluster))
    objects = store.settled(lambda: TenantPolicies(store).in_force(cluster))
    file = settings.AUTHORIZATION.policy_file
    return State(policies, objects, PolicyFile(file).policies if file is not None else ())


def accounts_in(cluster: str, namespace: str) -> Accounts | None:
    """What the accounts of a placed namespace hold; ``None`` for a stored one. Raises ``BadRequest`` as ``state_of``."""
    if not is_valid(cluster):
        raise BadRequest("There is no such logical cluster.")
    if not namespace or not is_tenant_space(cluster):
        return None
    store = Snapshot(cluster)
    return store.settled(lambda: KeptAccounts(store, PolicyCache(store)).of(cluster, namespace))


def permitted(principal: Principal, cluster: str, asked: Sequence[Attributes]) -> tuple[bool, ...]:
    """Which of these a principal may do in a logical cluster, as if no door were locked; decided on one reading.

    For who takes along what is in a tenant that leaves: what is closed to requests is theirs all the same.
    """
    store = Snapshot(cluster, locked=False)

    async def decided() -> tuple[bool, ...]:
        authorization = authorization_on(store)
        async with authorization.running():
            said = [await authorization.chain.authorize(principal, _asked(cluster, each)) for each in asked]
        return tuple(decision.allowed for decision in said)

    return store.settled(decided)


def resource_of(cluster: str, group: str, kind: str) -> Resource | None:
    """The built-in resource of a kind that a logical cluster serves."""
    return Catalogs().of(cluster).by_group_kind(group, kind)


def by_modes(cluster: str, attributes: Attributes) -> tuple[Holder, ...]:
    """Who may do this in a logical cluster by modes that look at no policy: nodes, and everybody by ``AlwaysAllow``."""
    everybody = {SYSTEM_TENANT, tenant_of(cluster)} if always.ALLOW in settings.AUTHORIZATION.mode else set()
    holders = [Holder("Group", AUTHENTICATED, "", tenant, (always.ALLOW,)) for tenant in sorted(everybody)]
    return (*holders, *_nodes(cluster, attributes))


def _nodes(cluster: str, attributes: Attributes) -> tuple[Holder, ...]:
    # In workspaces the Node authorizer is never asked.
    if "Node" not in settings.AUTHORIZATION.mode or not (cluster == ROOT or is_tenant_space(cluster)):
        return ()
    store, info = Snapshot(cluster), _asked(cluster, attributes)
    return nodes_that_may(info, lambda: store.settled(lambda: NodeGraphs(store).of(cluster)))


def holders(cluster: str, attributes: Attributes) -> tuple[Holder, ...]:
    """Everybody who may do this in a logical cluster, with the path by which. Raises ``BadRequest`` for what is none."""
    state = state_of(cluster)
    found = who_can(
        attributes, state.policies, (*state.lines, *state.objects), by_modes(cluster, attributes), heed=heed
    )
    return _through_gates(cluster, attributes, found)


def _through_gates(cluster: str, attributes: Attributes, found: Sequence[Holder]) -> tuple[Holder, ...]:
    """Those who hold a right, each with the gate of the workspace at the end of its path that is closed to it alone.

    Who else is in a group, and in which other groups a user is, only authenticators know: it may be open to them. Not so
    what no account of a placed namespace holds, or none of the membership's: who has it by nothing else is left out.
    """
    if not is_workspace(cluster) and not (attributes.namespace and is_tenant_space(cluster)):
        return tuple(found)
    store, info = Snapshot(cluster), _asked(cluster, attributes)

    async def through() -> tuple[Holder, ...]:
        authorization = authorization_on(store)
        async with authorization.running():
            said = []
            for holder in found:
                heed()
                said.append(await authorization.chain.authorize(_alone(holder, cluster), info))
        gated = zip(found, said, strict=True)
        if not is_workspace(cluster):
            return tuple(holder for holder, decision in gated if decision.allowed or decision.step != PLACED)
        return tuple(
            holder if decision.allowed else holder._replace(path=(*holder.path, f"if {decision.step} opens"))
            for holder, decision in gated
        )

    return store.settled(through)


def _alone(holder: Holder, cluster: str) -> Principal:
    """Somebody of whom nothing is known but this."""
    name, home = holder.name, None
    groups: tuple[str, ...] = (AUTHENTICATED,)
    if holder.kind == "Group":
        name, groups = "", (holder.name, AUTHENTICATED)
    elif holder.kind == "ServiceAccount":
        name, home = f"{SERVICE_ACCOUNT_PREFIX}{holder.namespace}:{holder.name}", cluster
        groups = (*account_groups(name), AUTHENTICATED)
    return Principal(name=name, groups=groups, tenant=holder.tenant, authenticator="who-can", cluster=home)


def _asked(cluster: str, attributes: Attributes) -> RequestInfo:
    return RequestInfo(
        method="",
        path=attributes.path,
        cluster=cluster,
        tenant=tenant_of(cluster),
        verb=attributes.verb,
        is_resource=attributes.is_resource,
        group=attributes.group,
        resource=attributes.resource.partition("/")[0],
        subresource=attributes.subresource,
        namespace=attributes.namespace,
        name=attributes.name,
    )


class Snapshot:
    """Some objects and all locks, as the caller's transaction sees them: a store to decide by.

    It begins with the RBAC around a logical cluster. What it is asked for and does not hold is not there, until
    ``settled`` has read it and asked again. Without ``locked`` every door is open.
    """

    revision: Final = 0
    """All that it holds is of one moment."""
    healthy: Final = False
    """What was read is asked for again: nothing tells of changes."""

    def __init__(self, cluster: str, *, locked: bool = True) -> None:
        from tenants.models import Freeze, Lock

        self._held = self._bytes = 0
        self._ranges: dict[Range, Listing] = {}
        self._objects: dict[Key, Stored | None] = {}
        self._sizes: dict[str, int] = {}
        self._wanted: set[Range | Key | str] = {
            Range(space, GROUP, resource) for space in (cluster, ROOT) for resource in _RBAC
        }
        self._read()
        self._locks = {
            (space, namespace): reason
            for space, namespace, reason in Lock.objects.values_list("space", "namespace", "reason")
            if locked
        }
        self.tenants = suspended_tenants(self._locks)
        self._freezes = {
            (space, namespace): reason
            for space, namespace, reason in Freeze.objects.values_list("space", "namespace", "reason")
        }
        self.frozen_tenants = suspended_tenants(self._freezes)

    def settled(self, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer to a question to this store, asked until everything that it asked for is here."""
        while True:
            heed()
            answer = asyncio.run(question())
            if not self._wanted:
                return answer
            self._read()

    def _read(self) -> None:
        for wanted in self._wanted:
            heed()
            if isinstance(wanted, str):
                self._sizes[wanted] = synchronous.bytes_of(wanted)
            elif isinstance(wanted, Range):
                try:
                    found = synchronous.listing(wanted, most=BYTES_MAX - self._bytes).items
                except synchronous.TooLarge:
                    raise too_long() from None
                self._hold(found)
                self._ranges[wanted] = Listing(found, self.revision)
            else:
                one = self._objects[wanted] = synchronous.get(wanted)
                self._hold([one] if one is not None else [])
        self._wanted.clear()

    def _hold(self, found: Sequence[Stored]) -> None:
        self._held += len(found)
        self._bytes += sum(len(stored.data) for stored in found)
        if self._held > OBJECTS_MAX or self._bytes >= BYTES_MAX:
            raise too_long()

    def reason(self, cluster: str, namespace: str) -> str | None:
        """Why a door is locked, or ``None``."""
        return suspension_reason(self._locks, cluster, namespace)

    def freeze(self, cluster: str, namespace: str, *, inside: bool = False) -> str | None:
        """Why nothing is written there, or ``None``."""
        return freeze_reason(self._freezes, cluster, namespace, inside=inside)

    def peek(self, key: Key) -> Stored | None:  # noqa: ARG002
        """See ``store.interface.Store``: everything is read in its turn."""
        return None

    async def get(self, key: Key, *, cached: bool = False) -> Stored | None:  # noqa: ARG002
        """An object of the snapshot; one that it lacks is noted as wanted, and not there for now."""
        if key not in self._objects:
            self._wanted.add(key)
        return self._objects.get(key)

    def subscribe(
        self,
        listener: Callable[[Sequence[Event]], None],  # noqa: ARG002
        *,
        lost: Callable[[], None] | None = None,  # noqa: ARG002
        resources: Collection[tuple[str, str]] | None = None,  # noqa: ARG002
    ) -> Callable[[], None]:
        """See ``store.interface.Store``: nothing happens in it."""
        return lambda: None

    async def bytes_of(self, tenant: str) -> int:
        """What a tenant's objects take."""
        if tenant not in self._sizes:
            self._wanted.add(tenant)
        return self._sizes.get(tenant, 0)

    async def list(
        self,
        selection: Range | AllSpaces,
        *,
        at_least: int | None = None,  # noqa: ARG002
        exact: int | None = None,  # noqa: ARG002
        after: tuple[str, str, str] | None = None,  # noqa: ARG002
        limit: int = 0,  # noqa: ARG002
        cached: bool = False,  # noqa: ARG002
    ) -> Listing:
        """A range, whole."""
        assert isinstance(selection, Range)  # noqa: S101 - decisions look into single spaces
        if selection not in self._ranges:
            self._wanted.add(selection)
            return Listing((), self.revision)
        return self._ranges[selection]
