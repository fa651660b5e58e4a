"""Acting as somebody else by ``Impersonate-*`` headers, as Kubernetes does, and never across tenants.

What is asked for is checked by the verb ``impersonate`` on users, groups, serviceaccounts, userextras and uids in the
space of the caller's own tenant, whatever the request itself is about. A caller from a workspace, such as one of its
service accounts, can therefore never act as somebody who is more than the workspace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from kube.claims import is_own_extra, tenant_reasons
from kube.identity import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    SERVICE_ACCOUNT_PREFIX,
    SERVICE_ACCOUNTS,
    SYSTEM_TENANT,
    TENANT_EXTRA,
    UNAUTHENTICATED,
    Principal,
)
from kube.impersonation import Permission, Wish, permissions, wish_of
from kube.logicalclusters import full_path, space_of
from kube.names import is_tenant_name
from kube.requestinfo import RequestInfo
from kube.status import BadRequest, Forbidden
from kube.verdicts import Decision

Authorize = Callable[[Principal, RequestInfo], Awaitable[Decision]]

NAME: Final = "impersonation"
"""The ``authenticator`` of an impersonated identity: no step takes it for one that came by itself."""

_VERSIONS: Final = {"": "v1", "authentication.k8s.io": "v1"}
_OPEN_GROUPS: Final = frozenset({AUTHENTICATED, UNAUTHENTICATED, SERVICE_ACCOUNTS})


async def impersonate(
    caller: Principal, headers: Iterable[tuple[bytes, bytes]], authorize: Authorize
) -> Principal | None:
    """Whom the request is served for; ``None`` when it asks for nobody else.

    ``headers`` are the raw ones, all of them, names in any case. Raises ``BadRequest`` for headers that mean nothing
    and ``Forbidden`` where the caller may not.
    """
    wish = wish_of(headers)
    if wish is None:
        return None
    if caller.tenant is None:
        raise Forbidden("only a user of a tenant can impersonate")
    tenant = _tenant(caller, wish)
    _check_reserved(caller, wish, tenant)
    for permission in permissions(wish):
        info = _request(permission, caller.tenant)
        decision = await authorize(caller, info)
        if not decision.allowed:
            raise _forbidden(caller, info, decision)
    return Principal(
        name=wish.user,
        uid=wish.uid,
        groups=wish.all_groups(),
        extra={key: values for key, values in wish.extra.items() if key != TENANT_EXTRA},
        tenant=None if wish.user == ANONYMOUS else tenant,
        authenticator=NAME,
        cluster=space_of(tenant) if wish.service_account is not None else None,
        credential_id=caller.credential_id,
        not_after=caller.not_after,
    )


def _tenant(caller: Principal, wish: Wish) -> str:
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


def _check_reserved(caller: Principal, wish: Wish, tenant: str) -> None:
    """Names that no permission gives: they would reach further than whoever handed the permission out."""
    for key in wish.extra:
        if is_own_extra(key) and key != TENANT_EXTRA:
            raise Forbidden(f'extra "{key}" cannot be impersonated')
    if MASTERS in wish.groups and not (caller.is_system and MASTERS in caller.groups):
        raise Forbidden(f'only members of "{MASTERS}" can impersonate the group')
    if wish.service_account is not None and tenant != SYSTEM_TENANT and not is_tenant_name(tenant):
        raise BadRequest("a tenant of this name has no service accounts")
    if caller.is_system:
        return
    if wish.user.startswith("system:") and wish.user != ANONYMOUS and not wish.user.startswith(SERVICE_ACCOUNT_PREFIX):
        raise Forbidden('users that begin with "system:" can be impersonated by the system tenant alone')
    for group in wish.groups:
        if group.startswith("system:") and group not in _OPEN_GROUPS and not group.startswith(f"{SERVICE_ACCOUNTS}:"):
            raise Forbidden('groups that begin with "system:" can be impersonated by the system tenant alone')


def _request(permission: Permission, tenant: str) -> RequestInfo:
    cluster, version = space_of(tenant), _VERSIONS[permission.group]
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
        tenant=tenant,
        verb="impersonate",
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
