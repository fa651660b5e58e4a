"""Keystone's tokens, scopes and roles as values (AN7, AN10; OpenStack Identity API v3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kube.authentication.userinfo import is_strings, name_reasons
from kube.requests.logicalclusters import ROOT, is_tenant_space
from kube.requests.requestinfo import RequestInfo

ROLES_MAX: Final = 200
_DELEGATIONS: Final = ("application_credential", "OS-TRUST:trust", "OS-OAUTH1")


@dataclass(frozen=True, slots=True)
class Scope:
    """What a Keystone role assignment is about: the whole system, a domain, or a project of a domain.

    Empty ``domain`` is the system scope, empty ``project`` a domain's. ``domain`` is the id, ``project`` the name.
    """

    domain: str = ""
    project: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The ``scope`` of an authentication request."""
        if not self.domain:
            return {"system": {"all": True}}
        if not self.project:
            return {"domain": {"id": self.domain}}
        return {"project": {"name": self.project, "domain": {"id": self.domain}}}

    def __str__(self) -> str:
        return f'project "{self.project}"' if self.project else "the domain" if self.domain else "the system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What Keystone says about a token.

    ``scope`` and ``roles`` are those the token itself has: none for an unscoped one. A ``delegated`` token
    (application credential, trust) stands for part of its user's rights only. ``issued`` (0 where Keystone does not
    say) and ``expires`` are in Unix seconds.
    """

    user: str
    user_id: str
    domain: str
    domain_id: str
    scope: Scope | None
    roles: tuple[str, ...]
    delegated: bool
    audit_id: str
    expires: float
    issued: float = 0.0
    project_id: str = ""

    def extra(self) -> dict[str, tuple[str, ...]]:
        """The keys of ``extra`` that k8s-keystone-auth sets, without the roles: those depend on the request."""
        extra: dict[str, tuple[str, ...]] = {
            "alpha.kubernetes.io/identity/user/domain/id": (self.domain_id,),
            "alpha.kubernetes.io/identity/user/domain/name": (self.domain,),
        }
        if self.scope is not None and self.scope.project:
            extra["alpha.kubernetes.io/identity/project/id"] = (self.project_id,)
            extra["alpha.kubernetes.io/identity/project/name"] = (self.scope.project,)
        return extra


def token_of(body: Mapping[str, Any]) -> Token:
    """The token in an answer of ``/v3/auth/tokens``. Raises ``ValueError`` for anything else."""
    token = _mapping(body, "token")
    user = _mapping(token, "user")
    domain = _mapping(user, "domain")
    audit_ids = token.get("audit_ids")
    if not is_strings(audit_ids) or not audit_ids:
        raise ValueError("the token has no audit id")
    project = token.get("project")
    return Token(
        user=_name(user, "name"),
        user_id=_name(user, "id"),
        domain=_name(domain, "name"),
        domain_id=_name(domain, "id"),
        scope=_scope(token),
        roles=_roles(token),
        delegated=any(key in token for key in _DELEGATIONS),
        audit_id=str(audit_ids[0]),
        expires=_moment(token.get("expires_at")),
        issued=_moment(token["issued_at"]) if "issued_at" in token else 0.0,
        project_id=_name(project, "id") if isinstance(project, dict) else "",
    )


def scope_of(request: RequestInfo, domain: str) -> Scope | None:
    """The scope whose roles decide about the request (AN10): cluster → system, tenant → domain, namespace → project.

    ``domain`` is the id of the domain of the request's tenant, empty when it has none. ``None`` where Keystone has no
    say: non-resource requests, several tenants at once, workspaces, spaces without domain.
    """
    if not request.is_resource or request.all_tenants:
        return None
    if request.cluster == ROOT and not request.namespace:
        return Scope()
    if not domain or not (request.cluster == ROOT or is_tenant_space(request.cluster)):
        return None
    return Scope(domain, request.namespace)


def _scope(token: Mapping[str, Any]) -> Scope | None:
    if "project" in token:
        project = _mapping(token, "project")
        return Scope(_name(_mapping(project, "domain"), "id"), _name(project, "name"))
    if "domain" in token:
        return Scope(_name(_mapping(token, "domain"), "id"))
    if "system" in token and _mapping(token, "system").get("all") is True:
        return Scope()
    return None


def _roles(token: Mapping[str, Any]) -> tuple[str, ...]:
    roles = token.get("roles", [])
    if not isinstance(roles, list) or len(roles) > ROLES_MAX or not all(isinstance(role, dict) for role in roles):
        raise ValueError("the token's roles are not a list")
    return tuple(_name(role, "name") for role in roles)


def _moment(value: Any) -> float:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    if moment is None or moment.tzinfo is None:
        raise ValueError("the token has no end")
    return moment.timestamp()


def _mapping(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = of.get(key)
    if not isinstance(value, dict):
        raise ValueError(f"the answer has no {key}")  # noqa: TRY004
    return value


def _name(of: Mapping[str, Any], key: str) -> str:
    value = of.get(key)
    if not isinstance(value, str) or name_reasons(value):
        raise ValueError(f"the answer has no usable {key}")
    return value
