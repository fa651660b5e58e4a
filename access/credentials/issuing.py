"""Issues kubeconfigs for a workspace, and tokens to logins, in the one order that leaves no unrecorded token (GW3, GW9).

Ownership → active, under the row's lock → rate limit → row and record committed → token → YAML. No record, no token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.views.decorators.debug import sensitive_variables

from access.credentials.clustertokens import cluster_access
from access.credentials.intents import LIFE, Intent, intend, intend_for_tenant
from access.credentials.logins import TOKEN_SECONDS, login_end
from access.credentials.portaltokens import own_apiserver, portal_access, portal_token, signing_in_access
from access.models import Credential, Login
from audit.recorder import Actor
from kube.authentication.kubeconfig import Access, write_kubeconfig
from kube.authentication.portaltokens import AUDIENCE
from kube.requests.status import Conflict
from tenants.models import CredentialKind


@dataclass(frozen=True, slots=True)
class IssuedKubeconfig:
    """A kubeconfig by one of the cluster's ways: ``yaml`` is for the one answer that carries it (``no-store``).

    ``credential`` is the one that it holds, ``None`` where it holds no secret.
    """

    kind: str
    credential: Credential | None
    yaml: str = field(repr=False)


@sensitive_variables()
def kubeconfig_issue(
    *,
    actor: Actor,
    workspace_id: UUID,
    role: str = "",
    kind: str = "",
    minutes: int = 0,
    at_cluster: bool = False,
    now: datetime,
) -> IssuedKubeconfig:
    """A kubeconfig for a workspace, with a token for two hours at most (or so many ``minutes``), or without a secret.

    ``role`` is ``admin``, ``editor`` or ``viewer``, by default the highest that the actor's membership allows; ``kind``
    one that the workspace's cluster offers, by default the one that it recommends. ``at_cluster`` makes a ``gateway`` one
    for the cluster itself, which asks about its token; nobody else takes it. Raises ``NotFound`` for a workspace
    that is not the actor's to know of, ``Invalid`` for less than ten minutes or more than two hours, ``Forbidden`` for a
    role above the actor's, ``Conflict`` while it is not ready or suspended and for a kind that is not offered,
    ``TooManyRequests``, ``ServiceUnavailable`` when the cluster cannot be reached or does not answer as agreed; then
    nothing is left behind.
    """
    life = timedelta(minutes=minutes) if minutes else LIFE
    intent = intend(actor, workspace_id, role, kind, now, life=life, at_cluster=at_cluster)
    access = workspace_access(actor, intent, role, now)
    return IssuedKubeconfig(intent.kind, intent.credential, write_kubeconfig([access]))


@sensitive_variables()
def workspace_access(actor: Actor, intent: Intent, role: str, now: datetime) -> Access:
    """The context of a file for what is committed. Raises as ``kubeconfig_issue`` does."""
    workspace, kind, credential, life, audience = intent
    place, namespace = workspace.name, workspace.k8s_namespace
    if credential is None:
        tenant = workspace.tenant_id
        return signing_in_access(
            own_apiserver(), tenant, role, place=place, namespace=namespace, workspace=workspace.pk
        )
    if kind == CredentialKind.DIRECT:
        return cluster_access(actor, workspace, credential, life, now)
    token = portal_token(credential, now=now, expires_at=now + life, audience=audience)
    server = own_apiserver() if audience == AUDIENCE else workspace.cluster
    return portal_access(credential, server, token, place=place, namespace=namespace)


@sensitive_variables()
def login_token_issue(
    *, actor: Actor, login: Login, tenant: str, workspace_id: UUID | None, role: str, now: datetime
) -> tuple[str, datetime]:
    """A token for the API server by a living login, for a workspace or for a tenant's space, and when it ends.

    A login has one credential for each place and role, which is recorded once, and lives as long as the session; each
    token of it lives ten minutes. Raises as ``kubeconfig_issue`` does, ``Forbidden`` for a credential that was revoked.
    """
    if workspace_id is not None:
        credential = intend(actor, workspace_id, role, CredentialKind.EXEC, now, login=login, limited=False).credential
    else:
        if CredentialKind.EXEC not in own_apiserver().credential_kinds:
            raise Conflict("The tenant's space is not offered to who signs in by tenantry-login.", kind="tenants")
        credential = intend_for_tenant(actor, tenant, role, CredentialKind.EXEC, now, login=login)
    assert credential is not None  # noqa: S101 - a login always gets one
    ends = min(now + timedelta(seconds=TOKEN_SECONDS), login_end(login))
    return portal_token(credential, now=now, expires_at=ends), ends
