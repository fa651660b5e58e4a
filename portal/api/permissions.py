"""What a token's scope opens, and for which tenant; what a person may do is decided by the services."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from access.models import PersonalAccessToken
from audit.recorder import Actor
from kube.requests.status import Forbidden, NotFound, ServiceUnavailable
from portal.database.scopes import everything
from portal.http.actors import actor_of, require_pace
from tenants.suspensions import installation_closed

_Scope = PersonalAccessToken.Scope


class Scoped(BasePermission):
    """Signed in; what an endpoint's ``read_methods`` name needs any scope, the rest ``write`` or ``operate``.

    What a route does decides, not its method: a question that is posted is reading, a kubeconfig that is fetched is not.
    Sessions have all scopes.
    """

    message = "The token's scope does not allow this."

    def has_permission(self, request: Request, view: Any) -> bool:
        """Whether the request may go on to the service. Raises ``ServiceUnavailable`` while the platform is closed."""
        if not request.user.is_authenticated:
            return False
        with everything():
            closed = installation_closed()
        if closed and not request.user.is_staff:
            raise ServiceUnavailable(closed)
        token: Any = request.auth
        require_pace(request._request, request.user)  # noqa: SLF001 - DRF's keeps no notes
        if request.method in view.read_methods:
            return True
        if request.user.is_auditor and not view.personal:
            self.message = "Auditors see everything and change nothing."
            return False
        return token is None or token.scope in {_Scope.WRITE, _Scope.OPERATE}


def api_actor(request: Request) -> Actor:
    """The caller as an actor: an operator only with a session or a token of scope ``operate`` for all tenants."""
    actor = actor_of(request)
    token: Any = request.auth
    if token is not None and token.tenant_id:
        actor = replace(actor, auditor=False)
    if token is not None and (token.scope != _Scope.OPERATE or token.tenant_id):
        actor = replace(actor, operator=False)
    return actor


def api_operator(request: Request) -> Actor:
    """The caller, who is an operator. Raises ``Forbidden``."""
    actor = api_actor(request)
    if not actor.operator:
        raise Forbidden("Only operators may do this, with a session or a token of the scope operate.")
    return actor


def api_overseer(request: Request) -> Actor:
    """The caller, who sees the whole platform: an operator as ``api_operator``, or an auditor. Raises ``Forbidden``."""
    actor = api_actor(request)
    if not actor.sees_all:
        raise Forbidden("Only operators and auditors may see this, with a session or a token for all tenants.")
    return actor


def token_tenant(request: Request) -> str:
    """The one tenant that the caller's token is good for; empty for all."""
    return getattr(request.auth, "tenant_id", None) or ""


def require_tenant(request: Request, tenant: str) -> None:
    """NotFound when the token is for another tenant: it knows of no other."""
    if token_tenant(request) not in {"", tenant}:
        raise NotFound(f'tenants "{tenant[:63]}" not found', kind="tenants", name=tenant[:63])


def require_unbound(request: Request) -> None:
    """Forbidden for tokens of one tenant: what follows concerns all of them."""
    if token_tenant(request):
        raise Forbidden("This token is for one tenant only.")
