"""The services of the floor below, as the API server calls them: in a thread, with the connections looked after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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


def _call(service: Callable[[], Any]) -> None:
    from django.db import close_old_connections

    close_old_connections()
    try:
        service()
    finally:
        close_old_connections()
