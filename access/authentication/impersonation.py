"""Acting as somebody else by ``Impersonate-*`` headers, as Kubernetes does, and never across tenants.

What is asked for is checked by the verb ``impersonate``, or by the finer ones (``kube.authentication.impersonation``), on
users, groups, serviceaccounts, nodes, userextras and uids in the logical cluster that the request is for, and the identity
counts in that one alone: who may act as others in a workspace is somebody else there and nowhere else, and whoever is
closed out of a workspace does not enter it as another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from access.authentication.serviceaccount import NODE_NAME
from kube.authentication.identity import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    SERVICE_ACCOUNT_PREFIX,
    SERVICE_ACCOUNTS,
    TENANT_EXTRA,
    UNAUTHENTICATED,
    Principal,
    is_masters,
)
from kube.authentication.impersonation import (
    ASSOCIATED_NODE,
    PLAIN,
    PREFIX,
    ImpersonationRequest,
    Permission,
    impersonation_request_of,
    needed,
    ways,
)
from kube.authentication.userinfo import is_own_extra, tenant_reasons
from kube.authorization.decisions import Decision
from kube.requests.logicalclusters import full_path, space_of, tenant_of
from kube.requests.names import SYSTEM_TENANT, is_tenant_name
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import BadRequest, Forbidden
from tenants.clusters.objects import is_own_account

Authorize = Callable[[Principal, RequestInfo], Awaitable[Decision]]

Resolve = Callable[[str | None], RequestInfo]
"""What the request is for when a user of this tenant sends it."""

NAME: Final = "impersonation"
"""The ``authenticator`` of an impersonated identity: no step takes it for one that came by itself."""

_VERSIONS: Final = {"": "v1", "authentication.k8s.io": "v1"}
_NODE_KEYS: Final = "authentication.kubernetes.io/associated-node-keys"
_OPEN_GROUPS: Final = frozenset({AUTHENTICATED, UNAUTHENTICATED, SERVICE_ACCOUNTS})


def asks_for_another(names: Iterable[bytes]) -> bool:
    """Whether ``impersonate`` has anything to look at, by the names of the headers: one look at all, for most have none."""
    return PREFIX in b"\n".join(names).lower()


async def impersonate(
    caller: Principal, headers: Iterable[tuple[bytes, bytes]], resolve: Resolve, authorize: Authorize
) -> Principal | None:
    """Whom the request is served for; ``None`` when it asks for nobody else.

    ``headers`` are the raw ones, all of them, names in any case. Raises ``BadRequest`` for headers that mean nothing
    and ``Forbidden`` where the caller may not, and what ``resolve`` raises.
    """
    wish = impersonation_request_of(headers)
    if wish is None:
        return None
    if caller.tenant is None:
        raise Forbidden("only a user of a tenant can impersonate")
    tenant = _tenant(caller, wish)
    _check_reserved(caller, wish, tenant)
    acting = None if wish.user == ANONYMOUS else tenant
    asked = resolve(acting)
    refused: dict[str, _Refused] = {}
    for way in ways(wish, _node_of(caller)):
        missing = await _missing(caller, wish, way, asked, authorize)
        if missing is None:
            break
        refused[way] = missing
    else:
        raise _forbidden(caller, *refused[PLAIN])
    return Principal(
        name=wish.user,
        uid=wish.uid,
        groups=wish.all_groups(way),
        extra={key: values for key, values in wish.extra.items() if key != TENANT_EXTRA},
        tenant=acting,
        authenticator=NAME,
        cluster=_home(asked.cluster, tenant) if wish.service_account is not None else None,
        scope=asked.cluster,
        namespace=caller.namespace,
        credential_id=caller.credential_id,
        not_after=caller.not_after,
    )


class _Refused(NamedTuple):
    """What somebody may not, and the decision on it."""

    info: RequestInfo
    decision: Decision


async def _missing(
    caller: Principal, wish: ImpersonationRequest, way: str, asked: RequestInfo, authorize: Authorize
) -> _Refused | None:
    """The first thing that the caller may not of what a way takes; ``None`` where it is open."""
    if way == ASSOCIATED_NODE:
        # As in Kubernetes: the question is not about this one pod and node.
        caller = replace(caller, extra={_NODE_KEYS: tuple(sorted(caller.extra))})

    async def refusal(info: RequestInfo) -> _Refused | None:
        decision = await authorize(caller, info)
        return None if decision.allowed else _Refused(info, decision)

    if way != PLAIN:
        on_this = await refusal(replace(asked, verb=f"impersonate-on:{way}:{asked.verb}"))
        if on_this is not None:
            return on_this
    verb = f"impersonate:{way}" if way != PLAIN else "impersonate"
    for need in needed(wish, way):
        if need.instead is not None and await refusal(_request(verb, need.instead, asked)) is None:
            continue
        for permission in need.each:
            missing = await refusal(_request(verb, permission, asked))
            if missing is not None:
                return missing
    return None


def _node_of(caller: Principal) -> str:
    """The node that a service account's pod runs on, empty for everybody else."""
    names = caller.extra.get(NODE_NAME, ()) if caller.cluster is not None else ()
    return names[0] if len(names) == 1 else ""


def _tenant(caller: Principal, wish: ImpersonationRequest) -> str:
    """The caller's own tenant, or the one that an operator names."""
    assert caller.tenant is not None  # noqa: S101 - impersonate has looked
    named = wish.extra.get(TENANT_EXTRA)
    if named is None:
        return caller.tenant
    if len(named) != 1 or tenant_reasons(named[0]):
        raise BadRequest(f"{TENANT_EXTRA} must be the name of one tenant")
    if named[0] != caller.tenant and not caller.is_system:
        raise Forbidden("only users of the system tenant can impersonate users of other tenants")
    return named[0]


def _home(cluster: str, tenant: str) -> str:
    """Where the account of the name lives that is meant in a logical cluster."""
    return cluster if tenant_of(cluster) == tenant else space_of(tenant)


def _check_reserved(caller: Principal, wish: ImpersonationRequest, tenant: str) -> None:
    """Names that no permission gives: they would reach further than whoever handed the permission out."""
    for key in wish.extra:
        if is_own_extra(key) and key != TENANT_EXTRA:
            raise Forbidden(f'extra "{key}" cannot be impersonated')
    if MASTERS in wish.groups and not is_masters(caller):
        raise Forbidden(f'only members of "{MASTERS}" can impersonate the group')
    if wish.service_account is not None and tenant != SYSTEM_TENANT and not is_tenant_name(tenant):
        raise BadRequest("a tenant of this name has no service accounts")
    if caller.is_system:
        return
    if wish.service_account is not None and is_own_account(*wish.service_account):
        raise Forbidden("a workspace's own accounts can be impersonated by the system tenant alone")
    if wish.user.startswith("system:") and wish.user != ANONYMOUS and not wish.user.startswith(SERVICE_ACCOUNT_PREFIX):
        raise Forbidden('users that begin with "system:" can be impersonated by the system tenant alone')
    for group in wish.groups:
        if group.startswith("system:") and group not in _OPEN_GROUPS and not group.startswith(f"{SERVICE_ACCOUNTS}:"):
            raise Forbidden('groups that begin with "system:" can be impersonated by the system tenant alone')


def _request(verb: str, permission: Permission, asked: RequestInfo) -> RequestInfo:
    cluster, version = asked.cluster, _VERSIONS[permission.group]
    return RequestInfo(
        method="POST",
        path=full_path(
            cluster,
            permission.group,
            version,
            permission.resource,
            namespace=permission.namespace,
            name=permission.name,
            subresource=permission.subresource,
        ),
        cluster=cluster,
        tenant=asked.tenant,
        all_tenants=asked.all_tenants,
        verb=verb,
        is_resource=True,
        group=permission.group,
        version=version,
        resource=permission.resource,
        subresource=permission.subresource,
        namespace=permission.namespace,
        name=permission.name,
    )


def _forbidden(caller: Principal, info: RequestInfo, decision: Decision) -> Forbidden:
    """The 403 in kube-apiserver's words."""
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    qualified = f"{info.resource}.{info.group}" if info.group else info.resource
    where = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    why = f": {decision.reason}" if decision.reason else ""
    return Forbidden(
        f'{qualified} "{info.name}" is forbidden: User "{caller.name}" cannot impersonate resource "{resource}" '
        f'in API group "{info.group}" {where}{why}',
        group=info.group,
        kind=info.resource,
        name=info.name,
    )
