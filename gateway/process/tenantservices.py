"""The services of the floor below, as the API server calls them: in a thread, with the connections looked after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from access.authentication.impersonation import NAME as IMPERSONATION
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


class TenantServices:
    """Tenants' services. ``user`` is who asks, already authorised, for the audit."""

    def create(
        self, *, user: str, name: str, display_name: str, labels: dict[str, str], annotations: dict[str, str]
    ) -> None:
        """See ``tenants.services.tenants.tenant_create``."""
        from audit.recorder import Actor
        from tenants.services.tenants import tenant_create

        actor = Actor(name=user, operator=True)
        _call(
            lambda: tenant_create(
                actor=actor, name=name, display_name=display_name, labels=labels, annotations=annotations
            )
        )

    def delete(self, *, user: str, name: str) -> None:
        """See ``tenants.services.tenants.tenant_delete``."""
        from audit.recorder import Actor
        from tenants.services.tenants import tenant_delete

        actor = Actor(name=user, operator=True)
        _call(lambda: tenant_delete(actor=actor, name=name))

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
