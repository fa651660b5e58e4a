"""The services of the floor below, as the API server calls them: in a thread, with the connections looked after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import orjson

from access.authentication.impersonation import NAME as IMPERSONATION
from gateway.http.messages import Request
from kube.authentication.identity import Principal
from kube.requests.status import Forbidden
from store.types import Operation, Stored

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, already authorised, for the audit; ``operator`` is set for users of the system tenant.

    With ``dry_run`` all is judged and nothing kept.
    """

    name: str
    operator: bool = False
    user_agent: str = ""
    request_id: str = ""
    dry_run: bool = False


def in_person(principal: Principal) -> str:
    """The name of who asks. Raises ``Forbidden`` for an impersonated identity.

    What services do is sealed in the audit chain as that person's doing, and counts against that person's limits.
    """
    if principal.authenticator == IMPERSONATION:
        raise Forbidden(
            f'"{principal.name}" is impersonated: tenants and namespaces on clusters are made and ended in one\'s own name; '
            "leave Impersonate-User (--as) out"
        )
    return principal.name


def caller_of(request: Request) -> Caller:
    """Who asks. Raises ``Forbidden`` as ``in_person``."""
    principal = request.principal
    return Caller(
        name=in_person(principal),
        operator=principal.is_system,
        user_agent=request.user_agent,
        request_id=request.audit_id,
        dry_run=request.dry_run,
    )


def never_kept(stored: Stored, revision: int = 0) -> Stored:
    """An object that a dry run has made, or changed at ``revision``, as it is shown."""
    body = orjson.loads(stored.data)
    body["metadata"].pop("resourceVersion", None)
    if revision:
        body["metadata"]["resourceVersion"] = str(revision)
    return Stored(stored.key, revision, orjson.dumps(body))


class TenantServices:
    """Tenants' services, each of which answers with the object as it is then, in a dry run as it would be."""

    def create(
        self,
        *,
        caller: Caller,
        name: str,
        display_name: str = "",
        body: Mapping[str, Any] | None = None,
        held: Sequence[Operation] = (),
    ) -> Stored:
        """See ``tenants.services.tenants.tenant_create``."""
        from tenants.services.tenants import tenant_create

        actor = _actor(caller)

        def create() -> None:
            tenant_create(actor=actor, name=name, display_name=display_name, body=body, held=held)

        return _call_on_tenant(name, create, dry_run=caller.dry_run)

    def change(self, *, caller: Caller, name: str, display_name: str, together: Sequence[Operation]) -> Stored:
        """See ``tenants.services.tenants.tenant_change``."""
        from tenants.services.tenants import tenant_change

        actor = _actor(caller)

        def change() -> None:
            tenant_change(actor=actor, name=name, display_name=display_name, together=together)

        return _call_on_tenant(name, change, dry_run=caller.dry_run)

    def delete(self, *, caller: Caller, name: str, together: Sequence[Operation]) -> Stored:
        """See ``tenants.services.tenants.tenant_delete``."""
        from tenants.services.tenants import tenant_delete

        actor = _actor(caller)

        def delete() -> None:
            tenant_delete(actor=actor, name=name, together=together)

        return _call_on_tenant(name, delete, dry_run=caller.dry_run)

    def order_namespace(
        self,
        *,
        caller: Caller,
        tenant: str,
        cluster: str,
        tier: str,
        body: Mapping[str, Any],
        held: Sequence[Operation],
    ) -> Stored:
        """See ``tenants.services.namespaces.namespace_order``."""
        from tenants.services.namespaces import namespace_order

        actor = _actor(caller)
        return _call(
            lambda: namespace_order(caller=actor, tenant=tenant, cluster=cluster, tier=tier, body=body, held=held),
            dry_run=caller.dry_run,
        )

    def end_namespace(self, *, caller: Caller, tenant: str, workspace_id: UUID) -> Stored | None:
        """See ``tenants.services.namespaces.namespace_end``."""
        from tenants.services.namespaces import namespace_end

        actor = _actor(caller)
        return _call(
            lambda: namespace_end(caller=actor, tenant=tenant, workspace_id=workspace_id), dry_run=caller.dry_run
        )


def _actor(caller: Caller) -> Any:
    from audit.recorder import Actor

    return Actor(name=caller.name, operator=caller.operator, user_agent=caller.user_agent, request_id=caller.request_id)


def _call_on_tenant(name: str, service: Callable[[], None], *, dry_run: bool) -> Stored:
    """Call a service, and see the tenant's object as it has left it: once that is kept, a worker may end the tenant."""
    from django.db import transaction

    from tenants.rights import tenant_unknown
    from tenants.spaces import tenant_object

    def called() -> Stored:
        with transaction.atomic():
            service()
            stored = tenant_object(name)
            if stored is None:
                raise tenant_unknown(name)
            return stored

    return _call(called, dry_run=dry_run)


def _call(service: Callable[[], T], *, dry_run: bool = False) -> T:
    from django.db import close_old_connections, transaction

    close_old_connections()
    try:
        if not dry_run:
            return service()
        with transaction.atomic():
            # The service itself judges. What it writes, and what is to follow once that is kept, goes with the transaction.
            result = service()
            transaction.set_rollback(True)
            return result
    finally:
        close_old_connections()
